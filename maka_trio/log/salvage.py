"""Rows of a log as its file has them, also of a damaged one: what cannot be read costs itself and nothing else.

A page that SQLite cannot read is read row by row. What the rows say is nobody's concern here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from sys import getsizeof
from typing import Any, Final, TypeAlias

from maka_trio.limits import MIB
from maka_trio.log.faults import is_corrupt
from maka_trio.log.reader import Reader
from maka_trio.log.rows import Row

_COLUMNS: Final = ", ".join(Row._fields)
_PAGE: Final = f"SELECT {_COLUMNS} FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"
_ONE: Final = f"SELECT {_COLUMNS} FROM events WHERE sequence = ?"
_BODY: Final = Row._fields.index("body")
_LOT: Final = 32
"""Rows fetched between two looks at their size."""

PAGE_BYTES: Final = 8 * MIB
"""Of bodies, after which a page ends."""

Values: TypeAlias = tuple[Any, ...]
"""The columns of one row, of whatever types they are."""


@contextmanager
def at_one_moment(connection: sqlite3.Connection) -> Generator[None, None, None]:
    """Everything read in the block is of one moment, as far as it can be read."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def rows_after(connection: sqlite3.Connection, after: int, count: int) -> tuple[list[Values | int], int]:
    """The next rows, a bare sequence for each that cannot be read, and up to where this looked; no further is the end.

    The values of a row are those of a `Row`. There are at most `count`, and no more after `PAGE_BYTES`.

    Raises:
        sqlite3.Error: for anything but damage.
    """
    rows: list[Values | int] = []
    try:
        cursor = connection.execute(_PAGE, (after, count))
        size = 0
        while size < PAGE_BYTES and (lot := cursor.fetchmany(_LOT)):
            rows += lot
            size += sum([getsizeof(values[_BODY]) for values in lot])
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return _past_damage(connection, after, count)
    return rows, rows[-1][0] if rows else after  # type: ignore[index]


def _past_damage(connection: sqlite3.Connection, after: int, count: int) -> tuple[list[Values | int], int]:
    last = _last(connection)
    rows, end = _one_by_one(connection, after, after + count if last is None else min(after + count, last))
    if last is None and all(isinstance(row, int) for row in rows):
        return rows[:1], after  # nobody knows how many there were, and none can be read: that is the end
    return rows, end


def _one_by_one(connection: sqlite3.Connection, after: int, last: int) -> tuple[list[Values | int], int]:
    rows: list[Values | int] = []
    for sequence in range(after + 1, last + 1):
        try:
            found = connection.execute(_ONE, (sequence,)).fetchone()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            rows.append(sequence)
        else:
            if found is not None:
                rows.append(found)
    return rows, max(last, after)


def _last(connection: sqlite3.Connection) -> int | None:
    """The last sequence by whatever can be read of it."""
    for question in ("SELECT max(sequence) FROM events", "SELECT max(head) FROM heads"):
        try:
            return int(connection.execute(question).fetchone()[0] or 0)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
    return None


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is at fault. Python's own module has no code for a text that is no UTF-8."""
    return is_corrupt(error) or not getattr(error, "sqlite_errorname", None)


def first_damage(reader: Reader) -> int | None:
    """The first row that SQLite cannot read. Looks at rows only, whole, and at nothing beside them."""
    after = 0
    while True:
        rows, end = rows_after(reader.connection, after, 1024)
        damaged = next((row for row in rows if isinstance(row, int)), None)
        if damaged is not None or end == after:
            return damaged
        after = end
