"""The laws of runs that continue others: a lawful log breaks none, and each lie about a source breaks its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from maka_trio import facts
from maka_trio.dialogue import Replay
from maka_trio.facts import (
    ContinuationClaim,
    ContinuationOpening,
    Invocation,
    InvocationOpened,
    Lineage,
    ModelRequested,
    RunBoundary,
    RuntimeEvent,
    Session,
    StoredEvent,
)
from maka_trio.facts.codec import encode_event
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.history import History
from maka_trio.laws import LawChecker, check

DIGEST = "sha256:" + "0" * 64
WRONG = "sha256:" + "f" * 64
ROUTE = "sha256:" + "a" * 64


class Log:
    """Tells a log by hand, with everything in it as it should be unless a test says otherwise."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.histories: dict[str, History] = {}

    def tell(self, invocation: Invocation, *told: facts.Fact) -> None:
        for fact in told:
            event = RuntimeEvent.new(invocation, fact)
            self.events.append(StoredEvent(len(self.events) + 1, event))
            self.histories.setdefault(invocation.session_id, History()).push(event)

    def of(self, *runs: Invocation | None, session: str = "session") -> list[StoredEvent]:
        """The events of these runs; None stands for everything of the session."""
        return [
            stored
            for stored in self.events
            if stored.event.invocation.session_id == session and (None in runs or stored.event.invocation in runs)
        ]

    def open(self, session: str = "session", text: str = "question") -> Invocation:
        invocation = Invocation.new(session)
        self.tell(invocation, InvocationOpened(facts.MessageOpening(facts.MessageInput(text))))
        return invocation

    def ask(self, invocation: Invocation, scope: facts.Scope, source: list[StoredEvent], **changes: Any) -> None:
        """A request that is interrupted."""
        history = self.histories[invocation.session_id]
        digest = history.input_digest(route_identity=ROUTE, model_id="model")
        step = f"step {len(self.events)}"
        request = ModelRequested(step, "model", scope, *position(scope, source), digest, ROUTE)
        interrupted = facts.ModelInterrupted(step, facts.InterruptionStatus.FAILED)
        self.tell(invocation, attrs.evolve(request, **changes), interrupted)

    def stop(self, invocation: Invocation) -> None:
        self.tell(invocation, facts.InvocationEnded(facts.Cancelled()))

    def stopped(self, session: str = "session", text: str = "question") -> Invocation:
        invocation = self.open(session, text)
        self.ask(invocation, Session(session), self.of(None, session=session))
        self.stop(invocation)
        return invocation

    def claim(self, source: Invocation, lineage: list[StoredEvent], **changes: Any) -> ContinuationClaim:
        scope = Lineage(source.session_id, source.run_id)
        boundary = RunBoundary(source, *position(scope, self.of(source, session=source.session_id)))
        replay: Replay = self.histories[source.session_id].replay(source.invocation_id)
        digests = {"base_digest": position(scope, lineage)[1], "replay_digest": replay.digest()} | changes
        return ContinuationClaim.of(digests.pop("boundary", boundary), **digests)

    def continued(self, source: Invocation, lineage: list[StoredEvent], **changes: Any) -> Invocation:
        """A continuation that asks once and is stopped."""
        invocation = Invocation.new(source.session_id)
        claim = self.claim(source, lineage, **changes)
        self.tell(invocation, InvocationOpened(ContinuationOpening(claim, DIGEST)))
        own = self.of(invocation, session=source.session_id)
        self.ask(invocation, Lineage(source.session_id, invocation.run_id), [*lineage, *own])
        self.stop(invocation)
        return invocation

    def broken(self, **settings: Any) -> list[str]:
        return [f"{found.law}: {found.words}" for found in check(self.events, **settings)]


def position(scope: facts.Scope, events: list[StoredEvent]) -> tuple[int, str]:
    link = chain_start(scope)
    for stored in events:
        link = chain_next(link, stored.sequence, encode_event(stored.event))
    return (events[-1].sequence if events else 0), chain_text(link)


def chain_of_three() -> tuple[Log, Invocation, list[StoredEvent]]:
    """A run, a sibling, a continuation, another session between, a sibling, a continuation of that."""
    log = Log()
    log.stopped(text="before")
    first = log.stopped()
    lineage = log.of(None)
    log.stopped(text="sibling")
    log.stopped("other")
    second = log.continued(first, lineage)
    log.stopped(text="another sibling")
    lineage = [*lineage, *log.of(second)]
    return log, second, lineage


def test_a_chain_of_continuations_is_lawful() -> None:
    """With siblings and other sessions between its links, checked as a whole, by session and by lineage."""
    log, second, lineage = chain_of_three()
    third = log.continued(second, lineage)
    assert log.broken() == []
    assert list(check(log.of(None), scope=Session("session"))) == []
    scope = Lineage("session", third.run_id)
    whole = [*lineage, *log.of(third)]
    assert list(check(whole, scope=scope, digest=position(scope, whole)[1])) == []


def boundary(change: Callable[[RunBoundary], RunBoundary]) -> Callable[[Log, Invocation], dict[str, Any]]:
    def changes(log: Log, source: Invocation) -> dict[str, Any]:
        scope = Lineage("session", source.run_id)
        return {"boundary": change(RunBoundary(source, *position(scope, log.of(source))))}

    return changes


LIES: dict[str, tuple[Callable[[Log, Invocation], dict[str, Any]], str]] = {
    "the end of the source": (boundary(lambda at: attrs.evolve(at, high_water=at.high_water - 1)), "9: run"),
    "the digest of the source": (boundary(lambda at: attrs.evolve(at, digest=WRONG)), "9: run"),
    "the digest of the lineage": (lambda *_: {"base_digest": WRONG}, "9: the lineage"),
    "the digest of the replay": (lambda *_: {"replay_digest": WRONG}, "9: what run"),
}


@pytest.mark.parametrize(("lie", "words"), LIES.values(), ids=LIES)
def test_a_claim_that_is_not_true_breaks_the_law_of_evidence(
    lie: Callable[[Log, Invocation], dict[str, Any]], words: str
) -> None:
    """Each digest and the end are recomputed from the log."""
    log, second, lineage = chain_of_three()
    log.continued(second, lineage, **lie(log, second))
    (found,) = log.broken()
    assert found.startswith(words)


def test_a_run_continued_twice_breaks_a_law() -> None:
    """Whatever else is right about the second."""
    log, second, lineage = chain_of_three()
    log.continued(second, lineage)
    log.continued(second, lineage)
    assert [found[:2] for found in log.broken()] == ["1:"]
    assert "second time" in log.broken()[0]


def test_a_run_that_has_not_ended_is_no_source() -> None:
    """Neither is one of another session."""
    for session in ("session", "other"):
        log = Log()
        other = Invocation.new(session)
        claim = ContinuationClaim.of(RunBoundary(other, 1, DIGEST))
        log.events = []
        opened = RuntimeEvent.new(Invocation.new("session"), InvocationOpened(ContinuationOpening(claim, DIGEST)))
        log.events.append(StoredEvent(1, opened))
        assert any("has not ended in this session" in words for words in log.broken())


@pytest.mark.parametrize(
    "changes",
    [
        {"source_digest": WRONG},
        {"source_high_water": 1},
        {"source_scope": Session("session")},
        {"source_scope": Lineage("session", "other")},
    ],
    ids=repr,
)
def test_a_request_names_its_lineage_right(changes: dict[str, Any]) -> None:
    """Scope, end and digest."""
    log, second, lineage = chain_of_three()
    invocation = Invocation.new("session")
    log.tell(invocation, InvocationOpened(ContinuationOpening(log.claim(second, lineage), DIGEST)))
    source = [*lineage, *log.of(invocation)]
    log.ask(invocation, Lineage("session", invocation.run_id), source)
    assert log.broken() == []
    log.ask(invocation, Lineage("session", invocation.run_id), [*lineage, *log.of(invocation)], **changes)
    assert {found[:2] for found in log.broken()} == {"9:"}


def test_a_request_is_made_of_its_lineage() -> None:
    """Its input digest is recomputed without what the siblings said."""
    log, second, lineage = chain_of_three()
    invocation = Invocation.new("session")
    log.tell(invocation, InvocationOpened(ContinuationOpening(log.claim(second, lineage), DIGEST)))
    source = [*lineage, *log.of(invocation)]
    log.ask(invocation, Lineage("session", invocation.run_id), source, input_digest=WRONG)
    (found,) = log.broken()
    assert "input digest" in found


def test_an_answered_run_is_no_source() -> None:
    """There is nothing to go on with."""
    log = Log()
    answered = log.open()
    log.tell(
        answered,
        ModelRequested("s", "model", Session("session"), *position(Session("session"), log.of(None)),
                       log.histories["session"].input_digest(route_identity=ROUTE, model_id="model"), ROUTE),
        facts.ModelCompleted(
            "s", facts.ModelStep((facts.TextPart(facts.TextKind.TEXT, "answer"),), facts.FinishReason.STOP)
        ),
        facts.InvocationEnded(facts.Completed()),
    )  # fmt: skip
    invocation = Invocation.new("session")
    claim = log.claim(answered, log.of(None))
    log.tell(invocation, InvocationOpened(ContinuationOpening(claim, DIGEST)))
    assert any("nothing left to answer" in words for words in log.broken())


def test_without_the_events_only_their_digests_are_not_checked() -> None:
    """A checker that cannot read again says nothing of them, and everything else."""
    log, second, lineage = chain_of_three()
    log.continued(second, lineage, base_digest=WRONG)
    checker = LawChecker()
    assert [found for stored in log.events for found in checker.push(stored)] == []
    log.continued(second, lineage)
    assert [found.law for stored in log.events[-4:] for found in checker.push(stored)] == [1]
