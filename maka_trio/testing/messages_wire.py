"""A scripted answer as Anthropic message events. Sans-IO; the server's side of `protocol.anthropic`."""

from __future__ import annotations

from collections.abc import Iterator

from maka_trio.facts.json_value import JSON
from maka_trio.facts.model import FinishReason, ModelUsage
from maka_trio.testing.answers import Call, Text, Thinking, WireError, sse

_STOP_REASON = {
    FinishReason.STOP: "end_turn",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.LENGTH: "max_tokens",
}


class MessagesWire:
    """One response of `POST {base}/messages`.

    Usage is stated as the provider does: input when the message starts, output when it ends, and the input
    without its cached parts.
    """

    def __init__(self, response_id: str, model: str, usage: ModelUsage | None) -> None:
        self._id = f"msg_{response_id}"
        self._model = model
        self._usage = usage
        self._index = -1
        self._open: str | None = None

    def start(self) -> Iterator[bytes]:
        """The empty message."""
        message: dict[str, JSON] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        if self._usage is not None:
            message["usage"] = _input_usage(self._usage)
        yield _event("message_start", {"message": message})

    def text(self, part: Text) -> Iterator[bytes]:
        """A delta of a text block, which it opens where none is open."""
        yield from self._block("text", {"type": "text", "text": ""})
        yield self._delta({"type": "text_delta", "text": part.text})

    def thinking(self, part: Thinking) -> Iterator[bytes]:
        """A delta of a thinking block; a signature ends it."""
        yield from self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        yield self._delta({"type": "thinking_delta", "thinking": part.text})
        if part.signature is not None:
            yield self._delta({"type": "signature_delta", "signature": part.signature})
            yield from self._stop()

    def call(self, part: Call, call_id: str) -> Iterator[bytes]:
        """A block of its own."""
        yield from self._stop()
        yield from self._block("tool_use", {"type": "tool_use", "id": call_id, "name": part.name, "input": {}})
        for fragment in part.argument_fragments():
            yield self._delta({"type": "input_json_delta", "partial_json": fragment})
        yield from self._stop()

    def heartbeat(self) -> bytes:
        """A ping event."""
        return _event("ping", {})

    def error(self, part: WireError) -> bytes:
        """An error event."""
        return _event("error", {"error": {"type": part.type, "message": part.message}})

    def finish(self, reason: FinishReason | str, usage: ModelUsage | None) -> Iterator[bytes]:
        """The last block's end, the stop reason with the output count, the message's end."""
        yield from self._stop()
        name = _STOP_REASON[reason] if isinstance(reason, FinishReason) else reason
        body: dict[str, JSON] = {"delta": {"stop_reason": name, "stop_sequence": None}}
        if usage is not None and usage.output_tokens is not None:
            body["usage"] = {"output_tokens": usage.output_tokens}
        yield _event("message_delta", body)
        yield _event("message_stop", {})

    def _block(self, kind: str, content: JSON) -> Iterator[bytes]:
        if self._open == kind:
            return
        yield from self._stop()
        self._index += 1
        self._open = kind
        yield _event("content_block_start", {"index": self._index, "content_block": content})

    def _stop(self) -> Iterator[bytes]:
        if self._open is None:
            return
        self._open = None
        yield _event("content_block_stop", {"index": self._index})

    def _delta(self, delta: JSON) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": delta})


def _event(name: str, body: dict[str, JSON]) -> bytes:
    return sse({"type": name} | body, event=name)


def _input_usage(usage: ModelUsage) -> JSON:
    stated: dict[str, JSON] = {}
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    if usage.input_tokens is not None:
        stated["input_tokens"] = max(usage.input_tokens - cached, 0)
    if usage.output_tokens is not None:
        # What the provider has generated when the message starts: the delta at the end replaces it.
        stated["output_tokens"] = min(usage.output_tokens, 1)
    if usage.cache_read_tokens is not None:
        stated["cache_read_input_tokens"] = usage.cache_read_tokens
    if usage.cache_write_tokens is not None:
        stated["cache_creation_input_tokens"] = usage.cache_write_tokens
    return stated
