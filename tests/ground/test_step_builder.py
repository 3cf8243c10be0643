"""`StepBuilder`: which events make a step, and which make it void for good."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio import limits
from maka_trio.errors import AdapterError
from maka_trio.facts import (
    Finished,
    FinishReason,
    ModelEvent,
    ModelStep,
    ModelToolCall,
    ModelUsage,
    PartDelta,
    PartFinished,
    PartStarted,
    ProviderToolResult,
    ResponseMetadata,
    SourceCited,
    SourcePart,
    TextKind,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolResultPart,
    UrlSource,
)
from maka_trio.steps import StepBuilder

STOP = Finished(FinishReason.STOP)


def built(*events: ModelEvent, step_id: str | None = None) -> ModelStep:
    builder = StepBuilder(step_id)
    for event in events:
        builder.push(event)
    return builder.finish()


def local(call_id: str, name: str = "put") -> ToolCallReady:
    return ToolCallReady(ModelToolCall(call_id, name, {"n": 1}))


def hosted(call_id: str, name: str = "search") -> ToolCallReady:
    return ToolCallReady(ModelToolCall(call_id, name, {}, provider_executed=True))


# --- what a step is made of -------------------------------------------------------------------------------


def test_parts_stand_in_the_order_they_started() -> None:
    """Text, calls, results and sources, each in its place, deltas joined."""
    source = UrlSource("s1", "https://example.org")
    step = built(
        PartStarted("a", TextKind.THINKING),
        PartDelta("a", "hm"),
        PartFinished("a"),
        local("c1"),
        hosted("c2"),
        ProviderToolResult("c2", "search", [1]),
        SourceCited(source),
        PartStarted("b"),
        PartDelta("b", "An"),
        PartDelta("b", "swer"),
        PartFinished("b"),
        Finished(FinishReason.TOOL_CALLS, ModelUsage(1, 2)),
    )
    assert step.parts == (
        TextPart(TextKind.THINKING, "hm"),
        ToolCallPart(ModelToolCall("c1", "put", {"n": 1})),
        ToolCallPart(ModelToolCall("c2", "search", {}, provider_executed=True)),
        ToolResultPart("c2", "search", [1]),
        SourcePart(source),
        TextPart(TextKind.TEXT, "Answer"),
    )
    assert step.finish_reason is FinishReason.TOOL_CALLS
    assert step.usage == ModelUsage(1, 2)
    assert step.text() == "Answer"
    assert [call.id for call in step.tool_calls()] == ["c1", "c2"]
    assert [call.id for call in step.local_calls()] == ["c1"]


def test_text_parts_that_interleave_keep_the_order_of_their_starts() -> None:
    """Each delta goes to its own part."""
    step = built(
        PartStarted("a"),
        PartStarted("b"),
        PartDelta("b", "2"),
        PartDelta("a", "1"),
        PartFinished("b"),
        PartDelta("a", "1"),
        PartFinished("a"),
        STOP,
    )
    assert [part.text for part in step.parts if isinstance(part, TextPart)] == ["11", "2"]


@given(st.lists(st.text(max_size=5), max_size=6), st.data())
def test_however_a_text_is_cut_the_step_is_the_same(pieces: list[str], data: st.DataObject) -> None:
    """A delta is a way of sending, not a thing of its own."""
    text = "".join(pieces)
    cut = data.draw(st.integers(0, len(text)))
    whole = built(PartStarted("a"), *[PartDelta("a", piece) for piece in pieces], PartFinished("a"), STOP)
    halves = built(PartStarted("a"), PartDelta("a", text[:cut]), PartDelta("a", text[cut:]), PartFinished("a"), STOP)
    assert whole == halves


def test_provider_options_of_a_part_merge_and_the_later_leaf_wins() -> None:
    """A signature at the end replaces the one of the start and keeps its siblings."""
    step = built(
        PartStarted("a", TextKind.THINKING, {"x": {"signature": "", "kind": "k"}}),
        PartDelta("a", "t", {"x": {"index": 1}}),
        PartFinished("a", {"x": {"signature": "sig"}}),
        STOP,
    )
    (part,) = step.parts
    assert part.provider_options == {"x": {"signature": "sig", "kind": "k", "index": 1}}  # type: ignore[union-attr]


def test_later_response_metadata_overrides_only_what_it_states() -> None:
    """What it leaves out stays."""
    step = built(ResponseMetadata("r1", "m1", 5), ResponseMetadata(model="m2"), ResponseMetadata(timestamp=0), STOP)
    assert (step.response_id, step.model, step.timestamp) == ("r1", "m2", 0)


def test_an_empty_answer_is_a_step() -> None:
    """A model may finish without a word."""
    assert built(STOP) == ModelStep((), FinishReason.STOP)


def test_the_end_carries_options_and_usage() -> None:
    """What the provider said at the end belongs to the step."""
    step = built(Finished(FinishReason.LENGTH, ModelUsage(output_tokens=3), {"raw": "max_tokens"}))
    assert (step.finish_reason, step.usage.output_tokens, step.provider_options) == (
        FinishReason.LENGTH,
        3,
        {"raw": "max_tokens"},
    )


# --- what makes it void -----------------------------------------------------------------------------------

VIOLATIONS: dict[str, tuple[list[ModelEvent], Any]] = {
    "a part that starts twice": ([PartStarted("a")], PartStarted("a")),
    "a part that starts again after its end": ([PartStarted("a"), PartFinished("a")], PartStarted("a")),
    "a delta without a part": ([], PartDelta("a", "x")),
    "a delta after the end of its part": ([PartStarted("a"), PartFinished("a")], PartDelta("a", "x")),
    "an end without a part": ([], PartFinished("a")),
    "a second end": ([PartStarted("a"), PartFinished("a")], PartFinished("a")),
    "two calls of one id": ([local("c")], local("c", "other")),
    "a local and a hosted call of one id": ([local("c")], hosted("c")),
    "a call without id": ([], local("")),
    "a call without name": ([], local("c", "")),
    "a result without a call": ([], ProviderToolResult("c", "search", None)),
    "a result for a local call": ([local("c")], ProviderToolResult("c", "put", None)),
    "a result under another name": ([hosted("c")], ProviderToolResult("c", "put", None)),
    "a second result": (
        [hosted("c"), ProviderToolResult("c", "search", 1)],
        ProviderToolResult("c", "search", 1),
    ),
    "a finish with an open part": ([PartStarted("a")], STOP),
    "a finish with a hosted call unanswered": ([hosted("c")], STOP),
    "a second finish": ([STOP], STOP),
    "metadata after the finish": ([STOP], ResponseMetadata("r")),
    "a part after the finish": ([STOP], PartStarted("a")),
    "what is no event": ([], "text"),
    "a step in place of an event": ([], ModelStep((), FinishReason.STOP)),
}


@pytest.mark.parametrize(("before", "event"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_is_refused_and_poisons_the_builder_for_good(before: list[ModelEvent], event: Any) -> None:
    """Neither a good event nor the finish is taken after it."""
    builder = StepBuilder()
    for good in before:
        builder.push(good)
    with pytest.raises(AdapterError):
        builder.push(event)
    for later in (PartStarted("new"), STOP):
        with pytest.raises(AdapterError, match="void"):
            builder.push(later)
    with pytest.raises(AdapterError, match="void"):
        builder.finish()


def test_a_finish_before_the_response_finished_poisons_too() -> None:
    """Whoever asks too early does not get the step later."""
    builder = StepBuilder()
    builder.push(PartStarted("a"))
    with pytest.raises(AdapterError, match="did not finish"):
        builder.finish()
    with pytest.raises(AdapterError, match="void"):
        builder.push(PartFinished("a"))


def test_the_step_may_be_asked_for_twice() -> None:
    """The answer is a value."""
    builder = StepBuilder()
    builder.push(STOP)
    assert builder.finish() == builder.finish()


# --- identities -------------------------------------------------------------------------------------------


def test_an_operation_id_of_4096_bytes_is_admitted_and_one_more_is_not() -> None:
    """Step id, colon and call id together."""
    assert built(local("x" * 4091), Finished(FinishReason.TOOL_CALLS), step_id="step").tool_calls()
    for call_id in ("x" * 4092, "é" * 2045 + "xx"):
        with pytest.raises(AdapterError, match="has 4097 bytes; the limit is 4096"):
            built(local(call_id), step_id="step")


def test_a_tool_name_of_256_bytes_is_admitted_and_more_is_not() -> None:
    """Bytes, not characters."""
    assert built(local("c", "n" * 256), Finished(FinishReason.TOOL_CALLS), step_id="step").tool_calls()
    for name in ("n" * 257, "é" * 129):
        with pytest.raises(AdapterError, match="the limit is 256"):
            built(local("c", name), step_id="step")


def test_a_call_id_that_utf8_cannot_carry_is_a_violation_like_others() -> None:
    """No encoding error of Python's comes out of the builder."""
    builder = StepBuilder("step")
    with pytest.raises(AdapterError, match="surrogate"):
        builder.push(local("\ud800"))
    with pytest.raises(AdapterError, match="void"):
        builder.finish()


def test_a_step_of_so_many_calls_is_admitted_and_one_more_call_is_not() -> None:
    """Whoever makes them; and it is refused as it comes, not at the end of the answer."""
    calls = [local(f"c{number}") for number in range(limits.STEP_CALLS)]
    assert built(*calls, Finished(FinishReason.TOOL_CALLS), step_id="step").tool_calls()
    builder = StepBuilder("step")
    for call in calls:
        builder.push(call)
    for one_more in (local("more"), hosted("more")):
        with pytest.raises(AdapterError, match=f"more than {limits.STEP_CALLS} tool calls|void"):
            builder.push(one_more)


def test_a_step_of_so_much_input_is_admitted_and_one_byte_more_is_not() -> None:
    """All its calls together, as JSON."""
    size = limits.STEP_INPUT_BYTES // 3 - len('{"text":""}')
    calls = [ToolCallReady(ModelToolCall(f"c{number}", "put", {"text": "x" * size})) for number in range(3)]
    assert built(*calls, Finished(FinishReason.TOOL_CALLS), step_id="step").tool_calls()
    larger = ToolCallReady(ModelToolCall("c3", "put", {"text": "x" * (size + 1)}))
    with pytest.raises(AdapterError, match=f"3 tool calls have {limits.STEP_INPUT_BYTES + 1} bytes; the limit is"):
        built(*calls[:2], larger, step_id="step")


def test_what_a_step_may_hold_fits_into_what_follows_from_it() -> None:
    """One commit answers all its calls, recovery holds them, and the next run of the session reads them."""
    assert limits.STEP_CALLS + limits.BATCH_EVENTS // 2 + 2 <= limits.BATCH_EVENTS
    assert limits.STEP_CALLS < limits.RECOVERY_OPERATIONS
    assert min(limits.RECOVERY_BYTES, limits.CONTEXT_BYTES) > limits.STEP_INPUT_BYTES


def test_a_builder_without_a_step_takes_names_of_any_length_and_any_number_of_calls() -> None:
    """Sizes are an operation's, and without a step there is none."""
    assert built(local("x" * 5000, "n" * 500), Finished(FinishReason.TOOL_CALLS)).tool_calls()
    calls = [local(f"c{number}") for number in range(limits.STEP_CALLS + 1)]
    assert built(*calls, Finished(FinishReason.TOOL_CALLS)).tool_calls()


def test_an_error_shows_what_the_provider_sent_bounded_and_escaped() -> None:
    """Ids are a provider's data."""
    with pytest.raises(AdapterError) as caught:
        built(PartDelta("\x1b[31m" + "x" * 10_000, "t"))
    assert len(str(caught.value)) < 300
    assert "\x1b" not in str(caught.value)
