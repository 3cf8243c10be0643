"""Prefixes: all events of a scope, verified, or nothing.

Bounds never cut an answer short: a scope that is larger fails. The events of the log and of a session are held, one
by one, against the digests that were written with them, so that damage has a name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from maka_trio.errors import (
    InvalidInput,
    LogCorrupt,
    PrefixTooLarge,
)
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.event import StoredEvent
from maka_trio.facts.prefix import LogPrefix, chain_next, chain_start, chain_text
from maka_trio.facts.scope import Lineage, Root, Scope, Session
from maka_trio.log.reader import Reader
from maka_trio.log.rows import (
    EventRow,
    SessionHead,
    event_count,
    root_rows,
    session_head,
    session_rows,
)


def prefix(reader: Reader, scope: Scope, max_events: int, max_bytes: int) -> LogPrefix:
    """All events of a scope. Raises PrefixTooLarge, LogCorrupt, and InvalidInput for a lineage of no known run."""
    check_bounds(max_events, max_bytes)
    with reader.snapshot() as connection:
        match scope:
            case Root():
                count = event_count(connection)
                rows = root_rows(connection, 0, count)
                return _checked(reader, scope, rows, count, max_events, max_bytes)
            case Session(id=session_id):
                head = session_head(connection, session_id)
                if head is None:
                    return LogPrefix(scope, 0, chain_text(chain_start(scope)), ())
                return _checked(reader, scope, session_rows(connection, head, 0), head.events, max_events, max_bytes)
            case Lineage():
                return lineage(reader, scope, max_events, max_bytes)


def run_prefix(reader: Reader, session_id: str, run_id: str, max_events: int, max_bytes: int) -> LogPrefix | None:
    """The events of one run, None if there are none. Its scope is the run's lineage; its digest covers the run only."""
    check_bounds(max_events, max_bytes)
    with reader.snapshot() as connection:
        head = session_head(connection, session_id)
        spans = _spans(connection, head, run_id)
        if head is None or not spans:
            return None
        wanted = {row for row, _, _ in spans}
        last = max(ended for _, _, ended in spans)
        first = min(opened for _, opened, _ in spans)
        rows = (row for row in _until(session_rows(connection, head, first - 1), last) if row.invocation in wanted)
        return _folded(reader, Lineage(session_id, run_id), rows, max_events, max_bytes)


def lineage(reader: Reader, scope: Lineage, max_events: int, max_bytes: int) -> LogPrefix:
    """A session up to the end of one of its runs, inside a snapshot. No run continues another yet.

    Raises as `prefix` does.
    """
    head = session_head(reader.connection, scope.session_id)
    spans = _spans(reader.connection, head, scope.run_id)
    if head is None or not spans:
        raise InvalidInput(f"session {excerpt(scope.session_id)} has no run {excerpt(scope.run_id)}")
    last = max(ended for _, _, ended in spans)
    return _folded(reader, scope, _until(session_rows(reader.connection, head, 0), last), max_events, max_bytes)


def _spans(connection: sqlite3.Connection, head: SessionHead | None, run_id: str) -> list[tuple[int, int, int]]:
    """Row, first and last sequence of each invocation of a run."""
    if head is None:
        return []
    return connection.execute(
        "SELECT id, opened, coalesce(ended, ?) FROM invocations WHERE session = ? AND run_id = ?",
        (head.head, head.row, run_id),
    ).fetchall()


def _until(rows: Iterable[EventRow], last: int) -> Iterator[EventRow]:
    for row in rows:
        if row.sequence > last:
            return
        yield row


def _checked(
    reader: Reader, scope: Root | Session, rows: Iterable[EventRow], count: int, max_events: int, max_bytes: int
) -> LogPrefix:
    """A prefix whose digests the rows themselves carry: each row is held against the one before it."""
    if count > max_events:
        raise too_many(max_events)
    link = chain_start(scope)
    events: list[StoredEvent] = []
    left = max_bytes
    for row in rows:
        reader.check()
        whole = reader.bytes_of(row)
        left -= len(whole)
        if left < 0:
            raise too_large(max_bytes)
        link = chain_next(link, row.sequence, whole)
        if link != (row.root_digest if isinstance(scope, Root) else row.session_digest):
            raise LogCorrupt(f"event {row.sequence} does not verify against the digest chain", sequence=row.sequence)
        events.append(reader.with_payload(row))
    if len(events) != count:
        missing = events[-1].sequence + 1 if isinstance(scope, Root) and events else None
        raise LogCorrupt(f"{count - len(events)} of {count} events are missing", sequence=missing)
    return LogPrefix(scope, events[-1].sequence if events else 0, chain_text(link), tuple(events))


def _folded(reader: Reader, scope: Scope, rows: Iterable[EventRow], max_events: int, max_bytes: int) -> LogPrefix:
    """A prefix whose digest is folded on demand."""
    link = chain_start(scope)
    events: list[StoredEvent] = []
    left = max_bytes
    for row in rows:
        reader.check()
        whole = reader.bytes_of(row)
        left -= len(whole)
        if len(events) == max_events:
            raise too_many(max_events)
        if left < 0:
            raise too_large(max_bytes)
        link = chain_next(link, row.sequence, whole)
        events.append(reader.with_payload(row))
    return LogPrefix(scope, events[-1].sequence if events else 0, chain_text(link), tuple(events))


def check_bounds(max_events: int, max_bytes: int) -> None:
    """Raise InvalidInput for bounds that are no counts."""
    for name, value in (("max_events", max_events), ("max_bytes", max_bytes)):
        if type(value) is not int or value < 0:
            raise InvalidInput(f"{name}={excerpt(value)} is not a count")


def too_many(limit: int) -> PrefixTooLarge:
    """The error of an answer with more events than asked for."""
    return PrefixTooLarge(f"there are more than max_events={limit} events")


def too_large(limit: int) -> PrefixTooLarge:
    """The error of an answer with more bytes than asked for."""
    return PrefixTooLarge(f"the events have more than max_bytes={limit} bytes of JSON")
