"""Options of a chat request: `provider_options["openai"]`, or those under the name of a compatible server.

They stand there as the wire has them; `ChatOptions` is a typed way to write them. Options that the protocol defines
are checked before anything is sent. Others are sent as they are: compatible servers have many, and know them best.
None may take the place of what the request itself says.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, Final

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.protocol import typed_options as options
from maka_trio.records import frozen

STRICT_KEY: Final = "openai"
"""The key of the vendor's own options. A compatible server's is its name."""

_Check = tuple[Callable[[Any], bool], str]


def _number(low: float, high: float) -> _Check:
    return (
        lambda value: type(value) in (int, float) and low <= value <= high,
        f"a number from {low} to {high}",
    )


_FLAG: Final[_Check] = (lambda value: isinstance(value, bool), "a bool")
_WHOLE: Final[_Check] = (lambda value: type(value) is int, "an integer")
_COUNT: Final[_Check] = (lambda value: type(value) is int and value >= 1, "a positive integer")
_WORD: Final[_Check] = (lambda value: isinstance(value, str) and bool(value), "a text")
_OBJECT: Final[_Check] = (lambda value: isinstance(value, Mapping), "an object")


def _is_stop(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


CHECKS: Final[Mapping[str, _Check]] = {
    "frequency_penalty": _number(-2, 2),
    "logit_bias": _OBJECT,
    "logprobs": _FLAG,
    "max_completion_tokens": _COUNT,
    "metadata": _OBJECT,
    "n": (lambda value: type(value) is int and value == 1, "1: one answer becomes one step"),
    "parallel_tool_calls": _FLAG,
    "prompt_cache_key": _WORD,
    "presence_penalty": _number(-2, 2),
    "reasoning_effort": _WORD,
    "response_format": _OBJECT,
    "safety_identifier": _WORD,
    "seed": _WHOLE,
    "service_tier": _WORD,
    "stop": (_is_stop, "a text or a list of texts"),
    "store": _FLAG,
    "temperature": _number(0, 2),
    "tool_choice": (lambda value: (isinstance(value, str) and bool(value)) or isinstance(value, Mapping), "a choice"),
    "top_logprobs": _WHOLE,
    "top_p": _number(0, 1),
    "user": _WORD,
    "verbosity": _WORD,
    "web_search_options": _OBJECT,
}
"""What the protocol itself defines."""

_CHOICES = frozenset({"auto", "none", "required"})


@frozen(kw_only=True)
class ChatOptions:
    """Options of chat completions; give `ChatOptions(...).provider_options()` to a request.

    For a compatible server, `provider_options("groq")`: the name is that of its `ProviderConfig`.

    Args:
        temperature, top_p, frequency_penalty, presence_penalty, seed, stop, logit_bias: how the answer is drawn.
        reasoning_effort: how much a model thinks: `low`, `medium`, `high` and what else the server knows.
        verbosity: `low`, `medium`, `high`.
        output_schema: a JSON Schema that the answer's text must satisfy; `output_schema_name` names it.
        output_schema_strict: whether the server enforces the schema (it then takes a subset of JSON Schema).
        json_object: the answer's text must be some JSON object. Excludes `output_schema`.
        tool_choice: `auto`, `required`, `none`, or the name of one tool.
        parallel_tool_calls: False allows at most one call in a step.
        web_search: options of the vendor's own search, for models that have it; an empty object for its defaults.
        service_tier, store, metadata, user, prompt_cache_key, safety_identifier: as the vendor defines them.
        extra: options that only the server knows, sent as they are, but for `{"$secret": "name"}`, which stands for
            one of `ProviderConfig.secrets`.
    """

    temperature: float | None = attrs.field(default=None, validator=options.number(minimum=0, maximum=2))
    top_p: float | None = attrs.field(default=None, validator=options.number(minimum=0, maximum=1))
    frequency_penalty: float | None = attrs.field(default=None, validator=options.number(minimum=-2, maximum=2))
    presence_penalty: float | None = attrs.field(default=None, validator=options.number(minimum=-2, maximum=2))
    seed: int | None = attrs.field(default=None, validator=options.whole(minimum=-(2**63)))
    stop: tuple[str, ...] = attrs.field(default=(), converter=options.as_tuple, validator=options.words(blank=True))
    logit_bias: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    reasoning_effort: str | None = attrs.field(default=None, validator=options.word())
    verbosity: str | None = attrs.field(default=None, validator=options.one_of("low", "medium", "high"))
    output_schema: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    output_schema_name: str = attrs.field(default="answer", validator=options.word())
    output_schema_strict: bool = attrs.field(default=True, validator=options.flag())
    json_object: bool = attrs.field(default=False, validator=options.flag())
    tool_choice: str | None = attrs.field(default=None, validator=options.word())
    parallel_tool_calls: bool | None = attrs.field(default=None, validator=options.flag())
    web_search: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    service_tier: str | None = attrs.field(default=None, validator=options.word())
    store: bool | None = attrs.field(default=None, validator=options.flag())
    metadata: JsonObject | None = attrs.field(default=None, validator=options.json_object())
    user: str | None = attrs.field(default=None, validator=options.word())
    prompt_cache_key: str | None = attrs.field(default=None, validator=options.word())
    safety_identifier: str | None = attrs.field(default=None, validator=options.word())
    extra: JsonObject | None = attrs.field(default=None, validator=options.json_object())

    def __attrs_post_init__(self) -> None:
        if self.json_object and self.output_schema is not None:
            raise InvalidInput("option json_object excludes output_schema")
        twice = sorted(set(self.extra or {}) & (set(CHECKS) | set(self._stated())))
        if twice:
            raise InvalidInput(f"option extra[{excerpt(twice[0])}] has a field or a meaning of its own")

    def provider_options(self, name: str = STRICT_KEY) -> JsonObject:
        """As `ModelRequest` and `RunInput` take them: only what was chosen.

        Args:
            name: the compatible server's name; by default the options are the vendor's.
        """
        return {name: {**self._stated(), **(self.extra or {})}}

    def _stated(self) -> dict[str, JSON]:
        stated: dict[str, JSON] = {name: getattr(self, name) for name in _AS_THEY_ARE}
        stated |= {"stop": list(self.stop) or None, "web_search_options": self.web_search}
        stated["response_format"] = self._response_format()
        return {name: value for name, value in stated.items() if value is not None}

    def _response_format(self) -> JSON:
        if self.json_object:
            return {"type": "json_object"}
        if self.output_schema is None:
            return None
        schema: JsonObject = {
            "name": self.output_schema_name,
            "schema": self.output_schema,
            "strict": self.output_schema_strict,
        }
        return {"type": "json_schema", "json_schema": schema}


_NOT_AS_THEY_ARE = frozenset(
    {"stop", "web_search", "output_schema", "output_schema_name", "output_schema_strict", "json_object", "extra"}
)
_AS_THEY_ARE: Final = tuple(f.name for f in attrs.fields(ChatOptions) if f.name not in _NOT_AS_THEY_ARE)


def read_options(provider_options: Mapping[str, JSON], key: str) -> dict[str, JSON]:
    """The options under `key`, checked; without those that are null.

    Raises:
        InvalidInput: a value that a known option does not take. Names the option.
    """
    given = provider_options.get(key)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"provider_options[{key!r}] must be an object, not {type(given).__name__}")
    chosen: dict[str, JSON] = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        test, expected = CHECKS.get(name, (None, ""))
        if test is not None and not test(value):
            raise InvalidInput(f"option {name}={excerpt(value)} is not {expected}")
    return chosen


def tool_choice(choice: JSON, tools: Container[str]) -> JSON:
    """The `tool_choice` of a request that offers tools. A bare name is a choice of that tool.

    Raises:
        InvalidInput: the name of no tool of the request.
    """
    if not isinstance(choice, str) or choice in _CHOICES:
        return choice
    if choice not in tools:
        raise InvalidInput(f"option tool_choice={excerpt(choice)} names no tool of the request")
    return {"type": "function", "function": {"name": choice}}
