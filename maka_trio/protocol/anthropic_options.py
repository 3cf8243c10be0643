"""Options of the Anthropic Messages protocol, and the tools that run at Anthropic.

Values only; how an option shows on the wire is the business of `anthropic_request`.
"""

from __future__ import annotations

import re
from typing import ClassVar

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.protocol import typed_options as options
from maka_trio.records import frozen

_HOSTED = re.compile(
    r"anthropic\.(?P<type>(?P<name>web_search|web_fetch|code_execution|tool_search_tool_regex|tool_search_tool_bm25"
    r"|advisor)_\d{8})"
)
_MCP_TOOLSET = "anthropic.mcp_toolset"
_LOCAL = re.compile(r"anthropic\.(bash|text_editor|computer|computer_toolset|browser_toolset|memory)(_\d{8})?")


@frozen(kw_only=True)
class AnthropicOptions(options.TypedOptions):
    """Options for `ProviderKind.ANTHROPIC`; give `AnthropicOptions(...).provider_options()` to a request.

    Args:
        thinking_budget: tokens for extended thinking; added to the default of `max_tokens`, and below a given one.
        thinking: `adaptive` or `disabled`, for models that decide for themselves. Excludes `thinking_budget`.
        thinking_display: `summarized` or `omitted`.
        effort: how much work an answer is worth: `low`, `medium`, `high`, `xhigh`, `max`.
        output_schema: a JSON Schema that the answer's text must satisfy.
        tool_choice: `auto`, `any`, `none`, or the name of one tool.
        parallel_tool_calls: False allows at most one call in a step.
        cache: `5m` or `1h` marks the tools, the system text and the newest messages for the prompt cache.
        citations: documents in user messages may be cited.
        hosted_tools: tools that run at the provider, each `{"id": "anthropic.web_search_20250305", "args": {...}}`.
        mcp_servers, container, context_management: as the vendor defines them. A credential in one of them is
            `{"$secret": "name"}`, for one of `ProviderConfig.secrets`.
        temperature, top_p, top_k, stop_sequences, service_tier: as the vendor defines them.
        user_id: an opaque id of the end user.
        betas: values of the `anthropic-beta` header.
        message_stop_required: False takes a message for complete without `message_stop`, if it stated a stop reason
            and closed each block. For servers that are known never to send one.
    """

    KEY: ClassVar[str] = "anthropic"

    thinking_budget: int | None = attrs.field(default=None, validator=options.whole(minimum=1024))
    thinking: str | None = attrs.field(default=None, validator=options.one_of("adaptive", "disabled"))
    thinking_display: str | None = attrs.field(default=None, validator=options.one_of("summarized", "omitted"))
    effort: str | None = attrs.field(default=None, validator=options.one_of("low", "medium", "high", "xhigh", "max"))
    output_schema: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    tool_choice: str | None = attrs.field(default=None, validator=options.word())
    parallel_tool_calls: bool | None = attrs.field(default=None, validator=options.flag())
    cache: str | None = attrs.field(default=None, validator=options.one_of("5m", "1h"))
    citations: bool | None = attrs.field(default=None, validator=options.flag())
    hosted_tools: tuple[JsonObject, ...] = attrs.field(
        default=(), converter=options.as_tuple, validator=options.json_objects()
    )
    mcp_servers: tuple[JsonObject, ...] = attrs.field(
        default=(), converter=options.as_tuple, validator=options.json_objects()
    )
    container: JSON = attrs.field(default=None)
    context_management: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    temperature: float | None = attrs.field(default=None, validator=options.number(minimum=0, maximum=1))
    top_p: float | None = attrs.field(default=None, validator=options.number(minimum=0, maximum=1))
    top_k: int | None = attrs.field(default=None, validator=options.whole(minimum=0))
    stop_sequences: tuple[str, ...] = attrs.field(default=(), converter=options.as_tuple, validator=options.words())
    service_tier: str | None = attrs.field(default=None, validator=options.word())
    user_id: str | None = attrs.field(default=None, validator=options.word())
    betas: tuple[str, ...] = attrs.field(default=(), converter=options.as_tuple, validator=options.words())
    message_stop_required: bool | None = attrs.field(default=True, validator=options.flag())

    def __attrs_post_init__(self) -> None:
        if self.thinking is not None and self.thinking_budget is not None:
            raise InvalidInput("option thinking excludes thinking_budget")
        if self.container is not None and not isinstance(self.container, (str, dict)):
            raise InvalidInput("option container must be an id or an object")
        options.check_option(self.container, "container")
        for tool in self.hosted_tools:
            hosted_tool(tool)


def hosted_tool(tool: JsonObject) -> dict[str, JSON]:
    """The wire form of one hosted tool.

    Raises:
        InvalidInput: an id that is not a tool of this vendor, or one whose tool runs on the user's side.
    """
    tool_id, args = options.hosted_tool_parts(tool)
    if _LOCAL.fullmatch(tool_id):
        raise InvalidInput(f"hosted tool {tool_id!r} runs locally; register a tool of its name instead")
    if tool_id == _MCP_TOOLSET:
        return {"type": "mcp_toolset", **args}
    known = _HOSTED.fullmatch(tool_id)
    if known is None:
        raise InvalidInput(f"{excerpt(tool_id)} is no hosted tool of this provider")
    return {"type": known["type"], "name": known["name"], **args}
