"""The number that outlives its writer: up to which sequence a log has acknowledged events, kept in its lock file.

It is written after each commit and before anybody is told of it, through shared memory, which survives a kill and
costs no call of the system. It is never synced, so after a power cut it may be too low, never too high: a log that
ends before it has lost something.
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from typing import Final

_BYTES: Final = 8


class Mark:
    """The number in an open lock file. Only the owner of the lock makes one.

    Args:
        descriptor: the lock file, open for reading and writing.

    Raises:
        OSError: the file cannot be grown or mapped.
    """

    def __init__(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size < _BYTES:
            os.pwrite(descriptor, bytes(_BYTES), 0)  # real bytes: a page without a block would kill us on a full disk
        self._map = mmap.mmap(descriptor, _BYTES)
        self._number = memoryview(self._map).cast("Q")  # one store, so that a kill leaves the old number or the new

    def read(self) -> int:
        """The number as it stands."""
        return self._number[0]

    def write(self, number: int) -> None:
        """Replace it."""
        self._number[0] = number

    def close(self) -> None:
        """Unmap the file; the number stays in it."""
        self._number.release()
        self._map.close()


def read_mark(path: Path) -> int:
    """The number in a lock file that somebody else may hold; 0 where there is none."""
    try:
        with path.open("rb") as file:
            found = file.read(_BYTES)
    except OSError:
        return 0
    return int.from_bytes(found, sys.byteorder) if len(found) == _BYTES else 0
