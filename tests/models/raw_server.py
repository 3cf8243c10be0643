"""A loopback server that says exactly what a test scripts, byte by byte, and sees what its peer does.

async with listening(nursery) as server:
peer = await server.accept()
request = await peer.read_request()
await peer.send(HEAD, chunk(b"..."))
await peer.assert_closed()
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio

EVENT_STREAM = b"content-type: text/event-stream\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"


def head(*fields: bytes, status: bytes = b"200 OK") -> bytes:
    """A response head; each field ends in CRLF."""
    return b"HTTP/1.1 " + status + b"\r\n" + b"".join(fields) + b"\r\n"


STREAM_HEAD = head(EVENT_STREAM, CHUNKED)
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(body: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole response with a Content-Length."""
    return head(*fields, b"content-length: %d\r\n" % len(body), status=status) + body


@attrs.frozen
class ReceivedRequest:
    """One request as it arrived."""

    line: bytes
    headers: dict[bytes, bytes]
    body: bytes


@attrs.define
class Peer:
    """The server's end of one connection."""

    stream: trio.abc.Stream
    _pending: bytes = b""

    async def read_request(self) -> ReceivedRequest:
        """Read one request to the end of its body."""
        while b"\r\n\r\n" not in self._pending:
            self._pending += await self._more()
        text, _, self._pending = self._pending.partition(b"\r\n\r\n")
        line, *fields = text.split(b"\r\n")
        pairs = (field.partition(b":") for field in fields)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await self._take(int(headers[b"content-length"]))
        return ReceivedRequest(line, headers, body)

    async def read_ahead(self, size: int) -> None:
        """Take so many more bytes from the network; `read_request` will find them."""
        enough = len(self._pending) + size
        while len(self._pending) < enough:
            self._pending += await self._more()

    async def send(self, *pieces: bytes) -> None:
        """Write the pieces, each by itself."""
        for piece in pieces:
            await self.stream.send_all(piece)

    async def assert_closed(self) -> None:
        """The peer closes, or resets, without saying anything more."""
        try:
            data = await self.stream.receive_some(1)
        except trio.BrokenResourceError:
            return
        assert data == b"", f"the connection is still in use: {bytes(data)!r}"

    async def aclose(self) -> None:
        """Close in order."""
        await self.stream.aclose()

    def reset(self) -> None:
        """Drop the connection with RST."""
        assert isinstance(self.stream, trio.SocketStream)
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()

    async def _take(self, size: int) -> bytes:
        parts = [self._pending]
        missing = size - len(self._pending)
        while missing > 0:
            parts.append(await self._more())
            missing -= len(parts[-1])
        whole = b"".join(parts)
        self._pending = whole[size:]
        return whole[:size]

    async def _more(self) -> bytes:
        data = await self.stream.receive_some(65536)
        assert data, "the peer closed in the middle of its request"
        return bytes(data)


@attrs.frozen
class RawServer:
    """A listening socket on 127.0.0.1, and every connection it has accepted."""

    listener: trio.SocketListener
    tls: ssl.SSLContext | None = None
    accepted: list[trio.SocketStream] = attrs.field(factory=list)

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self.listener.socket.getsockname()[1]
        return port

    @property
    def base_url(self) -> str:
        """What a provider configuration takes."""
        host = "127.0.0.1" if self.tls is None else "localhost"
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}/v1"

    async def accept(self) -> Peer:
        """The next connection, TLS handshake not yet done."""
        socket = await self.listener.accept()
        self.accepted.append(socket)
        if self.tls is None:
            return Peer(socket)
        return Peer(trio.SSLStream(socket, self.tls, server_side=True, https_compatible=True))

    def has_waiting(self) -> bool:
        """Whether a connection waits to be accepted."""
        return bool(self.listener.socket.is_readable())


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawServer, None]:
    """A server for the block; at its end every connection is closed."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = RawServer(listener, tls)
    try:
        yield server
    finally:
        listener.socket.close()
        for stream in server.accepted:
            stream.socket.close()
