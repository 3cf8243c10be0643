"""Anthropic events written short, and decoders for them."""

from __future__ import annotations

from typing import Any

from maka_trio.facts.message import Message
from maka_trio.protocol.anthropic_options import AnthropicOptions
from maka_trio.protocol.anthropic_stream import AnthropicDecoder
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from tests.protocol.decoding import Outcome
from tests.protocol.wire_streams import named, outcome_of

PROVIDER = ProviderConfig(ProviderKind.ANTHROPIC, "claude", "https://api.test/v1", ApiKey("k-secret"))
REQUEST = ModelRequest(PROVIDER, [Message.user("hi")])


def decoder(options: AnthropicOptions | None = None) -> AnthropicDecoder:
    return AnthropicDecoder(REQUEST, options or AnthropicOptions())


def decoded(*events: bytes) -> Outcome:
    return outcome_of(decoder, b"".join(events))


def start(**usage: Any) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": []}
    return named("message_start", message={**message, "usage": {"input_tokens": 3, "output_tokens": 1, **usage}})


def block(index: int, **content: Any) -> bytes:
    return named("content_block_start", index=index, content_block=content)


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return named("content_block_delta", index=index, delta={"type": kind, **fields})


def stop(index: int) -> bytes:
    return named("content_block_stop", index=index)


def text(index: int, *pieces: str) -> bytes:
    deltas = b"".join(delta(index, "text_delta", text=piece) for piece in pieces)
    return block(index, type="text", text="") + deltas + stop(index)


def tool_use(index: int, call_id: str, name: str, *pieces: str) -> bytes:
    deltas = b"".join(delta(index, "input_json_delta", partial_json=piece) for piece in pieces)
    return block(index, type="tool_use", id=call_id, name=name, input={}) + deltas + stop(index)


def end(reason: str | None, **usage: Any) -> bytes:
    return stated(reason, **usage) + named("message_stop")


def stated(reason: str | None, **usage: Any) -> bytes:
    return named("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
