"""What the log knows of one invocation: what it was opened with and how it ended. Found by id, or by its request."""

from __future__ import annotations

import sqlite3

from maka_trio.errors import LogCorrupt
from maka_trio.facts.event import Fact, InvocationEnded, InvocationOpened
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import fingerprint_digest
from maka_trio.facts.outcome import ArtifactRef, InvocationOutcome
from maka_trio.log.deletion import refuse_deleted
from maka_trio.log.reader import Reader
from maka_trio.log.rows import row_at
from maka_trio.records import frozen

_FOUND = "SELECT invocations.id, opened, ended FROM invocations "
_BY_ID = _FOUND + "WHERE invocation_id = ?"
_BY_REQUEST = (
    _FOUND + "JOIN sessions ON sessions.id = invocations.session "
    "WHERE session_id = ? AND fingerprint IN (?, ?) ORDER BY opened DESC LIMIT 1"
)


@frozen
class InvocationRecord:
    """An invocation of the log, open or ended.

    Attributes:
        invocation: its identity.
        opened_at: the sequence of its opening.
        opening: what it was opened with.
        artifacts: what was stored beside the opening: the media of its message.
        outcome: how it ended; None while it is open.
    """

    invocation: Invocation
    opened_at: int
    opening: InvocationOpened
    artifacts: tuple[ArtifactRef, ...]
    outcome: InvocationOutcome | None


def by_id(reader: Reader, invocation_id: str) -> InvocationRecord | None:
    """The invocation of this id. Raises LogCorrupt and SessionDeleted."""
    with reader.snapshot() as connection:
        return _record(reader, connection.execute(_BY_ID, (invocation_id,)).fetchone())


def by_request(reader: Reader, session_id: str, fingerprint: str) -> InvocationRecord | None:
    """The last invocation of a session that was opened for this request. Raises LogCorrupt and SessionDeleted."""
    names = (fingerprint, fingerprint_digest(fingerprint))  # as a message keeps it, and as a continuation does
    with reader.snapshot() as connection:
        return _record(reader, connection.execute(_BY_REQUEST, (session_id, *names)).fetchone())


def _record(reader: Reader, found: tuple[int, int, int | None] | None) -> InvocationRecord | None:
    if found is None:
        return None
    row, opened, ended = found
    identity, _ = reader.identities.of(reader.connection, row)
    refuse_deleted(reader.connection, identity.session_id)
    opening = _fact(reader, opened)
    end = None if ended is None else _fact(reader, ended)
    if not isinstance(opening, InvocationOpened):
        raise LogCorrupt(f"event {opened} is no opening", sequence=opened)
    if end is not None and not isinstance(end, InvocationEnded):
        raise LogCorrupt(f"event {ended} is no end", sequence=ended)
    return InvocationRecord(
        identity, opened, opening, _artifacts(reader.connection, opened), None if end is None else end.outcome
    )


def _fact(reader: Reader, sequence: int) -> Fact:
    row = row_at(reader.connection, sequence)
    if row is None:
        raise LogCorrupt(f"event {sequence} is missing", sequence=sequence)
    return reader.stored(row).event.fact


def _artifacts(connection: sqlite3.Connection, sequence: int) -> tuple[ArtifactRef, ...]:
    rows = connection.execute(
        "SELECT artifact_id, media_type, length(data), digest FROM artifacts WHERE sequence = ?", (sequence,)
    )
    return tuple(ArtifactRef(*row) for row in rows)
