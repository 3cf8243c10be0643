"""An Anthropic Messages request: the body and the headers that are not credentials."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON
from maka_trio.facts.opening import ToolDefinition
from maka_trio.protocol.anthropic_messages import Conversation, Message
from maka_trio.protocol.anthropic_options import AnthropicOptions, hosted_tool
from maka_trio.request import ModelRequest
from maka_trio.secret_options import filled_in

VERSION = "2023-06-01"
"""The protocol version this adapter speaks."""

_GONE = "No longer available."


def encode_body(request: ModelRequest, options: AnthropicOptions) -> dict[str, JSON]:
    """The body of a request.

    Raises:
        InvalidInput: the prompt or an option holds something the protocol cannot carry.
    """
    conversation = Conversation.read(request.prompt, request.memo, citations=options.citations is True)
    newest = conversation.newest()
    body: dict[str, JSON] = {
        "model": request.provider.model,
        "max_tokens": _max_tokens(request, options),
        "messages": newest,
        "stream": True,
    }
    system = _system(conversation.system)
    if system:
        body["system"] = system
    body.update(_tools(request, options, conversation.tools_called))
    body.update({name: filled_in(value, request.provider.secrets) for name, value in _settings(options).items()})
    if options.cache:
        _mark_cache(body, newest, options.cache)
    return {**body, "messages": conversation.raw(newest)}


def headers(options: AnthropicOptions) -> tuple[tuple[str, str], ...]:
    """The protocol's own headers."""
    betas = (("anthropic-beta", ",".join(options.betas)),) if options.betas else ()
    return (("anthropic-version", VERSION), *betas)


# --- text and limits --------------------------------------------------------------------------------------------


def _max_tokens(request: ModelRequest, options: AnthropicOptions) -> int:
    budget = options.thinking_budget or 0
    if request.max_output_tokens is None:
        return limits.ANTHROPIC_OUTPUT_TOKENS + budget
    if budget >= request.max_output_tokens:
        raise InvalidInput(
            f"option thinking_budget={budget} must be less than max_output_tokens={request.max_output_tokens}"
        )
    return request.max_output_tokens


def _system(texts: Sequence[str]) -> JSON:
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


# --- tools ------------------------------------------------------------------------------------------------------


def _tools(request: ModelRequest, options: AnthropicOptions, called: Collection[str]) -> dict[str, JSON]:
    tools: list[JSON] = [_tool(definition) for definition in request.tools]
    tools += [filled_in(hosted_tool(tool), request.provider.secrets) for tool in options.hosted_tools]
    if tools:
        _check_names(tools)
        choice = _tool_choice(options, tools)
        return {"tools": tools, "tool_choice": choice} if choice else {"tools": tools}
    if options.tool_choice not in (None, "auto", "none"):
        raise InvalidInput(f"option tool_choice={excerpt(options.tool_choice)} without tools")
    # A history with calls is refused if no tool is defined, so a request that offers none names the old ones.
    if not called:
        return {}
    gone: list[JSON] = [
        {"name": name, "description": _GONE, "input_schema": {"type": "object"}} for name in sorted(called)
    ]
    return {"tools": gone, "tool_choice": {"type": "none"}}


def _check_names(tools: Sequence[JSON]) -> None:
    """Refuse a hosted tool with the name of one of ours, as the provider would: calls could not be told apart."""
    seen: set[JSON] = set()
    for name in (tool.get("name") for tool in tools if isinstance(tool, Mapping)):
        if name is not None and name in seen:
            raise InvalidInput(f"two tools of the request have the name {excerpt(name)}")
        seen.add(name)


def _tool(definition: ToolDefinition) -> JSON:
    return {
        "name": definition.name,
        "description": definition.description,
        "input_schema": _object_schema(definition),
    }


def _object_schema(definition: ToolDefinition) -> JSON:
    schema = definition.input_schema
    if schema is True or schema is False:
        return {"type": "object"}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidInput(f"tool {definition.name!r}: Anthropic tools take an object, not {excerpt(kind)}")
    return {**schema, "type": "object"}


def _tool_choice(options: AnthropicOptions, tools: Sequence[JSON]) -> JSON:
    choice: dict[str, JSON]
    match options.tool_choice:
        case None if options.parallel_tool_calls is not False:
            return None
        case None | "auto":
            choice = {"type": "auto"}
        case "any":
            choice = {"type": "any"}
        case "none":
            return {"type": "none"}
        case name:
            if name not in [tool.get("name") for tool in tools if isinstance(tool, Mapping)]:
                raise InvalidInput(f"option tool_choice={excerpt(name)} names no tool of the request")
            choice = {"type": "tool", "name": name}
    if options.parallel_tool_calls is not None:
        choice["disable_parallel_tool_use"] = not options.parallel_tool_calls
    return choice


# --- settings ---------------------------------------------------------------------------------------------------


def _settings(options: AnthropicOptions) -> dict[str, JSON]:
    output_config: dict[str, JSON] = {}
    if options.effort is not None:
        output_config["effort"] = options.effort
    if options.output_schema is not None:
        output_config["format"] = {"type": "json_schema", "schema": options.output_schema}
    settings: dict[str, JSON] = {
        "thinking": _thinking(options),
        "output_config": output_config or None,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
        "stop_sequences": options.stop_sequences or None,
        "service_tier": options.service_tier,
        "metadata": {"user_id": options.user_id} if options.user_id else None,
        "mcp_servers": options.mcp_servers or None,
        "container": options.container,
        "context_management": options.context_management,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _thinking(options: AnthropicOptions) -> JSON:
    if options.thinking_budget is not None:
        thinking: dict[str, JSON] = {"type": "enabled", "budget_tokens": options.thinking_budget}
    elif options.thinking is not None:
        thinking = {"type": options.thinking}
    else:
        return None
    if options.thinking_display is not None and thinking["type"] != "disabled":
        thinking["display"] = options.thinking_display
    return thinking


# --- the prompt cache -------------------------------------------------------------------------------------------


def _mark_cache(body: dict[str, JSON], newest: Sequence[Message], lifetime: str) -> None:
    """Mark what stays: tools and system text once, and the two newest user messages.

    A mark covers everything before it, and tools come before the system text, so the last of both is enough. The
    older of the two messages is where the previous request's entry ends: it is found again even if the newest
    message brought more blocks than the provider looks back over.
    """
    mark: JSON = {"type": "ephemeral"} if lifetime == "5m" else {"type": "ephemeral", "ttl": lifetime}
    system, tools = body.get("system"), body.get("tools")
    if isinstance(system, str):
        body["system"] = [{"type": "text", "text": system, "cache_control": mark}]
    elif system:
        body["system"] = _marked(cast("list[JSON]", system), mark)
    elif tools:
        body["tools"] = _marked(cast("list[JSON]", tools), mark)
    spoken = [message for message in newest if message["role"] == "user"]
    for message in spoken[-2:]:
        message["content"] = _marked(cast("list[JSON]", message["content"]), mark)


def _marked(blocks: list[JSON], mark: JSON) -> list[JSON]:
    return [*blocks[:-1], {**cast("dict[str, JSON]", blocks[-1]), "cache_control": mark}]
