"""What a log has lost, seen when it is opened: its file, its write-ahead log, its end; and where damage begins.

Opening reads as little as it can, so what is damaged further back shows when it is read. Nothing that was lost is
ever replaced by something new without a word.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from maka_trio.errors import LogCorrupt, StoreError
from maka_trio.log.faults import translated
from maka_trio.log.lease import Lease, lock_path
from maka_trio.log.reader import Reader
from maka_trio.log.salvage import first_damage
from maka_trio.log.schema import open_reader, remains

_NAMES: Final = {"-wal": "write-ahead log", "-journal": "journal"}


def check_presence(lease: Lease) -> None:
    """Refuse to begin a new log in the place of one that has gone.

    Raises:
        LogCorrupt: the log's file is gone, and its write-ahead log, its journal or its acknowledged events say that
            it was there.
    """
    path = lease.path
    if path.exists():
        return
    left = remains(path)
    if left is not None:
        raise LogCorrupt(
            f"{str(path)!r} is gone and its {_NAMES[left.name[len(path.name) :]]} {str(left)!r} is there; put the file "
            "back, or move that away to begin a new log",
            sequence=1,
        )
    if lease.acknowledged:
        raise LogCorrupt(
            f"{str(path)!r} is gone; it held {lease.acknowledged} acknowledged events. Put it back, or delete "
            f"{str(lock_path(path))!r} to begin a new log",
            sequence=1,
        )


def check_end(lease: Lease, high_water: int) -> None:
    """Compare where the log ends with what its owners acknowledged.

    Raises:
        LogCorrupt: acknowledged events are missing at its end; `sequence` names the first.
    """
    if high_water < lease.acknowledged:
        raise LogCorrupt(
            f"{str(lease.path)!r} ends at event {high_water}, and events up to {lease.acknowledged} were acknowledged: "
            "its write-ahead log was deleted, or an older copy was put in its place. Put the rest back, or delete "
            f"{str(lock_path(lease.path))!r} to go on without it",
            sequence=high_water + 1,
        )


def named(error: LogCorrupt, path: Path) -> LogCorrupt:
    """The same error with the first bad event, where it does not name one and reading the log finds it."""
    if error.sequence is not None:
        return error
    try:
        with translated("looking for the damage"), closing(open_reader(path)) as connection:
            sequence = first_damage(Reader(connection))
    except (StoreError, sqlite3.Error):
        sequence = 1  # not even the tables can be read
    if sequence is None:
        return error
    return LogCorrupt(f"{error.message}; the first event that cannot be read is {sequence}", sequence=sequence)
