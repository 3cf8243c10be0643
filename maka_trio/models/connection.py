"""`Connection`: HTTP/1.1 on a `Wire`. One exchange at a time.

Requests are written here, since whoever makes them has checked their headers; `AnswerReader` reads the answers.

It waits for the network and for nothing else: there is no lock to take and no generator to close, so what is cancelled
here is simply left, and whoever owns the connection closes its wire. Every failure is one of httpx's. Keeps no time
but that of an unused connection, and does not know what is said.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable
from contextlib import suppress
from typing import Final, NamedTuple

import httpx
import trio

from maka_trio import limits
from maka_trio.models.answer import AnswerReader
from maka_trio.models.head import Head
from maka_trio.models.network import Wire

_PORTS: Final = {"http": 80, "https": 443}


class PeerClosed(httpx.RemoteProtocolError):
    """The far side ended the connection before its answer ended."""


class NotHttp(httpx.RemoteProtocolError):
    """The far side does not speak HTTP; `first_bytes` is what it said."""

    def __init__(self, message: str, first_bytes: bytes) -> None:
        super().__init__(message)
        self.first_bytes = first_bytes


class Origin(NamedTuple):
    """What a connection leads to; any request to there may use it."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx.URL) -> Origin:
        """Where a request to this URL goes."""
        return cls(url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])


class Connection:
    """One connection to one origin, not yet open.

    Args:
        origin: where it leads.
        wire: what it goes over; it is closed by whoever owns the connection.
        ssl_context: for https.
    """

    def __init__(self, origin: Origin, wire: Wire, ssl_context: ssl.SSLContext | None) -> None:
        self.origin = origin
        self.wire = wire
        self._ssl_context = ssl_context
        self._answer = AnswerReader(None)
        self._body = b""  # read, and not given out yet
        self._kept_until = 0.0

    @property
    def expired(self) -> bool:
        """Whether it was unused for too long."""
        return trio.current_time() > self._kept_until

    @property
    def usable(self) -> bool:
        """Whether the far side has neither said anything nor closed it since the last answer."""
        return not self.wire.readable

    async def ask(self, request: httpx.Request) -> Head:
        """Send a request, opening the connection if need be, and return the head of its answer.

        Raises:
            httpx.ConnectError, httpx.ConnectTimeout: there was no connection.
            httpx.TimeoutException: the deadline passed.
            httpx.ReadError, PeerClosed: the connection ended before the head did.
            NotHttp, httpx.RemoteProtocolError: what came is not HTTP.
            httpx.LocalProtocolError: the request cannot be written as HTTP.
        """
        if not self.wire.opened:
            await self._open()
        connection = next((value for name, value in request.headers.raw if name == b"connection"), None)
        self._answer = answer = AnswerReader(connection)
        with suppress(httpx.WriteError):  # a server that no longer listens may have answered already
            await self._send(request)
        while answer.head is None:
            self._body += await self._receive()
        return answer.head

    async def _open(self) -> None:
        await self.wire.connect(self.origin.host, self.origin.port)
        if self.origin.scheme == "https":
            assert self._ssl_context is not None
            await self.wire.start_tls(self._ssl_context, self.origin.host)

    async def _send(self, request: httpx.Request) -> None:
        assert isinstance(request.stream, AsyncIterable)
        fields = [b"%b: %b\r\n" % field for field in request.headers.raw]
        line = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)
        await self.wire.write(b"%b%b\r\n" % (line, b"".join(fields)))
        async for piece in request.stream:
            await self.wire.write(piece)

    async def next_piece(self) -> bytes:
        """The next bytes of the body, as they came; empty at its end.

        Raises:
            httpx.TransportError: as `ask` does, once there is a connection.
        """
        body, self._body = self._body, b""
        while not body and not self._answer.ended:
            body = await self._receive()
        return body

    async def _receive(self) -> bytes:
        """Read once; what is read of the body."""
        answer = self._answer
        if answer.fault is None:
            body = answer.feed(await self.wire.read())
            if body or answer.fault is None:
                return body
        raise self._told(answer.fault)

    def finish(self) -> bool:
        """The exchange is over. Returns whether the next one may use the connection.

        What has come of the answer already may be its end.
        """
        if not (self._answer.reusable and self.wire.opened):
            return False
        self._body = b""
        self._kept_until = trio.current_time() + limits.KEEPALIVE_SECONDS
        return True

    def _told(self, fault: str) -> httpx.TransportError:
        """The reader's fault with what it cannot know: who ended the connection."""
        if self._answer.not_http:
            return NotHttp(fault, self._answer.not_http)
        return PeerClosed(fault) if self.wire.peer_closed else httpx.RemoteProtocolError(fault)
