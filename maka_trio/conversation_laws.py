"""Laws 8 and 9 as far as the conversation goes: a session's facts are folded, and what they say of it is recomputed."""

from __future__ import annotations

from collections.abc import Iterator

from maka_trio.errors import ReconciliationRequired
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import (
    ContextCheckpointRecorded,
    InvocationOpened,
    MessageImported,
    ModelRequested,
    StoredEvent,
    ToolResultArchived,
)
from maka_trio.facts.opening import ContextCompactOpening, ContinuationOpening, HandoffOpening
from maka_trio.lawbook import HistoryFold, SessionBook


def broken_by_conversation(session: SessionBook, stored: StoredEvent, *, lawful: bool) -> list[tuple[int, str]]:
    """Fold an event into its session's history; the number of each law that it breaks there, and how.

    Args:
        session: whose history it is.
        stored: the event.
        lawful: whether it breaks no other law. From the first that does, a history could only repeat it, or guess.
    """
    history = session.history
    if history is None:
        return []
    if not lawful or _is_beyond_history(stored):
        session.history = None
        return []
    try:
        history.push(stored.event)
        return [(9, words) for words in _untrue(stored, history)]
    except ReconciliationRequired as error:
        session.history = None
        return [(8, f"the history cannot be projected: {error}")]


def _untrue(stored: StoredEvent, history: HistoryFold) -> Iterator[str]:
    fact = stored.event.fact
    if isinstance(fact, ModelRequested) and fact.purpose is StepPurpose.MAIN:
        digest = history.input_digest(route_identity=fact.route_identity, model_id=fact.model_id)
        if digest != fact.input_digest:
            yield f"the input digest of step {excerpt(fact.step_id)} is {digest}, not {fact.input_digest}"
    elif isinstance(fact, InvocationOpened) and isinstance(fact.input, ContinuationOpening):
        yield from _replayed(fact.input, history)


def _replayed(opening: ContinuationOpening, history: HistoryFold) -> Iterator[str]:
    """What a continuation claims to replay is what its source and those before it have said."""
    source = opening.claim.source.invocation
    replay = history.replay(source.invocation_id)
    if replay.refusal is not None:
        yield f"run {excerpt(source.run_id)} is continued: {replay.refusal}"
    elif replay.digest() != opening.claim.replay_digest:
        yield f"what run {excerpt(source.run_id)} left has another digest than is claimed of it"


def _is_beyond_history(stored: StoredEvent) -> bool:
    match stored.event.fact:
        case ContextCheckpointRecorded() | ToolResultArchived() | MessageImported():
            return True
        case InvocationOpened(input=HandoffOpening() | ContextCompactOpening()):
            return True
        case _:
            return False
