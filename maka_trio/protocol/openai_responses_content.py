"""Text, media and tool outputs as parts of Responses items. Knows no conversation."""

from __future__ import annotations

import msgspec

from maka_trio.facts.json_value import JSON
from maka_trio.facts.message import (
    ContentOutput,
    ContentPart,
    ErrorOutput,
    JsonOutput,
    MediaContent,
    TextContent,
    TextOutput,
    ToolOutput,
)
from maka_trio.protocol.media import IMAGE_TYPES, NO_IMAGE, left_out, media_url, require_bytes, under_true_type

Item = dict[str, JSON]


def user_content(parts: tuple[ContentPart, ...]) -> JSON:
    """The content of a user message: a text, or a list of parts; empty if nothing is said.

    Raises:
        InvalidInput: media whose bytes are still in the log.
    """
    content = input_parts(parts)
    if len(content) == 1 and content[0]["type"] == "input_text":
        return content[0]["text"]
    return content


def input_parts(parts: tuple[ContentPart, ...]) -> list[Item]:
    """Parts of a user message or of a tool output. Blank texts say nothing and are left out."""
    encoded: list[Item] = []
    for part in parts:
        if isinstance(part, MediaContent):
            encoded.append(_media(part))
        elif isinstance(part, TextContent) and part.text.strip():
            encoded.append({"type": "input_text", "text": part.text})
    return encoded


def output_value(output: ToolOutput) -> JSON:
    """What a call's output item carries: text and errors as they are, values as JSON, content as parts."""
    match output:
        case ContentOutput(parts=parts):
            return input_parts(parts) or ""
        case _:
            return output_text(output)


def output_text(output: ToolOutput) -> str:
    """An output as one text, for items that take nothing else."""
    match output:
        case TextOutput(text=text) | ErrorOutput(text=text):
            return text
        case JsonOutput(value=value):
            return msgspec.json.encode(value).decode()
        case ContentOutput(parts=parts):
            return "\n".join(part.text if isinstance(part, TextContent) else left_out(part) for part in parts)


def _media(part: MediaContent) -> Item:
    require_bytes(part)
    media = under_true_type(part)
    return {"type": "input_text", "text": left_out(part, NO_IMAGE)} if media is None else _item(media)


def _item(part: MediaContent) -> Item:
    media_type = part.media_type.lower()
    if media_type in IMAGE_TYPES:
        return {"type": "input_image", "image_url": media_url(part), "detail": part.detail or "auto"}
    if media_type.startswith(("application/", "text/")):
        return _file(part, media_type)
    return {"type": "input_text", "text": left_out(part)}


def _file(part: MediaContent, media_type: str) -> Item:
    if part.data is None:
        return {"type": "input_file", "file_url": part.url}
    name = part.filename or f"file.{'pdf' if media_type == 'application/pdf' else 'txt'}"
    return {"type": "input_file", "filename": name, "file_data": media_url(part)}
