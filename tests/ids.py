"""Names of test parameters that are the same in every process."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """`repr`, without the address that objects without one of their own show."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
