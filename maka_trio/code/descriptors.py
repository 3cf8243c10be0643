"""Descriptors that a new worker must not inherit.

Python's own descriptors are closed on exec, but a host may hold others: handed down by its parent, made by a C
library, or left inheritable on purpose. Knows nothing of workers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_STANDARD: Final = 2
_TABLE: Final = Path("/dev/fd")
_one_at_a_time: Final = threading.Lock()


@contextmanager
def nothing_inherited() -> Generator[None, None, None]:
    """Spawn in this block, briefly: what the process starts meanwhile inherits the standard streams only.

    The setting belongs to the whole process: a process that another thread starts in these milliseconds inherits
    no more than that either. Each descriptor gets its setting back, unless it became another file meanwhile.
    """
    with _one_at_a_time:
        held = {number: identity for number in _inheritable() if (identity := _identity(number)) is not None}
        for number in held:
            _set_inheritable(number, False)
        try:
            yield
        finally:
            for number, identity in held.items():
                if _identity(number) == identity:
                    _set_inheritable(number, True)


def _inheritable() -> list[int]:
    found = []
    for entry in _TABLE.iterdir():
        number = int(entry.name)
        with suppress(OSError):  # closed by now, the descriptor of the listing among them
            if number > _STANDARD and os.get_inheritable(number):
                found.append(number)
    return found


def _identity(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _set_inheritable(number: int, inheritable: bool) -> None:
    with suppress(OSError):  # closed by another thread
        os.set_inheritable(number, inheritable)
