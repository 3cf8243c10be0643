"""A copy of a whole log, made while it is in use. Knows SQLite's own backup and how a file gets its name."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from maka_trio.errors import StoreError
from maka_trio.facts.scope import Root
from maka_trio.log import queries
from maka_trio.log.faults import os_error, translated
from maka_trio.log.queries import Head
from maka_trio.log.reader import Reader
from maka_trio.log.schema import sync_folder

PAGES_AT_ONCE = 1024
"""Pages copied between two looks at whether the copy is still wanted."""


def backup(reader: Reader, target: Path) -> Head:
    """Copy the log, as it is at one moment, into a new file; return where the copy ends.

    The file has its name when it is whole and on the disk, and not before.

    Raises:
        StoreError: the target exists, or cannot be written.
        LogFull: there is no space for it.
        LogCorrupt: the log cannot be read.
    """
    draft = target.with_name(target.name + ".copying")
    try:
        return place_new(target, draft, lambda: _copy(reader, draft))
    except OSError as error:
        raise os_error(error, f"cannot write the backup {str(target)!r}") from error


def place_new(target: Path, draft: Path, make: Callable[[], Head]) -> Head:
    """Make a file under another name, see that it is on the disk, and give it its own, which must be free.

    Raises:
        StoreError: the name is taken, or whatever `make` raises.
        OSError: the file system refused.
    """
    if target.exists():
        raise StoreError(f"{str(target)!r} exists and is not overwritten")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        made = make()
        _sync(draft)
        os.link(draft, target)  # unlike a rename it fails where somebody was faster
    except FileExistsError:
        raise StoreError(f"{str(target)!r} exists and is not overwritten") from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    sync_folder(target.parent)
    return made


def _copy(reader: Reader, draft: Path) -> Head:
    def go_on(status: int, remaining: int, total: int) -> None:
        reader.check()

    with translated("copying the log"), closing(sqlite3.connect(draft, isolation_level=None)) as copy:
        with reader.snapshot() as connection:
            end = queries.head_at_end(connection, Root())
            connection.backup(copy, pages=PAGES_AT_ONCE, progress=go_on)
        found = queries.head_at_end(copy, Root())
        if found != end:
            raise StoreError(f"the copy ends at event {found.high_water}, not at {end.high_water} as the log")
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return end


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
