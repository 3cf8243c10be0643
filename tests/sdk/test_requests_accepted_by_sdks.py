"""Our request bodies have the types that the vendors' own packages declare."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from anthropic.types import message_create_params as anthropic_messages
from anthropic.types.beta import message_create_params as anthropic_beta
from openai.types.chat import completion_create_params as openai_chat
from openai.types.responses import response_create_params as openai_responses

from maka_trio.facts.json_value import JsonObject
from maka_trio.facts.message import Message, PromptMessage
from maka_trio.facts.opening import ToolDefinition
from maka_trio.protocol import AnthropicOptions, ChatOptions, ResponsesOptions
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from tests.protocol.wire_histories import HISTORIES, TOOLS
from tests.protocol.wire_rules import check_chat, check_messages, check_responses
from tests.sdk.typed_dicts import mismatch

SCHEMA: JsonObject = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

WIRES: dict[ProviderKind, tuple[Any, Callable[[bytes], None]]] = {
    ProviderKind.OPENAI_CHAT_COMPLETIONS: (openai_chat.CompletionCreateParamsStreaming, check_chat),
    ProviderKind.OPENAI_RESPONSES: (openai_responses.ResponseCreateParamsStreaming, check_responses),
    ProviderKind.ANTHROPIC: (anthropic_messages.MessageCreateParamsStreaming, check_messages),
}

OPTIONS: dict[str, tuple[ProviderKind, JsonObject]] = {
    "chat": (
        ProviderKind.OPENAI_CHAT_COMPLETIONS,
        ChatOptions(
            temperature=0.5,
            top_p=1,
            frequency_penalty=0,
            presence_penalty=0,
            seed=7,
            stop=("END",),
            logit_bias={"50256": -100},
            reasoning_effort="low",
            verbosity="low",
            output_schema=SCHEMA,
            tool_choice="put",
            parallel_tool_calls=False,
            web_search={"search_context_size": "low"},
            service_tier="flex",
            store=True,
            metadata={"k": "v"},
            user="u",
            prompt_cache_key="k",
            safety_identifier="s",
        ).provider_options(),
    ),
    "chat json": (
        ProviderKind.OPENAI_CHAT_COMPLETIONS,
        ChatOptions(json_object=True, tool_choice="required").provider_options(),
    ),
    "anthropic": (
        ProviderKind.ANTHROPIC,
        AnthropicOptions(
            effort="high",
            output_schema=SCHEMA,
            tool_choice="any",
            parallel_tool_calls=False,
            cache="1h",
            citations=True,
            hosted_tools=(
                {"id": "anthropic.web_search_20250305", "args": {"max_uses": 2}},
                {"id": "anthropic.code_execution_20250825"},
                {"id": "anthropic.tool_search_tool_bm25_20251119"},
            ),
            container="container_1",
            stop_sequences=("END",),
            service_tier="auto",
            user_id="u",
        ).provider_options(),
    ),
    "anthropic thinking": (
        ProviderKind.ANTHROPIC,
        AnthropicOptions(thinking_budget=2048, thinking_display="summarized").provider_options(),
    ),
    "anthropic adaptive": (ProviderKind.ANTHROPIC, AnthropicOptions(thinking="adaptive").provider_options()),
    "responses": (
        ProviderKind.OPENAI_RESPONSES,
        ResponsesOptions(
            reasoning_effort="high",
            reasoning_summary="auto",
            store=True,
            encrypted_reasoning=True,
            output_schema=SCHEMA,
            verbosity="low",
            tool_choice="put",
            parallel_tool_calls=True,
            hosted_tools=(
                {"id": "openai.web_search"},
                {"id": "openai.code_interpreter", "args": {"container": {"type": "auto"}}},
                {"id": "openai.mcp", "args": {"server_label": "wiki", "server_url": "https://mcp.test"}},
                {"id": "openai.shell", "args": {"environment": {"type": "container_auto"}}},
            ),
            temperature=0,
            top_p=1,
            service_tier="flex",
            truncation="auto",
            metadata={"k": "v"},
            max_tool_calls=2,
            prompt_cache_key="k",
            safety_identifier="s",
            context_management=({"type": "compaction", "compact_threshold": 1000},),
        ).provider_options(),
    ),
    "responses plain": (
        ProviderKind.OPENAI_RESPONSES,
        ResponsesOptions(replay_reasoning="text", system_role="developer", tool_choice="required").provider_options(),
    ),
}


def body_of(
    kind: ProviderKind,
    prompt: Sequence[PromptMessage],
    options: JsonObject | None = None,
    tools: Sequence[ToolDefinition] = TOOLS,
) -> dict[str, Any]:
    """The body of a request, which passes the wire rules."""
    provider = ProviderConfig(kind, "model-x", "https://api.test/v1", ApiKey("secret"))
    request = ModelRequest(provider, prompt, tools=tools, provider_options=options or {})
    raw = adapter_for(provider).encode(request).body
    WIRES[kind][1](raw)
    return dict(json.loads(raw))


@pytest.mark.parametrize("kind", WIRES)
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["bare", "tools"])
def test_every_history_has_the_types_of_the_sdk(
    kind: ProviderKind, history: str, tools: Sequence[ToolDefinition]
) -> None:
    """Parallel calls, rejections, errors, reasoning and media, on each wire."""
    assert mismatch(body_of(kind, HISTORIES[history](), tools=tools), WIRES[kind][0]) is None


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("history", ["media", "parallel calls"])
def test_every_option_has_the_types_of_the_sdk(name: str, history: str) -> None:
    """Each typed option is a field that the vendor declares."""
    kind, options = OPTIONS[name]
    assert mismatch(body_of(kind, HISTORIES[history](), options), WIRES[kind][0]) is None


def test_options_in_beta_have_the_types_of_the_beta() -> None:
    """Remote servers and context management are declared there."""
    options = AnthropicOptions(
        betas=("mcp-client-2025-11-20",),
        mcp_servers=({"type": "url", "name": "wiki", "url": "https://mcp.test"},),
        hosted_tools=({"id": "anthropic.mcp_toolset", "args": {"mcp_server_name": "wiki"}},),
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
    )
    body = body_of(ProviderKind.ANTHROPIC, [Message.user("hi")], options.provider_options())
    assert mismatch(body, anthropic_beta.MessageCreateParamsStreaming) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"extra": 1}, "no key 'extra'"),
        ({"messages": [{"role": "user"}]}, "lacks 'content'"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "body.messages[0].content[0]"),
        ({"max_tokens": True}, "body.max_tokens"),
        ({"stream": False}, "body.stream"),
        ({"stop_sequences": "END"}, "body.stop_sequences"),
        ({"tools": [{"name": "x", "input_schema": {"type": "object"}, "strict": "yes"}]}, "body.tools[0].strict"),
    ],
)
def test_the_comparison_itself_finds_what_does_not_fit(change: dict[str, Any], reason: str) -> None:
    """Or the tests above would prove nothing."""
    body = body_of(ProviderKind.ANTHROPIC, [Message.user("hi")]) | change
    assert reason in str(mismatch(body, WIRES[ProviderKind.ANTHROPIC][0]))
