"""The body of a chat completions request (semantics 4.6)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from maka_trio.dialect import Dialect
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON
from maka_trio.facts.opening import ToolDefinition
from maka_trio.protocol.chat_messages import ChatMessages
from maka_trio.protocol.chat_options import STRICT_KEY, read_options, tool_choice
from maka_trio.request import ModelRequest, ProviderKind
from maka_trio.secret_options import filled_in

_TOKEN_KEYS = ("max_tokens", "max_completion_tokens")
_COMPLETION_TOKENS_MODELS = re.compile(r"(o\d|gpt-[5-9]|gpt-\d\d)\b")
"""Models of the vendor that refuse `max_tokens`."""


def option_key(request: ModelRequest) -> str:
    """Under which key of provider options this request's options stand, and an answer's marks are kept."""
    return request.provider.name or STRICT_KEY


def encode_chat(request: ModelRequest, dialect: Dialect) -> dict[str, JSON]:
    """The body of a request, all but the overlay.

    Raises:
        InvalidInput: the prompt, a tool or an option holds something that the protocol cannot carry, or an option
            has the name of something that the request itself says.
    """
    strict = request.provider.kind is ProviderKind.OPENAI_CHAT_COMPLETIONS
    names = [definition.name for definition in request.tools]
    encoder = ChatMessages(dialect, option_key(request), strict=strict, tools=names)
    body: dict[str, JSON] = {
        "model": request.provider.model,
        "messages": encoder.encode(request.prompt, request.memo),
        "stream": True,
    }
    if dialect.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if request.max_output_tokens is not None:
        body[_max_tokens_key(request, dialect, strict=strict)] = request.max_output_tokens
    options = read_options(request.provider_options, option_key(request))
    if request.tools:
        body["tools"] = request.memo.tools("chat", request.tools, lambda: _tools(request.tools))
        body["tool_choice"] = tool_choice(options.pop("tool_choice", "auto"), names)
    elif "tools" not in options:  # servers have tools of their own, which are given as an option
        options = _without_tools(options)
    secrets = request.provider.secrets
    return _with_options(body, {name: filled_in(value, secrets) for name, value in options.items()})


def _without_tools(options: dict[str, JSON]) -> dict[str, JSON]:
    """The options of a request that offers no tools: the vendor refuses to be told how to use them."""
    choice = options.get("tool_choice", "auto")
    if choice not in ("auto", "none"):
        raise InvalidInput(f"option tool_choice={excerpt(choice)} without tools")
    return {name: value for name, value in options.items() if name not in ("tool_choice", "parallel_tool_calls")}


def _max_tokens_key(request: ModelRequest, dialect: Dialect, *, strict: bool) -> str:
    if strict and _COMPLETION_TOKENS_MODELS.match(request.provider.model):
        return "max_completion_tokens"
    return dialect.max_tokens_key


def _tools(definitions: Sequence[ToolDefinition]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode([_tool(definition) for definition in definitions]))


def _tool(definition: ToolDefinition) -> JSON:
    function: dict[str, JSON] = {
        "name": definition.name,
        "description": definition.description,
        "parameters": _parameters(definition),
    }
    return {"type": "function", "function": function}


def _parameters(definition: ToolDefinition) -> JSON:
    """The schema as the vendor insists on it: an object, with its properties named even if there are none."""
    schema = {} if isinstance(definition.input_schema, bool) else definition.input_schema
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidInput(f"tool {definition.name!r}: chat completions tools take an object, not {excerpt(kind)}")
    defaults: dict[str, JSON] = {"type": "object", "properties": {}}
    return {**defaults, **schema, "type": "object"}


def _with_options(body: dict[str, JSON], options: dict[str, JSON]) -> dict[str, JSON]:
    limited = any(key in body for key in _TOKEN_KEYS)
    for name in options:
        if name in body or (limited and name in _TOKEN_KEYS):
            raise InvalidInput(f"option {excerpt(name)} is already in the body: the request itself says it")
    return {**body, **options}
