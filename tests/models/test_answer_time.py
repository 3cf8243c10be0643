"""Answers that do not come to an end by themselves: the grace after a finish, and the optional limits of time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from maka_trio import limits
from maka_trio.errors import ModelTimedOut
from tests.models.asking import IDLE, A, saying, serve_once, until_timeout
from tests.models.line_protocol import END, executor, request
from tests.models.raw_server import LAST_CHUNK, STREAM_HEAD, Peer, RawServer, chunk

ONE_EVENT = saying(STREAM_HEAD, chunk(b"+a\n"), then="silence")
"""A server that says one thing and then nothing more."""


# --- the grace after a finish ---


@pytest.mark.parametrize("ping", [None, b":\n"], ids=["silence", "heartbeats"])
@pytest.mark.parametrize(("idle", "grace"), [(IDLE, limits.FINISH_GRACE_SECONDS), (1.0, 1.0)])
async def test_the_grace_is_fixed(
    server: RawServer, ping: bytes | None, idle: float, grace: float, skipping_clock: MockClock
) -> None:
    """Whatever else arrives, the answer completes when the grace is over, and the connection is closed."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"+a\ngrace\n"))
        while ping is not None:
            await trio.sleep(0.4)
            try:
                await peer.send(chunk(ping))
            except trio.BrokenResourceError:
                return
        await peer.assert_closed()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with executor(idle_timeout=idle) as models, models.stream(request(server.base_url)) as stream:
            assert await anext(stream) == A
            started = trio.current_time()
            assert [event async for event in stream] == [END]
            assert trio.current_time() - started == pytest.approx(grace, abs=0.3)
            assert models.statistics().open_connections == 0


async def test_a_complete_answer_does_not_wait_for_the_end_of_the_body(
    server: RawServer, skipping_clock: MockClock
) -> None:
    """The finish comes at once, the end of the stream a moment later; the connection is closed, not kept."""
    async with trio.open_nursery() as nursery:

        async def script(peer: Peer) -> None:
            await peer.read_request()
            await peer.send(STREAM_HEAD, chunk(b"end\n"))
            await peer.assert_closed()

        nursery.start_soon(serve_once, server, script)
        async with executor(idle_timeout=IDLE) as models, models.stream(request(server.base_url)) as stream:
            started = trio.current_time()
            assert [event async for event in stream] == [END]
            assert trio.current_time() - started < 0.5
            assert models.statistics().open_connections == 0


async def test_nothing_that_follows_a_complete_answer_extends_it(server: RawServer, skipping_clock: MockClock) -> None:
    """A server that goes on talking after the finish is hung up on."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"end\n"))
        with suppress(trio.BrokenResourceError):
            while True:
                await trio.sleep(limits.LINGER_SECONDS / 2)
                await peer.send(chunk(b"+late\n"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with executor(idle_timeout=IDLE).stream(request(server.base_url)) as stream:
            with trio.fail_after(1):
                assert [event async for event in stream] == [END]


# --- the optional limits ---


def pinging(*pieces: bytes) -> Callable[[Peer], Awaitable[None]]:
    """A server that says something, and from then on only pings."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, *pieces)
        try:
            while True:
                await trio.sleep(0.2 * IDLE)
                await peer.send(chunk(b":\n"))
        except trio.BrokenResourceError:
            pass

    return script


async def test_a_semantic_timeout_ends_what_only_pings(server: RawServer, skipping_clock: MockClock) -> None:
    """Off by default; with it, a stream without events ends although bytes keep coming."""
    models = executor(idle_timeout=IDLE, semantic_timeout=3 * IDLE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, pinging(chunk(b"+a\n")))
        async with models.stream(request(server.base_url)) as stream:
            started = trio.current_time()
            events, error = await until_timeout(stream)
            assert trio.current_time() - started == pytest.approx(3 * IDLE, abs=0.5)
    assert events == [A]
    assert "semantic_timeout" in str(error)


async def test_a_semantic_timeout_begins_anew_with_each_event(server: RawServer, skipping_clock: MockClock) -> None:
    """Events within the limit keep the stream alive for as long as they come."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD)
        for _ in range(10):
            await trio.sleep(0.9 * IDLE)
            await peer.send(chunk(b"+a\n"))
        await peer.send(chunk(b"end\n") + LAST_CHUNK)

    models = executor(idle_timeout=IDLE, semantic_timeout=IDLE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with models.stream(request(server.base_url)) as stream:
            assert [event async for event in stream] == [*[A] * 10, END]


@pytest.mark.parametrize("name", ["semantic_timeout", "response_timeout"])
async def test_the_optional_limits_may_be_the_shorter_ones(
    server: RawServer, name: str, skipping_clock: MockClock
) -> None:
    """They end a silent stream before the idle timeout does."""
    settings: dict[str, Any] = {name: 1.0}
    models = executor(idle_timeout=IDLE, **settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, ONE_EVENT)
        async with models.stream(request(server.base_url)) as stream:
            assert await stream.receive_lot() == (A,)
            started = trio.current_time()
            with pytest.raises(ModelTimedOut, match=name):
                await stream.receive_lot()
            assert trio.current_time() - started == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("flood", [False, True])
async def test_a_response_timeout_limits_the_whole_answer(
    server: RawServer, flood: bool, skipping_clock: MockClock
) -> None:
    """Off by default; with it, even an answer that never pauses ends."""

    async def flooding(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD)
        try:
            while True:
                await trio.sleep(0.7)
                await peer.send(chunk(b":\n" * 1000))
        except trio.BrokenResourceError:
            pass

    models = executor(idle_timeout=IDLE, response_timeout=4 * IDLE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, flooding if flood else pinging(chunk(b"+a\n")))
        async with models.stream(request(server.base_url)) as stream:
            started = trio.current_time()
            _, error = await until_timeout(stream)
            assert trio.current_time() - started == pytest.approx(4 * IDLE, abs=0.5)
    assert "response_timeout" in str(error)
