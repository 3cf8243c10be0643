"""HTTP/1.1 over trio: an httpx transport.

One exchange has one connection, new or taken from a small store of unused ones; there is no pool to wait for, and
nothing here is tried twice. It keeps no time (the request brings its clock) and does not know what is said.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Final

import httpx
import trio

from maka_trio import limits
from maka_trio.models.connection import Connection, Origin
from maka_trio.models.network import Clock, Sockets, Wire

CLOCK: Final = "maka_trio.clock"
"""The request extension that holds the `Clock` of the exchange."""


class HttpTransport(httpx.AsyncBaseTransport):
    """Sends requests that carry their `CLOCK`, any number at once.

    Unused connections are kept only while somebody holds the transport, since somebody must close them.

    Args:
        ssl_context: for https; by default one that trusts the `certifi` roots, made when it is first needed. The
            environment (`SSL_CERT_FILE`, proxies) is not asked.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context
        self._ssl_lock = trio.Lock()
        self._sockets = Sockets()
        self._unused: list[Connection] = []  # in the order in which they were put back
        self._holders = 0

    @property
    def open_connections(self) -> int:
        """Sockets that are open, in use or kept."""
        return self._sockets.open

    @property
    def unused_connections(self) -> int:
        """Connections that are kept for a next request."""
        return len(self._unused)

    def hold(self) -> None:
        """Keep unused connections until `release`."""
        self._holders += 1

    def release(self) -> None:
        """Give up one hold; the last one closes what is unused."""
        self._holders -= 1
        if not self._holders:
            for connection in self._unused:
                connection.wire.close()
            self._unused.clear()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request and return its answer as soon as the head is there.

        The caller closes the response. If this raises, or is cancelled, the connection is closed already.

        Raises:
            httpx.ConnectError, httpx.ConnectTimeout: there was no connection.
            httpx.TimeoutException: the deadline passed.
            httpx.ReadError, PeerClosed: the connection ended before the head did.
            NotHttp, httpx.RemoteProtocolError: what came is not HTTP.
        """
        if request.url.scheme == "https":
            await self._load_trust()
        connection = self._connection(request.url, request.extensions[CLOCK])
        try:
            head = await connection.ask(request)
        except BaseException:
            connection.wire.close()
            raise
        # Without the request, which httpx would keep: what was sent need not stay as long as its answer takes.
        return httpx.Response(head.status, headers=head.fields, stream=_Body(self, connection))

    async def _load_trust(self) -> None:
        async with self._ssl_lock:
            if self._ssl_context is None:
                self._ssl_context = await trio.to_thread.run_sync(_default_trust, abandon_on_cancel=True)

    def _connection(self, url: httpx.URL, clock: Clock) -> Connection:
        """An unused connection that still stands, the one used last; else a new one, not yet open."""
        origin = Origin.of(url)
        while self._unused and self._unused[0].expired:
            self._unused.pop(0).wire.close()
        for connection in [connection for connection in reversed(self._unused) if connection.origin == origin]:
            self._unused.remove(connection)
            if connection.usable:
                connection.wire.resume(clock)
                return connection
            connection.wire.close()
        return Connection(origin, Wire(self._sockets, clock), self._ssl_context)

    def _put_back(self, connection: Connection) -> None:
        """Keep a connection whose answer has ended and that can be used again, or close it."""
        if not (self._holders and connection.finish()):
            connection.wire.close()
            return
        self._unused.append(connection)
        if len(self._unused) > limits.IDLE_CONNECTIONS:
            self._unused.pop(0).wire.close()


class _Body(httpx.AsyncByteStream):
    """The body of one answer, in the pieces in which it arrives; its own iterator, so that nothing is suspended."""

    def __init__(self, transport: HttpTransport, connection: Connection) -> None:
        self._transport = transport
        self._connection: Connection | None = connection

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._connection is None:
            raise httpx.StreamClosed
        piece = await self._connection.next_piece()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Keep the connection if the body has ended, else close it now. Does not wait for the peer."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport._put_back(connection)


def _default_trust() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
