"""What can be asked of a log besides its prefixes. Each question is answered from one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Literal

from maka_trio.errors import (
    InvalidInput,
    LogCorrupt,
    ReconciliationRequired,
    ResultUnavailable,
)
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import decode, digest, parse_json
from maka_trio.facts.event import Artifact, StoredEvent, ToolSettled
from maka_trio.facts.json_value import JSON
from maka_trio.facts.outcome import ArtifactRef, Succeeded
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.facts.scope import Lineage, Root, Scope, Session
from maka_trio.log.context import Context, ContextBounds, told_rows
from maka_trio.log.deletion import refuse_deleted
from maka_trio.log.lineage import lineage_end, lineage_rows
from maka_trio.log.prefixes import check_bounds
from maka_trio.log.reader import Reader
from maka_trio.log.rows import (
    OBSERVED,
    EventRow,
    last_sequence,
    root_rows,
    row_at,
    session_head,
    session_rows,
)
from maka_trio.records import frozen
from maka_trio.transitions import Residue


@frozen
class Head:
    """Where a scope ends: its last sequence (0 when it is empty), and its digest there."""

    scope: Scope
    high_water: int
    digest: str


@frozen
class SessionContext:
    """The facts of a session that a run reads (see `context`), and where the session stood when they were read."""

    head: Head
    events: tuple[StoredEvent, ...]


@frozen
class SessionSafety:
    """The session may be continued. `prior_unknown`: with effects of an earlier run whose outcome nobody knows."""

    prior_unknown: bool


@frozen
class SessionSummary:
    """One session of a log.

    Attributes:
        session_id: its id.
        events: how many it has.
        high_water: the last of them.
        invocations: how many opened.
        open_run_id: the run that has not ended, if there is one.
        retired: it takes no more runs.
        bodies: whether they are `kept`; `deleting` is a deletion that has begun and not ended.
    """

    session_id: str
    events: int
    high_water: int
    invocations: int
    open_run_id: str | None
    retired: bool = False
    bodies: Literal["kept", "deleting", "deleted"] = "kept"


# --- sessions ---------------------------------------------------------------------------------------------


def head(reader: Reader, scope: Scope) -> Head:
    """Where a scope ends. One look-up for the log and for a session; a lineage is folded."""
    with reader.snapshot() as connection:
        match scope:
            case Root():
                return head_at_end(connection, scope)
            case Session(id=session_id):
                found = session_head(connection, session_id)
                return _head_at(connection, scope, found.head if found else 0)
            case Lineage():
                high_water, link = lineage_end(reader, scope)
                return Head(scope, high_water, chain_text(link))


def head_at_end(connection: sqlite3.Connection, scope: Root) -> Head:
    """Where the whole log ends, inside a snapshot."""
    return _head_at(connection, scope, last_sequence(connection))


def _head_at(connection: sqlite3.Connection, scope: Root | Session, sequence: int) -> Head:
    if sequence == 0:
        return Head(scope, 0, chain_text(chain_start(scope)))
    row = row_at(connection, sequence)
    if row is None:
        raise LogCorrupt(f"event {sequence}, the last of its scope, is missing", sequence=sequence)
    link = row.root_digest if isinstance(scope, Root) else row.session_digest
    if not isinstance(link, bytes):
        raise LogCorrupt(f"event {sequence} is damaged: its digest is {type(link).__name__}", sequence=sequence)
    return Head(scope, sequence, chain_text(link))


def read_context(reader: Reader, session_id: str, max_events: int, max_bytes: int) -> SessionContext:
    """The facts of a session that a run reads. Raises PrefixTooLarge, LogCorrupt and SessionDeleted."""
    check_bounds(max_events, max_bytes)
    bounds = ContextBounds(session_id, max_events, max_bytes)
    with reader.snapshot() as connection:
        refuse_deleted(connection, session_id)
        found = session_head(connection, session_id)
        if found is None:
            return SessionContext(_head_at(connection, Session(session_id), 0), ())
        context = Context(bounds)
        start = chain_start(Session(session_id))
        for row, before in told_rows(connection, found.head_fact, bounds):
            reader.check()
            # Much is left out, so each fact is held against its neighbour's digest instead of a running one.
            if chain_next(before or start, row.sequence, reader.bytes_of(row)) != row.session_digest:
                raise LogCorrupt(f"event {row.sequence} does not verify against its digest", sequence=row.sequence)
            context.push(reader.with_payload(row), len(row.body))
        return SessionContext(_head_at(connection, Session(session_id), found.head), context.events())


def read_lineage(reader: Reader, scope: Lineage, max_events: int, max_bytes: int) -> SessionContext:
    """The facts of a lineage that a run reads.

    Raises:
        InvalidInput: there is no such run.
        PrefixTooLarge: there are more.
        LogCorrupt: an event does not verify, or a succeeded settlement has lost its raw result.
    """
    check_bounds(max_events, max_bytes)
    high_water, link = 0, chain_start(scope)
    context = Context(ContextBounds(scope.session_id, max_events, max_bytes))
    with reader.snapshot():
        for row, whole in lineage_rows(reader, scope):
            high_water, link = row.sequence, chain_next(link, row.sequence, whole)
            if row.kind != OBSERVED:
                context.push(reader.with_payload(row), len(row.body))
    return SessionContext(Head(scope, high_water, chain_text(link)), context.events())


def require_safe(
    reader: Reader, session_id: str, except_invocation: str | None, *, allow_prior_unknown: bool
) -> SessionSafety:
    """Check that a session may be continued (semantics 2.7).

    Raises:
        ReconciliationRequired: an invocation has not ended, or left something that may not be passed over.
    """
    with reader.snapshot() as connection:
        rows = connection.execute(
            "SELECT invocation_id, ended, residue FROM invocations JOIN sessions ON sessions.id = invocations.session "
            "WHERE session_id = ?1 AND ended IS NULL UNION ALL "
            "SELECT invocation_id, ended, residue FROM invocations JOIN sessions ON sessions.id = invocations.session "
            "WHERE session_id = ?1 AND residue IS NOT NULL",
            (session_id,),
        ).fetchall()
    unsafe = [row for row in rows if row[0] != except_invocation]
    for invocation_id, ended, residue in unsafe:
        name = excerpt(invocation_id)
        if ended is None:
            raise ReconciliationRequired(f"invocation {name} of this session has not ended")
        left: Residue = decode(residue, Residue, what="residue")
        if not (allow_prior_unknown and left.only_unknown_effects):
            raise ReconciliationRequired(f"invocation {name} of this session left {left}")
    return SessionSafety(prior_unknown=bool(unsafe))


def sessions(reader: Reader) -> list[SessionSummary]:
    """All sessions of the log, in the order in which they began."""
    with reader.snapshot() as connection:
        rows = connection.execute(
            "SELECT session_id, events, head, (SELECT count(*) FROM invocations WHERE session = sessions.id), "
            "(SELECT run_id FROM invocations WHERE session = sessions.id AND ended IS NULL), retired IS NOT NULL, "
            "CASE WHEN deletions.session IS NULL THEN 'kept' WHEN finished IS NULL THEN 'deleting' ELSE 'deleted' END "
            "FROM sessions JOIN heads ON heads.session = sessions.id "
            "LEFT JOIN deletions ON deletions.session = sessions.id ORDER BY sessions.id"
        ).fetchall()
    return [
        SessionSummary(name, events, high_water, invocations, open_run_id, bool(retired), bodies)
        for name, events, high_water, invocations, open_run_id, retired, bodies in rows
    ]


# --- evidence ---------------------------------------------------------------------------------------------


def tool_result(reader: Reader, session_id: str, event_id: str) -> JSON:
    """The raw result beside a succeeded settlement, verified. Raises ResultUnavailable and SessionDeleted."""
    name = excerpt(event_id)
    with reader.snapshot() as connection:
        refuse_deleted(connection, session_id)
        found = connection.execute(
            "SELECT sequence FROM events JOIN sessions ON sessions.id = events.session "
            "WHERE event_id = ? AND kind <> 'model_observed' AND session_id = ?",
            (event_id, session_id),
        ).fetchone()
        row = row_at(connection, found[0]) if found else None
        if row is None:
            raise ResultUnavailable(f"session {excerpt(session_id)} has no event {name}")
        fact = reader.stored(row).event.fact
        if not isinstance(fact, ToolSettled) or not isinstance(fact.outcome, Succeeded):
            raise ResultUnavailable(f"event {name} is no succeeded settlement")
        payload = connection.execute("SELECT data FROM payloads WHERE sequence = ?", (row.sequence,)).fetchone()
    raw = fact.outcome.raw
    if payload is None or not isinstance(payload[0], bytes) or len(payload[0]) != raw.bytes:
        raise ResultUnavailable(f"the raw result of event {name} is missing or damaged")
    if digest(payload[0]) != raw.digest:
        raise ResultUnavailable(f"the raw result of event {name} is missing or damaged")
    try:
        return parse_json(payload[0], what="the raw result")
    except InvalidInput as error:
        raise ResultUnavailable(f"the raw result of event {name} cannot be read: {error}") from error


def artifact(reader: Reader, session_id: str, artifact_id: str) -> Artifact:
    """A stored artifact, verified. Raises ResultUnavailable and SessionDeleted."""
    name = excerpt(artifact_id)
    with reader.snapshot() as connection:
        refuse_deleted(connection, session_id)
        found = connection.execute(
            "SELECT media_type, digest, data FROM artifacts JOIN sessions ON sessions.id = artifacts.session "
            "WHERE session_id = ? AND artifact_id = ?",
            (session_id, artifact_id),
        ).fetchone()
    if found is None:
        raise ResultUnavailable(f"session {excerpt(session_id)} has no artifact {name}")
    media_type, named, data = found
    if not isinstance(data, bytes) or digest(data) != named:
        raise ResultUnavailable(f"artifact {name} is damaged")
    return Artifact(ArtifactRef(artifact_id, media_type, len(data), named), data)


# --- following --------------------------------------------------------------------------------------------


def events_after(
    reader: Reader, session_id: str | None, after: int, max_events: int, max_bytes: int
) -> tuple[list[StoredEvent], bool]:
    """The next events of the log or of a session, and whether there may be more behind them.

    As many as the bounds hold, and at least one if there is one.
    """
    events: list[StoredEvent] = []
    left = max_bytes
    with reader.snapshot() as connection:
        for row in _rows_after(connection, session_id, after, max_events):
            reader.check()
            left -= len(row.body)
            if events and left < 0:
                return events, True
            events.append(reader.stored(row))
            if len(events) == max_events:
                return events, True
    return events, False


def _rows_after(connection: sqlite3.Connection, session_id: str | None, after: int, count: int) -> Iterator[EventRow]:
    if session_id is None:
        return root_rows(connection, after, count)
    found = session_head(connection, session_id)
    return iter(()) if found is None else session_rows(connection, found, after)
