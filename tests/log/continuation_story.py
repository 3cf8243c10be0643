"""Continuations of small runs, told to a store fact by fact; every digest in them is recomputed from its events."""

from __future__ import annotations

from typing import Any

import attrs

from maka_trio.facts import (
    ContinuationClaim,
    ContinuationOpening,
    Fact,
    Invocation,
    InvocationConfiguration,
    InvocationOpened,
    Lineage,
    RequestSurface,
    RunBoundary,
    StoredEvent,
    ToolDefinition,
)
from maka_trio.facts.codec import encode_event
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.facts.scope import Root, Scope
from maka_trio.history import History
from maka_trio.log.prefixes import prefix
from maka_trio.log.store import Store
from tests.log.log_story import (
    CANCELLED,
    DIGEST,
    call,
    completed,
    dispatched,
    observed,
    opened,
    reader,
    requested,
    settled,
    tell,
)

PUT = ToolDefinition("put", "puts", True)
SURFACE = RequestSurface((PUT,))
WRONG = "sha256:" + "f" * 64


def all_events(store: Store) -> list[StoredEvent]:
    return list(prefix(reader(store), Root(), 100_000, 1 << 28).events)


def events_of(store: Store, *runs: Invocation) -> list[StoredEvent]:
    return [stored for stored in all_events(store) if stored.event.invocation in runs]


def position(scope: Scope, events: list[StoredEvent]) -> tuple[int, str]:
    """High water and digest of a scope of these events."""
    link = chain_start(scope)
    for stored in events:
        link = chain_next(link, stored.sequence, encode_event(stored.event))
    return (events[-1].sequence if events else 0), chain_text(link)


def stopped(store: Store, session: str = "session", step: str = "s1") -> Invocation:
    """A run that was cancelled after one step with one tool."""
    invocation = Invocation.new(session)
    steps: list[Fact] = [
        requested(step),
        observed(step),
        completed(step, call()),
        dispatched(step),
        settled(f"{step}:c1"),
    ]
    tell(store, invocation, opened(), *steps, CANCELLED)
    return invocation


def boundary_of(store: Store, run: Invocation) -> RunBoundary:
    return RunBoundary(run, *position(Lineage(run.session_id, run.run_id), events_of(store, run)))


def claim_on(store: Store, *chain: Invocation, before: tuple[Invocation, ...] = ()) -> ContinuationClaim:
    """The claim on the last of a chain of runs, before whose first one the session had the runs `before`."""
    source, lineage = chain[-1], events_of(store, *before, *chain)
    history = History()
    for stored in lineage:
        history.push(stored.event)
    _, digest = position(Lineage(source.session_id, source.run_id), lineage)
    replay = history.replay(source.invocation_id).digest()
    return ContinuationClaim.of(boundary_of(store, source), base_digest=digest, replay_digest=replay)


def opening(claim: ContinuationClaim, *, cwd: str | None = None, surface: Any = SURFACE) -> InvocationOpened:
    return InvocationOpened(ContinuationOpening(claim, DIGEST, surface), InvocationConfiguration(cwd=cwd))


def changed(claim: ContinuationClaim, **source: Any) -> ContinuationClaim:
    """The claim with another source."""
    boundary = attrs.evolve(claim.source, **source)
    return ContinuationClaim.of(boundary, base_digest=claim.base.digest, replay_digest=claim.replay_digest)
