"""A raw HTTP/1.1 server on loopback: just what it takes to play a provider, well or badly behaved.

It parses requests, hands each to a handler, and lets the handler answer byte by byte, keep silent, or break the
connection. It knows nothing of models. It binds 127.0.0.1 and nothing else.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import attrs
import trio

from maka_trio import limits
from maka_trio.records import frozen
from maka_trio.scopes import owned_nursery
from maka_trio.testing.requests import ReceivedHeaders

HEAD_BYTES = 256 * limits.KIB
"""The longest request head. Headers of a provider request are a few hundred bytes."""

BODY_BYTES = 2 * limits.REQUEST_BODY_BYTES
"""The longest request body: above anything this library sends, so that its own limits can be tested."""

_RECEIVE_BYTES = 256 * limits.KIB
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class MalformedRequest(Exception):
    """The bytes are no request that this server understands."""


class _ClientGone(Exception):
    """The client closed or broke the connection."""


@frozen
class Incoming:
    """One request, read to its end."""

    method: str
    target: str
    headers: ReceivedHeaders
    body: bytes = attrs.field(repr=False)


class Exchange:
    """One request and the answer to it. Made by the server; a handler answers through it.

    Sending raises `trio.BrokenResourceError` when the client is gone; the server treats that as the end of the
    exchange, and cancels a handler that only waits when the client leaves.
    """

    def __init__(self, stream: trio.SocketStream, request: Incoming, connection_closed: trio.Event) -> None:
        self.request = request
        self.connection_closed = connection_closed
        self.head_sent = False
        self._stream = stream
        self._reusable = request.headers.get("connection", "").lower() != "close"
        self._complete = False

    @property
    def reusable(self) -> bool:
        """The answer is complete and the connection may carry another request."""
        return self._complete and self._reusable

    async def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A whole answer with its length."""
        await self._stream.send_all(_head(status, {"content-length": str(len(body))} | dict(headers)) + body)
        self.head_sent = self._complete = True

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of an answer whose body is sent in chunks."""
        await self._stream.send_all(_head(status, {"transfer-encoding": "chunked"} | dict(headers)))
        self.head_sent = True

    async def chunk(self, data: bytes) -> None:
        """One HTTP chunk of the body. An empty one would end it and is refused."""
        if not data:
            raise ValueError("an empty chunk ends a body")
        await self._stream.send_all(b"%x\r\n%b\r\n" % (len(data), data))

    async def finish(self) -> None:
        """The end of a chunked body."""
        await self._stream.send_all(b"0\r\n\r\n")
        self._complete = True

    def disconnect(self) -> None:
        """Close the connection in order."""
        self._stream.socket.close()

    def reset(self) -> None:
        """Close the connection with a reset."""
        self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._stream.socket.close()


Handler = Callable[[Exchange], Awaitable[None]]


class _Connection:
    """One accepted connection."""

    def __init__(self, stream: trio.SocketStream, handler: Handler, on_malformed: Callable[[str], None]) -> None:
        self._stream = stream
        self._reader = _Reader(stream)
        self._handler = handler
        self._on_malformed = on_malformed
        self._closed = trio.Event()

    async def serve(self) -> None:
        """Answer requests until either side ends the connection. Raises only what the handler raises."""
        try:
            while await self._exchange():
                pass
        except (_ClientGone, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            # Plain close: `aclose` has a checkpoint, which a cancelled scope turns into Cancelled.
            self._stream.socket.close()
            self._closed.set()

    async def _exchange(self) -> bool:
        try:
            request = await self._reader.request()
        except MalformedRequest as error:
            self._on_malformed(str(error))
            await self._stream.send_all(_head(400, {"connection": "close", "content-length": "0"}))
            return False
        exchange = Exchange(self._stream, request, self._closed)
        await self._answer_while_connected(exchange)
        return exchange.reusable

    async def _answer_while_connected(self, exchange: Exchange) -> None:
        """Run the handler; a client that leaves meanwhile ends it, even if it is only waiting."""
        async with owned_nursery() as nursery:

            async def watch() -> None:
                await self._reader.until_closed()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await self._handler(exchange)
            nursery.cancel_scope.cancel()


class _Reader:
    """Requests out of a byte stream, one after the other."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self.closed = False

    async def request(self) -> Incoming:
        """The next request. Raises `_ClientGone` when there is none, or only a part of one."""
        method, target, headers = _parse_head(await self._until(b"\r\n\r\n", HEAD_BYTES))
        if headers.get("expect", "").lower() == "100-continue":
            await self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Incoming(method, target, headers, await self._body(headers))

    async def until_closed(self) -> None:
        """Return when the client has closed or broken the connection. Bytes that come meanwhile are kept."""
        while len(self._buffer) <= HEAD_BYTES:
            try:
                await self._receive()
            except (_ClientGone, trio.BrokenResourceError, trio.ClosedResourceError):
                self.closed = True
                return
        # A client that sends this much before it has an answer is not one of ours; stop buffering for it.
        await trio.sleep_forever()

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunked_body()
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > BODY_BYTES:
            raise MalformedRequest(f"content-length {length[:20]!r} is not a number up to {BODY_BYTES}")
        return await self._exactly(int(length))

    async def _chunked_body(self) -> bytes:
        body = bytearray()
        while True:
            line = await self._until(b"\r\n", 1024)
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise MalformedRequest("a chunk without a size") from None
            if not 0 <= size <= BODY_BYTES - len(body):
                raise MalformedRequest(f"a chunked body of more than {BODY_BYTES} bytes")
            if size == 0:
                break
            body += await self._exactly(size)
            if await self._exactly(2) != b"\r\n":
                raise MalformedRequest("a chunk that is longer than its size")
        while await self._until(b"\r\n", HEAD_BYTES):
            pass  # trailers say nothing that a provider would need
        return bytes(body)

    async def _until(self, end: bytes, limit: int) -> bytes:
        searched = 0
        while (found := self._buffer.find(end, searched)) < 0:
            if len(self._buffer) > limit:
                raise MalformedRequest(f"more than {limit} bytes without the end of a line or head")
            searched = max(len(self._buffer) - len(end) + 1, 0)
            await self._receive()
        part = bytes(self._buffer[:found])
        del self._buffer[: found + len(end)]
        return part

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._receive()
        part = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        return part

    async def _receive(self) -> None:
        data = await self._stream.receive_some(_RECEIVE_BYTES)
        if not data:
            raise _ClientGone
        self._buffer += data


def _parse_head(head: bytes) -> tuple[str, str, ReceivedHeaders]:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise MalformedRequest(f"{lines[0][:80]!r} is not an HTTP/1.1 request line")
    headers = ReceivedHeaders()
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise MalformedRequest("a header line without a name and a colon")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return words[0], words[1], headers


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Scripted"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode("latin-1")


@asynccontextmanager
async def serve_loopback(
    handler: Handler,
    *,
    on_open: Callable[[], None],
    on_close: Callable[[], None],
    on_malformed: Callable[[str], None],
) -> AsyncGenerator[int, None]:
    """Listen on a free port of 127.0.0.1 for as long as the block runs; yield the port.

    Leaving the block closes the listener and every connection, at once, answered or not. An error of the block
    comes out bare.

    Args:
        handler: answers each request. What it raises is a bug of the handler and comes out as a group.
        on_open: called for each accepted connection.
        on_close: called when such a connection is closed.
        on_malformed: called with what is wrong about bytes that are no request; they are answered with 400.
    """

    async def serve(stream: trio.SocketStream) -> None:
        on_open()
        try:
            await _Connection(stream, handler, on_malformed).serve()
        finally:
            on_close()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listener.socket.getsockname()[1]
    async with owned_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, [listener])
        yield port
        nursery.cancel_scope.cancel()
