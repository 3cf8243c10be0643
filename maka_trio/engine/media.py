"""Media of a prompt: bytes are read for each request, within its budget, and never stand in an event (3.12).

What cannot be sent becomes a text that says so, since a model that is told of a missing picture does better than
one that is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from maka_trio import limits
from maka_trio.errors import ResultUnavailable
from maka_trio.facts.message import (
    ContentOutput,
    ContentPart,
    MediaContent,
    PromptMessage,
    TextContent,
    ToolMessage,
    UserMessage,
)
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


class _Resolver:
    def __init__(self, log: EventLog, session_id: str, vision: bool) -> None:
        self._log = log
        self._session_id = session_id
        self._vision = vision
        self._budget = _Budget()

    async def message(self, message: PromptMessage) -> PromptMessage:
        match message:
            case UserMessage(content=parts):
                return UserMessage(await self._parts(parts))
            case ToolMessage(output=ContentOutput(parts=parts)):
                return attrs.evolve(message, output=ContentOutput(await self._parts(parts)))
            case _:
                return message

    async def _parts(self, parts: Sequence[ContentPart]) -> tuple[ContentPart, ...]:
        return tuple([await self._part(part) if isinstance(part, MediaContent) else part for part in parts])

    async def _part(self, part: MediaContent) -> ContentPart:
        if part.media_type.startswith("image/") and not self._vision:
            return TextContent(f"[{part.media_type} left out: the model is used without vision]")
        if part.artifact is None:
            return part
        try:
            artifact = await self._log.read_artifact(self._session_id, part.artifact)
        except ResultUnavailable:
            return TextContent(f"[{part.media_type} left out: not_found]")
        if part.digest not in (None, artifact.ref.digest):
            return TextContent(f"[{part.media_type} left out: damaged]")
        if not self._budget.take(part.media_type, len(artifact.data)):
            return TextContent(f"[{part.media_type} left out: over the media budget of one request]")
        return attrs.evolve(part, data=artifact.data, artifact=None, digest=None)
