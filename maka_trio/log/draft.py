"""One transaction before it is one: rows to insert and updates to make, and how to take a ticket's share back.

Knows the tables and how to fill them in as few statements as possible. Each statement gives up the interpreter lock
and has to win it back, which beside a busy trio thread costs far more than the statement; so many rows travel in one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import attrs

from maka_trio.facts.identity import Invocation
from maka_trio.log.prepared import PreparedWrite
from maka_trio.log.sessions import Place, SessionState
from maka_trio.records import define
from maka_trio.transitions import Undo

Row = tuple[Any, ...]

EVENT_ID: Final = 6
"""Where `event_id` stands in an event's row."""

SESSIONS: Final = "sessions(id, session_id)"
INVOCATIONS: Final = "invocations(id, session, turn_id, run_id, invocation_id, opened, fingerprint, continues)"
MARKS: Final = "marks"
PAYLOADS: Final = "payloads"
ARTIFACTS: Final = "artifacts"
MESSAGES: Final = "messages"
"""The tables, besides those of events and heads, with the columns that their rows have here."""

_MOST_ROWS = 256
_EXACT_ROWS = 32


@define(eq=False)
class Draft:
    """Everything that one transaction will write. `writes` are what `events` were made of, from `first` on."""

    first: int = 1
    events: list[Row] = attrs.field(factory=list)
    writes: list[PreparedWrite] = attrs.field(factory=list)
    beside: dict[str, list[Row]] = attrs.field(factory=dict)
    """Rows of other tables. Few transactions have any."""
    ends: list[Row] = attrs.field(factory=list)
    opened: dict[str, Invocation] = attrs.field(factory=dict)
    touched: dict[str, SessionState] = attrs.field(factory=dict)
    places: list[tuple[SessionState, Place]] = attrs.field(factory=list)
    """Where sessions stood that streamed text came to before anything else."""
    undo: Undo = attrs.field(factory=list)

    def add(self, table: str, row: Row) -> None:
        """Add a row that goes away again with its ticket."""
        rows = self.beside.setdefault(table, [])
        rows.append(row)
        self.undo.append(rows.pop)

    def end(self, row: Row) -> None:
        """Note how an invocation ended, until its ticket goes away again."""
        self.ends.append(row)
        self.undo.append(self.ends.pop)

    def take_back(self, mark: int) -> None:
        """Undo everything since `mark`, which is an earlier length of `undo`."""
        while len(self.undo) > mark:
            self.undo.pop()()

    def discard(self) -> None:
        """Undo everything."""
        self.take_back(0)
        for session, place in self.places:  # each was noted before anything else of the session was
            session.put_back(place)

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write it all, inside the transaction that the caller has begun."""
        for table, rows in self.beside.items():
            _insert(connection, table, rows)
        _insert(connection, "events", self.events)
        _insert(connection, "heads", self._heads(), verb="INSERT OR REPLACE")
        if self.ends:
            connection.executemany("UPDATE invocations SET ended = ?, outcome = ?, residue = ? WHERE id = ?", self.ends)

    def _heads(self) -> list[Row]:
        return [(s.row, s.head, s.head_fact, s.events) for s in self.touched.values()]


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[Row], *, verb: str = "INSERT") -> None:
    """Insert rows, many to a statement. There are few lengths, so that the statements stay prepared."""
    if len(rows) == 1:  # as in most transactions
        connection.execute(_statement(verb, table, len(rows[0]), 1), rows[0])
        return
    done = 0
    while done < len(rows):
        left = len(rows) - done
        count = left if left <= _EXACT_ROWS else min(_MOST_ROWS, 1 << (left.bit_length() - 1))
        values = list(chain.from_iterable(rows[done : done + count]))
        connection.execute(_statement(verb, table, len(rows[0]), count), values)
        done += count


_STATEMENTS: dict[tuple[str, str, int], str] = {}


def _statement(verb: str, table: str, width: int, count: int) -> str:
    key = (verb, table, count)
    text = _STATEMENTS.get(key)
    if text is None:
        row = f"({','.join('?' * width)})"
        text = _STATEMENTS[key] = f"{verb} INTO {table} VALUES {','.join([row] * count)}"
    return text
