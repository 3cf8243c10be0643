"""Each law: a lawful log passes, and a log broken in one way is reported as breaking that law and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import pytest

from maka_trio import laws, limits
from maka_trio.facts import (
    Cancelled,
    Completed,
    EffectFailed,
    EffectUnknown,
    ExecutorStarted,
    Fact,
    Failed,
    Finished,
    FinishReason,
    InterruptionStatus,
    Invocation,
    InvocationEnded,
    InvocationOpened,
    MessageImported,
    MessageInput,
    MessageOpening,
    MessageSteered,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    ModelStep,
    ModelToolCall,
    PartDelta,
    PartFinished,
    PartStarted,
    Root,
    RuntimeEvent,
    Session,
    StepPurpose,
    StoredEvent,
    TextKind,
    TextPart,
    ToolCallIdentity,
    ToolCallPart,
    ToolCallReady,
    ToolDispatched,
    ToolRejected,
    ToolRejection,
    ToolSettled,
)
from maka_trio.facts.codec import encode_event
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.history import History
from maka_trio.laws import LAWS, LawChecker, Violation, check

ROUTE = "sha256:" + "0" * 64
WRONG = "sha256:" + "f" * 64
CALLS = (ModelToolCall("c1", "echo", {"v": 1}), ModelToolCall("c2", "echo", {"v": 2}))


class Writer:
    """Writes a log whose evidence is right: sequences, sources and input digests."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self._chains: dict[str, tuple[int, bytes]] = {}
        self._histories: dict[str, History] = {}
        self._root = chain_start(Root())

    def write(self, run: Invocation, *facts: Fact) -> None:
        for fact in facts:
            event = RuntimeEvent(f"event-{len(self.events)}", 1, run, fact)
            stored = StoredEvent(len(self.events) * 2 + 1, event)
            high_water, chain = self._source(run)
            self._chains[run.session_id] = (stored.sequence, chain_next(chain, stored.sequence, encode_event(event)))
            self._root = chain_next(self._root, stored.sequence, encode_event(event))
            if not isinstance(fact, ModelObserved) and high_water is not None:
                self._histories.setdefault(run.session_id, History()).push(event)
            self.events.append(stored)

    def _source(self, run: Invocation) -> tuple[int, bytes]:
        return self._chains.get(run.session_id, (0, chain_start(Session(run.session_id))))

    def request(self, run: Invocation, step_id: str, purpose: StepPurpose = StepPurpose.MAIN) -> None:
        high_water, chain = self._source(run)
        history = self._histories[run.session_id]
        digest = history.input_digest(route_identity=ROUTE, model_id="m") if purpose is StepPurpose.MAIN else WRONG
        fact = ModelRequested(
            step_id, "m", Session(run.session_id), high_water, chain_text(chain), digest, ROUTE, purpose=purpose
        )
        self.write(run, fact)

    def step(self, run: Invocation, step_id: str, *calls: ModelToolCall) -> None:
        """A whole step: request, observations, completion."""
        self.request(run, step_id)
        self.write(run, *(ModelObserved(step_id, event) for event in stream(*calls)))
        self.write(run, ModelCompleted(step_id, output(*calls)))

    def digest(self) -> str:
        return chain_text(self._root)


def stream(*calls: ModelToolCall) -> list[object]:
    reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    said = [PartStarted("0"), PartDelta("0", "he"), PartDelta("0", "y"), PartFinished("0")]
    return [*said, *(ToolCallReady(call) for call in calls), Finished(reason)]


def output(*calls: ModelToolCall) -> ModelStep:
    reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    return ModelStep((TextPart(TextKind.TEXT, "hey"), *(ToolCallPart(call) for call in calls)), reason)


def opened() -> InvocationOpened:
    return InvocationOpened(MessageOpening(MessageInput("question")))


def ended(outcome: object = None) -> InvocationEnded:
    return InvocationEnded(outcome or Completed())  # type: ignore[arg-type]


def dispatched(step_id: str, call: ModelToolCall) -> ToolDispatched:
    return ToolDispatched(f"{step_id}:{call.id}", ToolCallIdentity.provider(step_id, call.id), call.name, call.input)


def rejected(step_id: str, call: ModelToolCall) -> ToolRejected:
    identity = ToolCallIdentity.provider(step_id, call.id)
    return ToolRejected(f"{step_id}:{call.id}", identity, call.name, call.input, ToolRejection.cancelled())


def settled(step_id: str, call: ModelToolCall) -> ToolSettled:
    return ToolSettled(f"{step_id}:{call.id}", EffectFailed("no"))


def new_run(number: int, session: str = "s") -> Invocation:
    return Invocation(session, f"turn-{number}", f"run-{number}", f"invocation-{number}")


RUN, NEXT, OTHER = new_run(1), new_run(2), new_run(3, "other")


def lawful() -> Writer:
    """Two runs of one session, with tools, a retry and a cancel, around a run of another session."""
    log = Writer()
    log.write(RUN, opened())
    log.step(RUN, "a", *CALLS)
    log.write(RUN, dispatched("a", CALLS[0]))
    log.write(OTHER, opened())
    log.write(RUN, settled("a", CALLS[0]), rejected("a", CALLS[1]))
    log.request(OTHER, "o")
    log.request(RUN, "b")
    log.write(RUN, ModelObserved("b", PartStarted("0")))
    log.write(RUN, ModelInterrupted("b", InterruptionStatus.RETRYABLE_FAILURE))
    log.step(RUN, "c")
    log.write(RUN, ended())
    log.write(NEXT, opened())
    log.step(NEXT, "d", *CALLS)
    log.write(NEXT, rejected("d", CALLS[0]), rejected("d", CALLS[1]), ended(Cancelled()))
    log.write(OTHER, ModelInterrupted("o", InterruptionStatus.CANCELLED), ended(Cancelled()))
    return log


def open_run(*calls: ModelToolCall) -> Writer:
    """A run with one completed step."""
    log = Writer()
    log.write(RUN, opened())
    log.step(RUN, "a", *calls)
    return log


def broken_laws(events: Iterable[StoredEvent], **settings: object) -> set[int]:
    return {violation.law for violation in check(events, **settings)}  # type: ignore[arg-type]


def rewritten(events: list[StoredEvent], position: int, fact: Fact) -> list[StoredEvent]:
    """The log with one fact put in the place of another; what comes before it keeps its evidence."""
    stored = events[position]
    event = attrs.evolve(stored.event, fact=fact)
    return [*events[:position], attrs.evolve(stored, event=event), *events[position + 1 :]]


def test_a_lawful_log_breaks_nothing() -> None:
    """Every law passes, the digest of the whole log included."""
    log = lawful()
    assert list(check(log.events, digest=log.digest())) == []


def test_every_prefix_of_a_lawful_log_is_lawful() -> None:
    """What is still open breaks nothing: a crash may cut a log anywhere."""
    events = lawful().events
    checker = LawChecker()
    for stored in events:
        assert checker.push(stored) == []
        assert checker.finish() == []


def test_one_session_of_a_lawful_log_is_lawful_by_itself() -> None:
    """The events of a scope are checked against the scope's own digest."""
    log = lawful()
    mine = [stored for stored in log.events if stored.event.invocation.session_id == "s"]
    chain = chain_start(Session("s"))
    for stored in mine:
        chain = chain_next(chain, stored.sequence, encode_event(stored.event))
    assert list(check(mine, scope=Session("s"), digest=chain_text(chain))) == []


def test_how_large_a_step_may_be_is_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine takes of one answer may change; a log that was lawful stays so."""
    monkeypatch.setattr(limits, "STEP_CALLS", 1)
    monkeypatch.setattr(limits, "STEP_INPUT_BYTES", 1)
    log = lawful()
    assert list(check(log.events, digest=log.digest())) == []


# --- one way each -------------------------------------------------------------------------------------------

Breaks = Callable[[], list[StoredEvent]]


def law_1_opened_twice() -> list[StoredEvent]:
    log = open_run()
    log.write(RUN, opened())
    return log.events


def law_1_opened_again_after_its_end() -> list[StoredEvent]:
    log = open_run()
    log.write(RUN, ended(), opened())
    return log.events


def law_1_ended_twice() -> list[StoredEvent]:
    log = open_run()
    log.write(RUN, ended(), ended())
    return log.events


def law_1_a_fact_after_the_end() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, rejected("a", CALLS[0]), ended(Cancelled()))
    log.write(RUN, MessageSteered(MessageInput("late")))
    return log.events


def law_1_a_fact_before_the_opening() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, MessageSteered(MessageInput("early")))
    return log.events


def law_1_another_identity_than_the_opening() -> list[StoredEvent]:
    log = open_run()
    log.write(attrs.evolve(RUN, turn_id="another"), ended())
    return log.events


def law_2_two_runs_of_a_session() -> list[StoredEvent]:
    log = open_run()
    log.write(NEXT, opened(), ended())
    log.write(RUN, ended())
    return log.events


def law_3_an_end_while_an_effect_is_alive() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, dispatched("a", CALLS[0]), ended(Cancelled()))
    return log.events


def law_3_an_end_while_a_foreign_agent_runs() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened(), ExecutorStarted({}), ended())
    return log.events


def law_3_settled_twice() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, dispatched("a", CALLS[0]), settled("a", CALLS[0]), settled("a", CALLS[0]))
    return log.events


def law_3_settled_without_a_dispatch() -> list[StoredEvent]:
    log = open_run()
    log.write(RUN, ToolSettled("nothing", EffectUnknown("?")))
    return log.events


def law_4_dispatched_again() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, dispatched("a", CALLS[0]), settled("a", CALLS[0]))
    return [*log.events, appended(log.events, RUN, dispatched("a", CALLS[0]))]


def law_4_dispatched_again_by_a_later_run() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, dispatched("a", CALLS[0]), settled("a", CALLS[0]), ended())
    log.write(NEXT, opened())
    return [*log.events, appended(log.events, NEXT, dispatched("a", CALLS[0]))]


def law_5_a_completion_without_a_request() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened(), ModelInterrupted("x", InterruptionStatus.FAILED))
    return log.events


def law_5_completed_and_interrupted() -> list[StoredEvent]:
    log = open_run()
    log.write(RUN, ModelInterrupted("a", InterruptionStatus.FAILED))
    return log.events


def law_5_an_end_without_a_completion() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened())
    log.request(RUN, "a")
    log.write(RUN, ended(Cancelled()))
    return log.events


def law_5_requested_twice() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened())
    log.request(RUN, "a")
    log.request(RUN, "a")
    return log.events


def law_5_an_observation_before_the_request() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened(), ModelObserved("a", PartStarted("0")))
    return log.events


def law_6_an_end_with_an_undecided_call() -> list[StoredEvent]:
    log = open_run(*CALLS)
    log.write(RUN, rejected("a", CALLS[0]))
    return [*log.events, appended(log.events, RUN, ended(Cancelled()))]


def law_6_a_request_with_an_undecided_call() -> list[StoredEvent]:
    return request_in_the_middle(open_run(CALLS[0]))


def law_6_rejected_after_its_dispatch() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, dispatched("a", CALLS[0]), settled("a", CALLS[0]))
    return [*log.events, appended(log.events, RUN, rejected("a", CALLS[0]))]


def law_6_dispatched_after_its_rejection() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, rejected("a", CALLS[0]))
    return [*log.events, appended(log.events, RUN, dispatched("a", CALLS[0]))]


def law_6_dispatched_before_its_step_completed() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened())
    log.request(RUN, "a")
    return [*log.events, appended(log.events, RUN, dispatched("a", CALLS[0]))]


def law_7_an_observation_after_the_completion() -> list[StoredEvent]:
    log = open_run()
    log.write(RUN, ModelObserved("a", PartStarted("9")))
    return log.events


def law_7_an_output_that_was_never_observed() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened())
    log.request(RUN, "a")
    log.write(RUN, *(ModelObserved("a", event) for event in stream()), ModelCompleted("a", output(CALLS[0])))
    return log.events


def law_7_a_completion_before_the_stream_finished() -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened())
    log.request(RUN, "a")
    log.write(RUN, ModelObserved("a", PartStarted("0")), ModelCompleted("a", output()))
    return log.events


def law_8_a_request_while_a_call_has_no_answer() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, dispatched("a", CALLS[0]))
    return request_in_the_middle(log)


def law_8_a_message_between_call_and_answer() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    log.write(RUN, dispatched("a", CALLS[0]), MessageSteered(MessageInput("hurry")), settled("a", CALLS[0]))
    return log.events


def law_8_an_outcome_for_another_call() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    return [*log.events, appended(log.events, RUN, dispatched("a", attrs.evolve(CALLS[0], id="other")))]


def law_8_an_outcome_with_another_input() -> list[StoredEvent]:
    log = open_run(CALLS[0])
    return [*log.events, appended(log.events, RUN, dispatched("a", attrs.evolve(CALLS[0], input={"v": 9})))]


def law_8_two_calls_with_one_id() -> list[StoredEvent]:
    twins = (CALLS[0], attrs.evolve(CALLS[1], id="c1"))
    log = Writer()
    log.write(RUN, opened())
    log.request(RUN, "a")
    return [*log.events, appended(log.events, RUN, ModelCompleted("a", output(*twins)))]


def law_8_a_providers_call_without_its_result() -> list[StoredEvent]:
    return open_run_unchecked(attrs.evolve(CALLS[0], provider_executed=True))


def law_9_a_sequence_that_does_not_rise() -> list[StoredEvent]:
    events = open_run().events
    last = appended(events, RUN, ended())
    return [*events, attrs.evolve(last, sequence=events[-1].sequence)]


def law_9_another_source_than_the_log() -> list[StoredEvent]:
    events = lawful().events
    position = next(i for i, stored in enumerate(events) if isinstance(stored.event.fact, ModelRequested))
    request = events[position].event.fact
    return rewritten(events[: position + 1], position, attrs.evolve(request, source_digest=WRONG))


def law_9_another_high_water_than_the_log() -> list[StoredEvent]:
    events = lawful().events
    position = next(i for i, stored in enumerate(events) if isinstance(stored.event.fact, ModelRequested))
    request = events[position].event.fact
    return rewritten(events[: position + 1], position, attrs.evolve(request, source_high_water=999))


def law_9_an_input_digest_of_something_else() -> list[StoredEvent]:
    events = lawful().events
    position = next(i for i, stored in enumerate(events) if isinstance(stored.event.fact, ModelRequested))
    request = events[position].event.fact
    return rewritten(events[: position + 1], position, attrs.evolve(request, input_digest=WRONG))


def appended(events: list[StoredEvent], run: Invocation, fact: Fact) -> StoredEvent:
    """One more event, unchecked by the writer's own history."""
    return StoredEvent(events[-1].sequence + 1, RuntimeEvent("appended", 1, run, fact))


def request_in_the_middle(log: Writer) -> list[StoredEvent]:
    """The log with a request whose source is right, though it may not come there."""
    high_water, chain = log._source(RUN)
    fact = ModelRequested("next", "m", Session("s"), high_water, chain_text(chain), WRONG, ROUTE)
    return [*log.events, appended(log.events, RUN, fact)]


def open_run_unchecked(*calls: ModelToolCall) -> list[StoredEvent]:
    log = Writer()
    log.write(RUN, opened())
    log.request(RUN, "a")
    return [*log.events, appended(log.events, RUN, ModelCompleted("a", output(*calls)))]


BROKEN = [value for name, value in list(globals().items()) if name.startswith("law_")]


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_a_log_broken_in_one_way_breaks_one_law(breaks: Breaks) -> None:
    """The report names the law that is broken, and that law alone."""
    law = int(breaks.__name__.split("_")[1])
    found = list(check(breaks()))
    assert [violation.law for violation in found] == [law]
    assert str(found[0]).startswith(f"law {law} at sequence ")


def test_every_law_has_a_sentence_and_a_broken_log() -> None:
    """No law is without a test of its own."""
    assert sorted(LAWS) == list(range(1, 10))
    assert {int(breaks.__name__.split("_")[1]) for breaks in BROKEN} == set(LAWS)


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_a_fact_is_spared_only_laws_that_say_nothing_of_it(breaks: Breaks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which facts a law is about is written down beside it; shown every fact, it finds the same."""
    expected = list(check(breaks()))
    monkeypatch.setattr(laws, "_LAWS_OF", {})
    monkeypatch.setattr(laws, "_LAWS_OF_ANY", tuple((number, law) for number, law, _ in laws._LAWS))
    assert list(check(breaks())) == expected


def test_a_changed_event_breaks_the_digest_of_the_log() -> None:
    """Law 9: nobody can change an event, take one out or add one and keep the digest."""
    log = lawful()
    late = attrs.evolve(log.events[-1], event=attrs.evolve(log.events[-1].event, recorded_at=2))
    for events in ([*log.events[:-1], late], log.events[:-1]):
        (violation,) = check(events, digest=log.digest())
        assert (violation.law, violation.sequence) == (9, None)
        assert str(violation).startswith("law 9 at the end: ")


def test_an_unknown_outcome_may_end_with_an_effect_alive() -> None:
    """Law 3 has one exception, and the projection answers such a call by itself."""
    log = open_run(*CALLS)
    log.write(RUN, dispatched("a", CALLS[0]), rejected("a", CALLS[1]), ended(Failed("outcome_unknown")))
    log.write(NEXT, opened())
    log.step(NEXT, "b")
    assert list(check(log.events)) == []


def test_settlements_may_come_in_any_order() -> None:
    """Calls that ran at once settle as they finish; the history keeps call order."""
    log = open_run(*CALLS)
    log.write(RUN, dispatched("a", CALLS[0]), dispatched("a", CALLS[1]))
    log.write(RUN, settled("a", CALLS[1]), settled("a", CALLS[0]))
    log.step(RUN, "b")
    assert list(check(log.events)) == []


def test_a_private_summary_is_no_request_of_the_turn() -> None:
    """A summary may be asked for while calls are open; its own calls are nobody's to run."""
    log = open_run(CALLS[0])
    log.request(RUN, "sum", StepPurpose.SUMMARY)
    log.write(RUN, ModelCompleted("sum", output(CALLS[1])), rejected("a", CALLS[0]))
    log.step(RUN, "b")
    log.write(RUN, ended())
    assert list(check(log.events)) == []


def test_imported_messages_have_no_invocation() -> None:
    """Foreign history needs no opening, and ends what can be recomputed of the session."""
    log = Writer()
    log.events.append(StoredEvent(1, RuntimeEvent("e", 1, RUN, MessageImported("elsewhere", {}))))
    assert list(check(log.events)) == []


def test_a_step_without_observations_is_taken_as_it_is() -> None:
    """A reader may leave observations out; then law 7 has nothing to compare."""
    events = [stored for stored in lawful().events if not isinstance(stored.event.fact, ModelObserved)]
    assert broken_laws(events, history=None) == {9}  # the sources were taken with them
    log = Writer()
    log.write(RUN, opened())
    log.request(RUN, "a")
    log.write(RUN, ModelCompleted("a", output()), ended())
    assert list(check(log.events)) == []


def test_without_history_input_digests_are_left_alone() -> None:
    """The caller may save the memory that conversations take."""
    assert list(check(law_9_an_input_digest_of_something_else(), history=None)) == []
    assert broken_laws(law_9_another_source_than_the_log(), history=None) == {9}


def test_a_wrong_event_does_not_drag_the_rest_down() -> None:
    """After a violation the checker goes on, and reports what comes later once more only if it is wrong itself."""
    log = open_run(*CALLS)
    events = [*log.events, appended(log.events, RUN, ended(Cancelled()))]
    found = list(check(events))
    assert [violation.law for violation in found] == [6, 6]
    assert found[0] == Violation(6, events[-1].sequence, found[0].words)
    assert "'a:c1'" in found[0].words


def test_the_book_forgets_what_has_ended() -> None:
    """Memory is bounded by what is open: after the ends only a number an invocation is left."""
    checker = LawChecker(history=None)
    for stored in lawful().events:
        checker.push(stored)
    assert checker._book._open == {}
    assert len(checker._book._ended) == 3
