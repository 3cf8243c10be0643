"""Anthropic streams: what the vendor means by them, and what must not become a step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.errors import AdapterError, ContextOverflow, ModelError, ModelRefused, ProviderFailure
from maka_trio.facts.message import Message
from maka_trio.facts.model import (
    FinishReason,
    ModelToolCall,
    ModelUsage,
    PartDelta,
    TextKind,
    TextPart,
)
from maka_trio.protocol.anthropic import AnthropicMessages
from maka_trio.protocol.anthropic_options import AnthropicOptions
from maka_trio.request import ModelRequest
from tests.protocol.anthropic_events import (
    PROVIDER,
    block,
    decoded,
    decoder,
    delta,
    end,
    start,
    stated,
    stop,
    text,
    tool_use,
)
from tests.protocol.decoding import run
from tests.protocol.wire_streams import DONE, data, named, outcome_of, unnamed, without_names

# --- what is said -----------------------------------------------------------------------------------------------


def test_text_usage_and_metadata_make_a_step() -> None:
    """The plain case: one text, a stop, totals of the last statement."""
    step = decoded(start(), named("ping"), text(0, "Hel", "", "lo €"), end("end_turn", output_tokens=7)).done
    assert step.parts == (TextPart(TextKind.TEXT, "Hello €"),)
    assert (step.finish_reason, step.response_id, step.model) == (FinishReason.STOP, "msg_1", "claude-x")
    assert step.usage == ModelUsage(input_tokens=3, output_tokens=7)
    assert step.provider_options == {"anthropic": {"stop_reason": "end_turn"}}


def test_text_of_a_blocks_start_comes_first() -> None:
    """Some servers put the first piece into the start of the block."""
    body = (start(), block(0, type="text", text="A"), delta(0, "text_delta", text="B"), stop(0), end("end_turn"))
    assert decoded(*body).done.text() == "AB"


def test_thinking_keeps_its_signature_byte_for_byte() -> None:
    """A signature is opaque: the provider compares it when it comes back."""
    signature = "EqQB+/=\\u2028 é"
    body = (
        start(),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "thinking_delta", thinking=", so"),
        delta(0, "signature_delta", signature=signature),
        stop(0),
        text(1, "yes"),
        end("end_turn"),
    )
    thought, said = decoded(*body).done.parts
    assert thought == TextPart(TextKind.THINKING, "hm, so", {"anthropic": {"signature": signature}})
    assert said == TextPart(TextKind.TEXT, "yes")


def test_redacted_thinking_is_kept_without_text() -> None:
    """Only its data goes back; there is nothing to show."""
    redacted = block(0, type="redacted_thinking", data="ZW5j") + stop(0)
    part = decoded(start(), redacted, text(1, "x"), end("end_turn")).done.parts[0]
    assert part == TextPart(TextKind.THINKING, "", {"anthropic": {"redacted_data": "ZW5j"}})


def test_an_unknown_block_is_kept_to_be_sent_back() -> None:
    """A compaction is the vendor's own summary: it must return unchanged and is no answer."""
    body = (
        start(),
        block(0, type="compaction", content=None),
        delta(0, "compaction_delta", content="summary", encrypted_content="Zm9v"),
        stop(0),
        text(1, "x"),
        end("end_turn"),
    )
    kept, said = decoded(*body).done.parts
    block_back = {"type": "compaction", "content": "summary", "encrypted_content": "Zm9v"}
    assert kept == TextPart(TextKind.THINKING, "", {"anthropic": {"block": block_back}})
    assert said == TextPart(TextKind.TEXT, "x")


def test_half_an_unknown_block_is_not_sent_back() -> None:
    """What streamed in a form we do not know cannot be put together again."""
    unknown = block(0, type="hologram") + delta(0, "hologram_part_delta", beam="x") + stop(0)
    part = decoded(start(), unknown, text(1, "x"), end("end_turn")).done.parts[0]
    assert part == TextPart(TextKind.THINKING, "")


def test_unknown_events_and_fields_and_nulls_are_passed_over() -> None:
    """A vendor may add events, fields and kinds of delta at any time; null is absent."""
    body = (
        named("message_start", message={"id": "m", "model": None, "usage": None, "content": None}, extra=None),
        named("weather_report", index=None, degrees=21),
        block(0, type="text", text=None, citations=None, mood="fine"),
        named("content_block_delta", index=0, delta={"type": "mood_delta", "mood": "better"}),
        named("content_block_delta", index=0, delta={"type": "text_delta", "text": "A", "signature": None}),
        stop(0),
        end("end_turn", output_tokens=None, server_tool_use=None),
    )
    step = decoded(*body).done
    assert step.text() == "A"
    assert step.usage == ModelUsage()


def test_the_stop_sequence_is_noted() -> None:
    """Which sequence stopped the answer is the provider's word, kept beside the reason."""
    stopped = named("message_delta", delta={"stop_reason": "stop_sequence", "stop_sequence": "\n\n"}, usage={})
    step = decoded(start(), text(0, "A"), stopped, named("message_stop")).done
    assert step.finish_reason is FinishReason.STOP
    assert step.provider_options == {"anthropic": {"stop_reason": "stop_sequence", "stop_sequence": "\n\n"}}


def test_events_without_names_decode_alike() -> None:
    """Servers that leave out `event:` lines and end with `[DONE]` are understood by `type`."""
    body = start() + text(0, "A") + end("end_turn")
    assert decoded(without_names(body), DONE).done == decoded(body).done


def test_what_follows_a_complete_message_changes_nothing() -> None:
    """One gateway ends with an event named `data` that says `[DONE]`, on which the vendor's own SDK fails."""
    message = start() + text(0, "A") + end("end_turn")
    step = decoded(message, b"event: data\ndata: [DONE]\n\n", b"data: nonsense\n\n").done
    assert step == decoded(message).done


@pytest.mark.parametrize("ending", [b"\r\n", b"\r", b"\n"])
def test_line_endings_and_a_byte_order_mark_do_not_matter(ending: bytes) -> None:
    """CR, LF and CRLF end lines alike, and one BOM at the start is no data."""
    body = b"\xef\xbb\xbf" + (start() + text(0, "A€B") + end("end_turn")).replace(b"\n", ending)
    assert decoded(body).done.text() == "A€B"


# --- calls ------------------------------------------------------------------------------------------------------


def test_parallel_calls_come_out_in_order() -> None:
    """Each block is a call of its own; the arguments are joined and parsed."""
    body = (
        start(),
        text(0, "I will"),
        tool_use(1, "toolu_1", "f", "", '{"x"', ": 1}"),
        tool_use(2, "toolu_2", "g", '{"y":{"z":[2]}}'),
        end("tool_use"),
    )
    step = decoded(*body).done
    assert step.finish_reason is FinishReason.TOOL_CALLS
    assert step.local_calls() == (
        ModelToolCall("toolu_1", "f", {"x": 1}),
        ModelToolCall("toolu_2", "g", {"y": {"z": [2]}}),
    )


def test_interleaved_blocks_keep_their_own_arguments() -> None:
    """The index says which block a delta belongs to."""
    body = (
        start(),
        block(0, type="tool_use", id="a", name="f", input={}),
        block(1, type="tool_use", id="b", name="g", input={}),
        delta(0, "input_json_delta", partial_json='{"x"'),
        delta(1, "input_json_delta", partial_json='{"y"'),
        delta(0, "input_json_delta", partial_json=":1}"),
        delta(1, "input_json_delta", partial_json=":2}"),
        stop(0),
        stop(1),
        end("tool_use"),
    )
    assert [call.input for call in decoded(*body).done.local_calls()] == [{"x": 1}, {"y": 2}]


@pytest.mark.parametrize("pieces", [(), ("",), (" \n",), ("null",)])
def test_a_call_without_arguments_has_an_empty_object(pieces: tuple[str, ...]) -> None:
    """No delta at all, an empty one, white space and null all mean a tool without parameters."""
    call = decoded(start(), tool_use(0, "a", "now", *pieces), end("tool_use")).done.local_calls()[0]
    assert call == ModelToolCall("a", "now", {})


def test_arguments_given_at_the_start_are_taken() -> None:
    """Calls out of a program arrive whole, with who called them."""
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    started = block(0, type="tool_use", id="a", name="f", input={"x": 1}, caller=caller)
    call = decoded(start(), started, stop(0), end("tool_use")).done.local_calls()[0]
    assert call == ModelToolCall("a", "f", {"x": 1}, {"anthropic": {"caller": caller}})


@pytest.mark.parametrize("written", ['"{\\"n\\":1}"', "[1]", "7"])
def test_arguments_of_another_type_are_for_the_schema_to_refuse(written: str) -> None:
    """Valid JSON that is no object is the model's mistake, not a broken stream."""
    call = decoded(start(), tool_use(0, "a", "f", written), end("tool_use")).done.local_calls()[0]
    assert call.input == json.loads(written)


@pytest.mark.parametrize("written", ['{"n":', '{"n":NaN}', '{"n":1}{"n":2}', "[" * 200 + "]" * 200, "{'n':1}"])
def test_arguments_that_are_not_json_void_the_step(written: str) -> None:
    """Nothing is repaired: half an object could name another file."""
    assert isinstance(decoded(start(), tool_use(0, "a", "put", written), end("tool_use")).error, AdapterError)


def test_complete_calls_count_whatever_the_reason_says() -> None:
    """A call under `end_turn` is still a call; the provider's own word stands beside it."""
    step = decoded(start(), tool_use(0, "a", "f", "{}"), end("end_turn")).done
    assert step.finish_reason is FinishReason.TOOL_CALLS
    assert step.provider_options == {"anthropic": {"stop_reason": "end_turn"}}


@pytest.mark.parametrize("content", [{"name": "f"}, {"id": "a"}, {"id": "", "name": "f"}, {"id": 7, "name": "f"}])
def test_a_call_without_id_or_name_is_malformed(content: dict[str, Any]) -> None:
    """The strict kind makes up no ids."""
    body = (start(), block(0, type="tool_use", input={}, **content), stop(0), end("tool_use"))
    assert isinstance(decoded(*body).error, AdapterError)


def test_two_calls_of_one_id_are_malformed() -> None:
    """Their results could not be told apart."""
    body = (start(), tool_use(0, "a", "f", "{}"), tool_use(1, "a", "g", "{}"), end("tool_use"))
    assert isinstance(decoded(*body).error, AdapterError)


# --- the end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        start(),
        start() + text(0, "A"),
        start()
        + block(0, type="tool_use", id="c1", name="put", input={})
        + delta(0, "input_json_delta", partial_json='{"path":"/a","te'),
        start() + tool_use(0, "c1", "put", "{}"),
        start() + tool_use(0, "c1", "put", "{}") + stated("tool_use"),
        start() + text(0, "A") + stated("end_turn") + DONE,
    ],
    ids=["nothing", "start", "text", "open call", "closed call", "stop reason", "done only"],
)
def test_a_stream_that_ends_before_message_stop_is_truncated(body: bytes) -> None:
    """Half an answer is no answer, and its calls never happened: sending the request again is safe."""
    failure = decoded(body).error
    assert isinstance(failure, ProviderFailure)
    assert (failure.reason, failure.replay_safe) == ("stream_truncated", True)


def test_a_last_event_without_its_blank_line_counts() -> None:
    """Providers close early; one complete JSON document is taken for the event it is."""
    body = start() + text(0, "A") + end("end_turn").rstrip(b"\n")
    assert decoded(body).done.text() == "A"


def test_servers_that_never_say_message_stop_are_tolerated_only_by_configuration() -> None:
    """Then a stated reason and closed blocks are enough, at the end of the body or of the grace."""
    lax = AnthropicOptions(message_stop_required=False)
    body = start() + tool_use(0, "c1", "put", '{"n":1}') + stated("tool_use")
    for ending in (b"", DONE):
        step = outcome_of(lambda: decoder(lax), body + ending).done
        assert step.local_calls() == (ModelToolCall("c1", "put", {"n": 1}),)
    waiting = decoder(lax)
    waiting.feed(body)
    assert waiting.in_grace
    waiting.settle()
    assert waiting.finished
    open_block = start() + block(0, type="tool_use", id="c1", name="put", input={}) + stated("tool_use")
    assert isinstance(run(decoder(lax), [open_block]).error, ProviderFailure)


def test_a_strict_stream_is_never_in_grace() -> None:
    """Without `message_stop` there is nothing to wait a moment for: the answer is not complete."""
    waiting = decoder()
    waiting.feed(start() + text(0, "A") + stated("end_turn"))
    assert not waiting.in_grace


def test_the_message_stops_inside_a_call() -> None:
    """A call that was not closed may be anything."""
    body = (start(), block(0, type="tool_use", id="a", name="f", input={}), end("tool_use"))
    assert isinstance(decoded(*body).error, AdapterError)


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_the_output_limit_is_a_length_finish_with_its_calls(reason: str) -> None:
    """Complete arguments make a step that the engine refuses to run; the reason says so."""
    step = decoded(start(), text(0, "A"), tool_use(1, "a", "put", '{"n":1}'), end(reason)).done
    assert step.finish_reason is FinishReason.LENGTH
    assert step.local_calls() == (ModelToolCall("a", "put", {"n": 1}),)


def test_the_output_limit_inside_arguments_voids_the_step() -> None:
    """Cut arguments cannot even be shown to a schema."""
    assert isinstance(decoded(start(), tool_use(0, "a", "put", '{"n":'), end("max_tokens")).error, AdapterError)


@pytest.mark.parametrize("reason", [None, "", "eos", "content_filter", "error"])
def test_an_unknown_reason_does_not_complete(reason: str | None) -> None:
    """The vendor's list is closed; what is not on it is named, not guessed."""
    error = decoded(start(), text(0, "A"), end(reason)).error
    assert isinstance(error, AdapterError)
    assert repr(reason or None) in str(error)


def test_a_refusal_fails_with_its_own_class_and_keeps_what_was_said() -> None:
    """Never an empty success, never a retry."""
    details = {"type": "refusal", "category": "bio", "explanation": "not\x1b[31m this"}
    refused = named("message_delta", delta={"stop_reason": "refusal", "stop_details": details}, usage={})
    ended = decoded(start(), text(0, "Hi"), refused, named("message_stop"))
    error = ended.error
    assert isinstance(error, ModelRefused)
    assert "bio" in str(error)
    assert "\x1b" not in str(error)
    assert ended.text == "Hi"


# --- errors in the stream ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [b"", start(), start() + text(0, "A"), start() + tool_use(0, "a", "put", "{}")],
    ids=["first", "start", "text", "call"],
)
def test_an_overload_in_the_stream_may_be_sent_again(before: bytes) -> None:
    """Calls of an unfinished step are never dispatched, so nothing has happened yet."""
    overloaded = named("error", error={"type": "overloaded_error", "message": "Overloaded"})
    failure = decoded(before, overloaded).error
    assert isinstance(failure, ProviderFailure)
    assert (failure.reason, failure.replay_safe) == ("provider_unavailable", True)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"type": "rate_limit_error", "message": "slow down"}, ProviderFailure),
        ({"type": "api_error", "message": "boom"}, ProviderFailure),
        ({"type": "request_too_large", "message": "large"}, ContextOverflow),
        (
            {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
            ContextOverflow,
        ),
        ({"type": "invalid_request_error", "message": "overloaded, rate limit, 429"}, AdapterError),
        ({"type": "authentication_error", "message": "no"}, AdapterError),
    ],
)
def test_errors_are_classified_by_type_and_never_by_wording(error: dict[str, str], expected: type[ModelError]) -> None:
    """The words of a provider are for people."""
    assert type(decoded(start(), named("error", error=error)).error) is expected


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"message":"boom"}\n\n',
        b'event: error\ndata: {"type":"authentication_error","message":"boom"}\n\n',
        data({"type": "error"}),
        data({"error": {"message": "boom"}}),
        data({"error": "boom"}),
    ],
)
def test_an_error_in_any_form_ends_the_answer(event: bytes) -> None:
    """An error event is an error whatever it holds, and so is an error object of a gateway."""
    ended = decoded(start(), text(0, "A"), event)
    assert isinstance(ended.error, AdapterError)
    assert ended.observed_output


def test_a_signature_is_a_barrier_to_sending_the_request_again() -> None:
    """The provider signed what it thought; another attempt would think something else."""
    body = (
        start(),
        block(0, type="thinking", thinking="a", signature="s"),
        stop(0),
        named("error", error={"type": "overloaded_error", "message": "x"}),
    )
    failure = decoded(*body).error
    assert isinstance(failure, ProviderFailure)
    assert failure.replay_safe is False


# --- malformed streams ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        text(0, "A"),
        start() + start(),
        start() + delta(0, "text_delta", text="A"),
        start() + stop(0),
        start() + block(0, type="text", text="") + block(0, type="text", text=""),
        start() + text(0, "A") + text(0, "B"),
        start() + block(0, type="text", text="") + delta(0, "input_json_delta", partial_json="{}"),
        start() + block(0, type="tool_use", id="a", name="f", input={}) + delta(0, "text_delta", text="x"),
        start() + named("content_block_start", index=0),
        start() + named("content_block_start", content_block={"type": "text", "text": ""}),
        start() + block(0, type="text", text="A"),
        start() + block(0, type="text", text="") + delta(0, "text_delta", text="A"),
        start() + block(0, type="thinking", thinking="", signature=""),
        start() + block(0, text="A"),
        start() + block(0, type="redacted_thinking"),
        start() + b'data: {"type":\n\n',
        start() + b"data: : GATEWAY WORKING\n\n",
        start() + b"data: [1]\n\n",
        start() + b'data: {"type":"content_block_delta","index":"0"}\n\n',
        start() + b'data: {"type":"x","t":"\xff"}\n\n',
    ],
)
def test_a_malformed_stream_is_an_adapter_error(event: bytes) -> None:
    """Order, indices, kinds of delta and JSON are the vendor's rules; none is bent."""
    error = decoded(event + end("end_turn")).error
    assert isinstance(error, AdapterError)
    assert len(str(error)) < 1000


@pytest.mark.parametrize("count", [-1, 1.5, "2", True, [1]])
def test_counts_that_are_no_counts_are_refused(count: Any) -> None:
    """A number of tokens is a non-negative integer."""
    assert isinstance(decoded(start(), text(0, "A"), end("end_turn", output_tokens=count)).error, AdapterError)


# --- usage ------------------------------------------------------------------------------------------------------


def test_counts_are_running_totals() -> None:
    """The start says 1, the end says 7: seven, not eight; what the end does not say stays."""
    usage = decoded(
        start(output_tokens=1), text(0, "A"), stated(None, output_tokens=5), end("end_turn", output_tokens=7)
    )
    assert usage.done.usage == ModelUsage(input_tokens=3, output_tokens=7)


def test_the_input_is_the_whole_prompt() -> None:
    """The vendor counts cached input apart; a total is a total on every protocol."""
    cached = start(input_tokens=3, cache_read_input_tokens=100, cache_creation_input_tokens=20)
    details = {"thinking_tokens": 4}
    step = decoded(cached, text(0, "A"), end("end_turn", output_tokens=9, output_tokens_details=details)).done
    assert step.usage == ModelUsage(
        input_tokens=123, output_tokens=9, cache_read_tokens=100, cache_write_tokens=20, reasoning_tokens=4
    )


def test_an_input_restated_at_the_end_wins() -> None:
    """Hosted tools grow the prompt while the answer streams."""
    step = decoded(start(input_tokens=10), text(0, "A"), end("end_turn", input_tokens=4000, output_tokens=2)).done
    assert step.usage.input_tokens == 4000


# --- limits and documents ---------------------------------------------------------------------------------------


def test_long_text_is_handed_on_in_bounded_deltas() -> None:
    """One event of the wire may hold more text than one of ours."""
    long = "€" * limits.DELTA_BYTES
    events = decoder().feed(start() + text(0, long) + end("end_turn"))
    deltas = [event.text for event in events if isinstance(event, PartDelta)]
    assert "".join(deltas) == long
    assert max(len(piece.encode()) for piece in deltas) <= limits.DELTA_BYTES


def test_arguments_count_against_the_limit_of_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a call that never ends do not gather without bound."""
    monkeypatch.setattr(limits, "RESPONSE_BYTES", 1000)
    body = start() + block(0, type="tool_use", id="a", name="f", input={})
    body += delta(0, "input_json_delta", partial_json="x" * 100) * 20
    error = run(decoder(), [body]).error
    assert isinstance(error, AdapterError)
    assert "1000" in str(error)


def test_a_whole_message_in_place_of_a_stream_is_decoded_as_one() -> None:
    """A gateway that does not stream still answers."""
    message = {
        "id": "msg_1",
        "type": "message",
        "model": "claude-x",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "A"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 7},
    }
    streamed = decoded(
        start(),
        block(0, type="thinking", thinking="hm", signature="s") + stop(0),
        text(1, "A"),
        tool_use(2, "a", "f", '{"x":1}'),
        end("tool_use", output_tokens=7),
    )
    events = AnthropicMessages().decode_document(
        ModelRequest(PROVIDER, [Message.user("hi")]), json.dumps(message).encode()
    )
    assert [event for event in streamed.events if event.kind != "part_delta"] == [
        event for event in events if event.kind != "part_delta"
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}', ProviderFailure),
        (b'{"error":{"type":"not_found_error","message":"no such model"}}', AdapterError),
        (b'{"object":"list","data":[]}', AdapterError),
        (b"[]", AdapterError),
        (b"null", AdapterError),
        (b"<html>", AdapterError),
        (b'{"type":"message","content":["x"],"stop_reason":"end_turn"}', AdapterError),
    ],
)
def test_other_documents_are_errors(body: bytes, expected: type[ModelError]) -> None:
    """What is no message is classified by what it states, or quoted briefly."""
    with pytest.raises(expected):
        AnthropicMessages().decode_document(ModelRequest(PROVIDER, [Message.user("hi")]), body)


def test_events_without_type_are_understood_by_their_name() -> None:
    """The name of the event is the fallback; an event with neither is passed over."""
    body = start() + text(0, "A") + b'event: message_delta\ndata: {"delta":{"stop_reason":"end_turn"}}\n\n'
    assert decoded(body, b"data: {}\n\n", unnamed("message_stop")).done.text() == "A"
