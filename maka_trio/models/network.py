"""One network connection: trio underneath, deadlines from outside, closed by force.

Closing is no waiting at all: the socket is closed at once, and a TLS peer is not told, since a bound around a goodbye
that shields itself would bound nothing. Knows nothing of HTTP.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

import httpx
import trio

from maka_trio import limits
from maka_trio.records import define


class Clock(Protocol):
    """Whose time an operation takes."""

    def listen(self) -> trio.CancelScope:
        """An operation begins: a scope to run it in. That it is cancelled means that the operation took too long."""
        ...


@define
class Sockets:
    """How many connections are open now."""

    open: int = 0


class Wire:
    """One connection over its whole life. Its failures are httpx's.

    Attributes:
        clock: limits every operation. Each exchange brings its own.
        peer_closed: the far side ended the connection.
    """

    def __init__(self, sockets: Sockets, clock: Clock) -> None:
        self.clock = clock
        self.peer_closed = False
        self._sockets = sockets
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] | None = None
        self._unsent: bytes | memoryview = b""

    # --- dialling ---

    @property
    def opened(self) -> bool:
        """Whether there is a connection."""
        return self._stream is not None

    async def connect(self, host: str, port: int) -> None:
        """Open the connection."""
        try:
            with self.clock.listen():
                self._stream = await dial(host, port)
                self._sockets.open += 1
                return
        except OSError as error:
            raise httpx.ConnectError(plain_reason(error)) from error
        raise httpx.ConnectTimeout("connecting took too long")

    async def start_tls(self, ssl_context: ssl.SSLContext, host: str) -> None:
        """Do the TLS handshake. After a failure the socket is still open; whoever owns the wire closes it."""
        assert isinstance(self._stream, trio.SocketStream)
        ssl_context.set_alpn_protocols(["http/1.1"])
        self._stream = trio.SSLStream(self._stream, ssl_context, server_hostname=host, https_compatible=True)
        try:
            with self.clock.listen():
                await self._stream.do_handshake()
                return
        except trio.BrokenResourceError as error:
            raise httpx.ConnectError(plain_reason(error)) from error
        raise httpx.ConnectTimeout("the TLS handshake took too long")

    # --- the stream ---

    async def write(self, data: bytes | memoryview) -> None:
        """Send it, at the latest when the answer is read, so that head and short body go out together."""
        self._unsent = b"".join((self._unsent, data)) if self._unsent else data
        if len(self._unsent) >= limits.UPLOAD_PIECE_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        unsent, self._unsent = self._unsent, b""
        try:
            with self.clock.listen():
                await self._open_stream().send_all(unsent)
                return
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpx.WriteError(plain_reason(error)) from error
        raise httpx.WriteTimeout("sending took too long")

    async def read(self) -> bytes:
        """What comes next; empty at the end. What was not sent yet is sent first."""
        if self._unsent:
            with suppress(httpx.WriteError):  # a server that no longer listens may have answered already
                await self._flush()
        if self.peer_closed:
            return b""
        try:
            with self.clock.listen():
                data = bytes(await self._open_stream().receive_some(limits.DOWNLOAD_PIECE_BYTES))
                self.peer_closed = not data
                return data
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpx.ReadError(plain_reason(error)) from error
        raise httpx.ReadTimeout("reading took too long")

    def resume(self, clock: Clock) -> None:
        """Begin another exchange on the open connection."""
        self.clock = clock

    def close(self) -> None:
        """Close the socket now, whatever is under way on it. Idempotent."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._sockets.open -= 1
            _socket(stream).close()

    @property
    def readable(self) -> bool:
        """Whether the far side has sent something, or its end, that was not read; also where there is no connection."""
        return self._stream is None or _socket(self._stream).is_readable()

    def _open_stream(self) -> trio.SocketStream | trio.SSLStream[trio.SocketStream]:
        if self._stream is None:
            raise trio.ClosedResourceError
        return self._stream


async def dial(host: str, port: int) -> trio.SocketStream:
    """Connect to a host.

    An address is connected to at once: what makes the best of the several that a name may have takes longer than the
    connecting itself.

    Raises:
        OSError: nobody listens there, or there is no such host.
    """
    family = _family(host)
    if family is None:
        return await trio.open_tcp_stream(host, port)
    dialled = trio.socket.socket(family)
    try:
        await dialled.connect((host, port))
    except BaseException:
        dialled.close()
        raise
    return trio.SocketStream(dialled)


def _family(host: str) -> socket.AddressFamily | None:
    """Of what kind an address is; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None


def _socket(stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> trio.socket.SocketType:
    return stream.socket if isinstance(stream, trio.SocketStream) else stream.transport_stream.socket


def plain_reason(error: BaseException) -> str:
    """Why the network failed, in the operating system's or OpenSSL's words, which quote nothing of the request."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason or type(cause).__name__}"
        if isinstance(cause, socket.gaierror):
            return cause.strerror or "the name is not known"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)
    return "the connection is closed" if isinstance(error, trio.ClosedResourceError) else "the connection broke"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            yield from _causes(error.exceptions[0])
        error = error.__cause__ or error.__context__
