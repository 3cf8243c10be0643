"""A copy of a whole log, made while it is in use. Knows SQLite's own backup."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from maka_trio.errors import StoreError
from maka_trio.facts.scope import Root
from maka_trio.log import queries
from maka_trio.log.faults import os_error, translated
from maka_trio.log.lease import COPYING, Lease
from maka_trio.log.placing import check_free, place_new
from maka_trio.log.queries import Head
from maka_trio.log.reader import Reader

PAGES_AT_ONCE = 1024
"""Pages copied between two looks at whether the copy is still wanted."""


def backup(reader: Reader, target: Path) -> Head:
    """Copy the log, as it is at one moment, into a new file; return where the copy ends.

    The file has its name when it is whole and on the disk, and not before.

    Raises:
        StoreError: the target exists, is in use, has files of an earlier log beside it, or cannot be written.
        LogFull: there is no space for it.
        LogCorrupt: the log cannot be read.
    """
    try:
        check_free(target)
        lease = Lease(target)
        try:
            draft = lease.path.with_name(lease.path.name + COPYING)
            head = place_new(lease.path, draft, lease.acknowledged, lambda: _copy(reader, draft))
            if lease.renewed:
                lease.acknowledge(head.high_water)
        finally:
            lease.release(keep=lease.renewed)  # a copy by itself leaves nothing beside it
    except OSError as error:
        raise os_error(error, f"cannot write the backup {str(target)!r}") from error
    return head


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
