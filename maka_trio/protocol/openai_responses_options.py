"""Options of the OpenAI Responses protocol, and the tools that run at the provider.

Values only; how an option shows on the wire is the business of `openai_responses_request`.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.protocol import typed_options as options
from maka_trio.records import frozen

_PREFIX = "openai."
_HOSTED = frozenset(
    {
        "web_search",
        "web_search_preview",
        "file_search",
        "code_interpreter",
        "image_generation",
        "mcp",
        "shell",
        "tool_search",
        "programmatic_tool_calling",
    }
)
_LOCAL = frozenset({"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview"})


@frozen(kw_only=True)
class ResponsesOptions(options.TypedOptions):
    """Options for `ProviderKind.OPENAI_RESPONSES`; give `ResponsesOptions(...).provider_options()` to a request.

    Args:
        reasoning_effort: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`.
        reasoning_summary: `auto`, `concise`, `detailed`.
        store: keep the response at the provider. By default nothing is kept, and reasoning travels encrypted.
        encrypted_reasoning: ask for encrypted reasoning; by default wherever nothing is stored. Some models that do
            not reason refuse to be asked.
        replay_reasoning: what of earlier reasoning is sent back: `encrypted` (also what the provider stored), `text`
            for servers that read their own plain reasoning, `never`.
        output_schema: a JSON Schema that the answer's text must satisfy; `output_schema_name` names it.
        output_schema_strict: whether the vendor enforces the schema (it then takes a subset of JSON Schema).
        verbosity: `low`, `medium`, `high`.
        tool_choice: `auto`, `required`, `none`, or the name of one tool.
        parallel_tool_calls: False allows at most one call in a step.
        strict_tools: let the vendor enforce the schemas of function tools.
        tool_formats: for tools whose input is a string: tool name to the vendor's `format` (a grammar).
        hosted_tools: tools that run at the provider, each `{"id": "openai.web_search", "args": {...}}`. A credential
            among the arguments is `{"$secret": "name"}`, for one of `ProviderConfig.secrets`.
        system_role: where the first system messages go: `instructions`, or messages of role `system` or `developer`.
        include: further output data to ask for.
        temperature, top_p, service_tier, truncation, metadata, max_tool_calls, prompt_cache_key, safety_identifier,
            context_management: as the vendor defines them.
    """

    KEY: ClassVar[str] = "openai"

    reasoning_effort: str | None = attrs.field(
        default=None, validator=options.one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")
    )
    reasoning_summary: str | None = attrs.field(default=None, validator=options.one_of("auto", "concise", "detailed"))
    store: bool | None = attrs.field(default=False, validator=options.flag())
    encrypted_reasoning: bool | None = attrs.field(default=None, validator=options.flag())
    replay_reasoning: str | None = attrs.field(
        default="encrypted", validator=options.one_of("encrypted", "text", "never")
    )
    output_schema: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    output_schema_name: str | None = attrs.field(default="answer", validator=options.word())
    output_schema_strict: bool | None = attrs.field(default=True, validator=options.flag())
    verbosity: str | None = attrs.field(default=None, validator=options.one_of("low", "medium", "high"))
    tool_choice: str | None = attrs.field(default=None, validator=options.word())
    parallel_tool_calls: bool | None = attrs.field(default=None, validator=options.flag())
    strict_tools: bool | None = attrs.field(default=False, validator=options.flag())
    tool_formats: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    hosted_tools: tuple[JsonObject, ...] = attrs.field(
        default=(), converter=options.as_tuple, validator=options.json_objects()
    )
    system_role: str | None = attrs.field(
        default="instructions", validator=options.one_of("instructions", "system", "developer")
    )
    include: tuple[str, ...] = attrs.field(default=(), converter=options.as_tuple, validator=options.words())
    temperature: float | None = attrs.field(default=None, validator=options.number(minimum=0, maximum=2))
    top_p: float | None = attrs.field(default=None, validator=options.number(minimum=0, maximum=1))
    service_tier: str | None = attrs.field(default=None, validator=options.word())
    truncation: str | None = attrs.field(default=None, validator=options.one_of("auto", "disabled"))
    metadata: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    max_tool_calls: int | None = attrs.field(default=None, validator=options.whole(minimum=1))
    prompt_cache_key: str | None = attrs.field(default=None, validator=options.word())
    safety_identifier: str | None = attrs.field(default=None, validator=options.word())
    context_management: tuple[JsonObject, ...] = attrs.field(
        default=(), converter=options.as_tuple, validator=options.json_objects()
    )

    def __attrs_post_init__(self) -> None:
        for tool in self.hosted_tools:
            hosted_tool(tool)

    @property
    def stored(self) -> bool:
        """Whether the provider keeps responses, and so knows its own item ids."""
        return self.store is True


def hosted_tool(tool: JsonObject) -> dict[str, JSON]:
    """The wire form of one hosted tool.

    Raises:
        InvalidInput: an id that is not a tool of this vendor, or one whose tool runs on the user's side.
    """
    tool_id, args = options.hosted_tool_parts(tool)
    kind = tool_id.removeprefix(_PREFIX)
    if kind in _LOCAL or (kind == "shell" and not isinstance(args.get("environment"), dict)):
        raise InvalidInput(f"hosted tool {tool_id!r} runs locally; register a tool instead")
    if kind not in _HOSTED or not tool_id.startswith(_PREFIX):
        raise InvalidInput(f"{excerpt(tool_id)} is no hosted tool of this provider")
    return {"type": kind, **args}
