"""What a continuation claims of its source, held against what the log itself has (semantics 2.3, rule 12).

Everything is computed again, from the rows: nothing of a claim is taken on trust. Asked once for each continuation,
by the thread that writes; it reads the lineage of the source and nothing else.
"""

from __future__ import annotations

import sqlite3

import attrs

from maka_trio.continuing import identity_objection, replay_objection
from maka_trio.errors import CommitRejected, InvalidInput, ReconciliationRequired
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.continuation import ContinuationClaim
from maka_trio.facts.event import InvocationOpened
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import ContinuationOpening, RequestSurface
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.facts.scope import Lineage
from maka_trio.history import History
from maka_trio.log.draft import Draft
from maka_trio.log.lineage import Span, lineage_rows, only_span, run_spans
from maka_trio.log.reader import Reader
from maka_trio.log.rows import OBSERVED, SessionHead, session_head
from maka_trio.records import define, frozen
from maka_trio.transitions import Refusal, refused


@frozen
class Proof:
    """A claim that holds. `source` is the row of its source, `link` the digest of the new run's lineage so far."""

    source: int
    link: bytes


def prove_planned(
    connection: sqlite3.Connection, draft: Draft, identity: Invocation, opened: InvocationOpened
) -> Proof:
    """Hold a continuation's claim against the log and all that was planned before it.

    What is planned is written to be looked at, and taken back. Raises what `prove` does, and sqlite3.IntegrityError
    where the file objects to an id of the draft.
    """
    if not draft.events:
        return prove(Reader(connection), identity, opened)
    connection.execute("BEGIN IMMEDIATE")
    try:
        draft.flush(connection)
        return prove(Reader(connection), identity, opened)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def prove(reader: Reader, identity: Invocation, opened: InvocationOpened) -> Proof:
    """Hold a continuation's claim against the log.

    Args:
        reader: reads the log as it is.
        identity: the invocation that is about to open.
        opened: its opening, with a continuation as its input.

    Raises:
        CommitRejected: the claim does not hold, the session may not be continued, or the source is claimed already
            (`reason` is `conflict`).
        LogCorrupt: the lineage of the source cannot be read.
    """
    opening = opened.input
    assert isinstance(opening, ContinuationOpening)
    claim = opening.claim
    objection = identity_objection(identity, claim.source.invocation)
    if objection is not None:
        raise refused(Refusal.CLAIM, objection)
    span = _source(reader, identity, claim)
    reading = _read(reader, identity, claim, span)
    _check_digests(claim, span, reading)
    _check_replay(opened, opening, reading)
    return Proof(span.row, reading.own)


# --- the source -------------------------------------------------------------------------------------------


def _source(reader: Reader, identity: Invocation, claim: ContinuationClaim) -> Span:
    """Where the source stands, if it may be claimed."""
    source = claim.source.invocation
    session = session_head(reader.connection, source.session_id)
    spans = [] if session is None else run_spans(reader.connection, session, source.run_id)
    if session is None or not spans:
        raise refused(Refusal.CLAIM, f"session {excerpt(source.session_id)} has no run {excerpt(source.run_id)}")
    try:
        span = only_span(source.run_id, spans)
    except InvalidInput as error:
        raise refused(Refusal.CLAIM, str(error)) from None
    if reader.identities.of(reader.connection, span.row)[0] != source:
        raise refused(Refusal.CLAIM, f"run {excerpt(source.run_id)} has another turn or invocation than is claimed")
    if span.ended is None:
        raise refused(Refusal.CLAIM, f"run {excerpt(source.run_id)} has not ended")
    if run_spans(reader.connection, session, identity.run_id):
        raise refused(Refusal.CLAIM, f"the session has a run {excerpt(identity.run_id)} already")
    _check_unclaimed(reader, source, span)
    _check_safe(reader, session)
    return span


def _check_unclaimed(reader: Reader, source: Invocation, span: Span) -> None:
    found = reader.connection.execute("SELECT run_id FROM invocations WHERE continues = ?", (span.row,)).fetchone()
    if found is not None:
        raise CommitRejected(
            f"run {excerpt(source.run_id)} is continued by run {excerpt(found[0])}; a run is continued once",
            reason="conflict",
        )


def _check_safe(reader: Reader, session: SessionHead) -> None:
    found = reader.connection.execute(
        "SELECT invocation_id FROM invocations WHERE session = ? AND residue IS NOT NULL LIMIT 1", (session.row,)
    ).fetchone()
    if found is not None:
        raise refused(Refusal.UNSAFE, f"invocation {excerpt(found[0])} of this session left something unresolved")


# --- its lineage ------------------------------------------------------------------------------------------


@define
class _Reading:
    """The lineage of a source: its digests, and the conversation. `own` is the chain of the run that goes on."""

    base: bytes
    run: bytes
    own: bytes
    history: History = attrs.field(factory=History)
    opened: InvocationOpened | None = None


def _read(reader: Reader, identity: Invocation, claim: ContinuationClaim, span: Span) -> _Reading:
    scope = claim.base.scope
    reading = _Reading(chain_start(scope), chain_start(scope), chain_start(Lineage(scope.session_id, identity.run_id)))
    for row, whole in lineage_rows(reader, scope):
        reading.base = chain_next(reading.base, row.sequence, whole)
        reading.own = chain_next(reading.own, row.sequence, whole)
        if row.invocation == span.row:
            reading.run = chain_next(reading.run, row.sequence, whole)
        if row.kind == OBSERVED:
            continue
        event = reader.with_payload(row).event
        if row.sequence == span.opened and isinstance(event.fact, InvocationOpened):
            reading.opened = event.fact
        try:
            reading.history.push(event)
        except ReconciliationRequired as error:
            raise refused(Refusal.UNSAFE, f"the conversation cannot be continued: {error}") from error
    return reading


def _check_digests(claim: ContinuationClaim, span: Span, reading: _Reading) -> None:
    name = excerpt(claim.source.invocation.run_id)
    if (claim.source.high_water, claim.source.digest) != (span.ended, chain_text(reading.run)):
        raise refused(Refusal.CLAIM, f"run {name} ends elsewhere, or with another digest, than is claimed")
    if claim.base.digest != chain_text(reading.base):
        raise refused(Refusal.CLAIM, f"the lineage of run {name} has another digest than is claimed")


def _check_replay(opened: InvocationOpened, opening: ContinuationOpening, reading: _Reading) -> None:
    assert reading.opened is not None  # the span begins with it
    replay = reading.history.replay(opening.claim.source.invocation.invocation_id)
    objection = replay_objection(opened, opening.surface or RequestSurface(), reading.opened, replay)
    if objection is not None:
        raise refused(Refusal.CLAIM, objection)
    if opening.claim.replay_digest != replay.digest():
        raise refused(Refusal.CLAIM, "what would be replayed has another digest than is claimed")
