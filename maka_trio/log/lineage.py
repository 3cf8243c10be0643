"""The lineage of a run: its session before the first run that it goes on from, then those runs, then the run itself.

A lineage is read as stretches of its session, each held against the digests of the session, so nothing of what lies
between them is read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice, takewhile

import attrs

from maka_trio.errors import InvalidInput, LogCorrupt, ReconciliationRequired, SessionDeleted
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.continuation import RunBoundary
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.facts.scope import Lineage, Session
from maka_trio.log.deletion import refuse_deleted
from maka_trio.log.reader import Reader
from maka_trio.log.rows import EventRow, SessionHead, session_head, session_rows
from maka_trio.log.stub import is_stub
from maka_trio.records import frozen

_SPANS = "SELECT id, opened, ended, continues FROM invocations WHERE "
_OF_RUN = _SPANS + "session = ? AND run_id = ? ORDER BY opened"
_OF_ROW = _SPANS + "id = ?"


@frozen
class Span:
    """Where an invocation stands in its session: its row, its first sequence and its last, None while it is open.

    `continues` is the row of the invocation that it goes on from.
    """

    row: int
    opened: int
    ended: int | None
    continues: int | None


@frozen
class Stretch:
    """The events of a session from `first` to `last`, both included."""

    first: int
    last: int


def run_spans(connection: sqlite3.Connection, session: SessionHead, run_id: str) -> list[Span]:
    """The invocations of a run, in order; empty where there is no such run."""
    return [Span(*found) for found in connection.execute(_OF_RUN, (session.row, run_id))]


def stretches(connection: sqlite3.Connection, session: SessionHead, run_id: str) -> list[Stretch]:
    """What a run's lineage is made of, in order; empty where there is no such run.

    Raises:
        LogCorrupt: a run continues one that is not there, or not before it.
    """
    spans = run_spans(connection, session, run_id)
    if not spans:
        return []
    if spans[0].continues is None:
        return [Stretch(0, max(_last(span, session) for span in spans))]
    while spans[0].continues is not None:
        spans.insert(0, _source(connection, spans[0], spans[0].continues))
    first, *rest = spans
    return [Stretch(0, _last(first, session)), *(Stretch(span.opened, _last(span, session)) for span in rest)]


def _source(connection: sqlite3.Connection, span: Span, row: int) -> Span:
    found = connection.execute(_OF_ROW, (row,)).fetchone()
    source = None if found is None else Span(*found)
    if source is None or source.ended is None or source.ended >= span.opened:
        words = f"the invocation opened at event {span.opened} continues one that has not ended before"
        raise LogCorrupt(words, sequence=span.opened)
    return source


def _last(span: Span, session: SessionHead) -> int:
    return session.head if span.ended is None else span.ended


def stretch_rows(
    reader: Reader, session_id: str, session: SessionHead, stretch: Stretch
) -> Iterator[tuple[EventRow, bytes]]:
    """The rows of a stretch with the canonical bytes of their events. Raises LogCorrupt where one does not verify."""
    link, at = _link_before(reader.connection, session_id, stretch.first), 0
    for row in session_rows(reader.connection, attrs.evolve(session, head=stretch.last), max(stretch.first - 1, 0)):
        reader.check()
        whole = reader.bytes_of(row)
        link = chain_next(link, row.sequence, whole)
        if link != row.session_digest:
            raise LogCorrupt(f"event {row.sequence} does not verify against the digest chain", sequence=row.sequence)
        at = row.sequence
        yield row, whole
    if at != stretch.last:
        raise LogCorrupt(f"event {stretch.last} is missing", sequence=stretch.last)


def _link_before(connection: sqlite3.Connection, session_id: str, first: int) -> bytes:
    """The digest of a session right before one of its events; 0 stands for its beginning."""
    if first == 0:
        return chain_start(Session(session_id))
    found = connection.execute(
        "SELECT events.previous, before.session_digest FROM events "
        "LEFT JOIN events AS before ON before.sequence = events.previous WHERE events.sequence = ?",
        (first,),
    ).fetchone()
    if found == (0, None):
        return chain_start(Session(session_id))
    if found is None or found[1] is None:
        raise LogCorrupt(f"event {first}, or the one of its session before it, is missing", sequence=first)
    return bytes(found[1])


def lineage_rows(reader: Reader, scope: Lineage) -> Iterator[tuple[EventRow, bytes]]:
    """The rows of a lineage, verified, inside a snapshot.

    Raises:
        InvalidInput: there is no such run.
        LogCorrupt: an event is missing or does not verify.
    """
    refuse_deleted(reader.connection, scope.session_id)
    session = session_head(reader.connection, scope.session_id)
    found = [] if session is None else stretches(reader.connection, session, scope.run_id)
    if session is None or not found:
        raise no_run(scope.session_id, scope.run_id)
    for stretch in found:
        yield from stretch_rows(reader, scope.session_id, session, stretch)


def events_between(reader: Reader, session_id: str, first: int, last: int, count: int) -> list[tuple[int, bytes]]:
    """Sequence and canonical bytes of a session's events from `first` to `last`, at most `count`, as the file has them.

    Raises:
        LogCorrupt: one cannot be read.
        SessionDeleted: one has lost its body, perhaps since the reader met it.
    """
    with reader.snapshot() as connection:
        session = session_head(connection, session_id)
        if session is None:
            return []
        rows = takewhile(lambda row: row.sequence <= last, session_rows(connection, session, max(first - 1, 0)))
        return [(row.sequence, _whole(reader, row, session_id)) for row in islice(rows, count)]


def _whole(reader: Reader, row: EventRow, session_id: str) -> bytes:
    whole = reader.bytes_of(row)
    if is_stub(row.body):
        raise SessionDeleted(f"the bodies of session {excerpt(session_id)} were deleted", session_id=session_id)
    return whole


def lineage_end(reader: Reader, scope: Lineage) -> tuple[int, bytes]:
    """High water and digest of a lineage as it stands, inside a snapshot. Folded from its first event on."""
    high_water, link = 0, chain_start(scope)
    for row, whole in lineage_rows(reader, scope):
        high_water, link = row.sequence, chain_next(link, row.sequence, whole)
    return high_water, link


def no_run(session_id: str, run_id: str) -> InvalidInput:
    """The error of a run that is not there."""
    return InvalidInput(f"session {excerpt(session_id)} has no run {excerpt(run_id)}")


# --- the end of a run -------------------------------------------------------------------------------------


def boundary(reader: Reader, session_id: str, run_id: str) -> RunBoundary:
    """The end of a sealed run.

    Raises:
        InvalidInput: there is no such run, or it has more than one invocation.
        ReconciliationRequired: it has not ended.
        LogCorrupt: an event of it is missing or does not verify.
    """
    with reader.snapshot() as connection:
        refuse_deleted(connection, session_id)
        session = session_head(connection, session_id)
        spans = [] if session is None else run_spans(connection, session, run_id)
        if session is None or not spans:
            raise no_run(session_id, run_id)
        span = only_span(run_id, spans)
        if span.ended is None:
            raise ReconciliationRequired(f"run {excerpt(run_id)} has not ended")
        invocation, _ = reader.identities.of(connection, span.row)
        link = chain_start(Lineage(session_id, run_id))
        for row, whole in stretch_rows(reader, session_id, session, Stretch(span.opened, span.ended)):
            link = chain_next(link, row.sequence, whole)
        return RunBoundary(invocation, span.ended, chain_text(link))


def only_span(run_id: str, spans: list[Span]) -> Span:
    """The one invocation of a run. Raises InvalidInput for a run of several: where it ends is not one place."""
    if len(spans) > 1:
        raise InvalidInput(f"run {excerpt(run_id)} has {len(spans)} invocations; only a run of one can be continued")
    return spans[0]
