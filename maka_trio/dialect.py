"""`Dialect`: how one server that speaks chat completions differs from the others. A value; knows no server.

`protocol.dialects` holds the table of known servers. A user gives one of their own to `ProviderConfig`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.records import frozen

FinishRule = Literal["required", "text_optional", "optional"]
ReasoningReplay = Literal["never", "tool_loop", "always"]


def _one_of(choices: Any) -> bounds.Validator:
    def validate(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in get_args(choices):
            raise InvalidInput(f"{attribute.name}={bounds.excerpt(value)} is none of {', '.join(get_args(choices))}")

    return validate


def _names(value: Iterable[str]) -> frozenset[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput(f"finish reasons are a collection of names, not {bounds.excerpt(value)}")
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(f"a finish reason is a text, not {bounds.excerpt(name)}")
    return frozenset(name.lower() for name in names)


@frozen(kw_only=True)
class Dialect:
    """The ways of one server. The defaults are what most compatible servers do.

    Args:
        reasoning_key: under which key of an assistant message its reasoning is sent back. `reasoning_details` sends
            the structured form that came with it, `content` puts it before the text as a thinking part.
        reasoning_replay: which messages carry it: none, those since the last user message, or all.
        max_tokens_key: `max_tokens` or `max_completion_tokens`.
        stream_usage: ask for usage in the stream. Some servers refuse the question and state it anyway.
        finish: whether an answer that ends with `[DONE]` must have stated a finish reason: always, unless it is
            text alone, or never (for servers known never to state one).
        generated_ids: calls without an id of their own are given one made from their position.
        comment_payloads: a payload that begins with a colon is a comment.
        whole_messages: an answer whose deltas were empty may lie in a whole `message`.
        stop_reasons, tool_reasons, length_reasons, refused_reasons, unavailable_reasons: what the server says for a
            natural end, for tool calls, for the output limit, for a filtered answer, for its own trouble. Case does
            not matter.
        nine_character_ids: call ids are sent as exactly nine letters and digits.
    """

    reasoning_key: str | None = attrs.field(default="reasoning_content", validator=bounds.optional(bounds.identity))
    reasoning_replay: ReasoningReplay = attrs.field(default="always", validator=_one_of(ReasoningReplay))
    max_tokens_key: str = attrs.field(default="max_tokens", validator=bounds.identity)
    stream_usage: bool = attrs.field(default=True, validator=bounds.flag)
    finish: FinishRule = attrs.field(default="text_optional", validator=_one_of(FinishRule))
    generated_ids: bool = attrs.field(default=True, validator=bounds.flag)
    comment_payloads: bool = attrs.field(default=True, validator=bounds.flag)
    whole_messages: bool = attrs.field(default=True, validator=bounds.flag)
    stop_reasons: frozenset[str] = attrs.field(
        default=frozenset({"stop", "eos", "eos_token", "end_turn", "end", "stop_sequence", "completed"}),
        converter=_names,
    )
    tool_reasons: frozenset[str] = attrs.field(
        default=frozenset({"tool_calls", "tool-calls", "tool_call", "tool_use"}), converter=_names
    )
    length_reasons: frozenset[str] = attrs.field(
        default=frozenset({"length", "max_tokens", "model_length", "model_context_window_exceeded"}), converter=_names
    )
    refused_reasons: frozenset[str] = attrs.field(
        default=frozenset({"content_filter", "content-filter", "refusal", "safety", "sensitive"}), converter=_names
    )
    unavailable_reasons: frozenset[str] = attrs.field(
        default=frozenset({"insufficient_system_resource", "network_error", "abort"}), converter=_names
    )
    nine_character_ids: bool = attrs.field(default=False, validator=bounds.flag)
