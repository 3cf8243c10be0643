"""What a run that continues another is told: its lineage, whichever facts of the session the fold was given."""

from __future__ import annotations

from typing import Any

import pytest

from maka_trio import facts
from maka_trio.dialogue import Replay, Said
from maka_trio.errors import ReconciliationRequired
from maka_trio.facts.event import RuntimeEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.message import AssistantMessage, Message, TextContent, ToolMessage, UserMessage
from maka_trio.history import History
from maka_trio.request import input_digest
from tests.ground.test_history import DIGEST, OTHER, ROUTE, call, dispatched, settled, text

THINKING = facts.TextKind.THINKING


class Tale:
    """A session told run by run, to be folded whole or without some of its runs."""

    def __init__(self) -> None:
        self.events: list[RuntimeEvent] = []

    def tell(self, run: Invocation, *told: facts.Fact) -> None:
        self.events += [RuntimeEvent.new(run, fact) for fact in told]

    def asked(self, words: str = "question") -> Invocation:
        run = Invocation.new("session")
        self.tell(run, facts.InvocationOpened(facts.MessageOpening(facts.MessageInput(words))))
        return run

    def continued(self, source: Invocation, **settings: Any) -> Invocation:
        run = Invocation.new("session")
        claim = facts.ContinuationClaim.of(facts.RunBoundary(source, 1, DIGEST))
        configuration = facts.InvocationConfiguration(**settings)
        self.tell(run, facts.InvocationOpened(facts.ContinuationOpening(claim, DIGEST), configuration))
        return run

    def step(self, run: Invocation, *parts: facts.ModelPart, route: str = ROUTE) -> None:
        step_id = f"step {len(self.events)}"
        scope = facts.Session("session")
        self.tell(
            run,
            facts.ModelRequested(step_id, "model", scope, 1, DIGEST, DIGEST, route),
            facts.ModelCompleted(step_id, facts.ModelStep(parts, facts.FinishReason.STOP)),
        )
        for part in parts:
            if isinstance(part, facts.ToolCallPart) and not part.call.provider_executed:
                self.tell(
                    run, dispatched(part.call.id, step_id, part.call.name), settled(part.call.id, step_id=step_id)
                )

    def end(self, run: Invocation, outcome: facts.InvocationOutcome | None = None) -> Invocation:
        self.tell(run, facts.InvocationEnded(outcome or facts.Cancelled()))
        return run

    def fold(self, *without: Invocation) -> History:
        history = History()
        for event in self.events:
            if event.invocation not in without:
                history.push(event)
        return history


def said(history: History, route: str = ROUTE) -> list[Any]:
    """The texts of a prompt, and of each answer which call it is for."""
    return [_words(message) for message in history.prompt(route_identity=route, model_id="model")]


def _words(message: Message) -> Any:
    match message:
        case UserMessage(content=(TextContent(text=words),)):
            return words
        case AssistantMessage(parts=parts):
            return [part.text if isinstance(part, facts.TextPart) else type(part).__name__ for part in parts]
        case ToolMessage(call_id=call_id):
            return call_id
        case _:
            return message


def chain_with_siblings() -> tuple[Tale, list[Invocation]]:
    """Before, a stopped run, a sibling, its stopped continuation, a sibling, and a continuation that is open."""
    tale = Tale()
    before = tale.asked("before")
    tale.step(before, text("answer"))
    tale.end(before, facts.Completed())
    first = tale.asked("first")
    tale.step(first, call("1"))
    tale.step(first, text("half"))
    tale.end(first)
    siblings = [tale.asked("sibling")]
    tale.end(siblings[0])
    second = tale.continued(first)
    tale.step(second, text("then"), call("2"))
    tale.end(second)
    siblings.append(tale.asked("another"))
    tale.end(siblings[1])
    tale.continued(second)
    return tale, siblings


def test_the_lineage_of_a_chain_is_told_without_its_siblings() -> None:
    """And without the text that a stopped run left unfinished."""
    tale, _ = chain_with_siblings()
    assert said(tale.fold()) == ["before", ["answer"], "first", ["ToolCallPart"], "1", ["then", "ToolCallPart"], "2"]


def test_facts_of_siblings_make_no_difference() -> None:
    """Folded from the session or from the lineage alone, the prompt is the same to the last digit."""
    tale, siblings = chain_with_siblings()
    whole, alone = tale.fold(), tale.fold(*siblings)
    assert said(whole) == said(alone)
    digests = {one.input_digest(route_identity=ROUTE, model_id="model") for one in (whole, alone)}
    prompt = whole.prompt(route_identity=ROUTE, model_id="model")
    assert digests == {input_digest(prompt, facts.RequestSurface())}


def test_a_later_message_is_told_the_session_in_order() -> None:
    """Continuations project to nothing; what they did stands where the log has it, unfinished text included."""
    tale, _ = chain_with_siblings()
    tale.end(tale.events[-1].invocation)
    tale.asked("after")
    first = ["before", ["answer"], "first", ["ToolCallPart"], "1", ["half"]]
    assert said(tale.fold()) == [*first, "sibling", ["then", "ToolCallPart"], "2", "another", "after"]


def test_a_lineage_grows_with_its_run() -> None:
    """Prompts after each step begin with the prompt before, whose messages are the same objects."""
    tale, _ = chain_with_siblings()
    history, run = tale.fold(), tale.events[-1].invocation
    before = history.prompt(route_identity=ROUTE, model_id="model")
    digest = history.input_digest(route_identity=ROUTE, model_id="model")
    told = len(tale.events)
    tale.step(run, call("3"))
    for event in tale.events[told:]:
        history.push(event)
    after = history.prompt(route_identity=ROUTE, model_id="model")
    assert all(one is other for one, other in zip(before, after, strict=False))
    assert len(after) == len(before) + 2
    grown = history.input_digest(route_identity=ROUTE, model_id="model")
    assert grown == input_digest(after, facts.RequestSurface()) != digest


def test_a_continuation_has_a_system_prompt_of_its_own() -> None:
    """What its opening says, not what its source had."""
    tale = Tale()
    source = tale.end(tale.asked())
    tale.continued(source, system_prompt="be brief")
    history = tale.fold()
    system, *_ = history.prompt(route_identity=ROUTE, model_id="model")
    assert system == Message.system("be brief")
    prompt = history.prompt(route_identity=ROUTE, model_id="model")
    assert history.input_digest(route_identity=ROUTE, model_id="model") == input_digest(prompt, facts.RequestSurface())


def test_reasoning_of_the_lineage_stays_on_its_route() -> None:
    """As everywhere: thinking and metadata go back to who made them."""
    tale = Tale()
    source = tale.asked()
    tale.step(source, text("hm", THINKING), call("1"))
    tale.continued(tale.end(source))
    assert said(tale.fold()) == ["question", ["hm", "ToolCallPart"], "1"]
    assert said(tale.fold(), OTHER) == ["question", ["ToolCallPart"], "1"]


# --- what can be replayed ---------------------------------------------------------------------------------


def replay(outcome: facts.InvocationOutcome, *steps: tuple[facts.ModelPart, ...]) -> Replay:
    tale = Tale()
    source = tale.asked()
    for parts in steps:
        tale.step(source, *parts)
    tale.end(source, outcome)
    return tale.fold().replay(source.invocation_id)


CANCELLED, COMPLETED = facts.Cancelled(), facts.Completed()
HOSTED = (call("h", provider_executed=True), facts.ToolResultPart("h", "tool", "found"))
REPLAYS: dict[str, tuple[facts.InvocationOutcome, list[tuple[facts.ModelPart, ...]], int, str | None]] = {
    "nothing came back": (CANCELLED, [], 1, None),
    "text that was not finished": (CANCELLED, [(text("half"),)], 1, None),
    "thoughts that were not finished": (CANCELLED, [(text("hm", THINKING), text("half"))], 1, None),
    "texts that were not finished": (CANCELLED, [(text("half"),), (text("more"),)], 1, None),
    "a call with its answer": (CANCELLED, [(call("1"),)], 3, None),
    "text after a call": (CANCELLED, [(call("1"),), (text("half"),)], 3, None),
    "a turn that a tool ended": (COMPLETED, [(call("1"),)], 3, None),
    "an answer": (COMPLETED, [(text("answer"),)], 2, "nothing left to answer"),
    "a call of the provider's own": (CANCELLED, [HOSTED], 2, "not made again"),
    "text after a call of the provider's own": (CANCELLED, [HOSTED, (text("half"),)], 2, "not made again"),
}


@pytest.mark.parametrize(("outcome", "steps", "messages", "refusal"), REPLAYS.values(), ids=REPLAYS)
def test_a_replay_ends_where_there_is_something_to_answer(
    outcome: facts.InvocationOutcome, steps: list[tuple[facts.ModelPart, ...]], messages: int, refusal: str | None
) -> None:
    """Text of an unsettled turn is cut off; what is settled, or more than text, is not."""
    found = replay(outcome, *steps)
    assert len(found.said) == messages
    assert (found.refusal is None) if refusal is None else (refusal in (found.refusal or ""))


def test_only_the_source_is_cut() -> None:
    """Text that ended an earlier turn stays, whatever that turn came to."""
    tale = Tale()
    before = tale.asked("before")
    tale.step(before, text("half"))
    tale.end(before)
    source = tale.end(tale.asked())
    tale.continued(source)
    assert said(tale.fold()) == ["before", ["half"], "question"]


def test_a_replay_names_the_tools_of_its_local_calls() -> None:
    """Each once, in the order of their first call; those that the provider ran itself are its own."""
    found = replay(CANCELLED, HOSTED, (call("1", "b"), call("2", "a")), (call("3", "b"),))
    assert found.tools == ("b", "a")


def test_a_replay_has_a_digest_of_what_was_said_and_by_whom() -> None:
    """Another word or another route is another digest; the same is the same."""
    message = AssistantMessage((text("a"),))
    one = Replay((Said(message, (ROUTE, "model")),))
    assert one.digest() == Replay((Said(message, (ROUTE, "model")),)).digest()
    others = [
        Replay((Said(message),)),
        Replay((Said(message, (OTHER, "model")),)),
        Replay((Said(message, (ROUTE, "other")),)),
        Replay((Said(AssistantMessage((text("b"),)), (ROUTE, "model")),)),
        Replay((*one.said, *one.said)),
        Replay(()),
    ]
    assert len({one.digest(), *(other.digest() for other in others)}) == len(others) + 1


def test_only_an_ended_run_is_replayed() -> None:
    """One that is open, or not there, needs no guess."""
    tale = Tale()
    source = tale.asked()
    for name in (source.invocation_id, "nothing"):
        with pytest.raises(ReconciliationRequired, match="has not ended"):
            tale.fold().replay(name)
    tale.continued(source)
    with pytest.raises(ReconciliationRequired, match="has not ended"):
        said(tale.fold())


def test_a_run_that_continues_itself_is_not_followed_for_ever() -> None:
    """However such a log came about."""
    tale = Tale()
    first, second = Invocation.new("session"), Invocation.new("session")
    for run, source in ((first, second), (second, first)):
        claim = facts.ContinuationClaim.of(facts.RunBoundary(source, 1, DIGEST))
        tale.tell(run, facts.InvocationOpened(facts.ContinuationOpening(claim, DIGEST)))
        tale.end(run)
    with pytest.raises(ReconciliationRequired):
        tale.fold().replay(first.invocation_id)


def test_a_continuation_with_nothing_to_answer_has_no_prompt() -> None:
    """The fold does not make one up."""
    tale = Tale()
    source = tale.asked()
    tale.step(source, text("answer"))
    tale.continued(tale.end(source, COMPLETED))
    with pytest.raises(ReconciliationRequired, match="nothing left to answer"):
        said(tale.fold())
