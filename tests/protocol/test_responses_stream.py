"""Responses streams: what the vendor and compatible servers mean by them, and what must not become a step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.errors import AdapterError, ContextOverflow, ModelError, ModelRefused, ProviderFailure
from maka_trio.facts.message import Message
from maka_trio.facts.model import (
    DocumentSource,
    FinishReason,
    ModelToolCall,
    ModelUsage,
    SourcePart,
    TextKind,
    TextPart,
    UrlSource,
)
from maka_trio.protocol.openai_responses import OpenAIResponses
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.request import ModelRequest
from tests.protocol.decoding import run
from tests.protocol.responses_events import (
    PROVIDER,
    added,
    called,
    created,
    decoded,
    decoder,
    done,
    ended,
    event,
    incomplete,
    said,
    thinking,
)
from tests.protocol.wire_streams import DONE, data, named, without_names

# --- what is said -----------------------------------------------------------------------------------------------


def test_text_usage_and_metadata_make_a_step() -> None:
    """The plain case, with every part of the usage."""
    usage = {
        "input_tokens": 120,
        "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 4},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 129,
    }
    step = decoded(created(), said(0, "Hel", "", "lo €"), ended(usage=usage)).done
    assert step.parts == (TextPart(TextKind.TEXT, "Hello €"),)
    assert (step.response_id, step.model, step.timestamp) == ("resp_1", "gpt-x", 1700000000)
    assert step.finish_reason is FinishReason.STOP
    assert step.usage == ModelUsage(120, 9, cache_read_tokens=100, cache_write_tokens=4, reasoning_tokens=5)
    assert step.provider_options == {"openai": {"status": "completed"}}


def test_a_compatible_server_without_names_decodes_alike() -> None:
    """No `event:` lines, comments between the events, `[DONE]` after the end, nothing in the final output."""
    body = created() + said(0, "A") + called(1, "c1", "put", '{"n":1}') + ended()
    bare = without_names(body).replace(b"\n\n", b"\n\n: OPENROUTER PROCESSING\n\n")
    assert decoded(bare, DONE).done == decoded(body).done


def test_a_server_may_leave_out_every_event_but_the_last() -> None:
    """What was not streamed is taken from the final response."""
    output = [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "A", "annotations": []}]},
        {"type": "function_call", "id": "f", "call_id": "c1", "name": "put", "arguments": '{"n":1}'},
    ]
    step = decoded(ended(output=output)).done
    assert [part.text for part in step.parts if isinstance(part, TextPart)] == ["hm", "A"]
    assert step.local_calls() == (ModelToolCall("c1", "put", {"n": 1}),)
    assert step.finish_reason is FinishReason.TOOL_CALLS


def test_a_server_may_leave_out_the_small_events() -> None:
    """Only deltas and the end: the text is closed by the end."""
    body = (added(0, "message"), event("output_text.delta", 0, delta="A"), event("output_text.delta", 0, delta="B"))
    assert decoded(*body, ended()).done.text() == "AB"


def test_an_item_that_was_not_announced_is_what_its_text_says() -> None:
    """The barest servers send deltas and an end."""
    body = (
        named("response.reasoning_text.delta", item_id="r", output_index=0, delta="hm"),
        named("response.output_text.delta", item_id="m", output_index=1, delta="A"),
        named("response.output_text.delta", item_id="m", output_index=1, delta="B"),
    )
    parts = decoded(*body, ended()).done.parts
    assert parts == (TextPart(TextKind.THINKING, "hm"), TextPart(TextKind.TEXT, "AB"))


def test_a_text_that_only_its_end_tells_is_not_lost() -> None:
    """Nor is one told twice said twice."""
    whole = done(0, "message", content=[{"type": "output_text", "text": "A"}])
    assert decoded(added(0, "message"), whole, ended()).done.text() == "A"
    told = event("output_text.done", 0, content_index=0, text="A")
    assert decoded(added(0, "message"), told, told, whole, ended()).done.text() == "A"


def test_what_was_streamed_is_not_taken_again_from_the_final_response() -> None:
    """Whatever ids the server writes there: the place in the output says which item it is."""
    output = [
        {"type": "message", "id": "other-1", "content": [{"type": "output_text", "text": "A"}]},
        {"type": "function_call", "id": "other-2", "call_id": "c1", "name": "put", "arguments": "{}"},
    ]
    step = decoded(created(), said(0, "A"), called(1, "c1", "put", "{}"), ended(output=output)).done
    assert step.text() == "A"
    assert len(step.tool_calls()) == 1


def test_ids_that_change_in_every_event_do_not_matter() -> None:
    """One gateway encrypts the item id anew each time."""
    body = (
        named("response.output_item.added", output_index=0, item={"type": "message", "id": "x1"}),
        named("response.output_text.delta", output_index=0, item_id="x2", content_index=0, delta="A"),
        named("response.output_item.done", output_index=0, item={"type": "message", "id": "x3", "content": []}),
    )
    assert decoded(*body, ended()).done.text() == "A"


def test_items_without_a_place_are_told_apart_by_id() -> None:
    """Some servers leave `output_index` out."""
    body = (
        named("response.output_item.added", item={"type": "message", "id": "a"}),
        named("response.output_text.delta", item_id="a", delta="A"),
        named("response.output_item.done", item={"type": "message", "id": "a", "content": []}),
        named("response.output_item.added", item={"type": "function_call", "id": "b", "call_id": "c1", "name": "put"}),
        named("response.function_call_arguments.delta", item_id="b", delta='{"n":'),
        named("response.function_call_arguments.delta", item_id="b", delta="1}"),
        named("response.output_item.done", item={"type": "function_call", "id": "b", "call_id": "c1", "name": "put"}),
    )
    step = decoded(*body, ended()).done
    assert step.text() == "A"
    assert step.local_calls() == (ModelToolCall("c1", "put", {"n": 1}),)


def test_several_messages_and_their_phases() -> None:
    """Commentary and answer are parts of their own; the phase must come back, so it is noted."""
    step = decoded(
        created(), said(0, "Looking", phase="commentary"), said(1, "Found", phase="final_answer"), ended()
    ).done
    assert step.parts == (
        TextPart(TextKind.TEXT, "Looking", {"openai": {"phase": "commentary"}}),
        TextPart(TextKind.TEXT, "Found", {"openai": {"phase": "final_answer"}}),
    )


def test_item_ids_are_noted_only_where_the_provider_stores_them() -> None:
    """Without a store they mean nothing, and noting them would forbid to send the request again."""
    body = created() + said(0, "A") + called(1, "c1", "put", "{}") + ended()
    kept = decoded(body, options=ResponsesOptions(store=True)).done
    assert kept.parts[0] == TextPart(TextKind.TEXT, "A", {"openai": {"item_id": "i_0"}})
    assert kept.tool_calls()[0].provider_options == {"openai": {"item_id": "i_1"}}
    assert decoded(body).done.tool_calls()[0].provider_options is None


def test_a_refusal_is_text_that_says_what_it_is() -> None:
    """It is shown, it completes the step, and it is not mistaken for an answer."""
    part = {"type": "refusal", "refusal": "I cannot"}
    body = (
        added(0, "message"),
        event("content_part.added", 0, content_index=0, part={"type": "refusal", "refusal": ""}),
        event("refusal.delta", 0, content_index=0, delta="I "),
        event("refusal.delta", 0, content_index=0, delta="cannot"),
        event("refusal.done", 0, content_index=0, refusal="I cannot"),
        done(0, "message", content=[part]),
    )
    step = decoded(*body, ended()).done
    assert step.parts == (TextPart(TextKind.TEXT, "I cannot", {"openai": {"refusal": True}}),)
    assert decoded(done(0, "message", content=[part]), ended()).done.parts == step.parts


def test_annotations_are_sources() -> None:
    """Pages and files; told by an event or only at the end, each once."""
    page = {"type": "url_citation", "url": "https://a.test", "title": "A", "start_index": 0, "end_index": 1}
    file = {"type": "file_citation", "file_id": "file-1", "filename": "b.pdf", "index": 0}
    unknown = {"type": "hologram_citation", "beam": 1}
    content = [{"type": "output_text", "text": "A", "annotations": [page, file, unknown]}]
    body = (
        added(0, "message"),
        event("output_text.delta", 0, content_index=0, delta="A"),
        event("output_text.annotation.added", 0, content_index=0, annotation=page),
        done(0, "message", content=content),
    )
    sources = [part.source for part in decoded(*body, ended()).done.parts if isinstance(part, SourcePart)]
    assert sources == [
        UrlSource(sources[0].id, "https://a.test", "A"),
        DocumentSource(sources[1].id, "application/octet-stream", "b.pdf", "b.pdf"),
    ]


def test_unknown_events_items_and_nulls_are_passed_over() -> None:
    """Heartbeats, progress of hosted tools, fields of next year."""
    body = (
        created(),
        named("keepalive", sequence_number=3),
        named("response.hologram.beam", output_index=9, delta=[1]),
        named("response.output_item.added", output_index=None, item=None),
        named("response.output_text.delta", output_index=0, delta=None, item_id=None),
        said(0, "A"),
        named("response.in_progress", response=None, error=None),
        ended(usage=None, incomplete_details=None, error=None),
    )
    step = decoded(*body).done
    assert step.text() == "A"
    assert step.usage == ModelUsage()


# --- what is thought --------------------------------------------------------------------------------------------


def test_summaries_and_their_encrypted_reasoning_are_kept() -> None:
    """Each summary is a part of its own; the item's id and its sealed content are noted byte for byte."""
    step = decoded(created(), thinking(0, encrypted_content="gAAA+/=="), said(1, "A"), ended()).done
    noted = {"item_id": "rs_1", "sealed": True, "carrier": "summary"}
    assert step.parts[:2] == (
        TextPart(TextKind.THINKING, "one", {"openai": {**noted, "encrypted_content": "gAAA+/=="}}),
        TextPart(TextKind.THINKING, "two", {"openai": noted}),
    )


def test_reasoning_that_cannot_go_back_is_only_text() -> None:
    """Without its sealed content an unstored item is unknown to the provider."""
    step = decoded(created(), thinking(0), said(1, "A"), ended()).done
    assert step.parts[:2] == (TextPart(TextKind.THINKING, "one"), TextPart(TextKind.THINKING, "two"))


def test_reasoning_without_text_keeps_its_sealed_content() -> None:
    """There is nothing to show, and something to send back. What an open item says of it is not yet all."""
    body = (
        added(0, "reasoning", summary=[], encrypted_content="half"),
        done(0, "reasoning", summary=[], encrypted_content="whole"),
        said(1, "A"),
        ended(),
    )
    part = decoded(*body).done.parts[0]
    assert part == TextPart(
        TextKind.THINKING, "", {"openai": {"item_id": "i_0", "sealed": True, "encrypted_content": "whole"}}
    )
    empty = decoded(added(0, "reasoning", summary=[]), done(0, "reasoning", summary=[]), said(1, "A"), ended()).done
    assert len(empty.parts) == 1


def test_plain_reasoning_is_thinking() -> None:
    """Open models show their own; its carrier is noted where it may go back."""
    content = [{"type": "reasoning_text", "text": "hm"}]
    body = (
        added(0, "reasoning", summary=[]),
        event("content_part.added", 0, content_index=0, part={"type": "reasoning_text", "text": ""}),
        event("reasoning_text.delta", 0, content_index=0, delta="h"),
        event("reasoning_text.delta", 0, content_index=0, delta="m"),
        event("reasoning_text.done", 0, content_index=0, text="hm"),
        done(0, "reasoning", summary=[], content=content),
        said(1, "A"),
        ended(),
    )
    assert decoded(*body).done.parts[0] == TextPart(TextKind.THINKING, "hm")
    replayed = decoded(*body, options=ResponsesOptions(replay_reasoning="text")).done.parts[0]
    assert replayed == TextPart(TextKind.THINKING, "hm", {"openai": {"item_id": "i_0", "carrier": "content"}})


# --- calls ------------------------------------------------------------------------------------------------------


def test_parallel_calls_come_out_in_order() -> None:
    """The call id pairs a call with its output; the item id is another thing."""
    step = decoded(created(), called(0, "c1", "f", '{"x"', ":1}"), called(1, "c2", "g", '{"y":2}'), ended()).done
    assert step.local_calls() == (ModelToolCall("c1", "f", {"x": 1}), ModelToolCall("c2", "g", {"y": 2}))
    assert step.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize("arguments", ["", " ", "null", None])
def test_a_call_without_arguments_has_an_empty_object(arguments: str | None) -> None:
    """A tool without parameters."""
    whole = done(0, "function_call", call_id="c", name="now", arguments=arguments)
    assert decoded(added(0, "function_call", call_id="c", name="now"), whole, ended()).done.local_calls() == (
        ModelToolCall("c", "now", {}),
    )


@pytest.mark.parametrize("arguments", ['{"n":', '{"n":NaN}', '{"n":1}{"n":2}', "[" * 200 + "]" * 200])
def test_arguments_that_are_not_json_void_the_step(arguments: str) -> None:
    """Nothing is repaired."""
    assert isinstance(decoded(created(), called(0, "c", "put", arguments), ended()).error, AdapterError)


def test_arguments_that_a_server_parsed_are_taken() -> None:
    """An object where the vendor has JSON text."""
    body = done(0, "function_call", call_id="c", name="put", arguments={"n": 1})
    assert decoded(body, ended()).done.local_calls() == (ModelToolCall("c", "put", {"n": 1}),)


def test_a_custom_call_has_a_text() -> None:
    """Its input is not JSON and is not read as such."""
    body = (
        added(0, "custom_tool_call", call_id="c", name="python", input=""),
        event("custom_tool_call_input.delta", 0, delta="print("),
        event("custom_tool_call_input.delta", 0, delta="1)"),
        event("custom_tool_call_input.done", 0, input="print(1)"),
        done(0, "custom_tool_call", call_id="c", name="python", input="print(1)"),
    )
    assert decoded(*body, ended()).done.local_calls() == (ModelToolCall("c", "python", "print(1)"),)


def test_the_vendors_own_tool_name_is_mapped_back() -> None:
    """A tool of ours that is called like one of the vendor's goes under another name on the wire."""
    step = decoded(called(0, "c", "maka_tool_search", "{}"), ended()).done
    assert step.local_calls()[0].name == "tool_search"


@pytest.mark.parametrize("fields", [{"name": "f"}, {"call_id": "c"}, {"call_id": "", "name": "f"}])
def test_a_call_without_id_or_name_is_malformed(fields: dict[str, str]) -> None:
    """The strict kind makes up no ids."""
    assert isinstance(decoded(done(0, "function_call", arguments="{}", **fields), ended()).error, AdapterError)


def test_namespace_and_caller_of_a_call_are_noted() -> None:
    """They must come back with it; the direct caller goes without saying."""
    caller = {"type": "program", "caller_id": "c0"}
    step = decoded(
        called(0, "c1", "f", "{}", namespace="crm"),
        called(1, "c2", "f", "{}", caller=caller),
        called(2, "c3", "f", "{}", caller={"type": "direct"}),
        ended(),
    ).done
    assert [call.provider_options for call in step.local_calls()] == [
        {"openai": {"namespace": "crm"}},
        {"openai": {"caller": caller}},
        None,
    ]


# --- the end ----------------------------------------------------------------------------------------------------

CALL = called(0, "c1", "put", "{}")


@pytest.mark.parametrize("body", [b"", created(), CALL, CALL + DONE, created() + said(0, "A")])
def test_a_stream_without_its_end_is_truncated(body: bytes) -> None:
    """A finished call in an unfinished answer is not run, and the request may be sent again."""
    failure = decoded(body).error
    assert isinstance(failure, ProviderFailure)
    assert (failure.reason, failure.replay_safe) == ("stream_truncated", True)


def test_the_output_limit_is_a_length_finish_with_its_calls() -> None:
    """Complete arguments make a step that the engine refuses to run."""
    step = decoded(created(), CALL, incomplete("max_output_tokens")).done
    assert step.finish_reason is FinishReason.LENGTH
    assert len(step.local_calls()) == 1
    assert step.provider_options == {"openai": {"status": "incomplete", "incomplete_reason": "max_output_tokens"}}


@pytest.mark.parametrize(
    "cut",
    [
        added(0, "function_call", call_id="c", name="put") + event("function_call_arguments.delta", 0, delta='{"n":'),
        done(0, "function_call", call_id="c", name="put", arguments='{"n":', status="incomplete"),
    ],
    ids=["open", "done"],
)
@pytest.mark.parametrize("end", [incomplete("max_output_tokens"), ended()], ids=["incomplete", "completed"])
def test_the_end_inside_arguments_voids_the_step(cut: bytes, end: bytes) -> None:
    """Cut arguments cannot even be shown to a schema."""
    assert isinstance(decoded(created(), cut, end).error, AdapterError)


def test_a_call_that_only_lacks_its_last_event_is_complete() -> None:
    """Its arguments were said to be all."""
    body = (
        added(0, "function_call", call_id="c", name="put"),
        event("function_call_arguments.done", 0, arguments='{"n":1}'),
    )
    assert decoded(*body, ended()).done.local_calls() == (ModelToolCall("c", "put", {"n": 1}),)


def test_the_limit_inside_a_text_keeps_the_text() -> None:
    """What was said was said."""
    body = (added(0, "message"), event("output_text.delta", 0, delta="A"), incomplete("max_output_tokens"))
    step = decoded(*body).done
    assert (step.text(), step.finish_reason) == ("A", FinishReason.LENGTH)


def test_a_filtered_answer_is_refused() -> None:
    """Never an empty success, never a retry."""
    assert isinstance(decoded(created(), said(0, "A"), incomplete("content_filter")).error, ModelRefused)


@pytest.mark.parametrize("end", [incomplete("steered"), ended("cancelled"), named("response.incomplete", response={})])
def test_other_ends_do_not_complete(end: bytes) -> None:
    """What the end says is named, not guessed."""
    assert isinstance(decoded(created(), CALL, end).error, AdapterError)


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected", "reason"),
    [
        ({"code": "server_error", "message": "x"}, ProviderFailure, "provider_unavailable"),
        ({"code": "rate_limit_exceeded", "message": "x"}, ProviderFailure, "rate_limit"),
        ({"code": "context_length_exceeded", "message": "x"}, ContextOverflow, None),
        ({"code": "invalid_prompt", "message": "server_error"}, AdapterError, None),
        ({"code": "misalignment_policy_violation", "message": "x"}, ModelRefused, None),
    ],
)
@pytest.mark.parametrize("form", ["failed", "error", "nested error"])
def test_failures_are_classified_by_code(
    error: dict[str, str], expected: type[ModelError], reason: str | None, form: str
) -> None:
    """In each of the three forms in which they come; no call of the answer runs."""
    forms = {
        "failed": ended("failed", error=error),
        "error": named("error", **error, param=None),
        "nested error": named("error", error={"type": "x", **error}),
    }
    failure = decoded(created(), CALL, forms[form]).error
    assert type(failure) is expected
    if isinstance(failure, ProviderFailure):
        assert (failure.reason, failure.replay_safe) == (reason, True)


def test_an_error_object_of_a_gateway_is_an_error() -> None:
    """Without type, in the form of another protocol."""
    assert isinstance(decoded(created(), data({"error": {"message": "boom", "code": 502}})).error, ProviderFailure)


@pytest.mark.parametrize("created_at", [1e300, -5, "soon", True, None])
def test_a_time_that_is_none_is_left_out(created_at: Any) -> None:
    """It is only told, never reckoned with."""
    body = named("response.created", response={"id": "r", "created_at": created_at}) + said(0, "A")
    assert decoded(body, ended()).done.timestamp is None


def test_a_failure_without_a_reason_fails() -> None:
    """An answer that failed is no step, whatever it leaves unsaid."""
    assert isinstance(decoded(created(), said(0, "A"), ended("failed", error=None)).error, AdapterError)


def test_sealed_reasoning_is_a_barrier_to_sending_the_request_again() -> None:
    """What is sealed belongs to this attempt."""
    failure = decoded(
        created(), thinking(0, encrypted_content="g"), ended("failed", error={"code": "server_error"})
    ).error
    assert isinstance(failure, ProviderFailure)
    assert failure.replay_safe is False


@pytest.mark.parametrize(
    "events",
    [
        said(0, "A") + event("output_text.delta", 0, delta="B"),
        event("function_call_arguments.delta", 0, delta="{"),
        added(0, "message") + added(0, "message"),
        added(0, "message") + done(0, "function_call", call_id="c", name="f", arguments="{}"),
        said(0, "A") + added(0, "message"),
        added(0, "message") + event("reasoning_text.delta", 0, delta="A"),
        added(0, "reasoning") + event("refusal.delta", 0, delta="A"),
        added(0, "function_call", call_id="c", name="f") + event("output_text.delta", 0, delta="A"),
        called(0, "c", "f", "{}") + called(1, "c", "g", "{}"),
        named("response.output_item.added", output_index=0, item={"id": "x"}),
        done(0, "computer_call", call_id="c", action={}),
        b'data: {"type":\n\n',
        b"data: : GATEWAY WORKING\n\n",
        b'data: {"type":"response.output_item.added","item":[]}\n\n',
        b'data: {"type":"x","t":"\xff"}\n\n',
        b'data: {"type":"response.completed"}\n\n',
        b'data: {"type":"response.output_item.added","item":{"type":{},"status":"incomplete"}}\n\n',
        b'data: {"type":"response.output_item.done","item":{"type":[],"status":"incomplete"}}\n\n',
    ],
)
def test_a_malformed_stream_is_an_adapter_error(events: bytes) -> None:
    """Order, kinds and JSON are the vendor's rules."""
    error = decoded(events + ended()).error
    assert isinstance(error, AdapterError)
    assert len(str(error)) < 1000


@pytest.mark.parametrize("count", [-1, 1.5, "2"])
@pytest.mark.parametrize("field", ["input_tokens", "output_tokens"])
def test_counts_that_are_no_counts_are_refused(count: Any, field: str) -> None:
    """A number of tokens is a non-negative integer."""
    assert isinstance(decoded(said(0, "A"), ended(usage={field: count})).error, AdapterError)


# --- limits and documents ---------------------------------------------------------------------------------------


def test_arguments_count_against_the_limit_of_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a call that never ends do not gather without bound."""
    monkeypatch.setattr(limits, "RESPONSE_BYTES", 1000)
    body = added(0, "function_call", call_id="c", name="f")
    body += event("function_call_arguments.delta", 0, delta="x" * 100) * 20
    error = run(decoder(), [body]).error
    assert isinstance(error, AdapterError)
    assert "1000" in str(error)


def test_a_whole_response_in_place_of_a_stream_is_decoded_as_one() -> None:
    """A gateway that does not stream still answers."""
    response = {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-x",
        "status": "completed",
        "error": None,
        "output": [
            {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "A"}]},
            {"type": "function_call", "id": "f", "call_id": "c1", "name": "put", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    request = ModelRequest(PROVIDER, [Message.user("hi")])
    events = OpenAIResponses().decode_document(request, json.dumps(response).encode())
    streamed = decoded(named("response.completed", response=response))
    assert tuple(events) == streamed.events
    assert streamed.done.local_calls() == (ModelToolCall("c1", "put", {}),)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"code":"server_error","message":"x"}}', ProviderFailure),
        (b'{"error":{"code":"model_not_found","message":"no such model"}}', AdapterError),
        (b'{"object":"response","status":"failed","output":[],"error":{"code":"server_error"}}', ProviderFailure),
        (b'{"object":"list","data":[]}', AdapterError),
        (b"[]", AdapterError),
        (b"<html>", AdapterError),
    ],
)
def test_other_documents_are_errors(body: bytes, expected: type[ModelError]) -> None:
    """What is no response is classified by what it states, or quoted briefly."""
    with pytest.raises(expected):
        OpenAIResponses().decode_document(ModelRequest(PROVIDER, [Message.user("hi")]), body)


# --- texts that were streamed in part ---------------------------------------------------------------------------


def message_item(text: str) -> dict[str, object]:
    return {"content": [{"type": "output_text", "text": text, "annotations": []}]}


@pytest.mark.parametrize("streamed", ["", "h", "he", "hello"])
@pytest.mark.parametrize("finals", ["done", "item", "response", "done item response"])
def test_the_rest_of_a_text_is_taken_from_its_final_forms(streamed: str, finals: str) -> None:
    """What the vendor's client makes of it: what the final form says, in deltas that join to the step."""
    item = {"type": "message", "id": "i_0", **message_item("hello")}
    events = [created(), added(0, "message", content=[])]
    events += [event("output_text.delta", 0, content_index=0, delta=piece) for piece in streamed]
    if "done" in finals:
        events.append(event("output_text.done", 0, content_index=0, text="hello"))
    if "item" in finals:
        events.append(done(0, "message", **message_item("hello")))
    output = [item] if "response" in finals else []
    if finals == "done":
        events.append(done(0, "message", content=[]))
    outcome = decoded(*events, ended(output=output))
    assert (outcome.done.text(), outcome.text) == ("hello", "hello")


def test_each_final_form_may_go_on() -> None:
    """The later they are, the more they know."""
    body = [
        added(0, "message", content=[]),
        event("output_text.delta", 0, content_index=0, delta="grü"),
        event("output_text.done", 0, content_index=0, text="grüß"),
        done(0, "message", **message_item("grüß dich")),
    ]
    assert decoded(*body, ended()).done.text() == "grüß dich"


@pytest.mark.parametrize("final", ["", "he", "HELLO", "HELLO world", "hallo there", " hello world"])
def test_a_final_form_that_says_something_else_takes_nothing_back(final: str) -> None:
    """Shorter or other than what was shown: what was shown was said."""
    body = [
        added(0, "message", content=[]),
        event("output_text.delta", 0, content_index=0, delta="hello"),
        event("output_text.done", 0, content_index=0, text=final),
        done(0, "message", **message_item(final)),
    ]
    assert decoded(*body, ended()).done.text() == "hello"


def test_reasoning_goes_on_as_texts_do() -> None:
    """Each summary by itself."""
    summary = [{"type": "summary_text", "text": "one two"}, {"type": "summary_text", "text": "three"}]
    body = [
        added(0, "reasoning", summary=[]),
        event("reasoning_summary_text.delta", 0, summary_index=0, delta="one"),
        done(0, "reasoning", summary=summary),
    ]
    step = decoded(*body, said(1, "A"), ended()).done
    assert [part.text for part in step.parts if isinstance(part, TextPart)] == ["one two", "three", "A"]
