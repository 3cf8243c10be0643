"""The provider's time: silence is limited in every phase, and nothing that is ours counts against it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio
from trio.testing import MockClock

from maka_trio.facts.model import ModelEvent
from tests.models.asking import IDLE, A, saying, serve_once, until_timeout
from tests.models.line_protocol import END, executor, request
from tests.models.raw_server import EVENT_STREAM, LAST_CHUNK, STREAM_HEAD, Peer, RawServer, answer, chunk, head

PHASES = {
    "no head": ([], [], "headers"),
    "half a head": ([head(EVENT_STREAM)[:20]], [], "headers"),
    "a head": ([STREAM_HEAD], [], "next bytes"),
    "an event": ([STREAM_HEAD, chunk(b"+a\n")], [A], "next bytes"),
    "half a document": (
        [head(b"content-type: application/json\r\ncontent-length: 99\r\n") + b"{"],
        [],
        "next bytes",
    ),
}


@pytest.mark.parametrize(("pieces", "events", "phase"), PHASES.values(), ids=PHASES)
async def test_silence_ends_a_request_in_every_phase(
    server: RawServer, pieces: list[bytes], events: list[ModelEvent], phase: str, skipping_clock: MockClock
) -> None:
    """The error names phase and limit, comes after exactly the idle timeout, and the socket is closed."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, saying(*pieces, then="silence"))
        async with executor(idle_timeout=IDLE).stream(request(server.base_url)) as stream:
            started = trio.current_time()
            seen, error = await until_timeout(stream)
    assert seen == events
    assert phase in str(error)
    assert "10 s" in str(error)
    assert trio.current_time() - started == pytest.approx(IDLE, abs=0.5)


async def test_a_server_that_does_not_read_is_silent(server: RawServer, skipping_clock: MockClock) -> None:
    """Uploading stops when the network takes nothing more; the time counts from the last piece it took."""
    body = "x" * (16 * 1024 * 1024)

    async def serve() -> None:
        await server.accept()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with executor(idle_timeout=IDLE).stream(request(server.base_url, body)) as stream:
            _, error = await until_timeout(stream)
    assert "sending" in str(error)


async def test_an_upload_that_moves_is_no_silence(server: RawServer, skipping_clock: MockClock) -> None:
    """A slow upload may take many idle periods in all."""

    async def script(peer: Peer) -> None:
        for _ in range(16):
            await trio.sleep(0.9 * IDLE)
            await peer.read_ahead(2**20)
        await peer.read_request()
        await peer.send(answer(b"end\n", EVENT_STREAM))

    body = "x" * (24 * 1024 * 1024)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with executor(idle_timeout=IDLE).stream(request(server.base_url, body)) as stream:
            assert [event async for event in stream] == [END]


async def test_connecting_is_limited(skipping_clock: MockClock) -> None:
    """A host that answers no connection request is given up like any other silence."""
    with full_backlog() as port:
        async with executor(idle_timeout=IDLE).stream(request(f"http://127.0.0.1:{port}/v1")) as stream:
            started = trio.current_time()
            _, error = await until_timeout(stream)
    assert f"connecting to 127.0.0.1:{port}" in str(error)
    assert trio.current_time() - started == pytest.approx(IDLE, abs=0.5)


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port whose queue of connections is full, so that the kernel drops every further request."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(16):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


# --- what is no silence ---


async def test_a_long_answer_has_no_limit_of_its_own(server: RawServer, skipping_clock: MockClock) -> None:
    """Healthy for twenty idle periods: nothing is cut."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await trio.sleep(0.9 * IDLE)
        await peer.send(STREAM_HEAD)
        for _ in range(20):
            await trio.sleep(0.9 * IDLE)
            await peer.send(chunk(b"+a\n"))
        await peer.send(chunk(b"end\n") + LAST_CHUNK)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with executor(idle_timeout=IDLE).stream(request(server.base_url)) as stream:
            assert [event async for event in stream] == [*[A] * 20, END]


@pytest.mark.parametrize("dripped", [b":\n", b":"], ids=["comments", "bytes of one line"])
async def test_every_byte_is_a_sign_of_life(server: RawServer, dripped: bytes, skipping_clock: MockClock) -> None:
    """Heartbeats and single bytes count as progress for the idle timeout, in the head and in the body."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        for byte in STREAM_HEAD[:10]:
            await peer.send(bytes([byte]))
            await trio.sleep(0.9 * IDLE)
        await peer.send(STREAM_HEAD[10:])
        for _ in range(10):
            await trio.sleep(0.9 * IDLE)
            await peer.send(chunk(dripped))
        await peer.send(chunk(b"\nend\n") + LAST_CHUNK)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with executor(idle_timeout=IDLE).stream(request(server.base_url)) as stream:
            assert [event async for event in stream] == [END]


async def test_waiting_for_the_window_is_no_silence(server: RawServer, skipping_clock: MockClock) -> None:
    """A request that waits for its turn starts its clock when it gets it."""
    models = executor(idle_timeout=IDLE, input_window=8)

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(answer(b"end\n", EVENT_STREAM))

    async with (
        models.stream(request(server.base_url, "x" * 8)) as first,
        models.stream(request(server.base_url, "y")) as second,
        trio.open_nursery() as nursery,
    ):
        await server.accept()
        await trio.sleep(0.9 * IDLE)
        assert not server.has_waiting()
        await first.aclose()
        nursery.start_soon(serve_once, server, script)
        assert [event async for event in second] == [END]


async def test_asking_for_credentials_is_no_silence(server: RawServer, skipping_clock: MockClock) -> None:
    """A slow login is the caller's own affair."""

    async def login() -> object:
        await trio.sleep(5 * IDLE)
        return request("http://x").provider.auth

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(answer(b"end\n", EVENT_STREAM))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        models = executor(idle_timeout=IDLE, response_timeout=IDLE)
        async with models.stream(request(server.base_url, auth=login)) as stream:
            assert [event async for event in stream] == [END]
