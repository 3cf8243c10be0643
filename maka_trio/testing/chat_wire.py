"""A scripted answer as chat completion chunks. Sans-IO; the server's side of `protocol.openai_chat`."""

from __future__ import annotations

from collections.abc import Iterator

from maka_trio.facts.json_value import JSON
from maka_trio.facts.model import FinishReason, ModelUsage
from maka_trio.testing.answers import Call, Text, Thinking, WireError, sse

_FINISH = {
    FinishReason.STOP: "stop",
    FinishReason.TOOL_CALLS: "tool_calls",
    FinishReason.LENGTH: "length",
}


class ChatWire:
    """One response of `POST {base}/chat/completions`.

    Args:
        response_id: the id that every chunk carries.
        model: the model that every chunk names.
        include_usage: the request asked for usage (`stream_options.include_usage`); without that a provider
            states none.
    """

    def __init__(self, response_id: str, model: str, *, include_usage: bool) -> None:
        self._envelope: dict[str, JSON] = {
            "id": f"chatcmpl-{response_id}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
        }
        self._include_usage = include_usage
        self._calls = 0

    def start(self) -> Iterator[bytes]:
        """The chunk that says who speaks."""
        yield self._delta({"role": "assistant", "content": ""})

    def text(self, part: Text) -> Iterator[bytes]:
        """A content delta."""
        yield self._delta({"content": part.text})

    def thinking(self, part: Thinking) -> Iterator[bytes]:
        """A `reasoning_content` delta, as the compatible servers send it. The protocol has no signatures."""
        yield self._delta({"reasoning_content": part.text})

    def call(self, part: Call, call_id: str) -> Iterator[bytes]:
        """The head of the call, then its arguments."""
        index = self._calls
        self._calls += 1
        head: JSON = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": part.name, "arguments": ""},
        }
        yield self._delta({"tool_calls": [head]})
        for fragment in part.argument_fragments():
            yield self._delta({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})

    def heartbeat(self) -> bytes:
        """A comment, as the routers in front of providers send it."""
        return b": heartbeat\n\n"

    def error(self, part: WireError) -> bytes:
        """An error object in place of a chunk."""
        return sse({"error": {"message": part.message, "type": part.type, "code": part.type}})

    def finish(self, reason: FinishReason | str, usage: ModelUsage | None) -> Iterator[bytes]:
        """The finish reason, the usage, the end mark."""
        name = _FINISH[reason] if isinstance(reason, FinishReason) else reason
        yield sse(self._envelope | {"choices": [{"index": 0, "delta": {}, "finish_reason": name}]})
        if usage is not None and self._include_usage:
            yield sse(self._envelope | {"choices": [], "usage": _usage(usage)})
        yield sse("[DONE]")

    def _delta(self, delta: JSON) -> bytes:
        return sse(self._envelope | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def _usage(usage: ModelUsage) -> JSON:
    stated: dict[str, JSON] = {}
    if usage.input_tokens is not None:
        stated["prompt_tokens"] = usage.input_tokens
    if usage.output_tokens is not None:
        stated["completion_tokens"] = usage.output_tokens
    if usage.input_tokens is not None and usage.output_tokens is not None:
        stated["total_tokens"] = usage.input_tokens + usage.output_tokens
    if usage.cache_read_tokens is not None:
        stated["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
    if usage.reasoning_tokens is not None:
        stated["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return stated
