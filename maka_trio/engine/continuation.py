"""What a continuation claims, derived from the log before anything is written (semantics 3.9).

The log holds every claim against what it has itself when the opening is committed. What is found here already is
told in the caller's own terms.
"""

from __future__ import annotations

import attrs

from maka_trio.continuing import replay_objection
from maka_trio.errors import InvalidInput, ReconciliationRequired
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.continuation import ContinuationClaim, RunBoundary
from maka_trio.facts.event import EventWrite, InvocationOpened
from maka_trio.facts.opening import ContinuationOpening, RequestSurface
from maka_trio.history import History
from maka_trio.log.event_log import EventLog
from maka_trio.log.queries import SessionContext
from maka_trio.records import frozen


@frozen
class ContinuationCheck:
    """What a continuation would claim and replay.

    Attributes:
        claim: what its opening says of the run that it goes on from.
        messages: how many messages are replayed, the system prompt apart.
        tools: the tools that were called in them, in the order of their first call.
    """

    claim: ContinuationClaim
    messages: int
    tools: tuple[str, ...]


async def claimed(log: EventLog, opening: EventWrite, history: History) -> tuple[EventWrite, ContinuationCheck]:
    """The opening with its claim, and what it says. The lineage is folded into `history`.

    Raises:
        InvalidInput: the boundary is not that of a run in the log, or its run cannot be continued like this.
        ReconciliationRequired: the run has not ended, or its conversation does not pair.
        StoreError: the lineage cannot be read.
    """
    opened, asked = _asked(opening)
    source = asked.claim.source
    await _check_boundary(log, source)
    context = await log.read_context(source.invocation.session_id, source.invocation.run_id)
    for stored in context.events:
        history.push(stored.event)
    replay = history.replay(source.invocation.invocation_id)
    surface = asked.surface or RequestSurface()
    objection = replay_objection(opened, surface, _opening_of(source, context), replay)
    if objection is not None:
        raise InvalidInput(objection)
    claim = ContinuationClaim.of(source, base_digest=context.head.digest, replay_digest=replay.digest())
    fact = attrs.evolve(opened, input=attrs.evolve(asked, claim=claim))
    event = attrs.evolve(opening.event, fact=fact)
    return attrs.evolve(opening, event=event), ContinuationCheck(claim, len(replay.said), replay.tools)


def _asked(opening: EventWrite) -> tuple[InvocationOpened, ContinuationOpening]:
    fact = opening.event.fact
    assert isinstance(fact, InvocationOpened)
    assert isinstance(fact.input, ContinuationOpening)
    return fact, fact.input


async def _check_boundary(log: EventLog, source: RunBoundary) -> None:
    """Hold a boundary against the log, to the last digit."""
    run_id = source.invocation.run_id
    found = await log.boundary(source.invocation.session_id, run_id)
    if found.invocation != source.invocation:
        raise InvalidInput(f"run {excerpt(run_id)} has another turn or invocation than the boundary names")
    if found != source:
        raise InvalidInput(
            f"the boundary of run {excerpt(run_id)} is not that of the log: it ends at {found.high_water} with digest "
            f"{found.digest}, not at {source.high_water} with {source.digest}"
        )


def _opening_of(source: RunBoundary, context: SessionContext) -> InvocationOpened:
    for stored in reversed(context.events):
        if stored.event.invocation == source.invocation and isinstance(stored.event.fact, InvocationOpened):
            return stored.event.fact
    raise ReconciliationRequired(f"run {excerpt(source.invocation.run_id)} has no opening")
