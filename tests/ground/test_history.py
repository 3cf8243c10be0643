"""The fold from facts to the next request's messages: pairing, order, routes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from maka_trio import facts
from maka_trio.errors import ReconciliationRequired
from maka_trio.facts.event import RuntimeEvent
from maka_trio.facts.identity import Invocation, ToolCallIdentity
from maka_trio.facts.message import (
    AssistantMessage,
    ErrorOutput,
    JsonOutput,
    MediaContent,
    SystemMessage,
    TextContent,
    TextOutput,
    ToolMessage,
    UserMessage,
)
from maka_trio.facts.opening import InvocationConfiguration
from maka_trio.history import History
from maka_trio.request import input_digest
from maka_trio.tellings import NOTICE_OPERATIONS, OUTCOME_UNKNOWN_TEXT

ROUTE = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
DIGEST = "sha256:" + "0" * 64


class Story:
    """Tells a session's facts to a history, with as few words as a test needs."""

    def __init__(self) -> None:
        self.history = History()
        self.invocation = Invocation.new("session")

    def tell(self, *told: facts.Fact) -> Story:
        for fact in told:
            self.history.push(RuntimeEvent.new(self.invocation, fact))
        return self

    def open(self, text: str = "question", *, prior_unknown: bool = False, system: str | None = None) -> Story:
        self.invocation = Invocation.new("session")
        opening = facts.MessageOpening(facts.MessageInput(text), allow_prior_unknown=prior_unknown)
        return self.tell(facts.InvocationOpened(opening, InvocationConfiguration(system_prompt=system)))

    def step(self, *parts: facts.ModelPart, step_id: str = "step", route: str = ROUTE, **settings: Any) -> Story:
        return self.tell(
            facts.ModelRequested(step_id, "model", facts.Session("session"), 1, DIGEST, DIGEST, route, **settings),
            facts.ModelCompleted(step_id, facts.ModelStep(parts, facts.FinishReason.STOP)),
        )

    def end(self) -> Story:
        return self.tell(facts.InvocationEnded(facts.Completed()))

    def messages(self, route: str = ROUTE) -> tuple[Any, ...]:
        return self.history.prompt(route_identity=route, model_id="model")


def text(value: str, kind: facts.TextKind = facts.TextKind.TEXT, **options: Any) -> facts.TextPart:
    return facts.TextPart(kind, value, **options)


def call(call_id: str, name: str = "tool", **settings: Any) -> facts.ToolCallPart:
    return facts.ToolCallPart(facts.ModelToolCall(call_id, name, {"n": 1}, **settings))


def dispatched(call_id: str, step_id: str = "step", name: str = "tool") -> facts.ToolDispatched:
    return facts.ToolDispatched(f"{step_id}:{call_id}", ToolCallIdentity.provider(step_id, call_id), name, {"n": 1})


def settled(call_id: str, outcome: Any = None, step_id: str = "step") -> facts.ToolSettled:
    succeeded = facts.Succeeded(facts.RawResult(1, DIGEST), TextOutput(f"result {call_id}"))
    return facts.ToolSettled(f"{step_id}:{call_id}", outcome or succeeded)


def rejected(call_id: str, step_id: str = "step") -> facts.ToolRejected:
    identity = ToolCallIdentity.provider(step_id, call_id)
    return facts.ToolRejected(f"{step_id}:{call_id}", identity, "tool", {"n": 1}, facts.ToolRejection.cancelled())


def test_a_turn_is_a_user_message_and_what_the_model_said() -> None:
    """The parts of a step stay in order; citations are for people and stay out."""
    source = facts.SourcePart(facts.UrlSource("1", "https://example.org"))
    story = Story().open("hi").step(text("hm", facts.TextKind.THINKING), source, text("hello"))
    assert story.messages() == (
        UserMessage((TextContent("hi"),)),
        AssistantMessage((text("hm", facts.TextKind.THINKING), text("hello"))),
    )


def test_answers_come_in_call_order_whatever_the_order_of_outcomes() -> None:
    """Three calls that finish 3, 1 and are refused 2."""
    story = Story().open().step(call("1"), call("2"), call("3"))
    story.tell(dispatched("1"), dispatched("3"), settled("3"), rejected("2"), settled("1"))
    assert story.messages()[2:] == (
        ToolMessage("1", "tool", TextOutput("result 1")),
        ToolMessage("2", "tool", ErrorOutput(str(facts.ToolRejection.cancelled()))),
        ToolMessage("3", "tool", TextOutput("result 3")),
    )


def test_failed_and_unknown_outcomes_are_errors_for_the_model() -> None:
    """The message of the settlement is what the model reads."""
    story = Story().open().step(call("1"), call("2"))
    story.tell(dispatched("1"), settled("1", facts.EffectFailed("no")))
    story.tell(dispatched("2"), settled("2", facts.EffectUnknown("perhaps")))
    assert [message.output for message in story.messages()[2:]] == [ErrorOutput("no"), ErrorOutput("perhaps")]


def test_no_request_is_built_while_a_call_has_no_outcome() -> None:
    """Not even if the other calls of the step have theirs."""
    story = Story().open().step(call("1"), call("2")).tell(dispatched("1"), settled("1"))
    with pytest.raises(ReconciliationRequired, match="step:2"):
        story.messages()
    assert story.history.open_calls() == (("step", call("2").call),)


def test_a_cancelled_turn_leaves_its_user_message() -> None:
    """Two user messages in a row are normal."""
    story = Story().open("one").end().open("two")
    assert story.messages() == (UserMessage((TextContent("one"),)), UserMessage((TextContent("two"),)))


def test_observations_interruptions_and_empty_steps_are_no_history() -> None:
    """Only a completed step with content says something."""
    story = Story().open()
    story.tell(
        facts.ModelRequested("s1", "model", facts.Session("session"), 1, DIGEST, DIGEST, ROUTE),
        facts.ModelObserved("s1", facts.PartStarted("p")),
        facts.ModelInterrupted("s1", facts.InterruptionStatus.RETRYABLE_FAILURE),
    )
    story.step(step_id="s2")
    assert len(story.messages()) == 1


def test_summary_steps_are_private() -> None:
    """What a summary request said is no part of the conversation."""
    story = Story().open().step(text("a summary"), purpose=facts.StepPurpose.SUMMARY)
    assert len(story.messages()) == 1


def test_reasoning_and_metadata_stay_on_their_route() -> None:
    """Byte-equal where they were made; elsewhere the text and the calls alone."""
    signed = text("hm", facts.TextKind.THINKING, provider_options={"anthropic": {"signature": "x"}})
    asked = call("1", provider_options={"openai": {"id": "fc_1"}})
    story = Story().open().step(signed, text("hello", provider_options={"openai": {"id": "m"}}), asked)
    story.tell(dispatched("1"), settled("1"))
    assert story.messages()[1].parts[0] == signed
    assert story.messages(OTHER)[1].parts == (text("hello"), call("1"))
    assert story.messages()[1].parts[0] == signed


def test_a_thought_alone_says_nothing_on_another_route() -> None:
    """There is no empty assistant message."""
    story = Story().open().step(text("hm", facts.TextKind.THINKING))
    assert len(story.messages()) == 2
    assert len(story.messages(OTHER)) == 1


def test_provider_executed_calls_wait_for_nothing() -> None:
    """They and their results are part of what the model said."""
    hosted = call("1", provider_executed=True)
    result = facts.ToolResultPart("1", "tool", {"found": 1})
    story = Story().open().step(hosted, result, text("so"))
    assert story.messages()[1].parts == (hosted, result, text("so"))


def test_the_notice_names_what_may_have_happened() -> None:
    """Only for a run that was admitted in spite of it; the list is bounded."""
    story = Story().open(system="Be careful.")
    story.step(*(call(str(n), f"tool{n}") for n in range(NOTICE_OPERATIONS + 3)))
    for n in range(NOTICE_OPERATIONS + 3):
        story.tell(dispatched(str(n), name=f"tool{n}"))
    story.end()
    story.open("next", prior_unknown=True, system="Be careful.")
    system, _, _, first, *_ = story.messages()
    assert isinstance(system, SystemMessage)
    assert system.text.startswith("Be careful.\n\n")
    assert f"tool{NOTICE_OPERATIONS - 1} (step:{NOTICE_OPERATIONS - 1})" in system.text
    assert f"(step:{NOTICE_OPERATIONS})" not in system.text
    assert "and 3 more" in system.text
    assert first.output == ErrorOutput(OUTCOME_UNKNOWN_TEXT)
    assert OUTCOME_UNKNOWN_TEXT.startswith("outcome_unknown")
    story.end()
    assert story.open("later", system="Be careful.").messages()[0] == SystemMessage("Be careful.")


def test_a_sealed_run_may_not_leave_a_call_without_an_outcome() -> None:
    """Neither dispatched nor rejected: nobody can say what happened, and nobody guesses."""
    story = Story().open().step(call("1"))
    with pytest.raises(ReconciliationRequired, match="step:1"):
        story.end()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param([dispatched("9")], id="dispatch-of-no-call"),
        pytest.param([dispatched("1"), dispatched("1")], id="dispatched-twice"),
        pytest.param([rejected("1"), dispatched("1")], id="rejected-then-dispatched"),
        pytest.param([dispatched("1", name="other")], id="another-name"),
        pytest.param([settled("1")], id="settled-without-dispatch"),
    ],
)
def test_facts_that_do_not_pair_are_refused(wrong: list[facts.Fact]) -> None:
    """Strict pairing: by operation, call id and name."""
    story = Story().open().step(call("1"), call("2"))
    with pytest.raises(ReconciliationRequired):
        story.tell(*wrong)


def test_nested_operations_answer_no_call_of_the_model() -> None:
    """A cell's own calls are settled in the log and invisible in the conversation."""
    story = Story().open().step(call("1")).tell(dispatched("1"))
    inner = ToolCallIdentity("inner", facts.CodeMode("step:1", "1"))
    story.tell(facts.ToolDispatched("op", inner, "nested", {}), facts.ToolSettled("op", facts.EffectFailed("no")))
    story.tell(settled("1"))
    assert len(story.messages()) == 3


def test_a_steered_message_is_marked_as_the_users() -> None:
    """It stands in an envelope with the query on lines of its own."""
    story = Story().open().step(text("working")).tell(facts.MessageSteered(facts.MessageInput("stop that")))
    (part,) = story.messages()[-1].content
    assert "<user_query>\nstop that\n</user_query>" in part.text


def test_quotes_stand_before_the_text() -> None:
    """Quoted lines are marked, with where they are from."""
    story = Story()
    content = facts.MessageInput("and this?", quotes=(facts.Quote("a\nb", "page 1"),))
    story.tell(facts.InvocationOpened(facts.MessageOpening(content)))
    quoted, own = story.messages()[0].content
    assert quoted.text == "> a\n> b\n(page 1)"
    assert own.text == "and this?"


def test_kinds_of_a_later_version_are_named_and_not_guessed() -> None:
    """A session that was compacted cannot be continued by a version that cannot read the summary."""
    checkpoint = facts.ContextCheckpoint(facts.CheckpointMode.STANDALONE, 1, DIGEST, "summary", "step")
    with pytest.raises(ReconciliationRequired, match="context_checkpoint_recorded"):
        Story().open().tell(facts.ContextCheckpointRecorded(checkpoint))
    with pytest.raises(ReconciliationRequired, match="context_compact"):
        Story().tell(facts.InvocationOpened(facts.ContextCompactOpening("fingerprint")))


def test_the_incremental_fold_equals_the_whole_one() -> None:
    """Reading the prompt between facts changes nothing about what is read later."""

    def told(ask: bool) -> tuple[Any, ...]:
        story = Story().open("one")
        if ask:
            story.messages()
        story.step(call("1"), call("2"))
        story.tell(dispatched("1"), settled("1"), rejected("2"))
        if ask:
            story.messages()
            story.messages(OTHER)
        story.step(text("done"), step_id="step2").end().open("two")
        return story.messages()

    assert told(True) == told(False)


def test_the_growing_digest_is_the_digest_of_the_whole_prompt() -> None:
    """At every length, with and without a system prompt, and after a change of route."""
    story = Story()
    for turn, system in enumerate([None, "Be brief.", "Be brief.", "Be kind.", None]):
        story.open(f"turn {turn}", system=system).step(text("so"), step_id=f"step{turn}")
        for route in (ROUTE, OTHER, ROUTE):
            whole = input_digest(story.messages(route), story.history.surface)
            assert story.history.input_digest(route_identity=route, model_id="model") == whole
        story.end()


def test_json_results_are_json_for_the_model() -> None:
    """The projection is handed on as it is."""
    outcome = facts.Succeeded(facts.RawResult(1, DIGEST), JsonOutput({"a": 1}))
    story = Story().open().step(call("1")).tell(dispatched("1"), settled("1", outcome))
    assert story.messages()[-1].output == JsonOutput({"a": 1})


def test_prompts_of_one_conversation_begin_with_the_same_objects() -> None:
    """The system message too, so that an adapter knows again what it has encoded; a changed one is another."""
    story = Story().open(system="be brief").step(text("one"))
    first = story.messages()
    longer = story.step(text("two"), step_id="later").messages()
    assert all(one is other for one, other in zip(first, longer, strict=False))
    assert longer.continues(first)  # type: ignore[attr-defined]
    changed = story.end().open(system="be brief again").messages()
    assert not changed.continues(longer)  # type: ignore[attr-defined]


def test_history_says_whether_it_holds_media() -> None:
    """In what the user said or a tool answered; most conversations need no look at their messages."""
    story = Story().open().step(text("one"))
    assert not story.history.holds_media
    picture = MediaContent("image/png", url="http://x/y.png")
    content = facts.MessageInput("look", parts=(TextContent("look"), picture))
    story.end().tell(facts.InvocationOpened(facts.MessageOpening(content)))
    assert story.history.holds_media
