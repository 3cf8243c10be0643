"""Rows out of the tables and back into events. Each function takes a connection; none writes, none keeps one.

Chains are walked by following `previous` from a known end down to where the reader stands, which costs what is read
and nothing else. A session is read forwards from mark to mark.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from maka_trio import limits
from maka_trio.errors import InvalidInput, LogCorrupt
from maka_trio.facts.codec import encode_invocation, join_event
from maka_trio.facts.decoder import read_fact
from maka_trio.facts.event import BodyDeleted, Fact, RuntimeEvent, StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.log.stub import MARK, read_stub
from maka_trio.records import frozen

OBSERVED: Final = "model_observed"

_COLUMNS = (
    "events.sequence, events.invocation, events.kind, events.event_id, events.recorded_at, "
    "events.root_digest, events.session_digest, events.body"
)
_BY_SEQUENCE = f"SELECT {_COLUMNS} FROM events WHERE sequence = ?"
_ROOT = f"SELECT {_COLUMNS} FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"
_CHAIN = """
WITH RECURSIVE chain(sequence, previous) AS (
    SELECT sequence, {link} FROM events WHERE sequence = ?1 AND sequence > ?2
    UNION ALL
    SELECT events.sequence, events.{link} FROM chain CROSS JOIN events ON events.sequence = chain.previous
    WHERE chain.previous > ?2 LIMIT ?3
)
"""
_SESSION = _CHAIN.format(link="previous") + f"SELECT {_COLUMNS} FROM chain CROSS JOIN events USING (sequence)"
_AT = (
    f"SELECT {_COLUMNS}, before.session_digest FROM events "
    "LEFT JOIN events AS before ON before.sequence = events.previous "
    "WHERE events.sequence IN ({marks}) ORDER BY events.sequence"
)
_FACTS = (
    _CHAIN.format(link="previous_fact")
    + "SELECT events.sequence, events.kind, events.operation_id, length(events.body), chain.previous "
    "FROM chain CROSS JOIN events USING (sequence)"
)
_NEXT_MARK = "SELECT sequence FROM marks WHERE session = ? AND sequence > ? ORDER BY sequence LIMIT 1"
_NO_LIMIT = -1


class EventRow(NamedTuple):
    """One row of `events` as it is read."""

    sequence: int
    invocation: int
    kind: str
    event_id: str
    recorded_at: int
    root_digest: bytes
    session_digest: bytes
    body: bytes


class Row(NamedTuple):
    """One row of `events`, whole."""

    sequence: int
    invocation: int
    kind: str
    event_id: str
    recorded_at: int
    root_digest: bytes
    session_digest: bytes
    body: bytes
    session: int
    previous: int
    previous_fact: int
    operation_id: str | None


class FactRow(NamedTuple):
    """What the chain of a session's facts tells without their bodies."""

    sequence: int
    kind: str
    operation_id: str | None
    size: int


@frozen
class SessionHead:
    """Where a session stands: its row, its last event, its last fact that is no observation, how many events."""

    row: int
    head: int
    head_fact: int
    events: int


# --- identities -------------------------------------------------------------------------------------------


class Identities:
    """Identities of invocations by their row, remembered: they never change."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Invocation, bytes]] = {}

    def of(self, connection: sqlite3.Connection, row: int) -> tuple[Invocation, bytes]:
        """The identity and its canonical bytes.

        Raises:
            LogCorrupt: there is no such row.
        """
        known = self._known.get(row)
        if known is None:
            if len(self._known) >= limits.CONTEXT_EVENTS:
                self._known.clear()
            identity = _read_identity(connection, row)
            known = self._known[row] = (identity, encode_invocation(identity))
        return known


def _read_identity(connection: sqlite3.Connection, row: int) -> Invocation:
    found = connection.execute(
        "SELECT sessions.session_id, turn_id, run_id, invocation_id FROM invocations "
        "JOIN sessions ON sessions.id = invocations.session WHERE invocations.id = ?",
        (row,),
    ).fetchone()
    if found is None:
        raise LogCorrupt(f"the log names invocation row {row}, which it does not have")
    try:
        return Invocation(*found)
    except InvalidInput as error:
        raise LogCorrupt(f"invocation row {row} is damaged: {error}") from error


def event_bytes(row: EventRow | Row, identity: bytes) -> bytes:
    """The canonical bytes of the whole event in a row.

    Raises:
        LogCorrupt: the row holds values of other types; `sequence` names it.
    """
    try:
        return join_event(row.event_id, row.recorded_at, identity, row.body)
    except (TypeError, ValueError) as error:
        raise LogCorrupt(f"event {row.sequence} is damaged: {error}", sequence=row.sequence) from error


def stored_event(row: EventRow | Row, identity: Invocation, fact: Fact | None = None) -> StoredEvent:
    """The event in a row. `fact` is what is in its body, where somebody has decoded it.

    Raises:
        LogCorrupt: the row holds no fact; `sequence` names it.
    """
    try:
        return StoredEvent(row.sequence, RuntimeEvent(row.event_id, row.recorded_at, identity, fact or _fact(row)))
    except (InvalidInput, TypeError, ValueError) as error:
        raise LogCorrupt(f"event {row.sequence} is damaged: {error}", sequence=row.sequence) from error


def _fact(row: EventRow | Row) -> Fact:
    if row.body[:1] == MARK:
        return read_stub(row.kind, row.root_digest, row.session_digest, row.body)
    fact = read_fact(row.body, row.kind)
    if type(fact) is BodyDeleted:
        raise InvalidInput("it says that it was deleted, and no deletion writes so")
    return fact


# --- reading ----------------------------------------------------------------------------------------------


def row_at(connection: sqlite3.Connection, sequence: int) -> EventRow | None:
    """The row of one sequence."""
    found = connection.execute(_BY_SEQUENCE, (sequence,)).fetchone()
    return None if found is None else EventRow._make(found)


def root_rows(connection: sqlite3.Connection, after: int, count: int) -> Iterator[EventRow]:
    """Rows of the whole log after a sequence, in order, at most `count`."""
    return map(EventRow._make, connection.execute(_ROOT, (after, count)))


def last_sequence(connection: sqlite3.Connection) -> int:
    """The highest sequence, 0 in an empty log."""
    (last,) = connection.execute("SELECT max(sequence) FROM events").fetchone()
    return last or 0


def next_row(connection: sqlite3.Connection, table: str) -> int:
    """The row that the next entry of a table with an `id` will have."""
    (last,) = connection.execute(f"SELECT max(id) FROM {table}").fetchone()
    return (last or 0) + 1


def event_count(connection: sqlite3.Connection) -> int:
    """How many events the log has. Imported ones keep their sequences, so the highest does not tell."""
    (count,) = connection.execute("SELECT coalesce(sum(events), 0) FROM heads").fetchone()
    return int(count)


def session_head(connection: sqlite3.Connection, session_id: str) -> SessionHead | None:
    """Where a session stands; None when the log has nothing of it."""
    found = connection.execute(
        "SELECT id, head, head_fact, events FROM sessions JOIN heads ON heads.session = sessions.id "
        "WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    return None if found is None else SessionHead(*found)


def is_retired(connection: sqlite3.Connection, session: int) -> bool:
    """Whether the session in a row takes no more runs."""
    (retired,) = connection.execute("SELECT retired FROM sessions WHERE id = ?", (session,)).fetchone()
    return retired is not None


def session_rows(connection: sqlite3.Connection, session: SessionHead, after: int) -> Iterator[EventRow]:
    """Rows of a session after a sequence up to its head, in order, read one stretch between marks at a time."""
    position = after
    while position < session.head:
        mark = connection.execute(_NEXT_MARK, (session.row, position)).fetchone()
        end = min(mark[0], session.head) if mark is not None else session.head
        stretch = connection.execute(_SESSION, (end, position, _NO_LIMIT)).fetchall()
        yield from map(EventRow._make, reversed(stretch))
        position = end


def fact_rows(connection: sqlite3.Connection, last: int, after: int) -> list[FactRow]:
    """The facts (observations apart) of a session after `after` up to fact `last`, in order."""
    return [
        FactRow._make(row[:-1]) for row in reversed(connection.execute(_FACTS, (last, after, _NO_LIMIT)).fetchall())
    ]


def facts_back(connection: sqlite3.Connection, last: int) -> Iterator[tuple[FactRow, int]]:
    """The same facts from fact `last` back to the first, one by one; beside each is the fact before it, 0 for none."""
    for row in connection.execute(_FACTS, (last, 0, _NO_LIMIT)):
        yield FactRow._make(row[:-1]), row[-1]


def rows_at(connection: sqlite3.Connection, sequences: Sequence[int]) -> Iterator[tuple[EventRow, bytes | None]]:
    """The rows of these sequences, in order.

    Beside each is the digest of its session right before it, which the row of the event before it has; None at the
    beginning.
    """
    marks = ",".join("?" * len(sequences))
    for row in connection.execute(_AT.format(marks=marks), sequences):
        yield EventRow._make(row[:-1]), row[-1]
