"""Prefixes: all events of a scope, verified, or nothing.

Bounds never cut an answer short: a scope that is larger fails. The events of the log and of a session are held, one
by one, against the digests that were written with them, so that damage has a name.
"""

from __future__ import annotations

from collections.abc import Iterable

from maka_trio.errors import (
    InvalidInput,
    LogCorrupt,
    PrefixTooLarge,
)
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.event import StoredEvent
from maka_trio.facts.prefix import LogPrefix, chain_next, chain_start, chain_text
from maka_trio.facts.scope import Lineage, Root, Scope, Session
from maka_trio.log.deletion import refuse_deleted
from maka_trio.log.lineage import Stretch, lineage_rows, run_spans, stretch_rows
from maka_trio.log.reader import Reader
from maka_trio.log.rows import (
    EventRow,
    event_count,
    root_rows,
    session_head,
    session_rows,
)
from maka_trio.log.stub import is_stub


def prefix(reader: Reader, scope: Scope, max_events: int, max_bytes: int) -> LogPrefix:
    """All events of a scope; of the whole log, a stub for each whose body was deleted.

    Raises PrefixTooLarge, LogCorrupt, SessionDeleted, and InvalidInput for a lineage of no known run.
    """
    check_bounds(max_events, max_bytes)
    with reader.snapshot() as connection:
        match scope:
            case Root():
                count = event_count(connection)
                rows = root_rows(connection, 0, count)
                return _checked(reader, scope, rows, count, max_events, max_bytes)
            case Session(id=session_id):
                refuse_deleted(connection, session_id)
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
        refuse_deleted(connection, session_id)
        session = session_head(connection, session_id)
        spans = [] if session is None else run_spans(connection, session, run_id)
        if session is None or not spans:
            return None
        rows = (
            row
            for span in spans
            for row in stretch_rows(
                reader, session_id, session, Stretch(span.opened, session.head if span.ended is None else span.ended)
            )
        )
        return _folded(reader, Lineage(session_id, run_id), rows, max_events, max_bytes)


def lineage(reader: Reader, scope: Lineage, max_events: int, max_bytes: int) -> LogPrefix:
    """A run, the runs it continues, and the session before the first of these, inside a snapshot.

    Raises as `prefix` does.
    """
    return _folded(reader, scope, lineage_rows(reader, scope), max_events, max_bytes)


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
        link = row.root_digest if is_stub(row.body) else chain_next(link, row.sequence, whole)
        if link != (row.root_digest if isinstance(scope, Root) else row.session_digest):
            raise LogCorrupt(f"event {row.sequence} does not verify against the digest chain", sequence=row.sequence)
        events.append(reader.with_payload(row))
    if len(events) != count:
        missing = events[-1].sequence + 1 if isinstance(scope, Root) and events else None
        raise LogCorrupt(f"{count - len(events)} of {count} events are missing", sequence=missing)
    return LogPrefix(scope, events[-1].sequence if events else 0, chain_text(link), tuple(events))


def _folded(
    reader: Reader, scope: Scope, rows: Iterable[tuple[EventRow, bytes]], max_events: int, max_bytes: int
) -> LogPrefix:
    """A prefix whose digest is folded on demand, of rows that were verified."""
    link = chain_start(scope)
    events: list[StoredEvent] = []
    left = max_bytes
    for row, whole in rows:
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
