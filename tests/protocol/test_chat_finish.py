"""Finish reasons, refusals and reasoning of chat completions."""

from __future__ import annotations

from typing import Any

import pytest

from maka_trio.dialect import Dialect
from maka_trio.errors import AdapterError, ModelRefused, ProviderFailure
from maka_trio.facts import FinishReason, PartStarted, TextKind, TextPart
from tests.protocol.chat_wire import DONE, STOP, TOOL_CALLS, call, calls, chunk, decoded, quickly

A = chunk({"content": "A"})


@pytest.mark.parametrize(
    ("reason", "strict", "compatible"),
    [
        ("stop", FinishReason.STOP, FinishReason.STOP),
        ("length", FinishReason.LENGTH, FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH, FinishReason.LENGTH),
        ("eos", AdapterError, FinishReason.STOP),
        ("eos_token", AdapterError, FinishReason.STOP),
        ("end_turn", AdapterError, FinishReason.STOP),
        ("max_tokens", AdapterError, FinishReason.LENGTH),
        ("content_filter", ModelRefused, ModelRefused),
        ("sensitive", AdapterError, ModelRefused),
        ("insufficient_system_resource", AdapterError, ProviderFailure),
        ("error", AdapterError, AdapterError),
        ("function_call", AdapterError, AdapterError),
        ("something_new", AdapterError, AdapterError),
    ],
)
def test_reasons_mean_what_the_dialect_says(reason: str, strict: Any, compatible: Any) -> None:
    """Synonyms for compatible servers alone; what does not complete an answer is named."""
    for name, expected in ((None, strict), ("generic", compatible)):
        outcome = decoded(A, chunk({}, reason), DONE, name=name)
        assert outcome.text == "A"
        if isinstance(expected, FinishReason):
            assert outcome.done.finish_reason is expected
            own = expected.value == reason
            assert outcome.done.provider_options == (None if own else {name or "openai": {"finish_reason": reason}})
        else:
            assert isinstance(outcome.error, expected)
            assert repr(reason) in str(outcome.error)


@pytest.mark.parametrize("name", [None, "generic"])
def test_an_empty_reason_ends_nothing(name: str | None) -> None:
    """Some servers send one on every chunk from the first on."""
    body = [chunk({"content": word}, "") for word in ("A", "B")]
    assert decoded(*body, chunk({}, "stop"), DONE, name=name).done.text() == "AB"
    error = decoded(*body, name=name).error
    assert isinstance(error, ProviderFailure)


def test_the_last_reason_counts() -> None:
    """Servers state it more than once."""
    step = decoded(calls(call(0, "a", "f", "{}")), TOOL_CALLS, chunk({}, "tool_calls"), DONE).done
    assert step.finish_reason is FinishReason.TOOL_CALLS
    assert decoded(A, STOP, chunk({}, "length"), DONE).done.finish_reason is FinishReason.LENGTH


def test_an_end_for_tool_calls_without_calls_is_text_or_nothing() -> None:
    """With text it is an answer, without it calls were lost."""
    step = decoded(A, TOOL_CALLS, DONE).done
    assert step.finish_reason is FinishReason.STOP
    assert step.provider_options == {"openai": {"finish_reason": "tool_calls"}}
    assert isinstance(decoded(TOOL_CALLS, DONE).error, AdapterError)


def test_users_may_say_what_their_server_says() -> None:
    """Reasons are a property of the provider's configuration."""
    own = Dialect(stop_reasons=["fin"], refused_reasons=["nope"])
    assert decoded(A, chunk({}, "FIN"), DONE, name="mine", dialect=own).done.text() == "A"
    assert isinstance(decoded(A, chunk({}, "nope"), DONE, name="mine", dialect=own).error, ModelRefused)
    assert isinstance(decoded(A, STOP, DONE, name="mine", dialect=own).error, AdapterError)


# --- refusals ----------------------------------------------------------------------------------------------------


def test_a_refusal_that_ends_with_stop_is_a_text_part_marked_as_one() -> None:
    """It is visible, told apart, and the step is complete."""
    step = decoded(chunk({"refusal": "can"}), chunk({"refusal": "not"}), STOP, DONE).done
    assert step.parts == (TextPart(TextKind.TEXT, "cannot", {"openai": {"refusal": True}}),)
    assert step.finish_reason is FinishReason.STOP


def test_a_refusal_is_no_part_of_the_text_around_it() -> None:
    """Text, then a refusal: two parts. Empty refusals are none."""
    step = decoded(chunk({"content": "A", "refusal": ""}), chunk({"refusal": "no"}), STOP, DONE).done
    assert [part.text for part in step.parts if isinstance(part, TextPart)] == ["A", "no"]


def test_a_filtered_answer_is_refused_with_what_was_streamed() -> None:
    """No step, no retry; the text stays observed."""
    outcome = decoded(A, calls(call(0, "a", "f", "{}")), chunk({}, "content_filter"), DONE)
    assert isinstance(outcome.error, ModelRefused)
    assert outcome.text == "A"


# --- reasoning ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning_text": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.text", "text": "m"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}, {"type": "reasoning.encrypted"}, None]},
        {"reasoning_content": "", "reasoning": "hm", "reasoning_details": [{"text": "other"}]},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
        {"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]},
    ],
)
@pytest.mark.parametrize("name", [None, "generic", "openrouter"])
def test_reasoning_under_any_name_is_a_part_of_its_own(delta: dict[str, Any], name: str | None) -> None:
    """Never mixed into the text, never said twice."""
    step = decoded(chunk(delta), A, STOP, DONE, name=name).done
    said = [(part.text_kind, part.text) for part in step.parts if isinstance(part, TextPart)]
    assert said == [(TextKind.THINKING, "hm"), (TextKind.TEXT, "A")]


def test_content_in_parts_is_text() -> None:
    """Text parts and bare strings are joined; parts of other kinds are left out."""
    parts = [{"type": "text", "text": "A"}, "B", {"type": "reference", "reference_ids": [1]}, None, {"type": "text"}]
    assert decoded(chunk({"content": parts}), chunk({"content": "C"}), STOP, DONE, name="mistral").done.text() == "ABC"


@pytest.mark.parametrize("odd", [5, {"a": 1}, ["x"], True])
def test_reasoning_that_is_no_text_is_left_out(odd: Any) -> None:
    """It is not for us to guess."""
    assert decoded(chunk({"reasoning": odd}), A, STOP, DONE).done.text() == "A"


def test_thinking_and_text_may_alternate() -> None:
    """Each run is a part with an id of its own."""
    body = [chunk({"reasoning_content": "1"}), chunk({"content": "2"}), chunk({"reasoning_content": "3"})]
    outcome = decoded(*body, STOP, DONE, name="generic")
    assert [e.id for e in outcome.events if isinstance(e, PartStarted)] == ["thinking-0", "text-1", "thinking-2"]


def details(step: Any) -> list[Any]:
    return [
        part.provider_options["openrouter"]["reasoning_details"]
        for part in step.parts
        if isinstance(part, TextPart) and part.provider_options
    ]


def test_structured_reasoning_is_kept_joined_for_servers_that_want_it_back() -> None:
    """Pieces of one detail become one; signatures and encrypted data stay."""
    pieces: list[dict[str, Any]] = [
        {"type": "reasoning.text", "index": 0, "text": "I ", "format": "f"},
        {"type": "reasoning.text", "index": 0, "text": "think"},
        {"type": "reasoning.text", "index": 0, "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xx"},
        {"type": "reasoning.encrypted", "index": 1, "data": "yy"},
    ]
    body = [chunk({"reasoning": piece.get("text", ""), "reasoning_details": [piece]}) for piece in pieces]
    step = decoded(*body, A, STOP, DONE, name="openrouter").done
    assert details(step) == [
        [
            {"type": "reasoning.text", "index": 0, "text": "I think", "format": "f", "signature": "sig"},
            {"type": "reasoning.encrypted", "index": 1, "data": "xx"},
            {"type": "reasoning.encrypted", "index": 1, "data": "yy"},
        ]
    ]
    assert quickly(*body, A, STOP, DONE, name="generic").done.parts[0] == TextPart(TextKind.THINKING, "I think")


def test_structured_reasoning_without_a_text_or_after_it_is_kept_as_well() -> None:
    """Encrypted reasoning comes alone, and sometimes with the calls."""
    detail = {"type": "reasoning.encrypted", "data": "xx", "id": "r"}
    late = {"tool_calls": [call(0, "a", "f", "{}")], "reasoning_details": [detail]}
    step = decoded(A, chunk(late), TOOL_CALLS, DONE, name="openrouter").done
    assert details(step) == [[detail]]


def test_kept_reasoning_is_a_barrier_to_a_replay() -> None:
    """It is provider metadata."""
    body = chunk({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}) + A
    assert not quickly(body, name="openrouter").replay_safe
    assert quickly(body, name="generic").replay_safe
