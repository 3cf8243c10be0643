"""What was sent is not kept for as long as its answer takes: prompts are long, and answers slow."""

from __future__ import annotations

import attrs
import pytest
import trio

from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.request import ApiKey, ModelRequest, ProviderAuth
from tests.models.asking import A, saying, serve_once
from tests.models.line_protocol import KEY, LineAdapter, executor, request
from tests.models.raw_server import STREAM_HEAD, RawServer, chunk


class Body(bytes):
    """A body that is counted for as long as it is there."""

    alive = 0

    def __init__(self, content: bytes) -> None:
        Body.alive += 1

    def __del__(self) -> None:
        Body.alive -= 1


class BodyAdapter(LineAdapter):
    """Its bodies are counted."""

    def encode(self, request: ModelRequest) -> EncodedRequest:
        encoded = super().encode(request)
        return attrs.evolve(encoded, body=Body(encoded.body))


async def asked_for() -> ApiKey:
    return ApiKey(KEY)


@pytest.mark.parametrize("auth", [ApiKey(KEY), asked_for], ids=["known", "asked for"])
async def test_a_body_is_dropped_when_it_was_sent(server: RawServer, auth: ProviderAuth) -> None:
    """While the answer comes; the input window counts it until the connection is free all the same."""
    models = executor(BodyAdapter())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, saying(STREAM_HEAD, chunk(b"+a\n"), then="silence"))
        async with models.stream(request(server.base_url, "long " * 1000, auth=auth)) as stream:
            assert Body.alive == 1
            assert await stream.receive_lot() == (A,)
            assert Body.alive == 0
            assert models.statistics().window_used == 5000
        assert models.statistics().window_used == 0
