"""What a model says: stream events, the parts of a step, usage. Values only.

`ModelEvent` is one streamed event and says what a provider sent; `ModelStep` is the whole answer once it has
passed validation. An event is evidence, a step is history.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import JSON, JsonObject, valid_json, valid_object
from maka_trio.records import frozen


class TextKind(StrEnum):
    """What a text part is: said to the user, or thought before it."""

    TEXT = "text"
    THINKING = "thinking"


class FinishReason(StrEnum):
    """Why a step ended. Nothing else is representable: a filtered or failed answer is no step."""

    STOP = "stop"
    TOOL_CALLS = "tool-calls"
    LENGTH = "length"


def _count(instance: object, attribute: attrs.Attribute[Any], value: int | None) -> None:
    if value is None:
        return
    if type(value) is not int or value < 0:
        raise InvalidInput(f"usage {attribute.name}={value!r} is not a non-negative integer")


@frozen
class ModelUsage:
    """Token counts of one response; None where the provider never stated one, which is not zero.

    `input_tokens` and `output_tokens` are totals on every protocol; the other three are parts of them.
    """

    input_tokens: int | None = attrs.field(default=None, validator=_count)
    output_tokens: int | None = attrs.field(default=None, validator=_count)
    cache_read_tokens: int | None = attrs.field(default=None, validator=_count)
    cache_write_tokens: int | None = attrs.field(default=None, validator=_count)
    reasoning_tokens: int | None = attrs.field(default=None, validator=_count)


@frozen
class ModelToolCall:
    """A complete tool call as the model wrote it.

    `input` is the parsed JSON of its arguments, not yet checked against any schema. `provider_executed` calls
    ran at the provider and are never dispatched here.
    """

    id: str
    name: str
    input: JSON = attrs.field(validator=valid_json)
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)
    provider_executed: bool = False


@frozen
class UrlSource:
    """A citation of a page."""

    kind: ClassVar[str] = "url"
    id: str
    url: str
    title: str | None = None


@frozen
class DocumentSource:
    """A citation of a document."""

    kind: ClassVar[str] = "document"
    id: str
    media_type: str
    title: str
    filename: str | None = None


Source: TypeAlias = UrlSource | DocumentSource


# --- stream events ----------------------------------------------------------------------------------------


@frozen
class PartStarted:
    """A text part begins. `id` is unique in the response."""

    kind: ClassVar[str] = "part_started"
    id: str
    text_kind: TextKind = TextKind.TEXT
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


@frozen
class PartDelta:
    """More text of an open part: at most `limits.DELTA_BYTES` of UTF-8."""

    kind: ClassVar[str] = "part_delta"
    id: str
    text: str
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


@frozen
class PartFinished:
    """A text part ends."""

    kind: ClassVar[str] = "part_finished"
    id: str
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


@frozen
class ToolCallReady:
    """A tool call is complete. It may be dispatched only after the whole step has completed."""

    kind: ClassVar[str] = "tool_call"
    call: ModelToolCall


@frozen
class ProviderToolResult:
    """The result of a call that the provider executed."""

    kind: ClassVar[str] = "provider_tool_result"
    id: str
    name: str
    output: JSON = attrs.field(validator=valid_json)
    is_error: bool = False
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


@frozen
class SourceCited:
    """The model cites a source."""

    kind: ClassVar[str] = "source"
    source: Source
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


@frozen
class ResponseMetadata:
    """What the provider says about the response; later values override only the fields they give.

    `timestamp` is seconds since the epoch, by the provider's clock.
    """

    kind: ClassVar[str] = "response_metadata"
    id: str | None = None
    model: str | None = None
    timestamp: int | None = None


@frozen
class Finished:
    """The response ended as the protocol wants. Nothing follows it."""

    kind: ClassVar[str] = "finished"
    reason: FinishReason
    usage: ModelUsage = ModelUsage()
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


ModelEvent: TypeAlias = (
    PartStarted
    | PartDelta
    | PartFinished
    | ToolCallReady
    | ProviderToolResult
    | SourceCited
    | ResponseMetadata
    | Finished
)


def is_replay_barrier(event: ModelEvent) -> bool:
    """Whether the request may not simply be sent again once this event was seen (semantics 4.7).

    A finish, anything the provider executed, and provider metadata on a part are barriers: sending the request again
    could repeat an effect or contradict a signature. Plain text and calls that are ours to dispatch are none.
    """
    match event:
        case Finished() | ProviderToolResult():
            return True
        case ToolCallReady(call=call):
            return call.provider_executed or bool(call.provider_options)
        case ResponseMetadata():
            return False
        case _:
            return bool(event.provider_options)


# --- the step ---------------------------------------------------------------------------------------------


@frozen
class TextPart:
    """A whole text part."""

    kind: ClassVar[str] = "text"
    text_kind: TextKind
    text: str
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


@frozen
class ToolCallPart:
    """A call in its place among the parts."""

    kind: ClassVar[str] = "tool_call"
    call: ModelToolCall


@frozen
class ToolResultPart:
    """The result of a provider-executed call."""

    kind: ClassVar[str] = "tool_result"
    id: str
    name: str
    output: JSON = attrs.field(validator=valid_json)
    is_error: bool = False
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


@frozen
class SourcePart:
    """A citation. Kept for people; never sent back to a model."""

    kind: ClassVar[str] = "source"
    source: Source
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)


ModelPart: TypeAlias = TextPart | ToolCallPart | ToolResultPart | SourcePart


@frozen
class ModelStep:
    """A complete, valid answer to one model request."""

    parts: tuple[ModelPart, ...]
    finish_reason: FinishReason
    usage: ModelUsage = ModelUsage()
    provider_options: JsonObject | None = attrs.field(default=None, validator=valid_object)
    response_id: str | None = None
    model: str | None = None
    timestamp: int | None = None

    def tool_calls(self) -> tuple[ModelToolCall, ...]:
        """All calls in order, those the provider executed included."""
        return tuple([part.call for part in self.parts if isinstance(part, ToolCallPart)])

    def local_calls(self) -> tuple[ModelToolCall, ...]:
        """The calls that are ours to dispatch or reject, in order."""
        return tuple([call for call in self.tool_calls() if not call.provider_executed])

    def text(self) -> str:
        """What the model said to the user, its text parts joined."""
        return "".join(
            part.text for part in self.parts if isinstance(part, TextPart) and part.text_kind is TextKind.TEXT
        )
