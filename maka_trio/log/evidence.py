"""What lies beside an event, held against the digests that name it: raw results, artifacts, the columns it is under.

An observation has nothing beside it and is filed under nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from maka_trio.errors import InvalidInput
from maka_trio.facts.codec import digest, parse_json
from maka_trio.facts.event import (
    Fact,
    InvocationOpened,
    MessageSteered,
    ModelObserved,
    ToolSettled,
    indexed_operation_id,
)
from maka_trio.facts.opening import ContinuationOpening
from maka_trio.facts.outcome import Succeeded
from maka_trio.log.prepared import message_media
from maka_trio.log.rows import OBSERVED, Row
from maka_trio.log.salvage import is_damage
from maka_trio.log.stub import Place, holds


def wrong_beside(connection: sqlite3.Connection, row: Row, fact: Fact) -> tuple[str, ...]:
    """What is wrong with what the file has of a fact besides its bytes."""
    filed = (row.kind, row.operation_id)
    if isinstance(fact, ModelObserved) and filed == (OBSERVED, None):
        return ()
    words: tuple[str, ...] = ()
    if filed != (fact.kind, indexed_operation_id(fact)):
        words = (f"event {row.sequence} is filed as something else than it is",)
    if not isinstance(fact, (ToolSettled, InvocationOpened, MessageSteered)):
        return words
    try:
        return (*words, *_evidence(connection, row, fact))
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return (*words, f"what is stored beside event {row.sequence} cannot be read: {error}")


def wrong_with_stub(row: Row, identity: bytes, *, expected: bool) -> tuple[str, ...]:
    """What is wrong with what a deletion left: that there was none, or that it left something else."""
    words: tuple[str, ...] = ()
    if not expected:
        words = (f"event {row.sequence} lost its body, and its session was not deleted",)
    place = Place(
        *(row.sequence, row.previous, row.previous_fact, row.kind, row.event_id, row.recorded_at, row.operation_id),
        *(row.root_digest, row.session_digest, identity),
    )
    if not holds(place, row.body):
        words = (*words, f"what the deletion left of event {row.sequence} does not verify")
    return words


def kept_of_deleted(connection: sqlite3.Connection) -> dict[int, int]:
    """Up to which event each session, by its row, has its bodies; only of those that have not all of them.

    A damaged file may not be able to say.
    """
    try:
        return dict(connection.execute("SELECT session, kept FROM deletions"))
    except sqlite3.DatabaseError:
        return {}


def _evidence(
    connection: sqlite3.Connection, row: Row, fact: ToolSettled | InvocationOpened | MessageSteered
) -> Iterator[str]:
    if isinstance(fact, InvocationOpened):
        yield from _source(connection, row, fact)
    if not isinstance(fact, ToolSettled):
        yield from _artifacts(connection, row, {part.artifact or "": part.digest for part in message_media(fact)})
    elif isinstance(fact.outcome, Succeeded):
        yield from _raw_result(connection, row, fact.outcome)
        yield from _artifacts(connection, row, {ref.id: ref.digest for ref in fact.outcome.artifacts})


def _source(connection: sqlite3.Connection, row: Row, opened: InvocationOpened) -> Iterator[str]:
    """The run that a continuation goes on from is filed with it, and with nothing else any."""
    claimed = None
    if isinstance(opened.input, ContinuationOpening):
        claimed = opened.input.claim.source.invocation.invocation_id
    found = connection.execute(
        "SELECT source.invocation_id FROM invocations LEFT JOIN invocations AS source "
        "ON source.id = invocations.continues WHERE invocations.id = ?",
        (row.invocation,),
    ).fetchone()
    if found is None or found[0] != claimed:
        yield f"event {row.sequence} is filed as the continuation of another run than it is of"


def _raw_result(connection: sqlite3.Connection, row: Row, outcome: Succeeded) -> Iterator[str]:
    sequence, raw = row.sequence, outcome.raw
    found = connection.execute("SELECT data, digest FROM payloads WHERE sequence = ?", (sequence,)).fetchone()
    if found is None:
        yield f"event {sequence} has lost its raw result"
    elif not _is(found[0], raw.digest) or len(found[0]) != raw.bytes or found[1] != raw.digest:
        yield f"the raw result of event {sequence} does not verify"
    elif not _is_json(found[0]):
        yield f"the raw result of event {sequence} is no JSON"


def _artifacts(connection: sqlite3.Connection, row: Row, named: dict[str, str | None]) -> Iterator[str]:
    """Each artifact that a fact names. An older message names its media without their digest."""
    for artifact_id, expected in named.items():
        found = connection.execute(
            "SELECT data, digest FROM artifacts WHERE session = ? AND artifact_id = ?", (row.session, artifact_id)
        ).fetchone()
        if found is None:
            yield f"event {row.sequence} has lost its artifact {artifact_id!r}"
        elif not _is(found[0], found[1]) or expected not in (None, found[1]):
            yield f"the artifact {artifact_id!r} of event {row.sequence} does not verify"


def _is(data: object, named: str) -> bool:
    return isinstance(data, bytes) and digest(data) == named


def _is_json(data: bytes) -> bool:
    try:
        parse_json(data, what="the raw result")
    except InvalidInput:
        return False
    return True
