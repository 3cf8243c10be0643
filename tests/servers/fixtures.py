"""What the fixture server answers, by a word of the last user message."""

from __future__ import annotations

from typing import Any

ANSWER = "An answer in several pieces, so that it can be cut."
SUM = "The sums are five and nine, as far as I can see."
CALLS = [
    {"id": "call_one", "name": "add", "arguments": {"a": 2, "b": 3}},
    {"id": "call_two", "name": "add", "arguments": {"a": 4, "b": 5}},
]


def _when(word: str, response: dict[str, Any], *, answered: bool | None = None, **more: Any) -> dict[str, Any]:
    match: dict[str, Any] = {"userMessage": word}
    if answered is not None:
        match["hasToolResult"] = answered
    return {"match": match, "response": response, **more}


FIXTURES = [
    _when("ADD", {"reasoning": "two sums", "content": "I will add. ", "toolCalls": CALLS}, answered=False),
    _when("ADD", {"content": SUM}, answered=True),
    _when("THINK", {"reasoning": "hm, a question", "content": ANSWER}),
    _when("MIXED", {"blocks": [{"type": "text", "text": "before"}, {"type": "toolCall", **CALLS[0]}]}),
    _when("LONG", {"content": ANSWER, "finishReason": "length"}),
    _when("BUSY", {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}),
    _when(
        "LARGE",
        {
            "error": {
                "message": "prompt is too long: 208310 tokens > 200000 maximum",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            },
            "status": 400,
        },
    ),
    *(
        _when(f"CUT{chunks}.", {"content": "I will. ", "toolCalls": CALLS[:1]}, truncateAfterChunks=chunks)
        for chunks in range(1, 8)
    ),
    _when("", {"content": ANSWER}),
]
"""Matched in this order. The words are such that no one is part of another."""
