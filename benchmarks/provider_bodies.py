"""What the fast provider says: whole answers in the chat format and in Anthropic's, made once and kept."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END: Final = b"0\r\n\r\n"
USAGE: Final = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
BASE: Final = {"id": "chatcmpl-bench", "created": 1, "model": "bench"}


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def document(value: object) -> bytes:
    """A whole answer that is one JSON document."""
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def text_of(size: int) -> str:
    """Text of a size, in words."""
    return ("token " * (size // 6 + 1))[:size]


# --- chat completions -------------------------------------------------------------------------------------


def chat_event(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    """One chunk as the vendor sends it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    value = {**BASE, "object": "chat.completion.chunk", "system_fingerprint": "fp_0", "choices": [choice]}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chat_end(finish: str) -> tuple[bytes, bytes]:
    """The finish reason; usage and the end marker."""
    usage = {**BASE, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
    return chat_event({}, finish), b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n"


def chat_text(count: int, size: int) -> tuple[bytes, ...]:
    """An answer of `count` deltas."""
    return (
        chat_event({"role": "assistant", "content": ""}),
        *([chat_event({"content": text_of(size)})] * count),
        *chat_end("stop"),
    )


def chat_call(number: int) -> tuple[bytes, ...]:
    """An answer that calls the tool `echo`."""
    begun = {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": "echo", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": json.dumps({"value": number})}}
    return (
        chat_event({"role": "assistant", "content": None, "tool_calls": [begun]}),
        chat_event({"tool_calls": [rest]}),
        *chat_end("tool_calls"),
    )


def chat_document(message: Mapping[str, Any], finish: str) -> bytes:
    """An answer that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "logprobs": None, "finish_reason": finish}
    return document({**BASE, "object": "chat.completion", "choices": [choice], "usage": USAGE})


# --- Anthropic messages -----------------------------------------------------------------------------------


def messages_event(kind: str, **data: Any) -> bytes:
    """One event as the vendor sends it."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def messages_text(count: int, size: int) -> tuple[bytes, ...]:
    """An answer of `count` deltas."""
    message = {"id": "msg_bench", "type": "message", "role": "assistant", "model": "bench", "content": []}
    usage = {"input_tokens": 4, "output_tokens": 1}
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    delta = {"type": "text_delta", "text": text_of(size)}
    return (
        messages_event("message_start", message={**message, **dict.fromkeys(end), "usage": usage}),
        messages_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *([messages_event("content_block_delta", index=0, delta=delta)] * count),
        messages_event("content_block_stop", index=0),
        messages_event("message_delta", delta=end, usage={"output_tokens": 3}),
        messages_event("message_stop"),
    )


# --- on the wire ------------------------------------------------------------------------------------------


@functools.lru_cache
def text_events(count: int, size: int, *, anthropic: bool = False) -> tuple[bytes, ...]:
    """The events of one long answer."""
    return messages_text(count, size) if anthropic else chat_text(count, size)


@functools.lru_cache
def text_answer(count: int, size: int, chunking: str, *, anthropic: bool = False) -> bytes:
    """One long answer: an HTTP chunk for each event, or chunks of so many bytes."""
    events = text_events(count, size, anthropic=anthropic)
    if chunking == "event":
        return _streamed(events)
    data, step = b"".join(events), int(chunking)
    return _streamed([data[at : at + step] for at in range(0, len(data), step)])


@functools.lru_cache(maxsize=4096)
def loop_answer(number: int, *, last: bool, streamed: bool) -> bytes:
    """The answer to request `number` of an agent loop: a tool call, or a text at the end."""
    if streamed:
        return _streamed(chat_text(1, 12) if last else chat_call(number))
    if last:
        return chat_document({"content": text_of(12)}, "stop")
    function = {"name": "echo", "arguments": json.dumps({"value": number})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return chat_document({"content": None, "tool_calls": [call]}, "tool_calls")


def _streamed(pieces: Sequence[bytes]) -> bytes:
    return STREAM_HEAD + b"".join(map(chunk, pieces)) + END
