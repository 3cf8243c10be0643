"""How many processors there are for this process."""

from __future__ import annotations

import os


def processors() -> int:
    """Those that it may run on, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
