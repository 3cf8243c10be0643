"""Dialling: addresses are connected to at once, names are looked up, and neither leaves a socket behind."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from maka_trio.models.network import Sockets, Wire, dial


class NoClock:
    """Time that never runs out."""

    def listen(self) -> trio.CancelScope:
        return trio.CancelScope()


class Silent:
    """A socket that nobody answers, as trio makes it where a run brings its own sockets."""

    def __init__(self, family: int) -> None:
        self.family = family
        self.closed = False
        self.called: Any = None

    async def connect(self, address: Any) -> None:
        self.called = address
        await trio.sleep_forever()

    def close(self) -> None:
        self.closed = True


class SilentSockets(trio.abc.SocketFactory):
    """Makes them."""

    def __init__(self) -> None:
        self.made: list[Silent] = []

    def socket(self, family: int = socket.AF_INET, type: int = socket.SOCK_STREAM, proto: int = 0) -> Any:  # noqa: A002 - as trio calls it
        self.made.append(Silent(family))
        return self.made[-1]


@pytest.fixture
async def silent() -> SilentSockets:
    sockets = SilentSockets()
    trio.socket.set_custom_socket_factory(sockets)
    return sockets


def descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_address_and_name_lead_to_the_same_server(host: str) -> None:
    """A connection says what is sent, with small pieces sent at once."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await dial(host, listener.socket.getsockname()[1]) as stream:
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        async with await listener.accept() as peer:
            await stream.send_all(b"hello")
            assert await peer.receive_some() == b"hello"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_refused_connection(host: str) -> None:
    """Both fail as connections do, and no socket is left."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # it listens to nobody
        before = descriptors()
        sockets = Sockets()
        with pytest.raises(httpx.ConnectError):
            await Wire(sockets, NoClock()).connect(host, unused.getsockname()[1])
    assert (descriptors(), sockets.open) == (before - 1, 0)


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
async def test_cancelled_dialling_closes_the_socket(silent: SilentSockets, host: str, family: int) -> None:
    """There is one socket, of the address's own kind; whoever gives up leaves it closed."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dial, host, 80)
            await trio.testing.wait_all_tasks_blocked()
            assert [(made.family, made.called, made.closed) for made in silent.made] == [(family, (host, 80), False)]
            scope.cancel()
    assert [made.closed for made in silent.made] == [True]
