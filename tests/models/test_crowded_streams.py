"""With many connections open a stream reads when its consumer waits, and not before."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from maka_trio import limits
from maka_trio.errors import ModelTimedOut
from tests.models.asking import IDLE, A, saying, serve_once
from tests.models.line_protocol import END, executor, request
from tests.models.raw_server import LAST_CHUNK, STREAM_HEAD, Peer, RawServer, chunk


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection is a crowd."""
    monkeypatch.setattr(limits, "READ_AHEAD_STREAMS", 0)


async def test_what_came_while_the_consumer_was_busy_comes_in_few_reads(server: RawServer, crowd: None) -> None:
    """A hundred events that were sent one by one are read together, once the consumer comes back."""
    sent = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"+a\n"))
        await taken.wait()
        for _ in range(100):
            await peer.send(chunk(b"+a\n"))
        await peer.send(chunk(b"end\n") + LAST_CHUNK)
        sent.set()

    taken = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with executor().stream(request(server.base_url)) as stream:
            assert await stream.receive_lot() == (A,)
            taken.set()
            await sent.wait()
            await wait_all_tasks_blocked(0.05)
            assert len(stream._lots) == 0
            lots = [await stream.receive_lot()]
            while lots[-1][-1] != END:
                lots.append(await stream.receive_lot())
    assert [event for lot in lots for event in lot] == [*[A] * 100, END]
    assert len(lots) < 10  # how much one read brings is the system's to say


async def test_a_lone_stream_reads_ahead(server: RawServer) -> None:
    """Without a crowd, what comes while the consumer is busy is read at once, up to the channel's bound."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, saying(STREAM_HEAD, chunk(b"+a\n"), chunk(b"+a\n"), then="silence"))
        async with executor().stream(request(server.base_url)) as stream:
            assert (await stream.receive_lot())[0] == A
            await wait_all_tasks_blocked(0.05)
            assert not stream._lots.holds_up  # the task of the stream waits for the network
        nursery.cancel_scope.cancel()


async def test_a_stream_that_waits_for_its_consumer_closes_at_once(server: RawServer, crowd: None) -> None:
    """Nobody has to take what it holds; the peer sees the connection closed."""
    closed = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"+a\n"))
        await peer.assert_closed()
        closed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, script)
        async with executor().stream(request(server.base_url)) as stream:
            with trio.fail_after(60):
                while not stream._lots.holds_up:
                    await trio.lowlevel.checkpoint()
        await closed.wait()


async def test_an_answer_ends_without_being_asked_again(server: RawServer, crowd: None) -> None:
    """After the last event the task of the stream sees to the end by itself, so that the connection is kept."""
    models = executor()
    async with models, trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, saying(STREAM_HEAD, chunk(b"+a\nend\n"), LAST_CHUNK, then="silence"))
        async with models.stream(request(server.base_url)) as stream:
            assert [event async for event in stream] == [A, END]
        assert models.statistics().open_connections == 1
        nursery.cancel_scope.cancel()


async def test_silence_is_measured_afresh_in_a_crowd_too(
    server: RawServer, crowd: None, skipping_clock: MockClock
) -> None:
    """A busy consumer's time is not the provider's."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, server, saying(STREAM_HEAD, chunk(b"+a\n"), then="silence"))
        async with executor(idle_timeout=IDLE).stream(request(server.base_url)) as stream:
            await anext(stream)
            await trio.sleep(5 * IDLE)
            began = trio.current_time()
            with pytest.raises(ModelTimedOut):
                await anext(stream)
            assert trio.current_time() - began == pytest.approx(IDLE, abs=0.5)
