"""Media of a prompt: bytes are read for each request, within its budget, and never stand in an event (3.12).

What cannot be sent becomes a text that says so, since a model that is told of a missing picture does better than
one that is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from maka_trio import limits
from maka_trio.errors import InvalidInput, ResultUnavailable
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.event import Artifact
from maka_trio.facts.image_type import true_type
from maka_trio.facts.message import (
    ContentOutput,
    ContentPart,
    MediaContent,
    PromptMessage,
    TextContent,
    ToolMessage,
    UserMessage,
)
from maka_trio.facts.opening import MessageInput
from maka_trio.log.event_log import EventLog
from maka_trio.records import define


@define
class _Budget:
    images: int = limits.REQUEST_IMAGE_BYTES
    audio: int = limits.REQUEST_AUDIO_BYTES

    def take(self, media_type: str, size: int) -> bool:
        """First come, first served, in message order and in actual bytes."""
        name = "audio" if media_type.startswith("audio/") else "images"
        left: int = getattr(self, name)
        if size > left:
            return False
        setattr(self, name, left - size)
        return True


async def with_media(
    log: EventLog, session_id: str, prompt: Sequence[PromptMessage], *, vision: bool
) -> tuple[PromptMessage, ...]:
    """The prompt with the bytes of its artifacts in place."""
    resolver = _Resolver(log, session_id, vision)
    return tuple([await resolver.message(message) for message in prompt])


async def check_stored(log: EventLog, session_id: str, content: MessageInput, brought: Sequence[Artifact]) -> None:
    """See that the media which a message names and does not bring are in the session, as it names them.

    The log refuses such a message too, which would end the run that was to take it.

    Raises:
        InvalidInput: they are not.
    """
    ids = {artifact.ref.id for artifact in brought}
    for part in content.parts:
        if not isinstance(part, MediaContent) or part.artifact is None or part.artifact in ids:
            continue
        try:
            ref = (await log.read_artifact(session_id, part.artifact)).ref
        except ResultUnavailable as error:
            raise InvalidInput(f"the message names media that are not there: {error}") from error
        if ref.media_type != part.media_type or part.digest not in (None, ref.digest):
            raise InvalidInput(f"artifact {excerpt(part.artifact)} of the session is not what the message names it as")


class _Resolver:
    def __init__(self, log: EventLog, session_id: str, vision: bool) -> None:
        self._log = log
        self._session_id = session_id
        self._vision = vision
        self._budget = _Budget()

    async def message(self, message: PromptMessage) -> PromptMessage:
        match message:
            case UserMessage(content=parts):
                return UserMessage(await self._of_user(parts))
            case ToolMessage(output=ContentOutput(parts=parts)):
                return attrs.evolve(message, output=ContentOutput(await self._of_tool(parts)))
            case _:
                return message

    async def _of_user(self, parts: Sequence[ContentPart]) -> tuple[ContentPart, ...]:
        """Of the images of a message that no longer fit, the model is told how many there are."""
        shown = [(part, await self._resolved(part)) for part in parts]
        omitted = sum(found is None and _is_image(part) for part, found in shown)
        kept = [found or _left_out(part, _OVER) for part, found in shown if found or not _is_image(part)]
        images = "an image" if omitted == 1 else f"{omitted} images"
        return (*kept, TextContent(f"[{images} of this message left out: {_OVER}]")) if omitted else tuple(kept)

    async def _of_tool(self, parts: Sequence[ContentPart]) -> tuple[ContentPart, ...]:
        return tuple([await self._resolved(part) or _left_out(part, _OVER) for part in parts])

    async def _resolved(self, part: ContentPart) -> ContentPart | None:
        """A part as it can be sent, or a text that says why it cannot; None if it is over the budget."""
        if not isinstance(part, MediaContent):
            return part
        if _is_image(part) and not self._vision:
            return _left_out(part, _BLIND)
        if part.artifact is None:
            return part
        try:
            artifact = await self._log.read_artifact(self._session_id, part.artifact)
        except ResultUnavailable:
            return _left_out(part, "not_found")
        if part.digest not in (None, artifact.ref.digest):
            return _left_out(part, "damaged")
        return self._read(attrs.evolve(part, data=artifact.data, artifact=None, digest=None), artifact.data)

    def _read(self, part: MediaContent, data: bytes) -> ContentPart | None:
        """Media whose bytes are there. What they are, the bytes say, and not the name that somebody gave them."""
        found = true_type(part.media_type, data)
        if found is None:
            return _left_out(part, "unsupported_mime")
        if found != part.media_type:
            part = attrs.evolve(part, media_type=found)
        if _is_image(part) and not self._vision:
            return _left_out(part, _BLIND)
        return part if self._budget.take(part.media_type, len(data)) else None


_OVER = "over the media budget of one request"
_BLIND = "the model is used without vision"


def _is_image(part: ContentPart) -> bool:
    return isinstance(part, MediaContent) and part.media_type.lower().startswith("image/")


def _left_out(part: ContentPart, why: str) -> TextContent:
    assert isinstance(part, MediaContent)
    return TextContent(f"[{part.media_type} left out: {why}]")
