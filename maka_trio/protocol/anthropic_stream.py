"""Anthropic answers: a stream of message events, or a whole message, to model events.

A message that ends with `pause_turn` has a turn that goes on: it becomes a step that finished `stop` with the
provider option `{"anthropic": {"stop_reason": "pause_turn"}}`. Sending the step back as the last message of the
prompt continues the turn; `pauses.is_paused` tells such a step from a finished one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from maka_trio.errors import AdapterError, ModelError, ModelRefused
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.model import FinishReason, ModelEvent, ModelUsage
from maka_trio.protocol.anthropic_blocks import Delta, Json, OpenBlock, open_block
from maka_trio.protocol.anthropic_messages import KEY
from maka_trio.protocol.anthropic_options import AnthropicOptions
from maka_trio.protocol.failures import ANTHROPIC_RULES, classify_error
from maka_trio.protocol.hosted_calls import HostedCalls
from maka_trio.protocol.payload import check_depth, parse_payload, quoted, token_count
from maka_trio.protocol.scrub import bounded_text
from maka_trio.protocol.sse import SseEvent
from maka_trio.protocol.stream_decoder import StreamDecoder
from maka_trio.request import ModelRequest

_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "pause_turn": FinishReason.STOP,
    "compaction": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
}


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: Json | None = None
    message: Json | None = None
    usage: Json | None = None
    error: JSON = None


_EVENTS = msgspec.json.Decoder(_Event)
_ANY = msgspec.json.Decoder(Any)


class AnthropicDecoder(StreamDecoder):
    """Decodes one answer of the Messages API."""

    def __init__(self, request: ModelRequest, options: AnthropicOptions) -> None:
        super().__init__()
        self._stop_required = options.message_stop_required is not False
        self._hosted = HostedCalls(self.answer, KEY, request.prompt)
        self._started = False
        self._blocks: dict[int, OpenBlock] = {}
        self._closed: set[int] = set()
        self._usage = _Usage()
        self._local_calls = False
        self._stop = Delta()
        self._reason: FinishReason | None = None

    # --- events --------------------------------------------------------------------------------------------

    def on_event(self, event: SseEvent) -> None:
        """Decode one event."""
        if event.data.strip() == b"[DONE]":
            self.on_end()
            return
        payload = parse_payload(_EVENTS, event.data, event.offset)
        if "error" in (payload.type, event.name) or payload.error:
            raise self._error(parse_payload(_ANY, event.data, event.offset))
        match payload.type or event.name:
            case "content_block_delta":
                self._block_delta(payload)
            case "content_block_start":
                self._block_start(payload, event.data)
            case "content_block_stop":
                self._block_stop(self._index(payload))
            case "message_start":
                self._message_start(payload.message or {})
                self._stopped_early(payload.message or {})
            case "message_delta":
                self._message_delta(payload.delta or Delta(), payload.usage)
            case "message_stop":
                self._finish()
            case _:
                pass  # `ping`, and whatever the vendor adds

    def on_settle(self) -> None:
        """The stop reason was seen, and the server does not say `message_stop`."""
        self._finish()

    def on_end(self) -> None:
        """The body ended, or the stream says it does."""
        if not self.in_grace:
            raise self.truncated()
        self._finish()

    def document(self, body: bytes) -> list[ModelEvent]:
        """The events of a whole message that came instead of a stream."""
        message = parse_payload(_ANY, body)
        if isinstance(message, dict) and message.get("error"):
            raise self._error(message)
        if not isinstance(message, dict) or not isinstance(message.get("content"), list):
            raise AdapterError(f"the answer is no Anthropic message: {quoted(body)}")
        check_depth(message, body.decode(), "the message")
        self._message_start(message)
        for index, block in enumerate(message["content"]):
            if not isinstance(block, dict):
                raise AdapterError("a content block that is no object")
            self._open(index, block)
            self._block_stop(index)
        stop = {name: message.get(name) for name in ("stop_reason", "stop_sequence", "stop_details", "container")}
        self._message_delta(msgspec.convert(stop, Delta), None)
        self._finish()
        return self.answer.take()

    # --- the message ---------------------------------------------------------------------------------------

    def _message_start(self, message: Json) -> None:
        if self._started:
            raise AdapterError("the answer starts a second message")
        self._started = True
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._usage.state(usage)
        self.answer.metadata(_text(message, "id"), _text(message, "model"), None)

    def _message_delta(self, delta: Delta, usage: Json | None) -> None:
        if usage is not None:
            self._usage.state(usage)
        if delta.stop_reason:
            self._stated(delta)
            self.in_grace = not self._stop_required and not self._blocks

    def _stated(self, stop: Delta) -> None:
        """The message says why it stops. Of natural ends the last counts; one that was cut stays cut, whatever follows.

        Raises:
            ModelRefused: the model refused.
            AdapterError: the reason makes no step.
        """
        if stop.stop_reason == "refusal":
            raise ModelRefused(_refusal(stop.stop_details))
        reason = _REASONS.get(stop.stop_reason or "")
        if reason is None:
            raise AdapterError(f"the message did not complete: stop_reason is {excerpt(stop.stop_reason)}")
        if self._reason is not FinishReason.LENGTH:
            self._reason, self._stop = reason, stop

    def _stopped_early(self, message: Json) -> None:
        """A message that starts has not ended. If it says all the same that it was cut or refused, it is believed."""
        reason = _text(message, "stop_reason")
        if reason == "refusal" or _REASONS.get(reason or "") is FinishReason.LENGTH:
            self._stated(Delta(stop_reason=reason))

    def _finish(self) -> None:
        for block in self._blocks.values():
            raise AdapterError(f"the message stopped inside a {excerpt(block.kind)} block")
        reason = self._reason
        if reason is None:
            raise AdapterError("the message did not complete: stop_reason is None")
        if reason is FinishReason.STOP and self._local_calls:
            reason = FinishReason.TOOL_CALLS
        self._hosted.defer_rest()
        self.answer.finish(reason, self._usage.total(), self._finish_options())

    def _finish_options(self) -> JsonObject:
        stated = {
            "stop_reason": self._stop.stop_reason,
            "stop_sequence": self._stop.stop_sequence,
            "container": self._stop.container,
        }
        return {KEY: {name: value for name, value in stated.items() if value is not None}}

    def _error(self, payload: object) -> ModelError:
        return classify_error(
            payload, ANTHROPIC_RULES, replay_safe=self.replay_safe, observed_output=self.observed_output
        )

    # --- blocks --------------------------------------------------------------------------------------------

    def _index(self, payload: _Event) -> int:
        if not self._started:
            raise AdapterError(f"{payload.type} before message_start")
        if payload.index is None:
            raise AdapterError(f"{payload.type} without index")
        return payload.index

    def _block_start(self, payload: _Event, data: bytes) -> None:
        index = self._index(payload)
        if payload.content_block is None:
            raise AdapterError("content_block_start without content_block")
        check_depth(payload.content_block, data.decode(), "a content block")
        self._open(index, payload.content_block)

    def _open(self, index: int, content: Json) -> None:
        if index in self._blocks or index in self._closed:
            raise AdapterError(f"content block {index} starts twice")
        self._blocks[index] = open_block(self.answer, self._hosted, content)

    def _block_delta(self, payload: _Event) -> None:
        block = self._blocks.get(self._index(payload))
        if block is None:
            raise AdapterError(f"a delta for content block {payload.index}, which is not open")
        if payload.delta is not None:
            block.delta(payload.delta)

    def _block_stop(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            raise AdapterError(f"content block {index} stops without being open")
        self._closed.add(index)
        self._local_calls = self._local_calls or block.kind == "tool_use"
        block.close()


class _Usage:
    """Running totals: the last stated value of each field counts."""

    def __init__(self) -> None:
        self._stated: dict[str, int] = {}

    def state(self, usage: Mapping[str, JSON]) -> None:
        details = usage.get("output_tokens_details")
        thinking = details.get("thinking_tokens") if isinstance(details, Mapping) else None
        for field, value in (
            *((name, usage.get(name)) for name in _COUNTS),
            ("thinking_tokens", thinking),
        ):
            count = token_count(value, field)
            if count is not None:
                self._stated[field] = count

    def total(self) -> ModelUsage:
        """The provider counts what it read from and wrote to its cache apart; here the input is the whole prompt."""
        plain = self._stated.get("input_tokens")
        read = self._stated.get("cache_read_input_tokens")
        write = self._stated.get("cache_creation_input_tokens")
        return ModelUsage(
            input_tokens=None if plain is None else plain + (read or 0) + (write or 0),
            output_tokens=self._stated.get("output_tokens"),
            cache_read_tokens=read,
            cache_write_tokens=write,
            reasoning_tokens=self._stated.get("thinking_tokens"),
        )


_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _text(value: Mapping[str, JSON], field: str) -> str | None:
    found = value.get(field)
    return found if isinstance(found, str) and found else None


def _refusal(details: JSON) -> str:
    category = _text(details, "category") if isinstance(details, Mapping) else None
    explanation = _text(details, "explanation") if isinstance(details, Mapping) else None
    said = f": {bounded_text(explanation)}" if explanation else ""
    return f"the model refused to answer{f' ({bounded_text(category, 200)})' if category else ''}{said}"
