"""Responses requests: what a conversation and its options become on the wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from maka_trio import limits
from maka_trio.errors import AdapterError, InvalidInput
from maka_trio.facts.message import (
    AssistantMessage,
    ContentOutput,
    ErrorOutput,
    MediaContent,
    Message,
    PromptMessage,
    TextContent,
)
from maka_trio.facts.opening import ToolDefinition
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.protocol.openai_responses import OpenAIResponses
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind, RequestHeaders
from tests.protocol.decoding import run
from tests.protocol.responses_events import called, created, decoder, done, ended, said, thinking
from tests.protocol.wire_histories import (
    HISTORIES,
    PUT,
    TOOLS,
    call,
    parallel_calls,
    repeated_ids,
    sent_back,
    stranger,
    thought,
)
from tests.protocol.wire_histories import (
    said as text,
)
from tests.protocol.wire_rules import check_responses

STORED = ResponsesOptions(store=True)
PLAIN = ResponsesOptions(replay_reasoning="text")
SHOUT = ToolDefinition("shout", "Takes a text.", {"type": "string"})


def provider(**changes: Any) -> ProviderConfig:
    fields = {"model": "gpt-x", "base_url": "https://api.test/v1/", "auth": ApiKey("sk-secret"), **changes}
    return ProviderConfig(ProviderKind.OPENAI_RESPONSES, **fields)


def encoded(
    prompt: Sequence[PromptMessage] | None = None,
    options: ResponsesOptions | None = None,
    *,
    tools: Sequence[ToolDefinition] = (),
    config: ProviderConfig | None = None,
    max_output_tokens: int | None = None,
) -> EncodedRequest:
    request = ModelRequest(
        config or provider(),
        [Message.user("hi")] if prompt is None else prompt,
        tools=tools,
        provider_options=(options or ResponsesOptions()).provider_options(),
        max_output_tokens=max_output_tokens,
    )
    return OpenAIResponses().encode(request)


def body_of(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """The body, which passes the strict checker first."""
    raw = encoded(*args, **kwargs).body
    check_responses(raw)
    return dict(json.loads(raw))


def items_of(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    return list(body_of(*args, **kwargs)["input"])


# --- the envelope -----------------------------------------------------------------------------------------------


def test_the_smallest_request() -> None:
    """Nothing is stored unless asked for, so reasoning has to travel."""
    request = encoded()
    assert request.url == "https://api.test/v1/responses"
    assert dict(request.headers) == {"content-type": "application/json", "accept": "text/event-stream"}
    assert json.loads(request.body) == {
        "model": "gpt-x",
        "input": [{"role": "user", "content": "hi"}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_credentials_are_a_bearer_token() -> None:
    """Prepared headers are sent as they are."""
    adapter = OpenAIResponses()
    assert adapter.authorize(ApiKey("k")) == {"authorization": "Bearer k"}
    assert adapter.authorize(RequestHeaders({"api-key": "k"})) == {"api-key": "k"}


def test_a_contradicting_overlay_is_refused_without_its_value() -> None:
    """The name helps, the value may be a secret."""
    with pytest.raises(InvalidInput, match="store") as caught:
        encoded(config=provider(body_overlay={"store": "hidden"}))
    assert "hidden" not in str(caught.value)
    assert body_of(config=provider(body_overlay={"background": False}))["background"] is False


def test_a_body_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any network is used, naming the limit."""
    monkeypatch.setattr(limits, "REQUEST_BODY_BYTES", 500)
    with pytest.raises(AdapterError, match="500"):
        encoded([Message.user("x" * 500)])


# --- conversations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("options", [ResponsesOptions(), STORED, PLAIN], ids=["unstored", "stored", "plain"])
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["bare", "tools"])
def test_every_history_is_accepted(name: str, options: ResponsesOptions, tools: Sequence[ToolDefinition]) -> None:
    """Whatever a run can have behind it, the provider takes it."""
    body_of(HISTORIES[name](), options, tools=tools)


def test_outputs_of_parallel_calls_come_in_call_order() -> None:
    """They finished 3, 1, 2; the wire has them 1, 2, 3, before the user's text."""
    body = body_of(parallel_calls(), tools=TOOLS)
    assert body["instructions"] == "Be brief."
    kinds = [item.get("type", item.get("role")) for item in body["input"]]
    assert kinds == ["user", "assistant", *["function_call"] * 3, *["function_call_output"] * 3, "user"]
    outputs = body["input"][5:8]
    assert [item["call_id"] for item in outputs] == ["c1", "c2", "c3"]
    assert outputs[0]["output"] == '{"stored":[1,null,true]}'
    assert [part["type"] for part in outputs[1]["output"]] == ["input_text", "input_image", "input_file", "input_text"]
    assert outputs[2]["output"] == "The call was cancelled."
    assert body["input"][3] == {
        "type": "function_call",
        "call_id": "c2",
        "name": "look",
        "arguments": '{"at":"sky"}',
    }


def test_ids_that_repeat_are_renamed_alike_on_call_and_output() -> None:
    """A provider that counts from zero in every step cannot confuse the next one."""
    items = items_of(repeated_ids(), tools=TOOLS)
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert len(set(calls)) == 6
    assert [item["call_id"] for item in items if item.get("type") == "function_call_output"] == calls


def test_an_id_that_is_too_long_becomes_a_short_one() -> None:
    """Another provider's ids may be longer than this one takes; the same id always becomes the same."""
    first, second = items_of(stranger()), items_of(stranger())
    assert first == second
    assert max(len(item["call_id"]) for item in first if "call_id" in item) <= 64


def test_leading_system_text_is_instructions_and_later_text_a_developer_message() -> None:
    """The vendor's two places for such text."""
    prompt = [Message.system("a"), Message.system("b"), Message.user("x"), Message.system("c"), Message.system(" ")]
    body = body_of(prompt)
    assert body["instructions"] == "a\n\nb"
    assert body["input"] == [{"role": "user", "content": "x"}, {"role": "developer", "content": "c"}]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_text_can_be_a_message(role: str) -> None:
    """For servers that have no instructions."""
    body = body_of([Message.system("a"), Message.user("x")], ResponsesOptions(system_role=role))
    assert "instructions" not in body
    assert body["input"][0] == {"role": role, "content": "a"}


@pytest.mark.parametrize("prompt", [[], [Message.user(" ")], [Message.system("x")]])
def test_a_prompt_that_says_nothing_is_refused(prompt: list[PromptMessage]) -> None:
    """The provider would refuse it, too."""
    with pytest.raises(InvalidInput):
        encoded(prompt)


def test_calls_and_answers_that_do_not_pair_are_refused() -> None:
    """The provider would refuse the whole session."""
    with pytest.raises(InvalidInput, match="'a'"):
        encoded([Message.user("x"), Message.assistant([call("a")])])


# --- what goes back ---------------------------------------------------------------------------------------------


def answered(*events: bytes, options: ResponsesOptions | None = None, going_on: bool = True) -> list[PromptMessage]:
    """The prompt after an answer of this provider."""
    return sent_back(run(decoder(options), [created(), *events, ended()]).done, going_on=going_on)


def test_sealed_reasoning_goes_back_before_what_it_was_thought_for() -> None:
    """The summaries and the sealed content, byte for byte; nobody's ids but the reasoning's own."""
    prompt = answered(thinking(0, encrypted_content="gAA+/=="), said(1, "A"), called(2, "c1", "put", '{"n":1}'))
    assert items_of(prompt, tools=TOOLS)[1:4] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
            "encrypted_content": "gAA+/==",
        },
        {"role": "assistant", "content": "A"},
        {"type": "function_call", "call_id": "c1", "name": "put", "arguments": '{"n":1}'},
    ]


def test_stored_items_go_back_with_their_ids() -> None:
    """The provider knows them and would miss one that another belongs to."""
    prompt = answered(thinking(0), said(1, "A", phase="commentary"), called(2, "c1", "put", "{}"), options=STORED)
    reasoning, message, function_call = items_of(prompt, STORED, tools=TOOLS)[1:4]
    assert reasoning["id"] == "rs_1"
    assert message == {
        "type": "message",
        "role": "assistant",
        "id": "i_1",
        "status": "completed",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "A", "annotations": []}],
    }
    assert function_call["id"] == "i_2"


def test_without_its_reasoning_no_item_of_a_turn_keeps_its_id() -> None:
    """The provider refuses an item it knows if the reasoning that belongs to it is missing.

    It is missing where it is not wanted back, and where the session has changed its model.
    """
    prompt = answered(thinking(0), said(1, "A"), called(2, "c1", "put", "{}"), options=STORED)
    unwanted = items_of(prompt, attrs.evolve(STORED, replay_reasoning="never"), tools=TOOLS)
    answer = prompt[1]
    assert isinstance(answer, AssistantMessage)
    elsewhere = [prompt[0], AssistantMessage(answer.parts[2:]), *prompt[2:]]
    for items in (unwanted, items_of(elsewhere, STORED, tools=TOOLS)):
        assert not any("id" in item for item in items)


def test_a_message_of_two_texts_stays_one_message() -> None:
    """A refusal beside a text keeps its kind."""
    content = [{"type": "output_text", "text": "A"}, {"type": "refusal", "refusal": "B"}]
    prompt = answered(thinking(0), done(1, "message", content=content), options=STORED)
    assert items_of(prompt, STORED)[2]["content"] == [
        {"type": "output_text", "text": "A", "annotations": []},
        {"type": "refusal", "refusal": "B"},
    ]


def test_plain_reasoning_goes_back_only_where_it_is_read() -> None:
    """In the carrier it came in."""
    content = [{"type": "reasoning_text", "text": "hm"}]
    prompt = answered(done(0, "reasoning", summary=[], content=content), said(1, "A"), options=PLAIN)
    assert items_of(prompt, PLAIN)[1] == {"type": "reasoning", "id": "i_0", "summary": [], "content": content}
    assert [item["role"] for item in items_of(prompt)] == ["user", "assistant", "user"]


@pytest.mark.parametrize("mode", ["never", "encrypted"])
def test_reasoning_of_others_stays_out(mode: str) -> None:
    """And so does our own if it is not wanted."""
    foreign = thought("x", {"anthropic": {"signature": "s"}})
    sealed = thought("y", {"openai": {"item_id": "rs", "sealed": True, "encrypted_content": "g", "carrier": "summary"}})
    prompt = [Message.user("x"), Message.assistant([foreign, sealed, text("A")]), Message.user("y")]
    kinds = [item.get("type") for item in items_of(prompt, ResponsesOptions(replay_reasoning=mode))]
    assert kinds == ([None] * 3 if mode == "never" else [None, "reasoning", None, None])


def test_reasoning_for_something_that_never_came_stays_out() -> None:
    """The limit was reached while the model thought; reasoning without its item is refused."""
    step_events = [created(), thinking(0, encrypted_content="g")]
    step_events.append(ended("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    prompt = sent_back(run(decoder(), step_events).done)
    assert [item["role"] for item in items_of(prompt)] == ["user", "user"]


def test_namespace_and_caller_go_back_with_the_call() -> None:
    """The output names the same caller."""
    made = call("c1", options={"openai": {"namespace": "crm", "caller": {"type": "program", "caller_id": "p"}}})
    prompt = [Message.user("x"), Message.assistant([made]), Message.tool("c1", "put", ErrorOutput("no"))]
    _, function_call, output = json.loads(encoded(prompt, tools=TOOLS).body)["input"]
    assert function_call["namespace"] == "crm"
    assert function_call["caller"] == output["caller"] == {"type": "program", "caller_id": "p"}


# --- media ------------------------------------------------------------------------------------------------------


def test_media_become_the_parts_of_their_kind() -> None:
    """Images and files as data URL or URL; what cannot be carried is said."""
    content = items_of(HISTORIES["media"]())[0]["content"]
    assert [part["type"] for part in content] == [
        "input_text", *["input_image"] * 2, *["input_file"] * 3, *["input_text"] * 2,
    ]  # fmt: skip
    assert content[1] == {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    assert content[2] == {"type": "input_image", "image_url": "https://files.test/cat.jpg", "detail": "low"}
    assert content[3]["filename"] == "paper.pdf"
    assert content[3]["file_data"] == "data:application/pdf;base64,JVBERg=="
    assert content[4] == {"type": "input_file", "file_url": "https://files.test/report.pdf"}
    assert "a recording was left out" in content[6]["text"]


def test_the_bytes_of_a_recording_do_not_reach_the_wire() -> None:
    """Neither from a message nor from a result."""
    for history in ("media", "parallel calls", "stranger"):
        assert b"UklGRi1zZWNyZXQ" not in encoded(HISTORIES[history]()).body


def test_an_artifact_must_be_read_before() -> None:
    """An adapter does no I/O."""
    artifact = MediaContent("image/png", artifact="art-1")
    prompt = [
        Message.user("x"),
        Message.assistant([call("a")]),
        Message.tool("a", "put", ContentOutput((TextContent("t"), artifact))),
    ]
    with pytest.raises(InvalidInput, match="art-1"):
        encoded(prompt)


# --- tools ------------------------------------------------------------------------------------------------------


def test_functions_are_flat_and_not_strict_unless_asked() -> None:
    """The endpoint's default would refuse most schemas."""
    body = body_of(tools=[*TOOLS, ToolDefinition("any", "Anything.", True)])
    assert body["tools"][0] == {
        "type": "function",
        "name": "put",
        "description": "Stores a number.",
        "parameters": PUT.input_schema,
        "strict": False,
    }
    assert body["tools"][1]["parameters"]["type"] == "object"
    assert body["tools"][2]["parameters"] == {"type": "object", "properties": {}}
    assert body["tool_choice"] == "auto"
    assert body_of(tools=TOOLS, options=ResponsesOptions(strict_tools=True))["tools"][0]["strict"] is True


def test_without_tools_there_is_no_key_of_tools() -> None:
    """Servers refuse an empty list."""
    body = body_of()
    assert "tools" not in body
    assert "tool_choice" not in body


def test_a_tool_that_takes_a_text_is_a_custom_tool() -> None:
    """With a grammar by option; its calls and outputs have items of their own."""
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[A-Z]+"}
    prompt = [
        Message.user("x"),
        Message.assistant([call("c1", "shout", "HEY"), call("c2")]),
        Message.tool("c1", "shout", "ok"),
        Message.tool("c2", "put", "ok"),
    ]
    body = body_of(prompt, ResponsesOptions(tool_formats={"shout": grammar}), tools=[SHOUT, PUT])
    assert body["tools"][0] == {"type": "custom", "name": "shout", "description": "Takes a text.", "format": grammar}
    assert body["input"][1] == {"type": "custom_tool_call", "call_id": "c1", "name": "shout", "input": "HEY"}
    assert body["input"][3] == {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}
    assert items_of(prompt, tools=[PUT])[1]["arguments"] == '"HEY"'


def test_a_function_takes_an_object() -> None:
    """Neither a list nor a number is one."""
    with pytest.raises(InvalidInput, match="'odd'"):
        encoded(tools=[ToolDefinition("odd", "", {"type": "array"})])


def test_a_tool_called_like_one_of_the_vendors_is_renamed() -> None:
    """In the definitions, in the history and in the choice."""
    search = ToolDefinition("tool_search", "Ours.", {"type": "object"})
    prompt = [
        Message.user("x"),
        Message.assistant([call("c1", "tool_search", {})]),
        Message.tool("c1", "tool_search", "none"),
    ]
    body = body_of(prompt, ResponsesOptions(tool_choice="tool_search"), tools=[search])
    assert body["tools"][0]["name"] == body["input"][1]["name"] == "maka_tool_search"
    assert body["tool_choice"] == {"type": "function", "name": "maka_tool_search"}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "required"),
        ("none", "none"),
        ("look", {"type": "function", "name": "look"}),
        ("shout", {"type": "custom", "name": "shout"}),
        ("web_search", {"type": "web_search"}),
    ],
)
def test_tool_choice(choice: str, expected: Any) -> None:
    """By word, by the name of a tool, by the kind of a hosted one."""
    options = ResponsesOptions(tool_choice=choice, hosted_tools=({"id": "openai.web_search"},))
    assert body_of(options=options, tools=[*TOOLS, SHOUT])["tool_choice"] == expected


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_choice_that_names_no_tool_is_refused(tools: Sequence[ToolDefinition]) -> None:
    """Before the provider has to."""
    with pytest.raises(InvalidInput, match="nobody"):
        encoded(options=ResponsesOptions(tool_choice="nobody"), tools=tools)


def test_hosted_tools_stand_beside_ours() -> None:
    """A shell only where its environment is the provider's."""
    shell = {"id": "openai.shell", "args": {"environment": {"type": "container_auto"}}}
    files = {"id": "openai.file_search", "args": {"vector_store_ids": ["vs"]}}
    body = body_of(options=ResponsesOptions(hosted_tools=(shell, files)), tools=TOOLS)
    assert body["tools"][2:] == [
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "file_search", "vector_store_ids": ["vs"]},
    ]


@pytest.mark.parametrize(
    "tool",
    [
        {"id": "anthropic.web_search_20250305"},
        {"id": "web_search"},
        {"id": "openai.hologram"},
        {"id": "openai.local_shell"},
        {"id": "openai.shell"},
        {"id": "openai.apply_patch"},
        {"id": "openai.function", "args": {"name": "f"}},
        {"id": None},
        {"id": "openai.mcp", "args": "x"},
        {"id": "openai.mcp", "other": 1},
    ],
)
def test_hosted_tools_that_are_none_are_refused(tool: dict[str, Any]) -> None:
    """Foreign, unknown and local ones fail before the network is used."""
    with pytest.raises(InvalidInput):
        encoded(options=ResponsesOptions(hosted_tools=(tool,)))


# --- options ----------------------------------------------------------------------------------------------------


def test_settings_go_under_the_vendors_names() -> None:
    """Each typed option is one documented field."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = body_of(
        max_output_tokens=99,
        options=ResponsesOptions(
            reasoning_effort="high",
            reasoning_summary="auto",
            output_schema=schema,
            output_schema_name="shape",
            verbosity="low",
            include=("code_interpreter_call.outputs", "reasoning.encrypted_content"),
            temperature=0,
            top_p=0.5,
            service_tier="flex",
            truncation="auto",
            metadata={"k": "v"},
            max_tool_calls=3,
            prompt_cache_key="key",
            safety_identifier="user",
            context_management=({"type": "compaction"},),
        ),
    )
    assert body["max_output_tokens"] == 99
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["text"] == {
        "format": {"type": "json_schema", "name": "shape", "schema": schema, "strict": True},
        "verbosity": "low",
    }
    assert body["include"] == ["reasoning.encrypted_content", "code_interpreter_call.outputs"]
    assert (body["temperature"], body["metadata"], body["max_tool_calls"]) == (0, {"k": "v"}, 3)


def test_parallel_calls_can_be_forbidden() -> None:
    """Only where there is something to call."""
    options = ResponsesOptions(parallel_tool_calls=False)
    assert body_of(options=options, tools=TOOLS)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in body_of(options=options)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (ResponsesOptions(), True),
        (STORED, False),
        (PLAIN, False),
        (ResponsesOptions(encrypted_reasoning=False), False),
        (attrs.evolve(STORED, encrypted_reasoning=True), True),
    ],
)
def test_sealed_reasoning_is_asked_for_where_it_is_needed(options: ResponsesOptions, asked: bool) -> None:
    """A model that does not reason may refuse to be asked, so it can be turned off."""
    assert ("include" in body_of(options=options)) is asked


@pytest.mark.parametrize(
    "options",
    [
        {"reasoning_effort": "huge"},
        {"store": "no"},
        {"replay_reasoning": "sometimes"},
        {"temperature": 3},
        {"max_tool_calls": 0},
        {"tool_formats": []},
        {"include": "x"},
        {"previous_response_id": "resp_1"},
    ],
)
def test_options_that_are_none_are_refused(options: dict[str, Any]) -> None:
    """A misspelt option must not be a silent default."""
    with pytest.raises(InvalidInput):
        OpenAIResponses().encode(ModelRequest(provider(), [Message.user("hi")], provider_options={"openai": options}))


@pytest.mark.parametrize("options", [{}, {"openai": None}, {"openai": {"replay_reasoning": None, "store": None}}])
def test_what_is_null_is_not_given(options: dict[str, Any]) -> None:
    """As everywhere in JSON."""
    assert ResponsesOptions.read(options) == ResponsesOptions()


def test_options_survive_the_log() -> None:
    """They are JSON, and read back they are the same."""
    options = ResponsesOptions(store=True, include=("a",), hosted_tools=({"id": "openai.web_search"},))
    assert ResponsesOptions.read(json.loads(json.dumps(options.provider_options()))) == options
