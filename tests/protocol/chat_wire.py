"""Chat completions bodies written short, and decoders for them."""

from __future__ import annotations

import json
from typing import Any

from maka_trio.dialect import Dialect
from maka_trio.facts import PromptMessage
from maka_trio.protocol.adapter import Decoder
from maka_trio.protocol.chat_stream import ChatDecoder
from maka_trio.protocol.dialects import dialect_of
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from tests.protocol.decoding import Outcome, in_every_cut, run

ABSENT: Any = object()
DONE = b"data: [DONE]\n\n"


def event(payload: Any) -> bytes:
    """One SSE event with a JSON payload."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def chunk(delta: Any, finish: Any = None, **top: Any) -> bytes:
    """One chunk with one choice."""
    return event({"id": "r1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **top})


def call(index: Any, call_id: Any = ABSENT, name: Any = ABSENT, arguments: Any = ABSENT) -> dict[str, Any]:
    """One piece of a tool call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not ABSENT}
    fields = (("index", index), ("id", call_id), ("type", "function"), ("function", function))
    return {key: value for key, value in fields if value is not ABSENT}


def calls(*pieces: dict[str, Any]) -> bytes:
    """One chunk with pieces of tool calls."""
    return chunk({"tool_calls": list(pieces)})


STOP = chunk({}, "stop")
TOOL_CALLS = chunk({}, "tool_calls")


def provider(name: str | None = None, *, model: str = "m", **more: Any) -> ProviderConfig:
    """The vendor, or a compatible server of this name."""
    kind = ProviderKind.OPENAI_CHAT_COMPLETIONS if name is None else ProviderKind.OPENAI_COMPATIBLE
    return ProviderConfig(kind, model, "http://127.0.0.1/v1", ApiKey("sk-test-key"), name=name, **more)


def request(
    *prompt: PromptMessage, name: str | None = None, dialect: Dialect | None = None, **more: Any
) -> ModelRequest:
    """A request to the vendor, or to a compatible server."""
    return ModelRequest(provider(name, dialect=dialect), prompt, **more)


def decoder(name: str | None = None, dialect: Dialect | None = None) -> Decoder:
    """A decoder for the vendor's answer, or for that of a compatible server."""
    config = provider(name, dialect=dialect)
    return ChatDecoder(dialect_of(config), name or "openai")


def decoded(*body: bytes, name: str | None = None, dialect: Dialect | None = None, end: str = "close") -> Outcome:
    """The outcome of a body, checked to be the same for every cut of it."""
    return in_every_cut(lambda: decoder(name, dialect), b"".join(body), end=end)


def quickly(*body: bytes, name: str | None = None, dialect: Dialect | None = None) -> Outcome:
    """The outcome of a body in one piece, where the cut is not what is tested."""
    return run(decoder(name, dialect), [b"".join(body)])
