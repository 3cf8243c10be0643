"""Media of a prompt as JSON protocols carry it, and the text that stands for what one of them cannot carry."""

from __future__ import annotations

import base64

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.message import MediaContent

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The image types that every vendor reads."""


def require_bytes(part: MediaContent) -> None:
    """Refuse media whose bytes are still in the log.

    Raises:
        InvalidInput: an artifact. Whoever makes the request reads it first.
    """
    if part.artifact is not None:
        raise InvalidInput(f"media artifact {excerpt(part.artifact)} must be read before a request is made of it")


def base64_text(data: bytes) -> str:
    """The bytes in base64."""
    return base64.b64encode(data).decode()


def media_url(part: MediaContent) -> str:
    """The URL of the media; a data URL for bytes."""
    if part.data is None:
        return part.url or ""
    return f"data:{part.media_type};base64,{base64_text(part.data)}"


def left_out(part: MediaContent, why: str | None = None) -> str:
    """What the model reads in place of media that do not reach the wire."""
    kind = part.media_type.partition("/")[0].lower()
    what = {"audio": "a recording", "image": "an image", "video": "a video"}.get(kind, "a file")
    named = f"{what} {excerpt(part.filename)}" if part.filename else what
    return f"[{named} was left out: {why or f'this provider does not take {excerpt(part.media_type)}'}]"
