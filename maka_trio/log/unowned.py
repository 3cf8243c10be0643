"""A log that was left with a write-ahead log and whose owner is gone, read without a trace: in a copy of one's own.

SQLite needs shared memory beside a file with a write-ahead log, and makes it where there is none. An owner that is
alive has it; so a log without it has no owner, and what is in its two files can be copied and read elsewhere. The same
goes for a log on a file system that cannot be written, where nobody can own it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Final, TypeAlias

from maka_trio.errors import LogInUse
from maka_trio.log.faults import os_error
from maka_trio.log.schema import open_reader

State: TypeAlias = tuple[object, ...]
"""What tells changed files from unchanged ones."""

_ATTEMPTS: Final = 100


def state_of(path: Path) -> State:
    """Of a log's files as they are now. Raises OSError where there is none."""
    return _stamp(path), *(_stamp_or_none(path.with_name(path.name + suffix)) for suffix in ("-wal", "-shm"))


def is_unowned(path: Path) -> bool:
    """Whether a log with a write-ahead log cannot have an owner, or not be read as its owner does."""
    shared = path.with_name(path.name + "-shm")
    return not shared.exists() or not os.access(shared, os.W_OK)


def open_copy(path: Path) -> tuple[sqlite3.Connection, State]:
    """A connection to a copy of a log, which nobody else can read and which is gone when the connection is closed.

    Returns:
        The connection, and the state of the files that were copied.

    Raises:
        StoreError: there is no space for it, or the log cannot be read, or is not left alone meanwhile.
    """
    try:
        for _ in range(_ATTEMPTS):
            state = state_of(path)
            connection = _copied(path)
            if state_of(path) == state:
                return connection, state
            connection.close()
    except OSError as error:
        raise os_error(error, f"cannot copy {str(path)!r} to read it") from error
    raise LogInUse(f"{str(path)!r} is being written, and cannot be read as what it was")


def _copied(path: Path) -> sqlite3.Connection:
    with tempfile.TemporaryDirectory(prefix="maka_trio-") as folder:  # which only its owner may enter
        copy = Path(folder) / "log"
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        connection = open_reader(copy)
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens its files, which keeps them
        except sqlite3.DatabaseError:
            pass  # who asks it something is told
        except BaseException:
            connection.close()
            raise
    return connection


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _stamp_or_none(path: Path) -> tuple[int, int, int] | None:
    try:
        return _stamp(path)
    except FileNotFoundError:
        return None
