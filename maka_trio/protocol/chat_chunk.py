"""One chat completions payload as the wire has it. Types only, decoded by msgspec; unknown keys are skipped.

`Any` stands where servers differ and the decoder looks for itself. Null and absent are one thing everywhere.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Function(msgspec.Struct, gc=False):
    """Name and arguments of a call, or a piece of them."""

    name: str | None = None
    arguments: Any = None


class CallDelta(msgspec.Struct, gc=False):
    """A piece of a tool call."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    extra_content: Any = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds to a message, or a whole message."""

    content: str | list[Any] | None = None
    tool_calls: list[CallDelta] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    annotations: Any = None
    function_call: Any = None


class Choice(msgspec.Struct, gc=False):
    """One of the answers asked for; this library asks for one."""

    delta: Delta | None = None
    finish_reason: str | None = None
    index: int | None = None
    message: Delta | None = None
    error: Any = None


class Chunk(msgspec.Struct, gc=False):
    """One payload: a chunk of a stream, a whole completion, or an error."""

    choices: list[Choice] | None = None
    id: Any = None
    model: Any = None
    created: Any = None
    usage: Any = None
    x_groq: Any = None
    error: Any = None
    object: Any = None
    type: Any = None


CHUNK_DECODER = msgspec.json.Decoder(Chunk)
