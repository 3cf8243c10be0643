"""Room in the write-ahead log for commits to come. Knows the file that SQLite appends frames to, and not what is in it.

A sync after which a file is longer costs about twice one that finds its bytes overwritten, since the file system then
writes down the new length too. So when a commit has made the file longer, zeros go behind it, and the commits after it
write over them. To SQLite they are what frames of an earlier round are, which it leaves there as well: no frames. Once
the file is as long as a checkpoint lets it become, all commits write over something.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from maka_trio import limits
from maka_trio.log.schema import CHECKPOINT_PAGES

_AHEAD: Final = 256 * limits.KIB
_MOST: Final = CHECKPOINT_PAGES * (4096 + 24)
"""Bytes of as many frames: each a page and its header."""


class Room:
    """Keeps room at the end of the write-ahead log of one file, as long as its owner writes to it.

    Args:
        log: the log's own file.
    """

    def __init__(self, log: Path) -> None:
        self._path = log.with_name(log.name + "-wal")
        self._descriptor = -1
        self._size = 0

    def keep(self) -> None:
        """Make room if the last commit used it up. Between transactions only.

        Where the system refuses, there is none, and commits only take longer.
        """
        with contextlib.suppress(OSError):
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            size = os.lseek(self._descriptor, 0, os.SEEK_END)
            if self._size < size < _MOST:
                size += os.write(self._descriptor, bytes(_AHEAD))  # appended: never over a frame, whoever wrote it
            self._size = size

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
