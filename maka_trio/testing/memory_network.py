"""TCP without an operating system: sockets of one trio run that exist in memory only.

`MemoryNetwork` is a socket factory for trio, so that programs which open streams and listeners in the ordinary way,
HTTP clients and servers among them, run unchanged in a deterministic world. It behaves as loopback does: ordered
bytes, a bounded buffer that blocks the sender, refused connections, half-close, resets. It knows nothing of what
the bytes mean.
"""

from __future__ import annotations

import errno
import os
import socket as std
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeAlias

import trio

from maka_trio.testing.memory_pipe import Pipe

_FIRST_PORT = 49_152
_Address = tuple[str, int]

AtOperation: TypeAlias = Callable[[str], "tuple[str, OSError | None] | None"]
"""Given an operation (`connect`, `read`, `write`), says how it fails, if it does: the name of the fault, and what it
raises. `end` and `silence` raise nothing."""


def _nothing_fails(operation: str) -> None:
    return None


class MemorySocket(trio.socket.SocketType):
    """A stream socket of a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, family: int, number: int) -> None:
        self._network = network
        self._family = std.AddressFamily(family)
        self._number = number
        self._name: _Address = ("0.0.0.0", 0)
        self._peer: _Address | None = None
        self._incoming: Pipe | None = None
        self._outgoing: Pipe | None = None
        self._backlog: deque[MemorySocket] | None = None
        self._arrived = trio.lowlevel.ParkingLot()
        self._options: dict[tuple[int, int], Any] = {}
        self._closed = False
        self._write_shut = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._name} to {self._peer}" if self._peer else f"{self._name}"
        return f"<MemorySocket {self._number}, {state}>"

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def family(self) -> std.AddressFamily:
        """The family it was made with."""
        return self._family

    @property
    def type(self) -> std.SocketKind:
        """Always a stream."""
        return std.SOCK_STREAM

    @property
    def proto(self) -> int:
        """Always TCP."""
        return std.IPPROTO_TCP

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802  # trio's name
        """Whether `shutdown` ended the sending side."""
        return self._write_shut

    def fileno(self) -> int:
        """A number that is no descriptor; -1 once closed."""
        return -1 if self._closed else self._number

    def getsockname(self) -> _Address:
        """Its own address."""
        return self._name

    def getpeername(self) -> _Address:
        """The other side's address."""
        if self._peer is None:
            raise _os_error(errno.ENOTCONN)
        return self._peer

    def setsockopt(self, level: int, optname: int, value: Any = None, optlen: int | None = None) -> None:
        """Options are kept; a linger of zero seconds makes `close` a reset."""
        self._check_open()
        self._options[level, optname] = value

    def getsockopt(self, level: int, optname: int, buflen: int | None = None) -> Any:
        """What was set, else 0; `SO_ACCEPTCONN` is real."""
        if (level, optname) == (std.SOL_SOCKET, std.SO_ACCEPTCONN):
            return int(self._backlog is not None)
        return self._options.get((level, optname), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # --- listening and connecting ---------------------------------------------------------------------------

    async def bind(self, address: Any) -> None:
        """Take an address; port 0 means a free one."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        host, port = str(address[0]), int(address[1])
        self._name = self._network.take_address(host, port)

    def listen(self, backlog: int = 128) -> None:
        """Accept connections from now on. The backlog has no bound."""
        self._check_open()
        self._backlog = deque()
        self._network.listeners[self._name] = self

    async def accept(self) -> tuple[MemorySocket, _Address]:
        """Wait for the next connection."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._closed:
            if self._backlog is None:
                raise _os_error(errno.EINVAL)
            if self._backlog:
                accepted = self._backlog.popleft()
                await trio.lowlevel.cancel_shielded_checkpoint()
                return accepted, accepted.getpeername()
            await self._arrived.park()
        raise trio.ClosedResourceError("the listening socket was closed")

    async def connect(self, address: Any) -> None:
        """Connect to a listener of the same network. Raises ConnectionRefusedError where there is none.

        As trio's own socket does, it closes itself when it is cancelled: how far it came is not known.
        """
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            self.close()
            raise
        self._check_open()
        self._may_fail("connect")
        listener = self._network.listener_at(str(address[0]), int(address[1]))
        if listener is None or listener._backlog is None:
            raise _os_error(errno.ECONNREFUSED)
        if self._name[1] == 0:
            self._name = self._network.take_address("127.0.0.1", 0)
        accepted = self._network.make(self._family)
        self._join(accepted, listener._name)
        listener._backlog.append(accepted)
        listener._arrived.unpark()

    def _join(self, accepted: MemorySocket, name: _Address) -> None:
        there, back = Pipe(), Pipe()
        self._outgoing, self._incoming, self._peer = there, back, name
        accepted._outgoing, accepted._incoming, accepted._peer = back, there, self._name
        accepted._name = name

    # --- bytes ----------------------------------------------------------------------------------------------

    async def _receive(self, buflen: int) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        pipe = self._connected(self._incoming)
        await pipe.wait(lambda: self._closed or pipe.readable())
        if not self._closed and self._may_fail("read") == "silence":
            await pipe.wait(lambda: self._closed)
        if self._closed:
            raise trio.ClosedResourceError("another task closed this socket")
        if not pipe.data and pipe.reset:
            raise _os_error(errno.ECONNRESET)
        data = bytes(pipe.data[:buflen])
        del pipe.data[:buflen]
        pipe.changed()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return data

    def recv(self, buflen: int, flags: int = 0, /) -> Awaitable[bytes]:
        """Wait for bytes; empty at the end."""
        return self._receive(buflen)

    async def _send(self, data: Any) -> int:
        await trio.lowlevel.checkpoint_if_cancelled()
        pipe = self._connected(self._outgoing)
        await pipe.wait(lambda: self._closed or pipe.writable())
        if self._closed:
            raise trio.ClosedResourceError("another task closed this socket")
        self._may_fail("write")
        if pipe.reader_gone or pipe.reset or self._write_shut:
            raise _os_error(errno.EPIPE)
        sent = bytes(data[: pipe.room()])
        pipe.data += sent
        pipe.changed()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return len(sent)

    def send(self, data: Any, flags: int = 0, /) -> Awaitable[int]:
        """Wait for room, then send what fits."""
        return self._send(data)

    def is_readable(self) -> bool:
        """Whether `recv` would return at once."""
        return self._incoming is not None and self._incoming.readable()

    async def wait_writable(self) -> None:
        """Wait until `send` would take something."""
        pipe = self._connected(self._outgoing)
        await trio.lowlevel.checkpoint()
        await pipe.wait(lambda: self._closed or pipe.writable())

    # --- failing --------------------------------------------------------------------------------------------

    def _may_fail(self, operation: str) -> str | None:
        """Let a fault happen here, if one is to: the connection is broken, and the operation raises or goes on."""
        fault = self._network.at_operation(operation)
        if fault is None:
            return None
        name, error = fault
        if self._incoming is not None and self._outgoing is not None:
            self._incoming.fail_reader(name)
            self._outgoing.fail_writer(name)
        if error is not None:
            raise error
        return name

    # --- ending ---------------------------------------------------------------------------------------------

    def shutdown(self, flag: int) -> None:
        """End the sending side (`SHUT_WR`, `SHUT_RDWR`)."""
        pipe = self._connected(self._outgoing)
        if flag in (std.SHUT_WR, std.SHUT_RDWR):
            self._write_shut = True
            pipe.eof = True
            pipe.changed()

    def close(self) -> None:
        """Close now. With bytes unread, or a linger of zero, the other side sees a reset. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._network.forget(self)
        self._arrived.unpark_all()
        for waiting in self._backlog or ():
            waiting._reset()
        if self._incoming is not None and self._outgoing is not None:
            self._hang_up(self._incoming, self._outgoing)

    def _hang_up(self, incoming: Pipe, outgoing: Pipe) -> None:
        abortive = bool(incoming.data) or self._options.get((std.SOL_SOCKET, std.SO_LINGER)) == _NO_LINGER
        outgoing.reset = outgoing.reset or abortive
        outgoing.eof = True
        incoming.reader_gone = True
        incoming.changed()
        outgoing.changed()

    def _reset(self) -> None:
        self._options[std.SOL_SOCKET, std.SO_LINGER] = _NO_LINGER
        self.close()

    def _connected(self, pipe: Pipe | None) -> Pipe:
        self._check_open()
        if pipe is None:
            raise _os_error(errno.ENOTCONN)
        return pipe

    def _check_open(self) -> None:
        if self._closed:
            raise _os_error(errno.EBADF)


_NO_LINGER = b"\x01\x00\x00\x00\x00\x00\x00\x00"


class MemoryNetwork(trio.abc.SocketFactory, trio.abc.HostnameResolver):
    """The network of one trio run.

    network = MemoryNetwork()
    network.install()      # inside the run, before the first socket

    Args:
        at_operation: decides which operations of its sockets fail.
    """

    def __init__(self, at_operation: AtOperation = _nothing_fails) -> None:
        self.at_operation = at_operation
        self.listeners: dict[_Address, MemorySocket] = {}
        self._open: dict[int, MemorySocket] = {}
        self._made = 0
        self._next_port = _FIRST_PORT

    def install(self) -> None:
        """Let trio make its sockets here for the rest of this run."""
        trio.socket.set_custom_socket_factory(self)
        trio.socket.set_custom_hostname_resolver(self)

    @property
    def open_sockets(self) -> tuple[MemorySocket, ...]:
        """Sockets that were made and not closed, oldest first."""
        return tuple(self._open.values())

    def socket(self, family: int = std.AF_INET, type: int = std.SOCK_STREAM, proto: int = 0) -> MemorySocket:  # noqa: A002
        """Called by trio. Raises OSError for anything but streams."""
        if type != std.SOCK_STREAM or family not in (std.AF_INET, std.AF_INET6):
            raise _os_error(errno.EPROTONOSUPPORT)
        return self.make(family)

    def make(self, family: int) -> MemorySocket:
        """A new socket."""
        self._made += 1
        number = 10_000 + self._made
        self._open[number] = made = MemorySocket(self, family, number)
        return made

    def forget(self, closed: MemorySocket) -> None:
        """A socket was closed."""
        self._open.pop(closed._number, None)
        if self.listeners.get(closed._name) is closed:
            del self.listeners[closed._name]

    def take_address(self, host: str, port: int) -> _Address:
        """An address of this network. Raises OSError if it is taken."""
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if (host, port) in self.listeners:
            raise _os_error(errno.EADDRINUSE)
        return host, port

    def listener_at(self, host: str, port: int) -> MemorySocket | None:
        """Who accepts connections there."""
        return self.listeners.get((host, port)) or self.listeners.get(("0.0.0.0", port))

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        family: int = 0,
        type: int = 0,  # noqa: A002  # the resolver's signature
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """`localhost` is here; no other name is anywhere."""
        await trio.lowlevel.checkpoint()
        name = host.decode() if isinstance(host, bytes) else host
        if name != "localhost":
            raise std.gaierror(std.EAI_NONAME, f"{name!r}: a memory network knows localhost only")
        return [(std.AF_INET, std.SOCK_STREAM, std.IPPROTO_TCP, "", ("127.0.0.1", int(port or 0)))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        """Addresses have no names."""
        await trio.lowlevel.checkpoint()
        return str(sockaddr[0]), str(sockaddr[1])


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
