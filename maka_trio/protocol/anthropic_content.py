"""Text, media and tool results as Anthropic content blocks. Knows no conversation.

The protocol refuses blocks without text, so such a block is never made; what it cannot carry (audio, image kinds
it does not know) becomes a text that says so, and the bytes stay here.
"""

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
    ToolMessage,
)
from maka_trio.protocol.media import IMAGE_TYPES, NO_IMAGE, base64_text, left_out, require_bytes, under_true_type

Block = dict[str, JSON]

_PDF = "application/pdf"
_EMPTY_ERROR = "The tool failed without a message."


def text_block(text: str) -> Block | None:
    """A text block; None for a blank text, which the protocol refuses."""
    return {"type": "text", "text": text} if text.strip() else None


def content_blocks(parts: tuple[ContentPart, ...], *, citations: bool = False) -> list[Block]:
    """The blocks of a user message, or of a tool result with several parts.

    Raises:
        InvalidInput: media whose bytes are still in the log.
    """
    blocks: list[Block] = []
    for part in parts:
        block = text_block(part.text) if isinstance(part, TextContent) else _media_block(part, citations)
        if block is not None:
            blocks.append(block)
    return blocks


def result_block(answer: ToolMessage, wire_id: str) -> Block:
    """The block that answers one call."""
    block: Block = {"type": "tool_result", "tool_use_id": wire_id}
    match answer.output:
        case TextOutput(text=text):
            content: JSON = text if text.strip() else ""
        case JsonOutput(value=value):
            content = msgspec.json.encode(value).decode()
        case ContentOutput(parts=parts):
            content = content_blocks(parts)
        case ErrorOutput(text=text):
            content = text if text.strip() else _EMPTY_ERROR
            block["is_error"] = True
    if content:
        block["content"] = content
    return block


def _media_block(part: MediaContent, citations: bool) -> Block:
    require_bytes(part)
    media = under_true_type(part)
    return {"type": "text", "text": left_out(part, NO_IMAGE)} if media is None else _block_of(media, citations)


def _block_of(part: MediaContent, citations: bool) -> Block:
    media_type = part.media_type.lower()
    if media_type in IMAGE_TYPES:
        return {"type": "image", "source": _source(part, media_type)}
    if media_type == _PDF:
        return _document(part, _source(part, media_type), citations)
    if media_type.startswith("text/") and part.data is not None:
        return _text_document(part, part.data, citations)
    return {"type": "text", "text": left_out(part)}


def _source(part: MediaContent, media_type: str) -> JSON:
    if part.data is None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": media_type, "data": base64_text(part.data)}


def _text_document(part: MediaContent, data: bytes, citations: bool) -> Block:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"type": "text", "text": left_out(part, "it is not UTF-8")}
    return _document(part, {"type": "text", "media_type": "text/plain", "data": text}, citations)


def _document(part: MediaContent, source: JSON, citations: bool) -> Block:
    block: Block = {"type": "document", "source": source}
    if part.filename:
        block["title"] = part.filename
    if citations:
        block["citations"] = {"enabled": True}
    return block
