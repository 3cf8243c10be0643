"""Media of a prompt as JSON protocols carry it, and the text that stands for what one of them cannot carry."""

from __future__ import annotations

import base64

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.image_type import true_type
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


def under_true_type(part: MediaContent) -> MediaContent | None:
    """The media under the type that their bytes have; None for bytes that are not the image they are called.

    What lies behind a URL is what it is called.
    """
    found = part.media_type if part.data is None else true_type(part.media_type, part.data)
    if found is None or found == part.media_type:
        return part if found else None
    return attrs.evolve(part, media_type=found)


def base64_text(data: bytes) -> str:
    """The bytes in base64."""
    return base64.b64encode(data).decode()


def media_url(part: MediaContent) -> str:
    """The URL of the media; a data URL for bytes."""
    if part.data is None:
        return part.url or ""
    return f"data:{part.media_type};base64,{base64_text(part.data)}"


NO_IMAGE = "its bytes are no image of a known kind"


def left_out(part: MediaContent, why: str | None = None) -> str:
    """What the model reads in place of media that do not reach the wire."""
    kind = part.media_type.partition("/")[0].lower()
    what = {"audio": "a recording", "image": "an image", "video": "a video"}.get(kind, "a file")
    named = f"{what} {excerpt(part.filename)}" if part.filename else what
    return f"[{named} was left out: {why or f'this provider does not take {excerpt(part.media_type)}'}]"
