"""Connections: when one is used again, when never, and that none is left behind."""

from __future__ import annotations

import ssl

import pytest
import trio
import trustme
from trio.testing import MockClock

from maka_trio import limits
from maka_trio.errors import ProviderFailure
from maka_trio.models import ModelExecutor
from tests.models.line_protocol import END, executor, request
from tests.models.raw_server import (
    EVENT_STREAM,
    LAST_CHUNK,
    STREAM_HEAD,
    Peer,
    RawServer,
    answer,
    chunk,
    head,
    listening,
)

CHUNKED_ANSWER = STREAM_HEAD + chunk(b"end\n") + LAST_CHUNK
COUNTED_ANSWER = answer(b"end\n", EVENT_STREAM)
KEPT_ANSWER = answer(b"end\n", EVENT_STREAM, b"connection: keep-alive\r\n")


async def ask(models: ModelExecutor, server: RawServer) -> None:
    """One request that is answered well."""
    async with models.stream(request(server.base_url)) as stream:
        assert [event async for event in stream] == [END]


async def test_a_connection_is_used_again(server: RawServer) -> None:
    """As long as the executor is entered, one connection serves one request after the other."""
    async with executor() as models, trio.open_nursery() as nursery:

        async def serve() -> None:
            peer = await server.accept()
            for pieces in (CHUNKED_ANSWER, COUNTED_ANSWER, KEPT_ANSWER):
                await peer.read_request()
                await peer.send(pieces)
            await peer.read_request()
            await peer.send(*(bytes([byte]) for byte in CHUNKED_ANSWER))

        nursery.start_soon(serve)
        for _ in range(4):
            await ask(models, server)
            statistics = models.statistics()
            assert (statistics.open_connections, statistics.unused_connections) == (1, 1)
    assert models.statistics().open_connections == 0
    assert not server.has_waiting()


async def test_who_leaves_at_the_finish_does_not_cost_the_connection(
    server: RawServer, skipping_clock: MockClock
) -> None:
    """The end of the body, a moment after the finish, is still read when nobody reads the stream any more."""
    async with executor() as models, trio.open_nursery() as nursery:
        left = trio.Event()

        async def serve() -> None:
            peer = await server.accept()
            await peer.read_request()
            await peer.send(STREAM_HEAD, chunk(b"end\n"))
            await left.wait()
            await peer.send(LAST_CHUNK)

        nursery.start_soon(serve)
        async with models.stream(request(server.base_url)) as stream:
            assert await stream.receive_lot() == (END,)
            left.set()
        assert models.statistics().unused_connections == 1


async def test_an_executor_that_was_not_entered_keeps_nothing_open(server: RawServer) -> None:
    """Nobody would close what it kept."""
    models = executor()
    for _ in range(2):
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                peer = await server.accept()
                await peer.read_request()
                await peer.send(CHUNKED_ANSWER)
                await peer.assert_closed()

            nursery.start_soon(serve)
            await ask(models, server)
            assert models.statistics().open_connections == 0


NOT_REUSABLE = {
    "the body did not end": STREAM_HEAD + chunk(b"end\n"),
    "the body is short": head(EVENT_STREAM, b"content-length: 10\r\n") + b"end\n",
    "the server says close": STREAM_HEAD[:-2] + b"connection: close\r\n\r\n" + chunk(b"end\n") + LAST_CHUNK,
    "HTTP/1.0": CHUNKED_ANSWER.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "bytes follow a chunked body": CHUNKED_ANSWER + COUNTED_ANSWER,
    "bytes follow a counted body": COUNTED_ANSWER + COUNTED_ANSWER,
    "one byte follows": CHUNKED_ANSWER + b"\n",
}


@pytest.mark.parametrize("pieces", NOT_REUSABLE.values(), ids=NOT_REUSABLE)
async def test_a_connection_is_not_used_again_unless_its_answer_ended(server: RawServer, pieces: bytes) -> None:
    """What a server sent too much of is not the next request's answer."""
    async with executor() as models, trio.open_nursery() as nursery:

        async def serve() -> None:
            peer = await server.accept()
            await peer.read_request()
            await peer.send(pieces)
            await peer.assert_closed()
            peer = await server.accept()
            await peer.read_request()
            await peer.send(CHUNKED_ANSWER)

        nursery.start_soon(serve)
        await ask(models, server)
        assert models.statistics().open_connections == 0
        await ask(models, server)


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used(server: RawServer) -> None:
    """The next request opens its own, and does not fail."""
    async with executor() as models, trio.open_nursery() as nursery:

        async def serve() -> None:
            for _ in range(2):
                peer = await server.accept()
                await peer.read_request()
                await peer.send(CHUNKED_ANSWER)
                await peer.aclose()

        nursery.start_soon(serve)
        await ask(models, server)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await ask(models, server)


@pytest.mark.parametrize("closed", [0, 1])
async def test_of_several_connections_one_that_stands_is_used(server: RawServer, closed: int) -> None:
    """Whichever of two the server has closed; the other serves the next request, which opens none."""
    async with executor() as models, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(ask, models, server)
        peers = [await server.accept(), await server.accept()]
        for peer in peers:
            await peer.read_request()
            await peer.send(CHUNKED_ANSWER)
        while models.statistics().unused_connections < 2:
            await trio.lowlevel.checkpoint()
        await peers.pop(closed).aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(ask, models, server)
        await peers[0].read_request()
        await peers[0].send(CHUNKED_ANSWER)
    assert not server.has_waiting()


async def test_a_connection_that_was_unused_for_long_is_not_used(server: RawServer, skipping_clock: MockClock) -> None:
    """A server may be about to close it. It is closed when the next request comes."""
    async with executor() as models, trio.open_nursery() as nursery:
        closed = trio.Event()

        async def serve() -> None:
            peer = await server.accept()
            await peer.read_request()
            await peer.send(CHUNKED_ANSWER)
            await peer.assert_closed()
            closed.set()

        async def serve_again() -> None:
            peer = await server.accept()
            await peer.read_request()
            await closed.wait()
            await peer.send(CHUNKED_ANSWER)

        nursery.start_soon(serve)
        await ask(models, server)
        await trio.sleep(limits.KEEPALIVE_SECONDS + 1)
        nursery.start_soon(serve_again)
        await ask(models, server)


async def test_a_lost_race_with_the_servers_closing_is_no_retry_of_ours(server: RawServer) -> None:
    """A request that meets a closing connection fails as replay-safe; it is sent once."""
    requests = 0
    async with executor() as models, trio.open_nursery() as nursery:

        async def serve() -> None:
            nonlocal requests
            peer = await server.accept()
            for pieces in ([CHUNKED_ANSWER], []):
                await peer.read_request()
                requests += 1
                await peer.send(*pieces)
            await peer.aclose()

        nursery.start_soon(serve)
        await ask(models, server)
        with pytest.raises(ProviderFailure) as caught:
            await ask(models, server)
    assert (caught.value.reason, caught.value.replay_safe) == ("network", True)
    assert requests == 2
    assert not server.has_waiting()


async def test_unused_connections_are_few(server: RawServer) -> None:
    """After a crowd, only so many are kept."""
    crowd = limits.IDLE_CONNECTIONS + 10

    async def serve(peer: Peer, everyone: trio.Event) -> None:
        await peer.read_request()
        await everyone.wait()
        await peer.send(CHUNKED_ANSWER)

    async with executor() as models, trio.open_nursery() as nursery:
        everyone = trio.Event()
        async with trio.open_nursery() as asking:
            for _ in range(crowd):
                asking.start_soon(ask, models, server)
            for _ in range(crowd):
                nursery.start_soon(serve, await server.accept(), everyone)
            everyone.set()
        assert models.statistics().unused_connections == limits.IDLE_CONNECTIONS
        assert models.statistics().open_connections == limits.IDLE_CONNECTIONS


async def test_servers_do_not_share_connections(server: RawServer) -> None:
    """A connection is used again for the same scheme, host and port only."""
    async with executor() as models, listening() as other, trio.open_nursery() as nursery:
        for target in (server, other):
            nursery.start_soon(answer_twice, target)
        for target in (server, other, server, other):
            await ask(models, target)
        assert models.statistics().unused_connections == 2


async def answer_twice(server: RawServer) -> None:
    """Two answers on one connection."""
    peer = await server.accept()
    for _ in range(2):
        await peer.read_request()
        await peer.send(CHUNKED_ANSWER)


async def test_cancelled_requests_poison_nothing(server: RawServer) -> None:
    """Two hundred requests, cancelled while connecting, sending, waiting and reading; then one that succeeds."""
    async with executor(input_window=2**20) as models, trio.open_nursery() as nursery:
        nursery.start_soon(serve_everyone, server)
        for number in range(200):
            text = "x" * 2**20 if number % 4 == 0 else "slow"
            with trio.move_on_after(0.0002 * (number % 20)):
                async with models.stream(request(server.base_url, text)) as stream:
                    async for _ in stream:
                        pass
            statistics = models.statistics()
            assert statistics.open_connections == statistics.unused_connections
            assert (statistics.window_used, statistics.window_waiting) == (0, 0)
        await ask(models, server)
        nursery.cancel_scope.cancel()
    assert models.statistics().open_connections == 0


async def serve_everyone(server: RawServer) -> None:
    """Answer "slow" with one event and silence, everything else at once; the peer may vanish at any time."""

    async def serve(peer: Peer) -> None:
        try:
            while True:
                body = (await peer.read_request()).body
                if body == b"slow":
                    await peer.send(STREAM_HEAD, chunk(b"+a\n"))
                    await peer.assert_closed()
                    return
                await peer.send(CHUNKED_ANSWER)
        except (trio.BrokenResourceError, AssertionError):
            return

    async with trio.open_nursery() as connections:
        while True:
            connections.start_soon(serve, await server.accept())


# --- TLS ---


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """A certificate authority of our own."""
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_tls_connections_are_used_again(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """Events, and the end of the body in a record of its own."""
    async with (
        listening(server_tls) as server,
        executor(ssl_context=client_tls) as models,
        trio.open_nursery() as nursery,
    ):

        async def serve() -> None:
            peer = await server.accept()
            for _ in range(3):
                await peer.read_request()
                await peer.send(STREAM_HEAD, chunk(b"end\n"), LAST_CHUNK)

        nursery.start_soon(serve)
        for _ in range(3):
            await ask(models, server)
    assert len(server.accepted) == 1
    assert models.statistics().open_connections == 0


async def test_a_tls_peer_that_answers_nothing_does_not_hold_us(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """Neither during the handshake nor in the middle of an answer is the peer waited for."""
    models = executor(ssl_context=client_tls)
    async with listening(server_tls) as server:
        with trio.fail_after(60):
            async with models.stream(request(server.base_url)) as stream:
                peer = await server.accept()  # and no handshake
                await stream.aclose()
                assert models.statistics().open_connections == 0
            async with models.stream(request(server.base_url)) as stream, trio.open_nursery() as nursery:
                peer = await server.accept()
                nursery.start_soon(peer.read_request)
                await trio.testing.wait_all_tasks_blocked(0.01)
                await peer.send(STREAM_HEAD)
                await stream.aclose()
                assert models.statistics().open_connections == 0


async def test_a_certificate_that_is_not_trusted_is_said(server_tls: ssl.SSLContext) -> None:
    """No request is sent; the reason is OpenSSL's."""
    models = executor()
    async with listening(server_tls) as server, trio.open_nursery() as nursery:

        async def serve() -> None:
            peer = await server.accept()
            with pytest.raises((trio.BrokenResourceError, AssertionError)):
                await peer.read_request()

        nursery.start_soon(serve)
        async with models.stream(request(server.base_url)) as stream:
            with pytest.raises(ProviderFailure, match="certificate is not accepted") as caught:
                await anext(stream)
    assert (caught.value.reason, caught.value.replay_safe) == ("network", True)
    assert models.statistics().open_connections == 0


async def test_https_to_a_plain_server_says_what_is_wrong(server: RawServer) -> None:
    """TLS meets something else."""
    url = server.base_url.replace("http:", "https:")
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            peer = await server.accept()
            await peer.read_ahead(1)
            await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await peer.aclose()

        nursery.start_soon(serve)
        async with executor().stream(request(url)) as stream:
            with pytest.raises(ProviderFailure, match="TLS failed"):
                await anext(stream)
