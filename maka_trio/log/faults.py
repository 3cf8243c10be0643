"""SQLite's errors as the public tree names them. Knows error codes, no tables.

Translation happens where SQLite is called; nothing above the store ever sees a `sqlite3.Error`.
"""

from __future__ import annotations

import errno
import sqlite3
import struct
from collections.abc import Generator
from contextlib import contextmanager

from maka_trio.errors import LogCorrupt, LogFull, MakaError, StoreError

_FULL = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_TRUNCATE")
_CORRUPT = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_MISFITS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, struct.error)
"""What Python says of a value of another type or size than a column should hold."""

_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")


def error_name(error: sqlite3.Error) -> str:
    """SQLite's own name of the error, such as `SQLITE_FULL`; empty where the error is Python's."""
    return getattr(error, "sqlite_errorname", "") or ""


def is_full(error: sqlite3.Error) -> bool:
    """There was no space, or a write to the file was refused: nothing of the transaction is in the log."""
    return error_name(error).startswith(_FULL)


def is_locked(error: sqlite3.Error) -> bool:
    """A foreign lock outlasted the busy timeout."""
    return error_name(error).startswith(_LOCKED)


def is_corrupt(error: sqlite3.Error) -> bool:
    """The file is damaged."""
    return error_name(error).startswith(_CORRUPT)


def is_misread(error: sqlite3.Error) -> bool:
    """The file holds something that Python's module cannot make a value of; it has no code for that."""
    return not error_name(error) and type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError)


def store_error(error: sqlite3.Error, doing: str) -> StoreError:
    """The error of our tree for a failure while `doing` something that the caller can name."""
    text = f"{doing}: {error} ({error_name(error) or type(error).__name__})"
    if is_full(error):
        return LogFull(text)
    if is_corrupt(error) or is_misread(error):
        return LogCorrupt(text)
    return StoreError(text)


def os_error(error: OSError, doing: str) -> StoreError:
    """The same for an error of the file system itself."""
    kind = LogFull if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else StoreError
    return kind(f"{doing}: {error.strerror or error}")


@contextmanager
def translated(doing: str) -> Generator[None, None, None]:
    """Raise SQLite's errors of the block as ours, and what comes of values that no column of ours holds."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, doing) from error
    except MakaError:
        raise
    except _MISFITS as error:
        raise LogCorrupt(f"{doing}: something is not what it should be ({error})") from error
