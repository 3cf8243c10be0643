"""Sockets that exist in memory behave as those of loopback do: each rule is tried on both."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from maka_trio.testing.memory_network import MemoryNetwork
from maka_trio.testing.memory_pipe import BUFFER_BYTES

RESET = struct.pack("ii", 1, 0)


@pytest.fixture(params=["memory", "loopback"], autouse=True)
async def network(request: pytest.FixtureRequest) -> MemoryNetwork | None:
    if request.param == "loopback":
        return None
    network = MemoryNetwork()
    network.install()
    return network


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[trio.SocketStream, trio.SocketStream], None]:
    """Two ends of one connection."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        server = await listener.accept()
        async with client, server:
            yield client, server


async def test_bytes_arrive_in_order_both_ways() -> None:
    """What is sent is received, in pieces of any size."""
    async with connected() as (client, server):
        await client.send_all(b"hello")
        assert await server.receive_some(2) == b"he"
        assert await server.receive_some() == b"llo"
        await server.send_all(b"back")
        assert await client.receive_some() == b"back"


async def test_the_names_of_both_ends_agree() -> None:
    """Each end's address is what the other sees as its peer."""
    async with connected() as (client, server):
        assert client.socket.getsockname() == server.socket.getpeername()
        assert server.socket.getsockname() == client.socket.getpeername()


async def test_a_port_without_a_listener_refuses() -> None:
    """Nobody listens there any more."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    with pytest.raises(OSError, match=r"refused|connect"):
        await trio.open_tcp_stream("127.0.0.1", port)


async def test_a_taken_port_is_refused() -> None:
    """Two listeners cannot share an address."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        with pytest.raises(OSError, match="in use"):
            await trio.open_tcp_listeners(listener.socket.getsockname()[1], host="127.0.0.1")


async def test_the_end_arrives_after_the_bytes() -> None:
    """A close in order is seen as an end, behind everything that was sent."""
    async with connected() as (client, server):
        await client.send_all(b"last")
        await client.aclose()
        assert await server.receive_some() == b"last"
        assert await server.receive_some() == b""
        assert await server.receive_some() == b""


async def test_half_a_connection_may_be_closed() -> None:
    """After `send_eof` the other direction still works."""
    async with connected() as (client, server):
        await client.send_eof()
        assert await server.receive_some() == b""
        await server.send_all(b"answer")
        assert await client.receive_some() == b"answer"
        with pytest.raises(trio.ClosedResourceError):
            await client.send_all(b"more")


async def test_a_reset_breaks_the_other_end() -> None:
    """A close with a linger of zero."""
    async with connected() as (client, server):
        client.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, RESET)
        await client.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await server.receive_some()


async def test_unread_bytes_make_a_close_a_reset() -> None:
    """Who closes without having read tells the other end that its bytes were lost."""
    async with connected() as (client, server):
        await client.send_all(b"never read")
        await trio.testing.wait_all_tasks_blocked()
        await server.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()


async def test_sending_to_nobody_breaks() -> None:
    """A sender learns that nobody reads, at once or a little later."""
    async with connected() as (client, server):
        await server.aclose()
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(60):
            while True:
                await client.send_all(b"x" * 1000)


async def test_a_full_buffer_blocks_the_sender_until_it_is_read() -> None:
    """Backpressure: nobody has to hold what the other end does not take."""
    amount = 64 * 1024 * 1024
    async with connected() as (client, server):
        with trio.move_on_after(0.1) as waiting:
            await client.send_all(b"x" * amount)
        assert waiting.cancelled_caught
        with trio.fail_after(60):
            assert await server.receive_some()


async def test_closing_wakes_whoever_waits_on_the_same_end() -> None:
    """A receiver in another task is told that its socket is closed."""
    async with connected() as (_, server), trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await server.receive_some()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        server.socket.close()


async def test_a_closed_listener_wakes_its_acceptor() -> None:
    """Accepting ends with the listener."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:

        async def accept() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await listener.accept()

        nursery.start_soon(accept)
        await trio.testing.wait_all_tasks_blocked()
        listener.socket.close()


async def test_a_cancelled_receive_loses_nothing() -> None:
    """Cancelled means: it did not happen."""
    async with connected() as (client, server):
        with trio.CancelScope() as scope:
            scope.cancel()
            await server.receive_some()
        await client.send_all(b"kept")
        assert await server.receive_some() == b"kept"


async def test_the_network_knows_what_is_open(network: MemoryNetwork | None) -> None:
    """Sockets are listed until they are closed; both ends count, and so does a connection nobody accepted."""
    if network is None:
        return
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    client = await trio.open_tcp_stream("localhost", listener.socket.getsockname()[1])
    assert len(network.open_sockets) == 3
    await listener.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await client.receive_some()
    await client.aclose()
    assert network.open_sockets == ()


async def test_the_buffer_of_a_memory_connection_is_bounded(network: MemoryNetwork | None) -> None:
    """One direction holds a buffer's worth and no more."""
    if network is None:
        return
    sent = 0

    async def fill(client: trio.SocketStream) -> None:
        nonlocal sent
        while True:
            sent += await client.socket.send(b"x" * 1000)

    async with connected() as (client, _), trio.open_nursery() as nursery:
        nursery.start_soon(fill, client)
        await trio.testing.wait_all_tasks_blocked()
        assert BUFFER_BYTES - 1000 < sent <= BUFFER_BYTES
        nursery.cancel_scope.cancel()
