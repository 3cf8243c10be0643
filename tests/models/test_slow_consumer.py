"""A consumer that is slow: the clock waits for it, and nothing is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from maka_trio.errors import ModelTimedOut
from maka_trio.facts.model import ModelEvent
from maka_trio.models import ModelStream
from tests.models.asking import IDLE, A, saying, serve_once
from tests.models.line_protocol import END, executor, request
from tests.models.raw_server import LAST_CHUNK, STREAM_HEAD, Peer, RawServer, chunk

ONE_EVENT = saying(STREAM_HEAD, chunk(b"+a\n"), then="silence")
"""A server that says one thing and then nothing more."""


async def pause_after_first(stream: ModelStream) -> list[ModelEvent]:
    """Take one event, be away for five idle periods, take the rest."""
    events = [await anext(stream)]
    await trio.sleep(5 * IDLE)
    async for event in stream:
        events.append(event)
    return events


async def take_lots(stream: ModelStream) -> list[ModelEvent]:
    """Take lots, and be away for five idle periods after each of the first three, as a blocked log would be."""
    events: list[ModelEvent] = []
    for turn in range(10**6):
        try:
            events.extend(await stream.receive_lot())
        except trio.EndOfChannel:
            break
        if turn < 3:
            await trio.sleep(5 * IDLE)
    return events


@pytest.mark.parametrize("consume", [pause_after_first, take_lots])
@pytest.mark.parametrize("count", [3, 50_000], ids=["one read", "more than the channel holds"])
async def test_a_slow_consumer_is_no_silent_provider(
    server: RawServer,
    consume: Callable[[ModelStream], Awaitable[list[ModelEvent]]],
    count: int,
    skipping_clock: MockClock,
) -> None:
    """Everything that was received is delivered, without a timeout, however long the consumer was away."""
    resumed = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"+a\n" * count))
        await resumed.wait()
        await peer.send(chunk(b"end\n") + LAST_CHUNK)

    async def release() -> None:
        await trio.sleep(5.5 * IDLE)
        resumed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        nursery.start_soon(release)
        async with executor(idle_timeout=IDLE).stream(request(server.base_url)) as stream:
            events = await consume(stream)
    assert events == [*[A] * count, END]


@pytest.mark.parametrize("consume", [pause_after_first, take_lots])
async def test_silence_is_measured_afresh_when_the_consumer_returns(
    server: RawServer, consume: Callable[[ModelStream], Awaitable[list[ModelEvent]]], skipping_clock: MockClock
) -> None:
    """A provider that says nothing after the pause is found out one idle period after it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, ONE_EVENT)
        async with executor(idle_timeout=IDLE).stream(request(server.base_url)) as stream:
            started = trio.current_time()
            with pytest.raises(ModelTimedOut):
                await consume(stream)
    assert trio.current_time() - started == pytest.approx(6 * IDLE, abs=0.5)


async def test_a_blocked_program_is_no_silent_provider(server: RawServer, skipping_clock: MockClock) -> None:
    """Bytes that arrived while nothing in the program ran count, though their time had passed."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"+a\n"))
        await trio.sleep(0.5 * IDLE)
        await peer.send(chunk(b"end\n") + LAST_CHUNK)
        skipping_clock.jump(2 * IDLE)  # and nobody had the processor meanwhile

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with executor(idle_timeout=IDLE).stream(request(server.base_url)) as stream:
            assert [event async for event in stream] == [A, END]


async def test_the_consumers_time_is_not_the_responses(server: RawServer, skipping_clock: MockClock) -> None:
    """A response timeout does not count while events wait to be taken."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"+a\n"))
        await trio.sleep(5.5 * IDLE)
        await peer.send(chunk(b"end\n") + LAST_CHUNK)

    models = executor(idle_timeout=IDLE, semantic_timeout=IDLE, response_timeout=IDLE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with models.stream(request(server.base_url)) as stream:
            assert await pause_after_first(stream) == [A, END]
