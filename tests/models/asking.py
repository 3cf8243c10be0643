"""Asking a scripted server once, and what comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from maka_trio.errors import ModelError, ModelTimedOut
from maka_trio.facts.model import ModelEvent, PartDelta
from maka_trio.models import ModelExecutor, ModelStream
from tests.models.line_protocol import executor, request
from tests.models.raw_server import Peer, RawServer

IDLE = 10.0
"""An idle timeout for tests on a clock that skips waiting."""

A = PartDelta("p", "a")
"""What the line `+a` makes."""

Script = Callable[[Peer], Awaitable[None]]


def saying(*pieces: bytes, then: str = "eof") -> Script:
    """A server that reads the request, writes the pieces, and closes, resets or waits for the peer to close."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        with suppress(trio.BrokenResourceError):  # it may hang up when it has had its answer
            await peer.send(*pieces)
        match then:
            case "eof":
                await peer.aclose()
            case "reset":
                peer.reset()
            case "silence":
                await peer.assert_closed()

    return script


async def ask(
    server: RawServer, script: Script, models: ModelExecutor | None = None
) -> tuple[list[ModelEvent], ModelError | None]:
    """One request against one scripted connection: the events, and the error they ended with."""
    models = models or executor()
    events: list[ModelEvent] = []
    failure: ModelError | None = None
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_once, server, script)
            async with models.stream(request(server.base_url)) as stream:
                try:
                    async for event in stream:
                        events.append(event)  # what came before an error counts
                except ModelError as error:
                    failure = error
    assert models.statistics().open_connections == 0
    assert models.statistics().window_used == 0
    return events, failure


async def serve_once(server: RawServer, script: Script) -> None:
    """Run the script on the next connection."""
    await script(await server.accept())


async def fail(server: RawServer, script: Script, models: ModelExecutor | None = None) -> ModelError:
    """The error of a request that yields nothing."""
    events, failure = await ask(server, script, models)
    assert events == []
    assert failure is not None
    return failure


async def until_timeout(stream: ModelStream) -> tuple[list[ModelEvent], ModelTimedOut]:
    """Everything before the timeout, and the timeout."""
    events: list[ModelEvent] = []
    with pytest.raises(ModelTimedOut) as caught:
        async for event in stream:
            events.append(event)
    return events, caught.value
