"""Server-sent events as tests write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from maka_trio.protocol.adapter import Decoder
from tests.protocol.decoding import Outcome, in_every_cut, run

_LONG = 1000
"""Bytes. The decoders see events, never pieces, so short bodies show all there is to see."""

DONE = b"data: [DONE]\n\n"


def named(kind: str, **fields: Any) -> bytes:
    """An event whose name and `type` agree, as Anthropic and OpenAI Responses send them."""
    return b"event: %b\n%b" % (kind.encode(), unnamed(kind, **fields))


def unnamed(kind: str, **fields: Any) -> bytes:
    """The same without an `event:` line."""
    return data({"type": kind, **fields})


def data(payload: object) -> bytes:
    """An event that is only data."""
    return b"data: %b\n\n" % json.dumps(payload, ensure_ascii=False).encode()


def without_names(body: bytes) -> bytes:
    """The same stream from a server that writes no `event:` lines."""
    return b"".join(line + b"\n" for line in body.split(b"\n")[:-1] if not line.startswith(b"event:"))


def outcome_of(make_decoder: Callable[[], Decoder], body: bytes) -> Outcome:
    """The outcome of a body, the same for every cut of it; a long one is only tried whole and byte by byte."""
    if len(body) < _LONG:
        return in_every_cut(make_decoder, body)
    whole = run(make_decoder(), [body])
    assert run(make_decoder(), [body[at : at + 1] for at in range(len(body))]) == whole
    return whole
