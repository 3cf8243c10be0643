"""Answers that contradict themselves about their end: of all the words they say, the worst counts.

Each protocol has a table of everything that it can say of an end, with what that means alone. Every pair of entries
is then an answer, in both orders where there is an order, that holds one complete tool call.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import pytest

from maka_trio.errors import AdapterError, ModelRefused, ProviderFailure
from maka_trio.facts import FinishReason
from maka_trio.protocol.anthropic import AnthropicMessages
from maka_trio.protocol.openai_chat import ChatCompletions
from maka_trio.protocol.openai_responses import OpenAIResponses
from tests.protocol import anthropic_events, chat_wire, responses_events
from tests.protocol.decoding import Outcome, run
from tests.protocol.wire_streams import data, named


class Means(IntEnum):
    """What a word means, from good to bad."""

    COMPLETE = 0
    CUT = 1
    UNEXPLAINED = 2  # cut, and nobody says why
    ODD = 3
    REFUSED = 4
    MUTE = 5  # failed, and no code says how
    FAILED = 6


ERRORS = {
    Means.UNEXPLAINED: AdapterError,
    Means.ODD: AdapterError,
    Means.REFUSED: ModelRefused,
    Means.MUTE: AdapterError,
    Means.FAILED: ProviderFailure,
}


def assert_means(outcome: Outcome, means: Means) -> None:
    """The outcome of an answer with one complete call."""
    if means is Means.COMPLETE:
        assert outcome.done.finish_reason is FinishReason.TOOL_CALLS
    elif means is Means.CUT:
        assert outcome.done.finish_reason is FinishReason.LENGTH
    else:
        assert type(outcome.error) is ERRORS[means]
    if outcome.step is not None:
        assert len(outcome.step.local_calls()) == 1


def in_turn(first: Means, second: Means) -> Means:
    """What two words mean that come one after the other: the first failure ends the answer."""
    return max(first, second) if first <= Means.CUT else first


# --- chat completions --------------------------------------------------------------------------------------------

OVERLOADED = {"message": "no", "code": "server_error"}
CHAT_CALL = chat_wire.calls(chat_wire.call(0, "c1", "put", '{"n":1}'))


def failing_choice(reason: str | None) -> bytes:
    choice = {"index": 0, "delta": {}, "finish_reason": reason, "error": OVERLOADED}
    return data({"id": "r1", "choices": [choice]})


CHAT_WORDS: Mapping[str, tuple[bytes, Means]] = {
    **{word: (chat_wire.chunk({}, word), Means.COMPLETE) for word in ("stop", "tool_calls")},
    **{word: (chat_wire.chunk({}, word), Means.CUT) for word in ("length", "model_context_window_exceeded")},
    **{word: (chat_wire.chunk({}, word), Means.ODD) for word in ("error", "something_new")},
    "content_filter": (chat_wire.chunk({}, "content_filter"), Means.REFUSED),
    "error object": (data({"error": OVERLOADED}), Means.FAILED),
    "error beside a reason": (chat_wire.chunk({}, "stop", error=OVERLOADED), Means.FAILED),
    "error in a choice": (failing_choice(None), Means.FAILED),
    "error in a choice with a reason": (failing_choice("stop"), Means.FAILED),
    "error of a server's own": (chat_wire.chunk({}, "stop", x_groq={"id": "q", "error": "boom"}), Means.MUTE),
}


def pairs(words: Mapping[str, Any]) -> list[Any]:
    """All pairs, a word with itself among them: servers repeat themselves."""
    return [pytest.param(*pair, id=", ".join(pair)) for pair in itertools.product(words, repeat=2)]


@pytest.mark.parametrize("name", [None, "generic"])
@pytest.mark.parametrize(("first", "second"), pairs(CHAT_WORDS))
def test_chat_finish_reasons_in_turn(first: str, second: str, name: str | None) -> None:
    """Two chunks with a word each, then the end marker."""
    body = [CHAT_CALL, CHAT_WORDS[first][0], CHAT_WORDS[second][0], chat_wire.DONE]
    assert_means(chat_wire.quickly(*body, name=name), in_turn(CHAT_WORDS[first][1], CHAT_WORDS[second][1]))


def test_a_chat_answer_is_cut_whatever_cuts_its_body() -> None:
    """The same for every way in which the two words arrive, and the word that counts is the one that is kept."""
    body = [CHAT_CALL, chat_wire.chunk({}, "max_tokens"), chat_wire.STOP, chat_wire.DONE]
    step = chat_wire.decoded(*body, name="generic").done
    assert step.finish_reason is FinishReason.LENGTH
    assert step.provider_options == {"generic": {"finish_reason": "max_tokens"}}


def test_a_chat_answer_stays_cut_through_late_text_and_usage() -> None:
    """Whatever else comes before the end is taken, and changes nothing about it."""
    late = chat_wire.chunk({"content": "more"}, None)
    usage = data({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}})
    step = chat_wire.decoded(CHAT_CALL, chat_wire.chunk({}, "length"), late, chat_wire.TOOL_CALLS, usage).done
    assert (step.finish_reason, step.text(), step.usage.output_tokens) == (FinishReason.LENGTH, "more", 3)


@pytest.mark.parametrize(("first", "second"), [("length", "stop"), ("stop", "length")])
def test_a_whole_completion_states_both(first: str, second: str) -> None:
    """A plain document may hold a choice twice."""
    message = {"content": "A"}
    choices = [{"message": message, "finish_reason": first}, {"message": {}, "finish_reason": second}]
    body = chat_wire.event({"id": "r", "choices": choices})[6:]
    events = ChatCompletions().decode_document(chat_wire.request(), body)
    assert events[-1].reason is FinishReason.LENGTH  # type: ignore[union-attr]


# --- Anthropic ---------------------------------------------------------------------------------------------------

ANTHROPIC_CALL = anthropic_events.tool_use(0, "c1", "put", '{"n":1}')
ANTHROPIC_WORDS: Mapping[str, tuple[bytes, Means]] = {
    **{
        word: (anthropic_events.stated(word), Means.COMPLETE)
        for word in ("end_turn", "tool_use", "stop_sequence", "pause_turn")
    },
    **{word: (anthropic_events.stated(word), Means.CUT) for word in ("max_tokens", "model_context_window_exceeded")},
    "refusal": (anthropic_events.stated("refusal"), Means.REFUSED),
    "something_new": (anthropic_events.stated("something_new"), Means.ODD),
    "error": (named("error", error={"type": "overloaded_error", "message": "no"}), Means.FAILED),
    "error in an event": (named("ping", error={"type": "overloaded_error", "message": "no"}), Means.FAILED),
}


@pytest.mark.parametrize(("first", "second"), pairs(ANTHROPIC_WORDS))
def test_anthropic_stop_reasons_in_turn(first: str, second: str) -> None:
    """Two events with a word each, then the end of the message."""
    words = [ANTHROPIC_WORDS[first], ANTHROPIC_WORDS[second]]
    body = [anthropic_events.start(), ANTHROPIC_CALL, words[0][0], words[1][0], named("message_stop")]
    outcome = run(anthropic_events.decoder(), [b"".join(body)])
    assert_means(outcome, in_turn(words[0][1], words[1][1]))


@pytest.mark.parametrize(
    ("early", "means"),
    [
        ("max_tokens", Means.CUT),
        ("model_context_window_exceeded", Means.CUT),
        ("refusal", Means.REFUSED),
        ("end_turn", Means.COMPLETE),
        (None, Means.COMPLETE),
    ],
)
def test_an_anthropic_message_that_starts_cut_stays_cut(early: str | None, means: Means) -> None:
    """The message that starts carries a stop reason too, null as a rule."""
    start = named("message_start", message={"id": "m", "model": "c", "stop_reason": early, "content": []})
    outcome = run(anthropic_events.decoder(), [start + ANTHROPIC_CALL + anthropic_events.end("tool_use")])
    assert_means(outcome, means)


def test_an_anthropic_message_that_starts_with_a_natural_reason_has_not_ended() -> None:
    """Only its own event ends it."""
    start = named("message_start", message={"id": "m", "model": "c", "stop_reason": "end_turn", "content": []})
    outcome = run(anthropic_events.decoder(), [start + ANTHROPIC_CALL + named("message_stop")])
    assert_means(outcome, Means.ODD)


def test_a_refusal_counts_without_the_end_of_the_message() -> None:
    """It is no truncation, which would be sent again; the block it broke off does not matter either."""
    open_block = anthropic_events.block(0, type="tool_use", id="c1", name="put", input={})
    for body in (ANTHROPIC_CALL, open_block):
        outcome = run(
            anthropic_events.decoder(), [anthropic_events.start() + body + anthropic_events.stated("refusal")]
        )
        assert_means(outcome, Means.REFUSED)


def test_a_cut_anthropic_message_keeps_the_word_that_cut_it() -> None:
    """The notes of the step agree with its reason."""
    body = [anthropic_events.stated("max_tokens"), anthropic_events.end("tool_use", output_tokens=7)]
    step = anthropic_events.decoded(anthropic_events.start(), ANTHROPIC_CALL, *body).done
    assert step.provider_options == {"anthropic": {"stop_reason": "max_tokens"}}
    assert step.usage.output_tokens == 7


def test_an_error_beside_a_whole_message_is_an_error() -> None:
    """Whatever else the document holds."""
    body = data({"type": "message", "content": [], "stop_reason": "end_turn", "error": {"type": "overloaded_error"}})
    with pytest.raises(ProviderFailure):
        AnthropicMessages().decode_document(anthropic_events.REQUEST, body[6:])


# --- Responses ---------------------------------------------------------------------------------------------------

ITEM = {"type": "function_call", "id": "i_0", "call_id": "c1", "name": "put", "arguments": '{"n":1}'}
SERVER_ERROR = {"code": "server_error", "message": "no"}
STATUSES = {
    "completed": Means.COMPLETE,
    "incomplete": Means.UNEXPLAINED,
    "cancelled": Means.ODD,
    "failed": Means.MUTE,
}

RESPONSES_WORDS: Mapping[tuple[str, Any], Means] = {
    **{("type", f"response.{word}"): means for word, means in STATUSES.items()},
    ("type", "response.done"): Means.COMPLETE,
    **{("name", f"response.{word}"): means for word, means in STATUSES.items()},
    **{("status", word): means for word, means in STATUSES.items()},
    ("status", "queued"): Means.ODD,
    ("status", None): Means.COMPLETE,
    ("reason", "max_output_tokens"): Means.CUT,
    ("reason", "content_filter"): Means.REFUSED,
    ("reason", "something_new"): Means.ODD,
    ("reason", None): Means.COMPLETE,
    ("error", True): Means.FAILED,
    ("error beside", True): Means.FAILED,
    **{("early status", word): means for word, means in STATUSES.items()},
    ("early error", True): Means.FAILED,
    **{
        (place, status): means
        for place in ("added item", "done item", "final item")
        for status, means in (
            ("completed", Means.COMPLETE),
            ("in_progress", Means.COMPLETE),
            ("incomplete", Means.CUT),
            ("failed", Means.ODD),
            ("cancelled", Means.ODD),
        )
    },
}


def responses_body(said: Mapping[str, Any]) -> bytes:
    """An answer that says these things and is complete otherwise."""
    early = {"id": "r", "model": "m", "status": said.get("early status", "in_progress")}
    if said.get("early error"):
        early["error"] = SERVER_ERROR
    items = [{**ITEM, "status": said.get(f"{place} item", "completed")} for place in ("added", "done", "final")]
    response = {"id": "r", "model": "m", "status": said.get("status", "completed"), "output": [items[2]]}
    if "reason" in said:
        response["incomplete_details"] = {"reason": said["reason"]}
    if said.get("error"):
        response["error"] = SERVER_ERROR
    last: dict[str, Any] = {"type": said.get("type", "response.completed"), "response": response}
    if said.get("error beside"):
        last["error"] = SERVER_ERROR
    name = said.get("name", last["type"])
    return b"".join(
        (
            named("response.created", response={"id": "r", "model": "m", "status": "in_progress"}),
            named("response.in_progress", response=early),
            named("response.output_item.added", output_index=0, item=items[0]),
            named("response.output_item.done", output_index=0, item=items[1]),
            b"event: %b\n%b" % (name.encode(), data(last)),
        )
    )


def expected_of(words: Mapping[str, Any]) -> Means:
    """The worst of what is said. A failure ends the answer where it stands; a reason says why an answer was cut."""
    means = {word: RESPONSES_WORDS[word] for word in words.items()}
    early = [meant for (place, _), meant in means.items() if place.startswith("early") and meant >= Means.MUTE]
    if words.get("reason") == "max_output_tokens" and max(means.values()) is Means.UNEXPLAINED:
        return Means.CUT
    return max(early or means.values())


@pytest.mark.parametrize("word", RESPONSES_WORDS, ids=str)
def test_responses_words_alone(word: tuple[str, Any]) -> None:
    """What each means where everything else says that the answer is complete."""
    assert_means(run(responses_events.decoder(), [responses_body(dict([word]))]), RESPONSES_WORDS[word])


@pytest.mark.parametrize(
    "words",
    [pair for pair in itertools.combinations(RESPONSES_WORDS, 2) if pair[0][0] != pair[1][0]],
    ids=lambda pair: " and ".join(f"{place}={word}" for place, word in pair),
)
def test_responses_words_together(words: tuple[tuple[str, Any], tuple[str, Any]]) -> None:
    """Two places of one answer that say different things."""
    said = dict(words)
    assert_means(run(responses_events.decoder(), [responses_body(said)]), expected_of(said))


@pytest.mark.parametrize("kind", ["message", "reasoning"])
def test_a_text_that_is_incomplete_cuts_the_calls_beside_it(kind: str) -> None:
    """The output limit was reached inside it: what came before may be half of what was meant."""
    other = responses_events.done(1, kind, status="incomplete", content=[], summary=[])
    step = responses_events.decoded(responses_events.called(0, "c1", "put", "{}"), other, responses_events.ended()).done
    assert step.finish_reason is FinishReason.LENGTH
    assert step.provider_options == {"openai": {"status": "completed", "item_status": "incomplete"}}


@pytest.mark.parametrize("kind", ["local_shell_call", "apply_patch_call", "custom_tool_call"])
def test_a_call_of_any_kind_that_is_incomplete_is_cut(kind: str) -> None:
    """Also those of the vendor's own tools that run on the user's side."""
    item = {"call_id": "c1", "name": "put", "input": "x", "action": {}, "operation": {}, "status": "incomplete"}
    step = responses_events.decoded(responses_events.done(0, kind, **item), responses_events.ended()).done
    assert step.finish_reason is FinishReason.LENGTH


def test_a_hosted_tool_that_did_not_finish_ends_nothing() -> None:
    """Its status is about the tool: its result is an error, and the answer went on."""
    search = responses_events.done(0, "web_search_call", status="incomplete", action={})
    call = responses_events.called(1, "c1", "put", "{}")
    step = responses_events.decoded(search, call, responses_events.ended()).done
    assert step.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ({"status": "completed"}, Means.COMPLETE),
        ({}, Means.COMPLETE),
        ({"status": "completed", "incomplete_details": {"reason": "max_output_tokens"}}, Means.CUT),
        ({"status": "completed", "output": [{**ITEM, "status": "incomplete"}]}, Means.CUT),
        ({"status": "completed", "incomplete_details": {"reason": "content_filter"}}, Means.REFUSED),
        ({"status": "completed", "error": SERVER_ERROR}, Means.FAILED),
        ({"status": "cancelled"}, Means.ODD),
    ],
)
def test_a_whole_response_states_all_of_it(said: dict[str, Any], means: Means) -> None:
    """A plain document is judged as a stream is."""
    body = data({"id": "r", "model": "m", "output": [ITEM], **said})[6:]
    if means > Means.CUT:
        with pytest.raises(ERRORS[means]):
            OpenAIResponses().decode_document(responses_events.REQUEST, body)
        return
    last = OpenAIResponses().decode_document(responses_events.REQUEST, body)[-1]
    reason = {Means.COMPLETE: FinishReason.TOOL_CALLS, Means.CUT: FinishReason.LENGTH}[means]
    assert last.reason is reason  # type: ignore[union-attr]
