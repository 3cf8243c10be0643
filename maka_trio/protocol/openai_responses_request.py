"""A Responses request: the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON
from maka_trio.facts.message import PromptMessage, SystemMessage
from maka_trio.facts.opening import ToolDefinition
from maka_trio.protocol.openai_responses_items import encode_input, name_on_wire
from maka_trio.protocol.openai_responses_options import ResponsesOptions, hosted_tool
from maka_trio.request import ApiKey, ModelRequest
from maka_trio.secret_options import filled_in

_ENCRYPTED = "reasoning.encrypted_content"


def encode_body(request: ModelRequest, options: ResponsesOptions) -> dict[str, JSON]:
    """The body of a request.

    Raises:
        InvalidInput: the prompt or an option holds something the protocol cannot carry.
    """
    instructions, leading = _instructions(request.prompt, options)
    freeform = frozenset(definition.name for definition in request.tools if is_freeform(definition))
    # Text between the messages of a conversation is an instruction wherever the first one is.
    role = "developer" if options.system_role == "instructions" else options.system_role or "system"
    body: dict[str, JSON] = {
        "model": request.provider.model,
        "input": encode_input(request.prompt, request.memo, options, freeform, role, skip=leading),
        "stream": True,
        "store": options.stored,
    }
    if instructions:
        body["instructions"] = instructions
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    return body | _tools(request, options) | _settings(options, request.provider.secrets)


def is_freeform(definition: ToolDefinition) -> bool:
    """Whether a tool takes a text instead of an object: a custom tool on this wire."""
    return isinstance(definition.input_schema, Mapping) and definition.input_schema.get("type") == "string"


def _instructions(prompt: Sequence[PromptMessage], options: ResponsesOptions) -> tuple[str, int]:
    """The text of the leading system messages, and how many there are."""
    if options.system_role != "instructions":
        return "", 0
    leading = 0
    while leading < len(prompt) and isinstance(prompt[leading], SystemMessage):
        leading += 1
    texts = [message.text for message in prompt[:leading] if isinstance(message, SystemMessage)]
    return "\n\n".join(text for text in texts if text.strip()), leading


# --- tools ------------------------------------------------------------------------------------------------------


def _tools(request: ModelRequest, options: ResponsesOptions) -> dict[str, JSON]:
    tools: list[JSON] = [_tool(definition, options) for definition in request.tools]
    tools += [filled_in(hosted_tool(tool), request.provider.secrets) for tool in options.hosted_tools]
    if not tools:
        if options.tool_choice not in (None, "auto", "none"):
            raise InvalidInput(f"option tool_choice={excerpt(options.tool_choice)} without tools")
        return {}
    chosen: dict[str, JSON] = {"tools": tools, "tool_choice": _tool_choice(request, options)}
    if options.parallel_tool_calls is not None:
        chosen["parallel_tool_calls"] = options.parallel_tool_calls
    return chosen


def _tool(definition: ToolDefinition, options: ResponsesOptions) -> JSON:
    name = name_on_wire(definition.name)
    if is_freeform(definition):
        wire_format = (options.tool_formats or {}).get(definition.name)
        tool: dict[str, JSON] = {"type": "custom", "name": name, "description": definition.description}
        return {**tool, "format": wire_format} if wire_format is not None else tool
    return {
        "type": "function",
        "name": name,
        "description": definition.description,
        "parameters": _object_schema(definition),
        "strict": options.strict_tools is True,
    }


def _object_schema(definition: ToolDefinition) -> JSON:
    schema = definition.input_schema
    if schema is True or schema is False:
        return {"type": "object", "properties": {}}
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidInput(f"tool {definition.name!r}: functions take an object, and custom tools a string")
    return {"properties": {}, **schema, "type": "object"}


def _tool_choice(request: ModelRequest, options: ResponsesOptions) -> JSON:
    choice = options.tool_choice
    if choice in (None, "auto", "required", "none"):
        return choice or "auto"
    for definition in request.tools:
        if definition.name == choice:
            kind = "custom" if is_freeform(definition) else "function"
            return {"type": kind, "name": name_on_wire(definition.name)}
    if any(hosted_tool(tool)["type"] == choice for tool in options.hosted_tools):
        return {"type": choice}
    raise InvalidInput(f"option tool_choice={excerpt(choice)} names no tool of the request")


# --- settings ---------------------------------------------------------------------------------------------------


def _settings(options: ResponsesOptions, secrets: Mapping[str, ApiKey]) -> dict[str, JSON]:
    reasoning = _given({"effort": options.reasoning_effort, "summary": options.reasoning_summary})
    text = _given({"format": _format(options), "verbosity": options.verbosity})
    settings = _given(
        {
            "reasoning": reasoning or None,
            "text": text or None,
            "include": _include(options) or None,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "service_tier": options.service_tier,
            "truncation": options.truncation,
            "metadata": options.metadata,
            "max_tool_calls": options.max_tool_calls,
            "prompt_cache_key": options.prompt_cache_key,
            "safety_identifier": options.safety_identifier,
            "context_management": options.context_management or None,
        }
    )
    return {name: filled_in(value, secrets) for name, value in settings.items()}


def _given(settings: dict[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in settings.items() if value is not None}


def _include(options: ResponsesOptions) -> list[JSON]:
    wanted = options.encrypted_reasoning
    if wanted is None:
        wanted = not options.stored and options.replay_reasoning == "encrypted"
    return list(dict.fromkeys([*([_ENCRYPTED] if wanted else []), *options.include]))


def _format(options: ResponsesOptions) -> JSON:
    if options.output_schema is None:
        return None
    return {
        "type": "json_schema",
        "name": options.output_schema_name,
        "schema": options.output_schema,
        "strict": options.output_schema_strict is True,
    }
