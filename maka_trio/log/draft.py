"""One transaction before it is one: rows to insert and updates to make, and how to take a ticket's share back.

Knows the tables and how to fill them in as few statements as possible. Each statement gives up the interpreter lock
and has to win it back, which beside a busy trio thread costs far more than the statement; so many rows travel in one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import attrs

from maka_trio.facts.identity import Invocation
from maka_trio.log.prepared import PreparedWrite
from maka_trio.log.sessions import SessionState
from maka_trio.records import define
from maka_trio.transitions import Undo

Row = tuple[Any, ...]

EVENT_ID: Final = 6
"""Where `event_id` stands in an event's row."""

_INVOCATIONS = "invocations(id, session, turn_id, run_id, invocation_id, opened, fingerprint, continues)"
_MOST_ROWS = 256
_EXACT_ROWS = 32


@define(eq=False)
class Draft:
    """Everything that one transaction will write. `writes` are what `events` were made of."""

    events: list[Row] = attrs.field(factory=list)
    writes: list[PreparedWrite] = attrs.field(factory=list)
    sessions: list[Row] = attrs.field(factory=list)
    invocations: list[Row] = attrs.field(factory=list)
    ends: list[Row] = attrs.field(factory=list)
    marks: list[Row] = attrs.field(factory=list)
    payloads: list[Row] = attrs.field(factory=list)
    artifacts: list[Row] = attrs.field(factory=list)
    messages: list[Row] = attrs.field(factory=list)
    opened: dict[str, Invocation] = attrs.field(factory=dict)
    touched: dict[str, SessionState] = attrs.field(factory=dict)
    undo: Undo = attrs.field(factory=list)

    def add(self, rows: list[Row], row: Row) -> None:
        """Add a row that goes away again with its ticket."""
        rows.append(row)
        self.undo.append(rows.pop)

    def take_back(self, mark: int = 0) -> None:
        """Undo everything since `mark`, which is an earlier length of `undo`."""
        while len(self.undo) > mark:
            self.undo.pop()()

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write it all, inside the transaction that the caller has begun."""
        _insert(connection, "sessions(id, session_id)", self.sessions)
        _insert(connection, _INVOCATIONS, self.invocations)
        _insert(connection, "events", self.events)
        _insert(connection, "heads", self._heads(), verb="INSERT OR REPLACE")
        _insert(connection, "marks", self.marks)
        _insert(connection, "payloads", self.payloads)
        _insert(connection, "artifacts", self.artifacts)
        _insert(connection, "messages", self.messages)
        if self.ends:
            connection.executemany("UPDATE invocations SET ended = ?, outcome = ?, residue = ? WHERE id = ?", self.ends)

    def _heads(self) -> list[Row]:
        return [(s.row, s.head, s.head_fact, s.events) for s in self.touched.values()]


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[Row], *, verb: str = "INSERT") -> None:
    """Insert rows, many to a statement. There are few lengths, so that the statements stay prepared."""
    done = 0
    while done < len(rows):
        left = len(rows) - done
        count = left if left <= _EXACT_ROWS else min(_MOST_ROWS, 1 << (left.bit_length() - 1))
        values = [value for row in rows[done : done + count] for value in row]
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
