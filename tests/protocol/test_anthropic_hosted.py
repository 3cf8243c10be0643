"""Tools that run at Anthropic: their calls and results, turns that pause, and what goes back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from maka_trio.errors import AdapterError, ProviderFailure
from maka_trio.facts.message import AssistantMessage, Message, PromptMessage, TextOutput
from maka_trio.facts.model import (
    DocumentSource,
    FinishReason,
    ModelStep,
    ModelToolCall,
    SourcePart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UrlSource,
)
from maka_trio.protocol.anthropic import AnthropicMessages
from maka_trio.protocol.hosted_calls import DEFERRED_OUTPUT
from maka_trio.protocol.pauses import is_paused
from maka_trio.request import ModelRequest
from tests.protocol.anthropic_events import PROVIDER, block, decoder, delta, end, start, stop, text, tool_use
from tests.protocol.decoding import run
from tests.protocol.wire_histories import sent_back
from tests.protocol.wire_rules import check_messages
from tests.protocol.wire_streams import named, outcome_of

FOUND = [{"type": "web_search_result", "url": "https://a.test", "title": "A", "encrypted_content": "Enc+/=="}]


def hosted(index: int, call_id: str, name: str = "web_search", **more: Any) -> bytes:
    begin = block(index, type="server_tool_use", id=call_id, name=name, input={}, **more)
    return begin + delta(index, "input_json_delta", partial_json='{"query": "x"}') + stop(index)


def result(index: int, call_id: str, kind: str = "web_search", content: Any = FOUND, **more: Any) -> bytes:
    return block(index, type=f"{kind}_tool_result", tool_use_id=call_id, content=content, **more) + stop(index)


def step_of(*events: bytes) -> ModelStep:
    return outcome_of(decoder, b"".join(events)).done


def wire(prompt: Sequence[PromptMessage]) -> list[dict[str, Any]]:
    """The messages of a request, which passes the strict checker."""
    raw = AnthropicMessages().encode(ModelRequest(PROVIDER, prompt)).body
    check_messages(raw)
    return list(json.loads(raw)["messages"])


def answer_to(prompt: Sequence[PromptMessage], *events: bytes) -> ModelStep:
    return run(AnthropicMessages().decoder(ModelRequest(PROVIDER, prompt)), [b"".join(events)]).done


# --- in one answer ----------------------------------------------------------------------------------------------


def test_a_hosted_call_is_paired_with_its_result_and_never_ours() -> None:
    """The provider ran it; the step says so, and nothing is left to dispatch."""
    step = step_of(start(), hosted(0, "srv_1"), result(1, "srv_1"), text(2, "found"), end("end_turn"))
    assert step.local_calls() == ()
    assert step.finish_reason is FinishReason.STOP
    called, answered, _ = step.parts
    assert called == ToolCallPart(
        ModelToolCall(
            "srv_1",
            "web_search",
            {"query": "x"},
            {"anthropic": {"block": {"type": "server_tool_use"}}},
            provider_executed=True,
        )
    )
    assert answered == ToolResultPart(
        "srv_1", "web_search", FOUND, provider_options={"anthropic": {"block": {"type": "web_search_tool_result"}}}
    )


def test_a_remote_server_is_named_in_its_call() -> None:
    """A call of an MCP server goes back with the server's name, its result with its flag."""
    body = (
        start(),
        block(0, type="mcp_tool_use", id="mcp_1", name="echo", input={}, server_name="wiki"),
        delta(0, "input_json_delta", partial_json='{"m": 1}'),
        stop(0),
        result(1, "mcp_1", "mcp", [{"type": "text", "text": "no"}], is_error=True),
        end("end_turn"),
    )
    step = step_of(*body)
    assert step.tool_calls()[0].input == {"m": 1}
    assert isinstance(step.parts[1], ToolResultPart)
    assert step.parts[1].is_error
    assert wire(sent_back(step))[1]["content"] == [
        {"type": "mcp_tool_use", "server_name": "wiki", "id": "mcp_1", "name": "echo", "input": {"m": 1}},
        {
            "type": "mcp_tool_result",
            "is_error": True,
            "tool_use_id": "mcp_1",
            "content": [{"type": "text", "text": "no"}],
        },
    ]


def test_an_error_object_is_an_error_result() -> None:
    """The vendor marks some failures by the type of their content alone."""
    failed = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    step = step_of(start(), hosted(0, "s"), result(1, "s", content=failed), end("end_turn"))
    assert isinstance(step.parts[1], ToolResultPart)
    assert step.parts[1].is_error


@pytest.mark.parametrize("flag", [1, "true", 0.0, []])
def test_a_flag_that_is_no_bool_is_malformed(flag: Any) -> None:
    """It could make a failure look like a success."""
    body = start() + hosted(0, "s") + result(1, "s", is_error=flag) + end("end_turn")
    assert isinstance(outcome_of(decoder, body).error, AdapterError)


def test_two_results_for_one_call_are_malformed() -> None:
    """A call has one result."""
    body = start() + hosted(0, "s") + result(1, "s") + result(2, "s") + end("end_turn")
    assert isinstance(outcome_of(decoder, body).error, AdapterError)


def test_citations_are_shown_and_go_back_with_their_text() -> None:
    """A search citation holds an index that only the provider can read."""
    page = {"type": "web_search_result_location", "url": "https://a.test", "title": "A", "encrypted_index": "E=="}
    place = {"type": "page_location", "document_index": 0, "document_title": "Paper", "start_page_number": 1}
    body = (
        start(),
        block(0, type="text", text="", citations=[]),
        delta(0, "citations_delta", citation=page),
        delta(0, "text_delta", text="A says"),
        delta(0, "citations_delta", citation=place),
        stop(0),
        end("end_turn"),
    )
    step = step_of(*body)
    sources = [part.source for part in step.parts if isinstance(part, SourcePart)]
    assert [type(source) for source in sources] == [UrlSource, DocumentSource]
    assert sources[0] == UrlSource(sources[0].id, "https://a.test", "A")
    assert sources[1] == DocumentSource(sources[1].id, "application/pdf", "Paper")
    assert len({source.id for source in sources}) == 2
    back = wire(sent_back(step))[1]["content"]
    assert back == [{"type": "text", "text": "A says", "citations": [page, place]}]


@pytest.mark.parametrize(
    "events",
    [
        block(0, type="server_tool_use", id="s", name="web_search", input={}),
        hosted(0, "s"),
        hosted(0, "s") + result(1, "s"),
        block(0, type="code_execution_tool_result", tool_use_id="s", content={}),
    ],
    ids=["begun", "called", "answered", "earlier call"],
)
def test_what_the_provider_executes_is_a_barrier(events: bytes) -> None:
    """From the start of its input on, sending the request again could do it twice."""
    overloaded = named("error", error={"type": "overloaded_error", "message": "x"})
    failure = outcome_of(decoder, start() + events + overloaded).error
    assert isinstance(failure, ProviderFailure)
    assert failure.replay_safe is False


# --- over several answers ---------------------------------------------------------------------------------------


def test_a_paused_turn_is_a_step_that_can_be_told_from_a_finished_one() -> None:
    """It finished `stop`; what the provider meant is beside it."""
    paused = step_of(start(), hosted(0, "s"), result(1, "s"), text(2, "so far"), end("pause_turn"))
    assert paused.finish_reason is FinishReason.STOP
    assert paused.provider_options == {"anthropic": {"stop_reason": "pause_turn"}}
    assert is_paused(paused)
    assert not is_paused(step_of(start(), text(0, "A"), end("end_turn")))


def test_a_paused_turn_goes_on_when_its_content_is_sent_back() -> None:
    """The last message is the assistant's own; the call that still waits for its result is in it."""
    paused = step_of(
        start(), text(0, "let me see \n"), hosted(1, "s1"), result(2, "s1"), hosted(3, "s2"), end("pause_turn")
    )
    prompt = [Message.user("Find."), AssistantMessage(paused.parts)]
    messages = wire(prompt)
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert [b["type"] for b in messages[1]["content"]] == [
        "text", "server_tool_use", "web_search_tool_result", "server_tool_use",
    ]  # fmt: skip

    more = answer_to(prompt, start(), result(0, "s2"), text(1, "found"), end("end_turn"))
    assert [call.id for call in more.tool_calls()] == ["s2"]
    assert more.tool_calls()[0].input == {"query": "x"}
    merged = wire([*prompt, AssistantMessage(more.parts), Message.user("Thanks.")])
    assert [message["role"] for message in merged] == ["user", "assistant", "user"]
    assert [b["type"] for b in merged[1]["content"]] == [
        "text", "server_tool_use", "web_search_tool_result", "server_tool_use", "web_search_tool_result", "text",
    ]  # fmt: skip


def test_a_paused_turn_that_is_not_continued_leaves_its_open_call_out() -> None:
    """The user went on instead: a call without result would void the whole session."""
    paused = step_of(start(), text(0, "let me see"), hosted(1, "s"), end("pause_turn"))
    messages = wire([Message.user("Find."), AssistantMessage(paused.parts), Message.user("Never mind.")])
    assert messages[1]["content"] == [{"type": "text", "text": "let me see"}]


def test_a_text_at_the_very_end_loses_its_trailing_space() -> None:
    """The protocol refuses a last message of the assistant that ends in white space."""
    paused = step_of(start(), text(0, "let me see \n"), end("pause_turn"))
    assert wire([Message.user("Find."), AssistantMessage(paused.parts)])[1]["content"][0]["text"] == "let me see"


def test_a_program_that_calls_our_tool_waits_for_the_answer() -> None:
    """The hosted call has no result until our result is there, and the next answer brings it."""
    caller = {"type": "code_execution_20250825", "tool_id": "srv_1"}
    waiting = step_of(
        start(),
        hosted(0, "srv_1", "code_execution"),
        block(1, type="tool_use", id="toolu_1", name="get", input={"x": 1}, caller=caller) + stop(1),
        end("tool_use"),
    )
    deferred = waiting.parts[-1]
    assert deferred == ToolResultPart(
        "srv_1", "code_execution", DEFERRED_OUTPUT, provider_options={"anthropic": {"deferred": True}}
    )
    prompt = [
        Message.user("Run."),
        AssistantMessage(waiting.parts),
        Message.tool("toolu_1", "get", TextOutput("42")),
    ]
    sent = wire(prompt)
    assert [b["type"] for b in sent[1]["content"]] == ["server_tool_use", "tool_use"]
    assert sent[1]["content"][1]["caller"] == caller

    output = {"type": "code_execution_result", "stdout": "42\n", "stderr": "", "return_code": 0, "content": []}
    after = answer_to(prompt, start(), result(0, "srv_1", "code_execution", output), text(1, "42"), end("end_turn"))
    assert after.local_calls() == ()
    full = wire([*prompt, AssistantMessage(after.parts), Message.user("Thanks.")])
    assert [[b["type"] for b in message["content"]] for message in full] == [
        ["text"],
        ["server_tool_use", "tool_use"],
        ["tool_result"],
        ["code_execution_tool_result", "text"],
        ["text"],
    ]


def test_a_program_that_was_given_up_takes_its_caller_with_it() -> None:
    """Our call stays with its answer, but nobody who called it is left."""
    caller = {"type": "code_execution_20250825", "tool_id": "srv_1"}
    waiting = step_of(
        start(),
        hosted(0, "srv_1", "code_execution"),
        block(1, type="tool_use", id="toolu_1", name="get", input={}, caller=caller) + stop(1),
        end("tool_use"),
    )
    sent = wire(sent_back(waiting))
    assert [b["type"] for b in sent[1]["content"]] == ["tool_use"]
    assert "caller" not in sent[1]["content"][0]


def test_a_result_of_a_call_nobody_remembers_still_makes_a_step() -> None:
    """The history may have been compacted; the tool's kind is in the result's."""
    step = step_of(start(), result(0, "srv_0", "web_fetch", {"url": "https://a.test"}), text(1, "x"), end("end_turn"))
    assert step.tool_calls()[0].name == "web_fetch"
    assert step.tool_calls()[0].provider_executed


def test_hosted_and_local_calls_in_one_answer() -> None:
    """Only the local one is ours; both go back where they were."""
    step = step_of(start(), hosted(0, "s"), result(1, "s"), tool_use(2, "toolu_1", "put", "{}"), end("tool_use"))
    assert [call.id for call in step.local_calls()] == ["toolu_1"]
    assert step.finish_reason is FinishReason.TOOL_CALLS
    assert [b["type"] for b in wire(sent_back(step))[1]["content"]] == [
        "server_tool_use", "web_search_tool_result", "tool_use",
    ]  # fmt: skip


def test_search_results_go_back_byte_for_byte() -> None:
    """The page's text is encrypted in them; a changed byte would be refused."""
    step = step_of(start(), hosted(0, "s"), result(1, "s", caller={"type": "direct"}), text(2, "x"), end("end_turn"))
    back = wire(sent_back(step))[1]["content"][1]
    assert back == {
        "type": "web_search_tool_result",
        "caller": {"type": "direct"},
        "tool_use_id": "s",
        "content": FOUND,
    }


def test_a_length_finish_leaves_no_call_waiting_on_the_wire() -> None:
    """The conversation goes on without the call that the limit cut off from its result."""
    step = step_of(start(), text(0, "A"), hosted(1, "s"), end("max_tokens"))
    assert [type(part) for part in step.parts] == [TextPart, ToolCallPart, ToolResultPart]
    assert [b["type"] for b in wire(sent_back(step))[1]["content"]] == ["text"]
