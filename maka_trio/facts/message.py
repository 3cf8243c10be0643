"""Prompt messages: what a model is sent, in no provider's format. Values only.

`Message` is a base class with a constructor for each role; code that takes messages apart matches on the four
subclasses. Media is carried as bytes, as a URL, or as the id of an artifact in the log, whose bytes are read
for each request and never stand in an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias, TypeVar

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.json_value import JSON, valid_json
from maka_trio.facts.model import ModelPart, TextKind, TextPart
from maka_trio.records import frozen

T = TypeVar("T")


@frozen
class TextContent:
    """Plain text."""

    kind: ClassVar[str] = "text"
    text: str = attrs.field(validator=bounds.text())


@frozen
class MediaContent:
    """An image, a recording or a file: exactly one of `data`, `url` and `artifact` is given.

    `detail` is the image detail of the chat protocols (`low`, `high`, `auto`). `digest` is that of the bytes of an
    artifact, for whoever reads them: an event that names an artifact by its id alone does not say what is in it.
    """

    kind: ClassVar[str] = "media"
    media_type: str
    data: bytes | None = attrs.field(default=None, repr=False)
    url: str | None = None
    artifact: str | None = None
    filename: str | None = None
    detail: str | None = None
    digest: str | None = attrs.field(default=None, validator=bounds.optional(bounds.digest))

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("data", "url", "artifact") if getattr(self, name) is not None]
        if self.data is not None and not isinstance(self.data, bytes):
            raise InvalidInput(f"the data of media content are bytes, not {type(self.data).__name__}")
        for name in ("url", "artifact", "filename", "detail"):
            if getattr(self, name) is not None:
                bounds.utf8_size(getattr(self, name), name)
        if len(given) != 1:
            raise InvalidInput(f"media content takes exactly one of data, url and artifact, not {given or 'none'}")
        if self.digest is not None and self.artifact is None:
            raise InvalidInput("media content has a digest where its bytes are an artifact, and nowhere else")
        if not isinstance(self.media_type, str) or "/" not in self.media_type:
            raise InvalidInput(f"media_type={bounds.excerpt(self.media_type)} is not a media type such as image/png")


ContentPart: TypeAlias = TextContent | MediaContent

# --- what a tool answered, as the model sees it -------------------------------------------------------------


@frozen
class TextOutput:
    """Text, sent as it is."""

    kind: ClassVar[str] = "text"
    text: str


@frozen
class JsonOutput:
    """A JSON value, sent as JSON text."""

    kind: ClassVar[str] = "json"
    value: JSON = attrs.field(validator=valid_json)


@frozen
class ContentOutput:
    """Ordered text and media."""

    kind: ClassVar[str] = "content"
    parts: tuple[ContentPart, ...]


@frozen
class ErrorOutput:
    """The call failed, was refused, or its result cannot be shown."""

    kind: ClassVar[str] = "error"
    text: str


ToolOutput: TypeAlias = TextOutput | JsonOutput | ContentOutput | ErrorOutput


# --- messages ---------------------------------------------------------------------------------------------


class Message:
    """One prompt message. Make one with `user`, `system`, `assistant` or `tool`."""

    __slots__ = ()

    @staticmethod
    def user(content: str | Iterable[ContentPart]) -> UserMessage:
        """A user message of one text or of several parts."""
        if isinstance(content, str):
            return UserMessage((TextContent(content),))
        return UserMessage(_several(content, "a user message"))

    @staticmethod
    def system(text: str) -> SystemMessage:
        """Instructions that come before the conversation."""
        return SystemMessage(text)

    @staticmethod
    def assistant(parts: str | Iterable[ModelPart]) -> AssistantMessage:
        """What the model said, as parts of a step (a bare string is one text part)."""
        if isinstance(parts, str):
            return AssistantMessage((TextPart(TextKind.TEXT, parts),))
        several = _several(parts, "an assistant message")
        for part in several:
            if not isinstance(part, ModelPart):
                raise InvalidInput(f"an assistant message takes parts of a step, not {type(part).__name__}")
        return AssistantMessage(several)

    @staticmethod
    def tool(call_id: str, name: str, output: ToolOutput | JSON) -> ToolMessage:
        """The answer to one call. A bare string is text, any other JSON value is JSON."""
        bounds.utf8_size(call_id, "call_id")
        bounds.utf8_size(name, "name")
        if isinstance(output, (TextOutput, JsonOutput, ContentOutput, ErrorOutput)):
            return ToolMessage(call_id, name, output)
        if isinstance(output, str):
            return ToolMessage(call_id, name, TextOutput(output))
        return ToolMessage(call_id, name, JsonOutput(output))


def _several(parts: Iterable[T], what: str) -> tuple[T, ...]:
    if not isinstance(parts, Iterable):
        raise InvalidInput(f"{what} takes a text or parts, not {type(parts).__name__}")
    return tuple(parts)


def _parts(instance: object, attribute: attrs.Attribute[Any], value: tuple[ContentPart, ...]) -> None:
    if not value:
        raise InvalidInput("a user message needs at least one part")
    for part in value:
        if not isinstance(part, (TextContent, MediaContent)):
            raise InvalidInput(f"a user message takes TextContent and MediaContent, not {type(part).__name__}")


@frozen
class SystemMessage(Message):
    """Instructions. Protocols without a system role carry it where they keep such text."""

    role: ClassVar[str] = "system"
    text: str = attrs.field(validator=bounds.text())


@frozen
class UserMessage(Message):
    """What the user said."""

    role: ClassVar[str] = "user"
    content: tuple[ContentPart, ...] = attrs.field(validator=_parts)

    def text(self) -> str:
        """The text parts, joined by a newline."""
        return "\n".join(part.text for part in self.content if isinstance(part, TextContent))


@frozen
class AssistantMessage(Message):
    """What the model said, thought and asked for, in order."""

    role: ClassVar[str] = "assistant"
    parts: tuple[ModelPart, ...]


@frozen
class ToolMessage(Message):
    """The answer to one tool call."""

    role: ClassVar[str] = "tool"
    call_id: str
    name: str
    output: ToolOutput


PromptMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


def carries_media(message: PromptMessage) -> bool:
    """Whether a message holds anything but text and JSON."""
    match message:
        case UserMessage(content=parts) | ToolMessage(output=ContentOutput(parts=parts)):
            return any(isinstance(part, MediaContent) for part in parts)
        case _:
            return False
