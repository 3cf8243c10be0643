"""The contract of a model stream: order, ends, closing from anywhere, and what misuse says."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from maka_trio import limits
from maka_trio.errors import AdapterError, CleanupUnconfirmed
from maka_trio.facts.model import PartDelta
from maka_trio.models import ModelExecutor, ModelStream
from maka_trio.request import ApiKey
from tests.models.line_protocol import END, KEY, LineAdapter, executor, request
from tests.models.raw_server import EVENT_STREAM, LAST_CHUNK, STREAM_HEAD, Peer, RawServer, answer, chunk


def a(number: int) -> PartDelta:
    """The delta that the line `+NUMBER` makes."""
    return PartDelta("p", str(number))


def lines(count: int) -> bytes:
    """Lines for the deltas 0 to count - 1."""
    return b"".join(b"+%d\n" % number for number in range(count))


@asynccontextmanager
async def answered(server: RawServer, *pieces: bytes) -> AsyncGenerator[ModelStream, None]:
    """An open stream whose answer has been sent; the connection stays open until the peer closes it."""
    closed = trio.Event()

    async def serve() -> None:
        peer = await server.accept()
        await peer.read_request()
        try:
            await peer.send(*pieces)
        except trio.BrokenResourceError:
            pass
        else:
            await peer.assert_closed()
        closed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)  # noqa: ASYNC113  # it may begin whenever it likes
        async with executor().stream(request(server.base_url)) as stream:
            yield stream
        with trio.fail_after(60):
            await closed.wait()


# --- order and ends ---


async def test_events_come_in_order_whichever_way_they_are_taken(server: RawServer) -> None:
    """Single events and lots can be mixed; nothing is lost or repeated."""
    async with answered(server, STREAM_HEAD, chunk(lines(10)), chunk(b"end\n") + LAST_CHUNK) as stream:
        taken = [await anext(stream), await anext(stream)]
        while True:
            try:
                taken.extend(await stream.receive_lot())
            except trio.EndOfChannel:
                break
    assert taken == [*map(a, range(10)), END]


async def test_one_network_read_makes_one_lot(server: RawServer) -> None:
    """A hundred HTTP chunks that arrive together are one lot."""
    pieces = b"".join(chunk(b"+%d\n" % number) for number in range(100))
    async with answered(server, STREAM_HEAD + pieces + chunk(b"end\n") + LAST_CHUNK) as stream:
        assert await stream.receive_lot() == (*map(a, range(100)), END)


async def test_a_lot_is_all_that_waits(server: RawServer) -> None:
    """What several reads brought while the consumer was busy comes together, and a fault after it by itself."""
    sent = lines(40_000)  # several times what one read brings
    async with answered(server, STREAM_HEAD + chunk(sent) + chunk(b"!bad\n")) as stream:
        await trio.testing.wait_all_tasks_blocked(0.05)
        first = await stream.receive_lot()
        assert len(first) > 0.4 * 40_000
        taken = [*first]
        with pytest.raises(AdapterError, match="bad"):
            while True:
                taken.extend(await stream.receive_lot())
    assert taken == [*map(a, range(40_000))]


async def test_the_end_is_for_ever(server: RawServer) -> None:
    """After the last event every further receive says end."""
    async with answered(server, STREAM_HEAD + chunk(b"end\n") + LAST_CHUNK) as stream:
        assert [event async for event in stream] == [END]
        for _ in range(3):
            assert [event async for event in stream] == []
            with pytest.raises(trio.EndOfChannel):
                await stream.receive_lot()


async def test_an_error_comes_once_and_then_the_end(server: RawServer) -> None:
    """The error follows all events, as a plain exception, and is not repeated."""
    async with answered(server, STREAM_HEAD + chunk(b"+0\n!bad\n")) as stream:
        assert await anext(stream) == a(0)
        with pytest.raises(AdapterError, match="bad"):
            await anext(stream)
        for _ in range(3):
            assert [event async for event in stream] == []
            with pytest.raises(trio.EndOfChannel):
                await stream.receive_lot()


async def test_opening_sends_nothing_yet(server: RawServer) -> None:
    """The block is entered before the network is used."""
    models = executor()
    async with models.stream(request(server.base_url)):
        assert models.statistics().open_connections == 0
        assert models.statistics().open_streams == 1


async def test_an_unread_error_is_not_thrown_at_the_block(server: RawServer) -> None:
    """Who does not read does not hear of it."""
    url = server.base_url
    await server.listener.aclose()
    async with executor().stream(request(url)):
        await trio.testing.wait_all_tasks_blocked()


async def test_an_error_of_the_block_comes_out_bare(server: RawServer) -> None:
    """No exception group, whether the exchange is under way or has failed itself."""
    with pytest.raises(LookupError, match="mine"):
        async with executor().stream(request(server.base_url)):
            peer = await server.accept()
            await peer.read_request()
            raise LookupError("mine")
    await server.listener.aclose()
    with pytest.raises(LookupError, match="mine"):
        async with executor().stream(request("http://127.0.0.1:9/v1")):
            await trio.testing.wait_all_tasks_blocked(0.01)
            raise LookupError("mine")


# --- checkpoints ---


async def test_every_receive_is_a_cancel_point(server: RawServer) -> None:
    """Buffered events are no way round a cancellation, and a cancelled receive loses nothing."""
    async with answered(server, STREAM_HEAD + chunk(lines(100) + b"end\n") + LAST_CHUNK) as stream:
        taken = []
        while True:
            with trio.CancelScope() as scope:
                scope.cancel()
                await anext(stream)
            assert scope.cancelled_caught
            try:
                taken.append(await anext(stream))
            except StopAsyncIteration:
                break
    assert taken == [*map(a, range(100)), END]


async def test_a_buffered_lot_does_not_starve_other_tasks(server: RawServer) -> None:
    """Iterating over what is buffered lets others run every so often."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    answer_bytes = STREAM_HEAD + chunk(lines(3200) + b"end\n") + LAST_CHUNK
    async with answered(server, answer_bytes) as stream, trio.open_nursery() as nursery:
        await anext(stream)
        nursery.start_soon(other)
        assert len([event async for event in stream]) == 3200
        assert turns >= 100
        nursery.cancel_scope.cancel()


async def test_receiving_a_lot_is_a_checkpoint(server: RawServer) -> None:
    """From the channel, and from what an earlier `anext` left over."""
    async with answered(server, STREAM_HEAD + chunk(lines(10) + b"end\n") + LAST_CHUNK) as stream:
        with trio.testing.assert_checkpoints():
            await anext(stream)
        with trio.testing.assert_checkpoints():
            await stream.receive_lot()


# --- closing ---


async def test_closing_shuts_the_connection_before_it_returns(server: RawServer) -> None:
    """When `aclose` returns, the socket is gone and the window has its bytes back."""
    models = executor()
    async with models.stream(request(server.base_url)) as stream:
        peer = await server.accept()
        await peer.read_request()
        assert models.statistics().open_connections == 1
        assert models.statistics().window_used == len("question")
        await stream.aclose()
        assert models.statistics().open_connections == 0
        assert models.statistics().window_used == 0
        with trio.fail_after(60):
            await peer.assert_closed()


async def test_leaving_the_block_shuts_the_connection(server: RawServer) -> None:
    """Also by `break`, with events unread and the channel full."""
    models = executor()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood, server)
        async with models.stream(request(server.base_url)) as stream:
            async for _ in stream:
                break
        assert models.statistics().open_connections == 0
        assert models.statistics().open_streams == 0


async def flood(server: RawServer) -> None:
    """Send events until the peer closes."""
    peer = await server.accept()
    await peer.read_request()
    await peer.send(STREAM_HEAD)
    with pytest.raises(trio.BrokenResourceError):
        while True:
            await peer.send(chunk(b"+x\n" * 10_000))


async def test_a_closed_stream_says_so(server: RawServer) -> None:
    """After `aclose`, and after the block, receiving is misuse with a clear name; closing again is none."""
    async with answered(server, STREAM_HEAD + chunk(lines(10))) as stream:
        await anext(stream)
        await stream.aclose()
        for _ in range(2):
            with pytest.raises(trio.ClosedResourceError, match="closed"):
                await anext(stream)
        await stream.aclose()
    with pytest.raises(trio.ClosedResourceError, match="closed"):
        await stream.receive_lot()
    await stream.aclose()


async def test_another_task_may_close(server: RawServer) -> None:
    """A task that waits for an event is woken."""
    async with answered(server, STREAM_HEAD) as stream, trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await anext(stream)

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await stream.aclose()


async def test_two_readers_collide(server: RawServer) -> None:
    """One task receives at a time; the second one is told."""
    async with answered(server, STREAM_HEAD) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(anext, stream)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with pytest.raises(trio.BusyResourceError):
            await stream.receive_lot()
        nursery.cancel_scope.cancel()


async def test_two_readers_collide_over_buffered_events_too(server: RawServer) -> None:
    """Neither of them gets an event that is not there."""
    async with answered(server, STREAM_HEAD + chunk(b"+0\n+1\n")) as stream, trio.open_nursery() as nursery:
        assert await anext(stream) == a(0)
        outcomes: list[object] = []

        async def read() -> None:
            try:
                outcomes.append(await stream.receive_lot())
            except trio.BusyResourceError:
                outcomes.append("busy")

        for _ in range(2):
            nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(outcomes, key=str) == [(a(1),), "busy"]


async def test_a_cancelled_caller_still_closes(server: RawServer) -> None:
    """`aclose` in a cancelled scope does its work."""
    models = executor()
    async with models.stream(request(server.base_url)) as stream:
        peer = await server.accept()
        await peer.read_request()
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.aclose()
        assert models.statistics().open_connections == 0
        await peer.assert_closed()


@pytest.mark.parametrize("seed", range(3))
async def test_streams_close_in_any_order(server: RawServer, seed: int) -> None:
    """Nested blocks of one task: each close ends that stream alone."""
    count = 20
    models = executor()
    async with AsyncExitStack() as stack:
        streams, peers = [], []
        for _ in range(count):
            streams.append(await stack.enter_async_context(models.stream(request(server.base_url))))
            peers.append(await server.accept())
            await peers[-1].read_request()
        order = sorted(range(count), key=lambda number: (number * (7 + seed)) % count)
        for done, number in enumerate(order, 1):
            await streams[number].aclose()
            await peers[number].assert_closed()
            assert models.statistics().open_connections == count - done
        assert models.statistics().window_used == 0


async def test_closing_in_every_state_is_quiet(server: RawServer) -> None:
    """Before the start, in the line of the window, after a timeout, after the end."""
    models = executor(idle_timeout=0.05, input_window=8)
    async with models.stream(request(server.base_url)) as first:
        async with models.stream(request(server.base_url)) as second:
            await second.aclose()
        await server.accept()
        with pytest.raises(Exception, match="silent"):
            await anext(first)
        await first.aclose()
    async with answered(server, answer(b"end\n", EVENT_STREAM)) as stream:
        assert [event async for event in stream] == [END]
        await stream.aclose()
    assert models.statistics().window_used == models.statistics().window_waiting == 0


async def test_an_abandoned_iterator_is_no_bug(server: RawServer) -> None:
    """The stream is its own iterator: breaking off and collecting garbage cancels nobody."""
    async with answered(server, STREAM_HEAD + chunk(lines(10) + b"end\n") + LAST_CHUNK) as stream:
        iterator = aiter(stream)
        assert iterator is stream
        async for _ in iterator:
            break
        del iterator
        gc.collect()
        await trio.lowlevel.checkpoint()
        assert [event async for event in stream] == [*map(a, range(1, 10)), END]


async def test_cleanup_that_is_held_up_is_reported(
    server: RawServer, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Only a callable of the user's can hold it up; the caller is free after the bound."""
    release = trio.Event()

    async def stubborn() -> ApiKey:
        with trio.CancelScope(shield=True):
            await release.wait()
        return ApiKey(KEY)

    models = executor()
    async with models.stream(request(server.base_url, auth=stubborn)) as stream:
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        with pytest.raises(CleanupUnconfirmed, match="6 s"):
            await stream.aclose()
        assert trio.current_time() - started == limits.CLEANUP_SECONDS
        assert models.statistics().window_used > 0  # honest: the request is not known to be over
        release.set()
        await stream.aclose()
        assert models.statistics().window_used == 0


# --- an adapter of one's own ---


async def test_a_finish_must_be_last_in_its_lot(server: RawServer) -> None:
    """Events behind the finish make the whole lot wrong."""
    async with answered(server, STREAM_HEAD + chunk(b"+0\ntwice\n")) as stream:
        with pytest.raises(AdapterError, match="after the end"):
            await anext(stream)


async def test_many_streams_share_one_executor(server: RawServer) -> None:
    """Each gets its own answer."""
    models: ModelExecutor = executor(LineAdapter())

    async def serve(peer: Peer) -> None:
        body = (await peer.read_request()).body
        await peer.send(answer(b"+%b\nend\n" % body, EVENT_STREAM))

    async def accept_all() -> None:
        async with trio.open_nursery() as connections:
            for _ in range(50):
                connections.start_soon(serve, await server.accept())

    async def one(number: int) -> None:
        async with models.stream(request(server.base_url, str(number))) as stream:
            assert [event async for event in stream] == [a(number), END]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept_all)
        for number in range(50):
            nursery.start_soon(one, number)
