"""Text and media of a prompt as content parts of a chat message. Knows no conversation.

What the protocol cannot carry becomes a text that says so; its bytes stay here.
"""

from __future__ import annotations

from collections.abc import Sequence

from maka_trio.facts.json_value import JSON
from maka_trio.facts.message import ContentPart, MediaContent, TextContent
from maka_trio.protocol.media import (
    IMAGE_TYPES,
    NO_IMAGE,
    base64_text,
    left_out,
    media_url,
    require_bytes,
    under_true_type,
)

_AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}
_PDF = "application/pdf"


def user_content(parts: Sequence[ContentPart], *, strict: bool) -> JSON:
    """The content of a user message: a single text as a string, anything else as an array."""
    if len(parts) == 1 and isinstance(parts[0], TextContent):
        return parts[0].text
    return [content_part(part, strict=strict) for part in parts]


def content_part(part: ContentPart, *, strict: bool) -> JSON:
    """One part. With `strict` images are of the kinds that the vendor reads; other servers may read more.

    Raises:
        InvalidInput: media whose bytes are still in the log.
    """
    if isinstance(part, TextContent):
        return text_part(part.text)
    require_bytes(part)
    media = under_true_type(part)
    return text_part(left_out(part, NO_IMAGE)) if media is None else _media(media, strict=strict)


def _media(part: MediaContent, *, strict: bool) -> JSON:
    media_type = part.media_type.lower()
    if media_type in IMAGE_TYPES or (media_type.startswith("image/") and not strict):
        return _image(part)
    if part.data is not None and media_type in _AUDIO_FORMATS:
        audio: JSON = {"data": base64_text(part.data), "format": _AUDIO_FORMATS[media_type]}
        return {"type": "input_audio", "input_audio": audio}
    if part.data is not None and media_type == _PDF:
        file: JSON = {"filename": part.filename or "document.pdf", "file_data": media_url(part)}
        return {"type": "file", "file": file}
    if part.data is not None and media_type.startswith("text/"):
        return text_part(_file_text(part, part.data))
    return text_part(left_out(part))


def text_part(text: str) -> JSON:
    """A text among other parts."""
    return {"type": "text", "text": text}


def _image(part: MediaContent) -> JSON:
    image: dict[str, JSON] = {"url": media_url(part)}
    if part.detail is not None:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _file_text(part: MediaContent, data: bytes) -> str:
    """A text file is sent as its text: the files of the protocol are documents of one kind."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return left_out(part, "it is not UTF-8")
    return f"{part.filename}:\n{text}" if part.filename else text
