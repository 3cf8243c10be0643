"""Chat completions answers: text, usage, the end of an answer, errors inside it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.dialect import Dialect
from maka_trio.errors import AdapterError, ContextOverflow, ModelError, ProviderFailure
from maka_trio.facts import (
    Finished,
    FinishReason,
    ModelUsage,
    PartDelta,
    PartFinished,
    PartStarted,
    ResponseMetadata,
    SourceCited,
    TextKind,
    UrlSource,
)
from maka_trio.protocol.registry import adapter_for
from tests.protocol.chat_wire import (
    DONE,
    STOP,
    TOOL_CALLS,
    call,
    calls,
    chunk,
    decoded,
    decoder,
    event,
    quickly,
    request,
)

A = chunk({"content": "A"})
USAGE = {"prompt_tokens": 4, "completion_tokens": 3}
WHOLE = calls(call(0, "c1", "put", '{"n":1}'))


def truncated(error: ModelError | None) -> bool:
    return isinstance(error, ProviderFailure) and error.reason == "stream_truncated" and error.replay_safe


# --- a plain answer ----------------------------------------------------------------------------------------------


def test_an_answer_is_one_text_part_between_metadata_and_finish() -> None:
    """The events of the simplest stream, in order."""
    body = (
        chunk({"role": "assistant", "content": ""}, model="m-1", created=7),
        chunk({"content": "Hello"}, model="m-1", created=7),
        chunk({"content": " you"}, model="m-1", created=7),
        chunk({}, "stop", model="m-1", created=7, usage=USAGE),
        DONE,
    )
    assert list(decoded(*body).events) == [
        ResponseMetadata("r1", "m-1", 7),
        PartStarted("text-0", TextKind.TEXT),
        PartDelta("text-0", "Hello you"),
        PartFinished("text-0"),
        Finished(FinishReason.STOP, ModelUsage(4, 3)),
    ]


def test_text_of_one_read_is_one_delta_and_none_is_held_back() -> None:
    """Adjacent deltas are joined as far as they came together."""
    reader = decoder()
    events = reader.feed(A + chunk({"content": "B"}) + chunk({"content": "C"})[:-1])
    assert [e.text for e in events if isinstance(e, PartDelta)] == ["AB"]
    assert [e.text for e in reader.feed(b"\n") if isinstance(e, PartDelta)] == ["C"]


def test_a_long_text_is_cut_on_a_character() -> None:
    """No delta passes its limit, and nothing is lost."""
    text = "retained 字🙂 " * 2000
    events = decoder().feed(chunk({"content": text}))
    deltas = [e.text for e in events if isinstance(e, PartDelta)]
    assert "".join(deltas) == text
    assert max(len(delta.encode()) for delta in deltas) <= limits.DELTA_BYTES
    assert len(deltas) > 1


@pytest.mark.parametrize(
    "first",
    [
        b"\xef\xbb\xbf",
        b": ping\n\n",
        b"retry: 500\n\n",
        b"event: ping\n\n",
        b"event: anything\ndata: {}\n\n",
        event({"choices": [], "prompt_filter_results": [{}]}),
        event({"id": "", "model": None, "choices": None, "error": None, "usage": None}),
        chunk(None),
        chunk({"role": "assistant", "content": None, "tool_calls": None, "refusal": None, "logprobs": None}),
        event({"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}),
        event({"new": {"deep": [1]}, "choices": [{"index": 0, "delta": {"content": "", "new": 1}, "new": []}]}),
    ],
)
def test_what_says_nothing_changes_nothing(first: bytes) -> None:
    """Marks, heartbeats, empty choices, nulls, unknown keys and other choices, before the first text."""
    outcome = decoded(first, A, STOP, DONE)
    assert outcome.done.text() == "A"
    assert outcome.done.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_all_line_endings_decode_alike(newline: bytes) -> None:
    """A stream of either kind, with spaces left out or not."""
    body = (A + STOP + DONE).replace(b"\n", newline)
    assert decoded(body).done.text() == "A"
    assert decoded(body.replace(b"data: ", b"data:")).done.text() == "A"


def test_bytes_after_the_end_are_ignored() -> None:
    """The answer is complete; whatever follows cannot take it back."""
    assert decoded(A, STOP, DONE, b"data: {broken\n\n", b"\xff\n").done.text() == "A"


def test_citations_are_sources() -> None:
    """URL citations come as annotations; others are left out."""
    cited = {"type": "url_citation", "url_citation": {"url": "http://127.0.0.1/x", "title": "X"}}
    outcome = decoded(A, chunk({"annotations": [cited, {"type": "other"}, None]}), STOP, DONE)
    assert [e.source for e in outcome.events if isinstance(e, SourceCited)] == [
        UrlSource("source-0", "http://127.0.0.1/x", "X")
    ]


# --- the end of the answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [WHOLE, A, b"", chunk({"role": "assistant"}), A + event({"choices": [], "usage": USAGE})]
)
@pytest.mark.parametrize("name", [None, "generic"])
def test_a_body_that_ends_without_a_finish_reason_is_truncated(body: bytes, name: str | None) -> None:
    """No step comes of it, complete calls or not, and the request may be sent again."""
    outcome = decoded(body, name=name)
    assert truncated(outcome.error)


@pytest.mark.parametrize(
    ("body", "finish", "reason"),
    [
        (A, "text_optional", "stop"),
        (WHOLE, "text_optional", None),
        (A + WHOLE, "text_optional", None),
        (WHOLE, "optional", "tool-calls"),
        (A, "required", None),
        (chunk({"content": ""}), "text_optional", None),
        (chunk({"reasoning_content": "hm"}), "text_optional", None),
        (b"", "text_optional", None),
    ],
)
def test_the_end_marker_without_a_finish_reason_is_taken_as_the_dialect_says(
    body: bytes, finish: Any, reason: str | None
) -> None:
    """Text alone is enough for most compatible servers; calls only for those known never to state a reason."""
    outcome = decoded(body, chunk({}), DONE, name="server", dialect=Dialect(finish=finish))
    if reason is None:
        assert truncated(outcome.error)
    else:
        assert outcome.done.finish_reason == reason


def test_the_vendor_always_states_a_finish_reason() -> None:
    """The end marker alone is what a gateway adds after a failure."""
    assert truncated(decoded(A, DONE).error)
    assert decoded(A, DONE, name="generic").done.text() == "A"


@pytest.mark.parametrize(
    "residue",
    [b"data: " + json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]}).encode() + b"\n", b"data: [DONE]"],
)
def test_a_last_event_without_its_blank_line_counts_at_a_clean_end(residue: bytes) -> None:
    """Providers close early; the finish reason they sent is not lost."""
    assert decoded(A, residue, name="generic").done.text() == "A"


def test_a_last_event_that_was_cut_does_not_count() -> None:
    """The answer is judged without it."""
    assert truncated(decoded(A, STOP[:-4]).error)


def test_usage_ends_the_answer_once_the_reason_is_known() -> None:
    """Nothing more is waited for."""
    reader = decoder()
    assert not reader.in_grace
    reader.feed(A + STOP)
    assert reader.in_grace
    assert not reader.finished
    assert isinstance(reader.feed(event({"choices": [], "usage": USAGE}))[-1], Finished)
    assert reader.finished
    assert not reader.in_grace


def test_usage_with_the_reason_ends_the_answer_whatever_is_counted_later() -> None:
    """Complete at once is complete at once: a count in a later chunk is no part of the answer, in any cut of it."""
    early = {"prompt_tokens": 1, "completion_tokens": 1}
    later = event({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}})
    assert decoded(A, chunk({}, "stop", usage=early), later, DONE).done.usage == ModelUsage(1, 1)
    assert decoded(A, chunk({}, None, usage=early), STOP, later, DONE).done.usage == ModelUsage(4, 3)


@pytest.mark.parametrize("end", ["close", "settle"])
def test_an_answer_without_usage_ends_with_usage_unknown(end: str) -> None:
    """At the end of the body, or when the grace for trailing usage is over."""
    assert decoded(A, STOP, end=end).done.usage == ModelUsage()


def test_settling_an_answer_that_has_not_ended_is_truncation() -> None:
    """There is no grace before a finish reason."""
    assert truncated(decoded(A, end="settle").error)


def test_text_that_comes_after_the_finish_reason_still_counts() -> None:
    """Some servers state the reason too early."""
    outcome = decoded(A, STOP, chunk({"content": "B"}), DONE)
    assert outcome.done.text() == "AB"


# --- usage -------------------------------------------------------------------------------------------------------


def test_usage_comes_last_with_empty_choices() -> None:
    """The trailing chunk has no choice to look at."""
    step = decoded(A, STOP, event({"choices": [], "usage": USAGE}), DONE).done
    assert (step.text(), step.finish_reason, step.usage) == ("A", FinishReason.STOP, ModelUsage(4, 3))


def test_counts_are_totals_and_the_last_one_counts() -> None:
    """A running total on every chunk is not added up, and a first zero does not win."""
    body = [chunk({"content": "x"}, usage={"prompt_tokens": 4, "completion_tokens": n}) for n in range(4)]
    step = decoded(*body, STOP, event({"choices": [], "usage": {"completion_tokens": 3}}), DONE).done
    assert step.usage == ModelUsage(4, 3)


def test_parts_of_the_totals_are_read_and_unstated_ones_stay_unknown() -> None:
    """Cached and reasoning tokens are parts of the totals."""
    usage = {
        **USAGE,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert decoded(A, chunk({}, "stop", usage=usage)).done.usage == ModelUsage(4, 3, 2, 1, 0)
    step = decoded(A, STOP, event({"usage": {"prompt_tokens": 4, "completion_tokens": None}})).done
    assert step.usage == ModelUsage(input_tokens=4)


def test_usage_that_stands_elsewhere_is_found() -> None:
    """One vendor keeps it in an object of its own."""
    assert decoded(A, chunk({}, "stop", x_groq={"usage": USAGE}), name="groq").done.usage == ModelUsage(4, 3)


@pytest.mark.parametrize("count", [-1, 1.5, "2", True])
@pytest.mark.parametrize("place", ["prompt_tokens", "cached_tokens"])
def test_a_count_that_is_none_is_an_adapter_error(count: Any, place: str) -> None:
    """It does not finish the answer, and what was streamed before stays."""
    usage = {place: count} if place == "prompt_tokens" else {"prompt_tokens_details": {place: count}}
    outcome = decoded(A, chunk({}, "stop", usage=usage), DONE)
    assert isinstance(outcome.error, AdapterError)
    assert outcome.text == "A"
    assert place in str(outcome.error)


# --- errors ------------------------------------------------------------------------------------------------------

ERRORS = [
    (event({"error": {"message": "boom", "code": 502}}), "provider_unavailable"),
    (event({"error": {"message": "boom", "code": "502"}}), "provider_unavailable"),
    (event({"error": {"message": "boom", "type": "overloaded_error"}, "choices": []}), "provider_unavailable"),
    (event({"error": "boom"}), "AdapterError"),
    (b'event: error\ndata: {"message":"boom"}\n\n', "AdapterError"),
    (b'event: error\ndata: {"code":"server_error","message":"boom"}\n\n', "provider_unavailable"),
    (event({"object": "error", "message": "boom", "code": 400}), "AdapterError"),
    (event([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}]), "rate_limit"),
    (event({"error": {"code": "context_length_exceeded"}}), "ContextOverflow"),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS)
@pytest.mark.parametrize("before", [b"", A])
@pytest.mark.parametrize("name", [None, "generic"])
def test_an_error_in_the_stream_is_classified_by_code_and_type(
    error: bytes, expected: str, before: bytes, name: str | None
) -> None:
    """Before any text and after it: the text stays observed, the answer becomes no step."""
    outcome = decoded(before, error, STOP, DONE, name=name)
    fault = outcome.error
    assert (fault.reason if isinstance(fault, ProviderFailure) else type(fault).__name__) == expected
    assert outcome.text == ("A" if before else "")
    if isinstance(fault, ProviderFailure):
        assert fault.replay_safe
    if isinstance(fault, ContextOverflow):
        assert fault.observed_output is bool(before)


def test_an_error_that_is_null_is_none() -> None:
    """Some servers send the key on every chunk."""
    assert decoded(chunk({"content": "A"}, error=None), chunk({}, "stop", error=None), DONE).done.text() == "A"


def test_a_comment_inside_a_payload_is_one_for_compatible_servers_alone() -> None:
    """The vendor sends none, so there it is an error that quotes little."""
    heartbeat = b"data: : GATEWAY WORKING " + b"x" * 1000 + b"\n\n"
    assert decoded(A, heartbeat, STOP, DONE, name="generic").done.text() == "A"
    outcome = quickly(A, heartbeat, STOP, DONE)
    assert isinstance(outcome.error, AdapterError)
    assert outcome.error.offset == len(A)
    assert "GATEWAY" in str(outcome.error)
    assert len(str(outcome.error)) < 500


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"nonsense",
        b'{"choices":[{"delta":{"content":5}}]}',
        b'{"choices":{}}',
        b"[]",
        b"1",
        b'{"choices":[{"delta":{"content":"\\ud800"}}]}',
        b'{"a":1}\x0c',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("name", [None, "generic"])
def test_a_payload_that_is_no_chunk_is_an_adapter_error_with_its_place(payload: bytes, name: str | None) -> None:
    """Nothing is guessed; the text before stays observed, and the decoder stays broken."""
    outcome = quickly(A, b"data: " + payload + b"\n\n", STOP, DONE, name=name)
    assert isinstance(outcome.error, AdapterError)
    assert outcome.error.offset == len(A)
    assert outcome.text == "A"


def test_events_before_a_fault_come_first_and_the_fault_stays() -> None:
    """The call that meets a fault returns what it decoded; every later call raises."""
    reader = decoder()
    events = reader.feed(A + event({"error": {"code": 502}}) + STOP + DONE)
    assert [e.text for e in events if isinstance(e, PartDelta)] == ["A"]
    for later in (lambda: reader.feed(b""), lambda: reader.feed(A), reader.close, reader.settle):
        with pytest.raises(ProviderFailure):
            later()
    assert not reader.finished


def test_bytes_that_are_not_utf8_end_the_answer_after_what_came_before() -> None:
    """Also in the same read."""
    outcome = decoded(A, b'data: {"t":"\xff"}\n\n', STOP, DONE)
    assert isinstance(outcome.error, AdapterError)
    assert outcome.text == "A"


def test_old_function_calls_are_refused_by_name() -> None:
    """The form before tool calls is not silently dropped."""
    for body in (chunk({"function_call": {"name": "f"}}), A + chunk({}, "function_call")):
        outcome = decoded(body, DONE)
        assert isinstance(outcome.error, AdapterError)
        assert "function_call" in str(outcome.error)


def test_an_old_function_call_beside_the_tool_call_is_ignored() -> None:
    """Servers that speak both say the same thing twice."""
    both = {"tool_calls": [call(0, "a", "f", "{}")], "function_call": {"name": "f", "arguments": "{}"}}
    assert [c.name for c in decoded(chunk(both), TOOL_CALLS, DONE).done.tool_calls()] == ["f"]


# --- whole messages ----------------------------------------------------------------------------------------------


def test_a_whole_message_beside_deltas_is_not_said_twice() -> None:
    """Compatible servers repeat it; it counts only where the deltas said nothing."""
    both = event({"choices": [{"delta": {"content": "A"}, "message": {"content": "A"}, "finish_reason": None}]})
    last = event({"choices": [{"delta": {}, "message": {"content": "A"}, "finish_reason": "stop"}]})
    assert decoded(both, last, DONE, name="generic").done.text() == "A"
    assert decoded(last, DONE, name="generic").done.text() == "A"
    assert decoded(last, DONE).done.text() == ""


COMPLETION = {
    "id": "r1",
    "model": "m",
    "created": 5,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "A", "tool_calls": [call(0, "a", "f", '{"n":1}')]},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": USAGE,
}


def document(body: Any, name: str | None = None) -> list[Any]:
    asked = request(name=name)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return adapter_for(asked.provider).decode_document(asked, data)


def test_a_plain_completion_gives_the_events_of_a_stream() -> None:
    """A server may answer a streaming request with JSON."""
    events = document(COMPLETION)
    streamed = decoded(
        chunk(
            {"content": "A", "tool_calls": [call(0, "a", "f", '{"n":1}')]},
            "tool_calls",
            model="m",
            created=5,
            usage=USAGE,
        )
    )
    assert events == list(streamed.events)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "no such model"}}, AdapterError),
        ({"error": {"code": 503}}, ProviderFailure),
        ([{"error": {"code": 503}}], ProviderFailure),
        ({"choices": []}, AdapterError),
        ({"detail": "x"}, AdapterError),
        (b"{", AdapterError),
        ({"choices": [{"message": {"content": "A"}}]}, ProviderFailure),
        ({"choices": [{"message": {"content": "A"}, "finish_reason": "error"}]}, AdapterError),
    ],
)
def test_a_plain_answer_that_is_no_completion_is_an_error(body: Any, expected: type[ModelError]) -> None:
    """Stated errors are classified, the rest is refused; the vendor states a finish reason here as well."""
    with pytest.raises(expected):
        document(body)


def test_a_plain_completion_of_a_compatible_server_may_lack_its_reason() -> None:
    """As in a stream."""
    assert isinstance(document({"choices": [{"message": {"content": "A"}}]}, name="generic")[-1], Finished)
