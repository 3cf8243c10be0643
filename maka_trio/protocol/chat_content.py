"""The texts in a chat delta: plain content, content in parts, reasoning under its several names."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from maka_trio.protocol.chat_chunk import Delta


class Piece(Enum):
    """What a text is."""

    TEXT = "text"
    THINKING = "thinking"
    REFUSAL = "refusal"


def reasoning_text(delta: Delta) -> str:
    """The reasoning in a delta. Servers send it under one name or the same text under two; the first counts."""
    for value in (delta.reasoning_content, delta.reasoning, delta.reasoning_text):
        if value and isinstance(value, str):
            return value
    if not isinstance(delta.reasoning_details, list):
        return ""
    return "".join(_detail_text(detail) for detail in delta.reasoning_details)


def content_pieces(parts: list[Any]) -> Iterator[tuple[Piece, str]]:
    """The texts in content that is a list of parts. Parts of other kinds are not for us."""
    for part in parts:
        piece, value = (Piece.TEXT, part) if isinstance(part, str) else _typed(part)
        text = _joined(value)
        if text:
            yield piece, text


def _typed(part: object) -> tuple[Piece, object]:
    if not isinstance(part, dict):
        return Piece.TEXT, None
    match part.get("type"):
        case "text":
            return Piece.TEXT, part.get("text")
        case "thinking":
            return Piece.THINKING, part.get("thinking")
        case "reasoning":
            return Piece.THINKING, part.get("summary") or part.get("text")
        case "refusal":
            return Piece.REFUSAL, part.get("refusal")
    return Piece.TEXT, None


def _joined(value: object) -> str:
    """A text, or a list of parts that hold one each."""
    if isinstance(value, str):
        return value
    texts = [part.get("text") for part in value if isinstance(part, dict)] if isinstance(value, list) else []
    return "".join(text for text in texts if isinstance(text, str))


def _detail_text(detail: object) -> str:
    if not isinstance(detail, dict):
        return ""
    text = detail.get("text") or detail.get("summary")
    return text if isinstance(text, str) else ""
