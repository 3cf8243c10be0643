"""Anthropic requests: what a conversation and its options become on the wire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.errors import AdapterError, InvalidInput
from maka_trio.facts.message import ContentOutput, ErrorOutput, MediaContent, Message, PromptMessage, TextContent
from maka_trio.facts.opening import ToolDefinition
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.protocol.anthropic import AnthropicMessages
from maka_trio.protocol.anthropic_options import AnthropicOptions
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind, RequestHeaders
from tests.protocol.wire_histories import (
    HISTORIES,
    PDF,
    PNG,
    PUT,
    TOOLS,
    WAV,
    call,
    parallel_calls,
    repeated_ids,
    said,
    thought,
)
from tests.protocol.wire_rules import check_messages


def provider(**changes: Any) -> ProviderConfig:
    fields = {"model": "claude-x", "base_url": "https://api.test/v1/", "auth": ApiKey("k-secret"), **changes}
    return ProviderConfig(ProviderKind.ANTHROPIC, **fields)


def encoded(
    prompt: Sequence[PromptMessage] | None = None,
    options: AnthropicOptions | None = None,
    *,
    tools: Sequence[ToolDefinition] = (),
    config: ProviderConfig | None = None,
    max_output_tokens: int | None = None,
) -> EncodedRequest:
    request = ModelRequest(
        config or provider(),
        [Message.user("hi")] if prompt is None else prompt,
        tools=tools,
        provider_options=(options or AnthropicOptions()).provider_options(),
        max_output_tokens=max_output_tokens,
    )
    return AnthropicMessages().encode(request)


def body_of(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """The body, which passes the strict checker first."""
    raw = encoded(*args, **kwargs).body
    check_messages(raw)
    return dict(json.loads(raw))


# --- the envelope -----------------------------------------------------------------------------------------------


def test_the_smallest_request() -> None:
    """The path, the protocol's version, and nothing that nobody asked for."""
    request = encoded()
    assert request.url == "https://api.test/v1/messages"
    assert dict(request.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
    }
    assert json.loads(request.body) == {
        "model": "claude-x",
        "max_tokens": limits.ANTHROPIC_OUTPUT_TOKENS,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "stream": True,
    }


def test_credentials_go_where_the_vendor_wants_them() -> None:
    """A key has the vendor's own header; prepared headers are sent as they are."""
    adapter = AnthropicMessages()
    assert adapter.authorize(ApiKey("k")) == {"x-api-key": "k"}
    assert adapter.authorize(RequestHeaders({"authorization": "Bearer t"})) == {"authorization": "Bearer t"}


def test_betas_are_one_header_and_only_by_option() -> None:
    """Nothing is opted into on the user's behalf."""
    headers = dict(encoded(options=AnthropicOptions(betas=("a-2025-01-01", "b-2025-02-02"))).headers)
    assert headers["anthropic-beta"] == "a-2025-01-01,b-2025-02-02"


@pytest.mark.parametrize(
    "config",
    [
        provider(headers={"Anthropic-Version": "2020-01-01-hidden"}),
        provider(body_overlay={"max_tokens": 31337}),
    ],
)
def test_contradictions_are_refused_without_showing_the_value(config: ProviderConfig) -> None:
    """The name helps, the value may be a secret."""
    with pytest.raises(InvalidInput) as caught:
        encoded(config=config)
    assert "hidden" not in str(caught.value)
    assert "31337" not in str(caught.value)
    assert any(name in str(caught.value).lower() for name in ("anthropic-version", "max_tokens"))


def test_an_overlay_adds_what_options_do_not_know() -> None:
    """The escape hatch; an equal header is no contradiction."""
    config = provider(body_overlay={"speed": "fast"}, headers={"anthropic-version": "2023-06-01"})
    assert body_of(config=config)["speed"] == "fast"


def test_a_body_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any network is used, naming the limit."""
    monkeypatch.setattr(limits, "REQUEST_BODY_BYTES", 500)
    with pytest.raises(AdapterError, match="500"):
        encoded([Message.user("x" * 500)])


# --- conversations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("cache", [None, "1h"])
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["bare", "tools"])
def test_every_history_is_accepted(name: str, cache: str | None, tools: Sequence[ToolDefinition]) -> None:
    """Whatever a run can have behind it, the provider takes it."""
    body_of(HISTORIES[name](), AnthropicOptions(cache=cache), tools=tools)


def test_results_of_parallel_calls_are_one_message_in_call_order() -> None:
    """They finished 3, 1, 2; the wire has them 1, 2, 3, before the user's text."""
    body = body_of(parallel_calls(), tools=TOOLS)
    assert body["system"] == "Be brief."
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    blocks = body["messages"][2]["content"]
    assert [block.get("tool_use_id") for block in blocks] == ["c1", "c2", "c3", None]
    assert blocks[0]["content"] == '{"stored":[1,null,true]}'
    assert [part["type"] for part in blocks[1]["content"]] == ["text", "image", "document", "text"]
    assert blocks[2] == {
        "type": "tool_result",
        "tool_use_id": "c3",
        "content": "The call was cancelled.",
        "is_error": True,
    }
    assert blocks[3] == {"type": "text", "text": "And now?"}


def test_ids_that_repeat_are_renamed_alike_on_call_and_result() -> None:
    """A provider that counts from zero in every step cannot confuse the next one."""
    body = body_of(repeated_ids(), tools=TOOLS)
    calls = [b["id"] for m in body["messages"] for b in m["content"] if b["type"] == "tool_use"]
    results = [b["tool_use_id"] for m in body["messages"] for b in m["content"] if b["type"] == "tool_result"]
    assert calls == results
    assert len(set(calls)) == 6
    assert calls[:2] == ["call_0", "call_1"]
    assert "content" not in body["messages"][2]["content"][1]


def test_a_growing_history_keeps_the_ids_it_had() -> None:
    """Or the provider's prompt cache would start anew with every step."""
    history = repeated_ids()
    shorter, longer = body_of(history[:7], tools=TOOLS), body_of(history, tools=TOOLS)
    assert longer["messages"][: len(shorter["messages"])] == shorter["messages"]


def test_consecutive_user_messages_are_one() -> None:
    """A cancelled run leaves its user message without an answer."""
    body = body_of([Message.user("a"), Message.user("b"), Message.user(" ")])
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]


def test_several_system_messages_are_blocks() -> None:
    """Wherever they stand; the protocol keeps such text apart from the conversation."""
    body = body_of([Message.system("a"), Message.user("x"), Message.system("b")])
    assert body["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_thinking_comes_back_byte_for_byte_and_only_with_its_signature() -> None:
    """Thinking of another provider, or without signature, would be refused."""
    parts = [
        thought("hm", {"anthropic": {"signature": "sig+/="}}),
        thought("", {"anthropic": {"redacted_data": "data"}}),
        thought("unsigned"),
        thought("foreign", {"openai": {"item_id": "rs_1"}}),
        said("so"),
    ]
    body = body_of([Message.user("x"), Message.assistant(parts), Message.user("y")])
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig+/="},
        {"type": "redacted_thinking", "data": "data"},
        {"type": "text", "text": "so"},
    ]


def test_thinking_that_led_nowhere_stays_out() -> None:
    """The limit was reached while the model thought: the protocol refuses a message that ends so."""
    signed = thought("hm", {"anthropic": {"signature": "s"}})
    alone = body_of([Message.user("x"), Message.assistant([signed]), Message.user("y")])
    assert [message["role"] for message in alone["messages"]] == ["user"]
    after = body_of([Message.user("x"), Message.assistant([said("so"), signed]), Message.user("y")])
    assert after["messages"][1]["content"] == [{"type": "text", "text": "so"}]
    continued = body_of(
        [Message.user("x"), Message.assistant([said("so"), signed]), Message.assistant("on"), Message.user("y")]
    )
    assert [block["type"] for block in continued["messages"][1]["content"]] == ["text", "thinking", "text"]


def test_names_are_those_that_the_protocol_takes() -> None:
    """A long name stays as it was registered; what no tool can be called is made harmless."""
    long = "n" * 128
    prompt = [
        Message.user("x"),
        Message.assistant([call("a", long), call("b", "functions.put now")]),
        Message.tool("a", long, "1"),
        Message.tool("b", "functions.put now", ErrorOutput("no such tool")),
    ]
    blocks = body_of(prompt, tools=[ToolDefinition(long, "Long.", True)])["messages"][1]["content"]
    assert [block["name"] for block in blocks] == [long, "functions_put_now"]


def test_an_input_that_is_no_object_is_wrapped() -> None:
    """The call was rejected; the model may see what it wrote."""
    prompt = [
        Message.user("x"),
        Message.assistant([call("a", value="[1]")]),
        Message.tool("a", "put", ErrorOutput("no")),
    ]
    assert body_of(prompt, tools=TOOLS)["messages"][1]["content"][0]["input"] == {"value": "[1]"}


def test_a_conversation_must_begin_with_the_user() -> None:
    """And say something."""
    for prompt in ([], [Message.user(" ")], [Message.assistant("hello")], [Message.system("x")]):
        with pytest.raises(InvalidInput):
            encoded(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        [Message.user("x"), Message.assistant([call("a")])],
        [Message.user("x"), Message.assistant([call("a")]), Message.user("y")],
        [Message.user("x"), Message.tool("a", "put", "1")],
        [Message.user("x"), Message.assistant("y"), Message.tool("a", "put", "1")],
        [Message.user("x"), Message.assistant([call("a")]), *[Message.tool("a", "put", "1")] * 2],
        [Message.user("x"), Message.assistant([call("a"), call("a")]), Message.tool("a", "put", "1")],
    ],
)
def test_calls_and_answers_that_do_not_pair_are_refused(prompt: list[PromptMessage]) -> None:
    """The provider would refuse the whole session; no pairing is guessed."""
    with pytest.raises(InvalidInput, match="'a'"):
        encoded(prompt)


def test_what_was_said_between_a_call_and_its_answer_comes_after_it() -> None:
    """Results have no room for anything before them."""
    prompt = [
        Message.user("x"),
        Message.assistant([call("a")]),
        Message.user("meanwhile"),
        Message.tool("a", "put", "done"),
    ]
    blocks = body_of(prompt, tools=TOOLS)["messages"][2]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "text"]


# --- media ------------------------------------------------------------------------------------------------------


def test_media_become_the_blocks_of_their_kind() -> None:
    """Images and documents as bytes or URL; a text file as text."""
    content = body_of(HISTORIES["media"](), AnthropicOptions(citations=True))["messages"][0]["content"]
    assert [block["type"] for block in content] == [
        "text", "image", "image", "document", "document", "document", "text", "text",
    ]  # fmt: skip
    assert content[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert content[2]["source"] == {"type": "url", "url": "https://files.test/cat.jpg"}
    assert content[3]["title"] == "paper.pdf"
    assert content[3]["citations"] == {"enabled": True}
    assert content[5]["source"] == {"type": "text", "media_type": "text/plain", "data": "notes €"}


def test_what_cannot_be_carried_is_said_in_its_place() -> None:
    """The bytes of a recording do not reach the wire."""
    raw = encoded(HISTORIES["media"]()).body.decode()
    assert "a recording was left out" in raw
    assert "UklGRi1zZWNyZXQ" not in raw
    assert "RIFF-secret" not in raw


def test_an_artifact_must_be_read_before() -> None:
    """An adapter does no I/O; forgetting to read is a mistake of ours, not of the provider."""
    artifact = MediaContent("image/png", artifact="art-1")
    with pytest.raises(InvalidInput, match="art-1"):
        encoded([Message.user([artifact])])


def test_a_text_file_that_is_no_text_is_left_out() -> None:
    """A declared type is not evidence."""
    broken = MediaContent("text/csv", data=b"\xff\xfe")
    block = body_of([Message.user([broken])])["messages"][0]["content"][0]
    assert block["type"] == "text"
    assert "UTF-8" in block["text"]


def test_a_result_of_media_alone_still_answers() -> None:
    """A result whose only part cannot be carried says so."""
    prompt = [
        Message.user("x"),
        Message.assistant([call("a")]),
        Message.tool("a", "put", ContentOutput((WAV, PNG, PDF, TextContent("")))),
    ]
    content = body_of(prompt, tools=TOOLS)["messages"][2]["content"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image", "document"]


# --- tools ------------------------------------------------------------------------------------------------------


def test_tools_have_object_schemas() -> None:
    """What a schema leaves out is added; a schema that takes anything takes objects here."""
    anything = ToolDefinition("any", "Anything.", True)
    tools = body_of(tools=[*TOOLS, anything])["tools"]
    assert tools[0] == {"name": "put", "description": "Stores a number.", "input_schema": PUT.input_schema}
    assert tools[1]["input_schema"] == {"properties": {"at": {"type": "string"}}, "type": "object"}
    assert tools[2]["input_schema"] == {"type": "object"}


def test_a_tool_that_takes_a_text_cannot_be_carried() -> None:
    """This protocol knows objects only."""
    with pytest.raises(InvalidInput, match="'shout'"):
        encoded(tools=[ToolDefinition("shout", "Shouts.", {"type": "string"})])


def test_a_history_with_calls_names_its_tools_even_when_none_is_offered() -> None:
    """Otherwise the provider refuses the history; the old ones cannot be called."""
    body = body_of(parallel_calls())
    assert [tool["name"] for tool in body["tools"]] == ["look", "put"]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "any"}, {"type": "any"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": "look"}, {"type": "tool", "name": "look"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        (
            {"tool_choice": "any", "parallel_tool_calls": True},
            {"type": "any", "disable_parallel_tool_use": False},
        ),
    ],
)
def test_tool_choice(options: dict[str, Any], expected: Any) -> None:
    """By word or by the name of a tool."""
    assert body_of(options=AnthropicOptions(**options), tools=TOOLS).get("tool_choice") == expected


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_a_choice_that_names_no_tool_is_refused(tools: Sequence[ToolDefinition]) -> None:
    """Before the provider has to."""
    with pytest.raises(InvalidInput, match="nobody"):
        encoded(options=AnthropicOptions(tool_choice="nobody"), tools=tools)


def test_hosted_tools_stand_beside_ours() -> None:
    """Their ids are the vendor's types; the name follows from the type."""
    search = {"id": "anthropic.web_search_20250305", "args": {"max_uses": 2}}
    toolset = {"id": "anthropic.mcp_toolset", "args": {"mcp_server_name": "wiki"}}
    body = body_of(options=AnthropicOptions(hosted_tools=(search, toolset)), tools=TOOLS)
    assert body["tools"][2:] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        {"type": "mcp_toolset", "mcp_server_name": "wiki"},
    ]


def test_a_hosted_tool_does_not_share_its_name_with_one_of_ours() -> None:
    """The provider refuses it; nobody could tell whose a call is."""
    search = {"id": "anthropic.web_search_20250305"}
    ours = ToolDefinition("web_search", "Searches here.", {"type": "object"})
    with pytest.raises(InvalidInput, match="web_search"):
        encoded(options=AnthropicOptions(hosted_tools=(search,)), tools=[ours])


@pytest.mark.parametrize(
    "tool",
    [
        {"id": "openai.web_search"},
        {"id": "anthropic.web_search"},
        {"id": "anthropic.bash_20250124"},
        {"id": "web_search_20250305"},
        {"id": 7},
        {"args": {}},
        {"id": "anthropic.web_search_20250305", "args": []},
        {"id": "anthropic.web_search_20250305", "extra": 1},
    ],
)
def test_hosted_tools_that_are_none_are_refused(tool: dict[str, Any]) -> None:
    """Foreign, unknown and local ones fail before the network is used."""
    with pytest.raises(InvalidInput):
        encoded(options=AnthropicOptions(hosted_tools=(tool,)))


# --- options ----------------------------------------------------------------------------------------------------


def test_thinking_adds_its_budget_to_the_default_limit() -> None:
    """The vendor counts thinking as output."""
    body = body_of(options=AnthropicOptions(thinking_budget=2048, thinking_display="omitted"))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}
    assert body["max_tokens"] == limits.ANTHROPIC_OUTPUT_TOKENS + 2048


def test_a_given_limit_is_the_limit() -> None:
    """And must leave room for the thinking."""
    options = AnthropicOptions(thinking_budget=2048)
    assert body_of(options=options, max_output_tokens=4096)["max_tokens"] == 4096
    with pytest.raises(InvalidInput, match="2048"):
        encoded(options=options, max_output_tokens=2048)


def test_settings_go_under_the_vendors_names() -> None:
    """Each typed option is one documented field."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = body_of(
        options=AnthropicOptions(
            thinking="adaptive",
            effort="high",
            output_schema=schema,
            temperature=0,
            top_p=0.5,
            top_k=0,
            stop_sequences=("END",),
            service_tier="auto",
            user_id="u-1",
            mcp_servers=({"type": "url", "name": "wiki", "url": "https://mcp.test"},),
            container="container_1",
            context_management={"edits": []},
        )
    )
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "high", "format": {"type": "json_schema", "schema": schema}}
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0, 0.5, 0)
    assert body["stop_sequences"] == ["END"]
    assert body["metadata"] == {"user_id": "u-1"}
    assert body["container"] == "container_1"
    assert body["mcp_servers"][0]["name"] == "wiki"


def test_cache_marks_cover_tools_system_and_the_newest_messages() -> None:
    """Three of the four marks the vendor allows, and none unless asked for."""
    history = [*parallel_calls(), Message.assistant("ok"), Message.user("more")]
    assert b"cache_control" not in encoded(history, tools=TOOLS).body
    body = body_of(history, AnthropicOptions(cache="5m"), tools=TOOLS)
    mark = {"type": "ephemeral"}
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    marked = [
        (number, position)
        for number, message in enumerate(body["messages"])
        for position, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    assert marked == [(2, 3), (4, 0)]
    assert body["messages"][4]["content"][0]["cache_control"] == mark


def test_without_system_text_the_last_tool_is_marked() -> None:
    """The prefix up to the tools is what stays."""
    body = body_of(options=AnthropicOptions(cache="1h"), tools=TOOLS)
    assert body["tools"][1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "cache_control" not in body["tools"][0]


@pytest.mark.parametrize(
    "options",
    [
        {"thinking_budget": 100},
        {"thinking": "always"},
        {"thinking": "adaptive", "thinking_budget": 2048},
        {"effort": 3},
        {"temperature": 2},
        {"temperature": float("nan")},
        {"stop_sequences": "END"},
        {"stop_sequences": ("",)},
        {"cache": "2h"},
        {"container": 7},
        {"output_schema": [1]},
        {"message_stop_required": "no"},
        {"thinkin": "adaptive"},
    ],
)
def test_options_that_are_none_are_refused(options: dict[str, Any]) -> None:
    """A misspelt option must not be a silent default."""
    with pytest.raises(InvalidInput):
        AnthropicMessages().encode(
            ModelRequest(provider(), [Message.user("hi")], provider_options={"anthropic": options})
        )


def test_options_of_other_protocols_are_left_alone() -> None:
    """One request may carry options for the provider it falls back to."""
    request = ModelRequest(provider(), [Message.user("hi")], provider_options={"openai": {"store": True}})
    assert "store" not in json.loads(AnthropicMessages().encode(request).body)


def test_options_survive_the_log() -> None:
    """They are JSON, and read back they are the same."""
    options = AnthropicOptions(thinking_budget=2048, betas=("a",), hosted_tools=({"id": "anthropic.mcp_toolset"},))
    stored = json.loads(json.dumps(options.provider_options()))
    assert AnthropicOptions.read(stored) == options
    assert AnthropicOptions().provider_options() == {"anthropic": {}}
