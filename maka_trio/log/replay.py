"""What the file alone knows of ids: whether an event is in the log already, the same to the last byte (semantics 2.2).

Asked only when an append is about to be refused or an id was seen before, so it may take its time.
"""

from __future__ import annotations

import sqlite3

from maka_trio.facts.bounds import excerpt
from maka_trio.facts.event import ModelObserved, RuntimeEvent, ToolDispatched, ToolRejected
from maka_trio.facts.identity import Invocation
from maka_trio.log.prepared import PreparedWrite
from maka_trio.log.rows import OBSERVED, EventRow, session_head, session_rows
from maka_trio.transitions import Refusal, refused


def find_event(connection: sqlite3.Connection, event: RuntimeEvent) -> int | None:
    """The sequence under which an event's id stands, or None.

    Observations are in no index; one is looked for in the invocation that it says it belongs to.
    """
    found = connection.execute(
        "SELECT sequence FROM events WHERE event_id = ? AND kind <> 'model_observed'", (event.id,)
    ).fetchone()
    if found is not None:
        return int(found[0])
    return _find_observation(connection, event) if isinstance(event.fact, ModelObserved) else None


def _find_observation(connection: sqlite3.Connection, event: RuntimeEvent) -> int | None:
    span = connection.execute(
        "SELECT opened, coalesce(ended, (SELECT head FROM heads WHERE heads.session = invocations.session)) "
        "FROM invocations WHERE invocation_id = ?",
        (event.invocation.invocation_id,),
    ).fetchone()
    head = session_head(connection, event.invocation.session_id)
    if span is None or head is None:
        return None
    for row in session_rows(connection, head, span[0]):
        if row.sequence > span[1]:
            break
        if row.kind == OBSERVED and row.event_id == event.id:
            return row.sequence
    return None


def same_event(row: EventRow, identity: Invocation, write: PreparedWrite) -> bool:
    """Whether the row holds exactly this event."""
    event = write.event
    return (row.event_id, row.recorded_at, row.body, identity) == (
        event.id,
        event.recorded_at,
        write.body,
        event.invocation,
    )


def same_evidence(connection: sqlite3.Connection, sequence: int, write: PreparedWrite) -> bool:
    """Whether the payload and artifacts beside an event are there, and exactly these."""
    payload = connection.execute("SELECT data FROM payloads WHERE sequence = ?", (sequence,)).fetchone()
    if (payload[0] if payload else None) != write.payload:
        return False
    artifacts = connection.execute("SELECT artifact_id, data FROM artifacts WHERE sequence = ?", (sequence,))
    return dict(artifacts.fetchall()) == {artifact.ref.id: artifact.data for artifact in write.artifacts}


def check_operation(connection: sqlite3.Connection, fact: ToolDispatched | ToolRejected) -> None:
    """Refuse an operation that any invocation of the log ever dispatched or rejected.

    Raises:
        CommitRejected: one did.
    """
    found = connection.execute(
        "SELECT 1 FROM events WHERE operation_id = ? AND kind IN ('tool_dispatched', 'tool_rejected', 'tool_settled') "
        "LIMIT 1",
        (fact.operation_id,),
    ).fetchone()
    if found is not None:
        raise refused(Refusal.OPERATION_REUSED, f"operation {excerpt(fact.operation_id)} was used before in this log")


def is_in_session(connection: sqlite3.Connection, session: int, event_id: str) -> bool:
    """Whether an event other than an observation of the session in a row has this id."""
    found = connection.execute(
        "SELECT 1 FROM events WHERE event_id = ? AND kind <> 'model_observed' AND session = ?", (event_id, session)
    ).fetchone()
    return found is not None
