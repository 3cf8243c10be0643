"""What a run is opened with: the message and its configuration, frozen at admission and never re-read."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import ClassVar, TypeAlias

import attrs

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.continuation import ContinuationClaim
from maka_trio.facts.json_value import JsonObject, valid_object, valid_schema
from maka_trio.facts.message import ContentPart
from maka_trio.records import frozen


class ToolMode(StrEnum):
    """How tools are offered to the model: each by itself, or as functions of a program it writes."""

    DIRECT = "direct"
    CODE = "code_mode"


@frozen
class InvocationConfiguration:
    """What is frozen at admission and never re-read from settings that may change.

    `cwd` is an absolute path that tools may use; the library itself opens nothing there. `tool_concurrency` is
    how many `PARALLEL` calls of one step may run at once.
    """

    tool_mode: ToolMode = attrs.field(default=ToolMode.DIRECT, validator=bounds.instance(ToolMode))
    system_prompt: str | None = attrs.field(
        default=None, validator=bounds.optional(bounds.text(limit=limits.SYSTEM_PROMPT_BYTES, blank=False))
    )
    cwd: str | None = attrs.field(default=None)
    tool_concurrency: int = attrs.field(default=1, validator=bounds.integer(minimum=1, maximum=limits.TOOL_CONCURRENCY))

    @cwd.validator
    def _check_cwd(self, attribute: attrs.Attribute[str | None], value: str | None) -> None:
        if value is None:
            return
        size = bounds.utf8_size(value, "cwd")
        if not value.startswith("/") or size > limits.CWD_BYTES or "\0" in value:
            raise InvalidInput(
                f"cwd={bounds.excerpt(value)} must be an absolute path of at most {limits.CWD_BYTES} bytes without NUL"
            )


@frozen
class Quote:
    """Text the user quotes, with where it is from."""

    text: str
    label: str | None = None


@frozen
class MessageInput:
    """A user's message as it was submitted.

    `text` is what the model reads (with `parts` given, their texts joined). `display_text` is for the user's own
    screen and never reaches a model.
    """

    text: str = attrs.field(validator=bounds.text())
    display_text: str | None = None
    quotes: tuple[Quote, ...] = ()
    parts: tuple[ContentPart, ...] = ()


@frozen
class ToolDefinition:
    """What a model is told of a tool. `input_schema` is a JSON Schema, any draft by its `$schema`."""

    name: str = attrs.field(validator=bounds.identity)
    description: str = attrs.field(validator=bounds.text())
    input_schema: JsonObject | bool = attrs.field(validator=valid_schema)
    output_schema: JsonObject | None = attrs.field(default=None, validator=valid_object)


@frozen
class RequestSurface:
    """What a request carries besides the conversation; together with it, `input_digest` can be recomputed.

    An opening carries the surface its first request will have; a request carries its own only where it differs
    from the one before it.
    """

    tools: tuple[ToolDefinition, ...] = ()
    provider_options: JsonObject = attrs.field(factory=dict, validator=valid_object)
    max_output_tokens: int | None = None
    supports_vision: bool = False


@frozen
class MessageOpening:
    """A user message opens a turn."""

    kind: ClassVar[str] = "message"
    content: MessageInput
    request_fingerprint: str | None = None
    source_messages: tuple[str, ...] = ()
    allow_prior_unknown: bool = False
    surface: RequestSurface | None = None


@frozen
class ContinuationOpening:
    """A sealed run is continued from an exact boundary, without a new user message."""

    kind: ClassVar[str] = "continuation"
    claim: ContinuationClaim = attrs.field(validator=bounds.instance(ContinuationClaim))
    request_fingerprint: str = attrs.field(validator=bounds.digest)
    surface: RequestSurface | None = None


@frozen
class HandoffOpening:
    """A paused run goes on elsewhere."""

    kind: ClassVar[str] = "handoff"
    claim: JsonObject = attrs.field(validator=valid_object)
    pause: JsonObject = attrs.field(validator=valid_object)


@frozen
class ContextCompactOpening:
    """A run whose only work is a summary of the session."""

    kind: ClassVar[str] = "context_compact"
    request_fingerprint: str = attrs.field(validator=bounds.text(blank=False))


@frozen
class CodeOpening:
    """A program runs by itself; no model is asked."""

    kind: ClassVar[str] = "code"
    source: str


InvocationInput: TypeAlias = MessageOpening | ContinuationOpening | HandoffOpening | ContextCompactOpening | CodeOpening


def fingerprint_digest(name: str) -> str:
    """The name of a request as a continuation keeps it: its SHA-256, or itself where it is one."""
    return name if bounds.is_digest(name) else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def request_fingerprint(opening: InvocationInput) -> str | None:
    """The application's own name of the request that an invocation was opened for, where it gave one."""
    match opening:
        case MessageOpening() | ContinuationOpening():
            return opening.request_fingerprint
        case _:
            return None
