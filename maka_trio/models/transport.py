"""HTTP/1.1 over trio: an httpx transport made of httpcore's connections.

One exchange has one connection, new or taken from a small store of unused ones; there is no pool to wait for, and
nothing here is tried twice. It keeps no time (the request brings its clock) and does not know what is said.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from typing import Final

import attrs
import httpcore
import httpx
import trio

from maka_trio import limits
from maka_trio.models.network import Clock, Sockets, Wire

CLOCK: Final = "maka_trio.clock"
"""The request extension that holds the `Clock` of the exchange."""


class PeerClosed(httpx.RemoteProtocolError):
    """The far side ended the connection in the middle of its answer."""


class NotHttp(httpx.RemoteProtocolError):
    """The far side does not speak HTTP; `first_bytes` is what it said."""

    def __init__(self, message: str, first_bytes: bytes) -> None:
        super().__init__(message)
        self.first_bytes = first_bytes


@attrs.frozen(eq=False)
class Line:
    """A connection: httpcore's side of it and ours."""

    wire: Wire
    connection: httpcore.AsyncHTTPConnection


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
        self._unused: list[Line] = []
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
            for line in self._unused:
                line.wire.close()
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
        line = self._line(request.url, request.extensions[CLOCK])
        try:
            response = await line.connection.handle_async_request(_to_httpcore(request))
        except _HTTPCORE_ERRORS as error:
            line.wire.close()
            raise _as_httpx(error, line.wire) from error
        except BaseException:
            line.wire.close()
            raise
        return httpx.Response(
            response.status, headers=response.headers, stream=_Body(self, line, response), request=request
        )

    async def _load_trust(self) -> None:
        async with self._ssl_lock:
            if self._ssl_context is None:
                self._ssl_context = await trio.to_thread.run_sync(_default_trust, abandon_on_cancel=True)

    def _line(self, url: httpx.URL, clock: Clock) -> Line:
        """An unused connection that still stands, the one used last; else a new one, not yet open."""
        origin = _to_httpcore_url(url).origin
        self._drop_dead()
        for line in reversed(self._unused):
            if line.connection.can_handle_request(origin):
                self._unused.remove(line)
                line.wire.resume(clock)
                return line
        return self._new_line(origin, clock)

    def _drop_dead(self) -> None:
        """Close the connections that were kept for too long or that the server has closed."""
        for line in [line for line in self._unused if line.connection.has_expired()]:
            self._unused.remove(line)
            line.wire.close()

    def _new_line(self, origin: httpcore.Origin, clock: Clock) -> Line:
        wire = Wire(self._sockets, clock)
        connection = httpcore.AsyncHTTPConnection(
            origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=limits.KEEPALIVE_SECONDS,
            network_backend=wire,
        )
        return Line(wire, connection)

    def _put_back(self, line: Line) -> None:
        """Keep a connection whose answer has ended and that can be used again, or close it."""
        if not (self._holders and line.connection.is_idle() and line.wire.reusable):
            line.wire.close()
            return
        self._unused.append(line)
        if len(self._unused) > limits.IDLE_CONNECTIONS:
            self._unused.pop(0).wire.close()


class _Body(httpx.AsyncByteStream):
    """The body of one answer, in the pieces in which it arrives; its own iterator, so that nothing is suspended."""

    def __init__(self, transport: HttpTransport, line: Line, response: httpcore.Response) -> None:
        assert isinstance(response.stream, AsyncIterable)
        self._transport = transport
        self._line: Line | None = line
        self._response = response
        self._pieces = aiter(response.stream)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._line is None:
            raise httpx.StreamClosed
        try:
            return await anext(self._pieces)
        except _HTTPCORE_ERRORS as error:
            raise _as_httpx(error, self._line.wire) from error

    async def aclose(self) -> None:
        """Keep the connection if the body has ended, else close it now. Does not wait for the peer."""
        line, self._line = self._line, None
        if line is None:
            return
        line.wire.stop()
        try:
            with trio.CancelScope(shield=True):  # the wire is stopped, so nothing waits for the network
                await self._run_out()
        finally:
            self._transport._put_back(line)

    async def _run_out(self) -> None:
        """Let httpcore's generators end instead of leaving them to the garbage collector."""
        with suppress(httpcore.NetworkError, httpcore.ProtocolError):
            async for _ in self._pieces:
                pass
        await self._response.aclose()


_HTTPCORE_ERRORS: Final = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)

_SAME: Final = (
    (httpcore.ConnectTimeout, httpx.ConnectTimeout),
    (httpcore.ReadTimeout, httpx.ReadTimeout),
    (httpcore.WriteTimeout, httpx.WriteTimeout),
    (httpcore.ConnectError, httpx.ConnectError),
    (httpcore.ReadError, httpx.ReadError),
    (httpcore.WriteError, httpx.WriteError),
    (httpcore.LocalProtocolError, httpx.LocalProtocolError),
)


def _as_httpx(error: Exception, wire: Wire) -> httpx.TransportError:
    """The error in httpx's terms, with what httpcore cannot tell: who ended the connection, and whether it is HTTP."""
    for theirs, ours in _SAME:
        if isinstance(error, theirs):
            return ours(str(error))
    if not _begins_like_http(wire.first_bytes):
        return NotHttp(str(error), wire.first_bytes)
    if wire.peer_closed:
        return PeerClosed(str(error))
    return httpx.RemoteProtocolError(str(error))


def _begins_like_http(data: bytes) -> bool:
    return data.startswith(b"HTTP/"[: len(data)])


def _to_httpcore(request: httpx.Request) -> httpcore.Request:
    return httpcore.Request(
        request.method, _to_httpcore_url(request.url), headers=request.headers.raw, content=request.stream
    )


def _to_httpcore_url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _default_trust() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
