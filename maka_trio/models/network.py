"""One network connection, as httpcore sees it: trio underneath, deadlines from outside, closed by force.

httpcore closes its connections under a shield of its own, and a bound around a shield bounds nothing. So closing
is no waiting at all here: the socket is closed at once, and a TLS peer is not told. Nothing here knows of HTTP but
`Rechunker`, which is fed what is read.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, Protocol

import attrs
import httpcore
import trio

from maka_trio import limits
from maka_trio.models.rechunk import Rechunker


class Clock(Protocol):
    """Whose time an operation takes."""

    def listen(self) -> trio.CancelScope:
        """An operation begins: a scope to run it in. That it is cancelled means that the operation took too long."""
        ...


FIRST_BYTES: Final = 1024
"""How much of an answer's beginning is remembered, to tell what it is if it is not HTTP."""


@attrs.define
class Sockets:
    """How many connections are open now."""

    open: int = 0


class Wire(httpcore.AsyncNetworkBackend, httpcore.AsyncNetworkStream):
    """One connection over its whole life: httpcore dials through it, then reads and writes through it.

    Attributes:
        clock: limits every operation. Each exchange brings its own; the timeouts that httpcore hands down are not
            used.
        peer_closed: the far side ended the connection.
        first_bytes: the beginning of what the far side sent in this exchange.
    """

    def __init__(self, sockets: Sockets, clock: Clock) -> None:
        self.clock = clock
        self.peer_closed = False
        self.first_bytes = b""
        self._sockets = sockets
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] | None = None
        self._framing = Rechunker()
        self._stopped = False
        self._unsent = b""

    # --- dialling ---

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> Wire:
        """Open the connection; this wire is the stream."""
        try:
            with self.clock.listen():
                self._stream = await trio.open_tcp_stream(host, port, local_address=local_address)
                self._sockets.open += 1
                return self
        except OSError as error:
            raise httpcore.ConnectError(plain_reason(error)) from error
        raise httpcore.ConnectTimeout

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Wire:
        """Do the TLS handshake. httpcore would leave the socket open after a failure; the transport closes it."""
        assert isinstance(self._stream, trio.SocketStream)
        self._stream = trio.SSLStream(self._stream, ssl_context, server_hostname=server_hostname, https_compatible=True)
        try:
            with self.clock.listen():
                await self._stream.do_handshake()
                return self
        except trio.BrokenResourceError as error:
            raise httpcore.ConnectError(plain_reason(error)) from error
        raise httpcore.ConnectTimeout

    async def sleep(self, seconds: float) -> None:
        """The pause between attempts to connect, of which httpcore makes one."""
        await trio.sleep(seconds)

    # --- the stream ---

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Send it, at the latest when the answer is read, so that head and short body go out together.

        Writing begins an exchange: what is read next is its answer.
        """
        self._framing.begin()
        self.first_bytes = b""
        self._unsent += buffer
        if len(self._unsent) >= limits.UPLOAD_PIECE_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        unsent, self._unsent = self._unsent, b""
        try:
            with self.clock.listen():
                await self._open_stream().send_all(unsent)
                return
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.WriteError(plain_reason(error)) from error
        raise httpcore.WriteTimeout

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """The next bytes for the HTTP parser, chunks merged; empty at the end."""
        if self._unsent:
            with suppress(httpcore.WriteError):  # a server that no longer listens may have answered already
                await self._flush()
        while not self.peer_closed:
            data = await self._receive(max_bytes)
            if not data:
                self.peer_closed = True
                return self._framing.flush()
            if passed := self._framing.feed(data):
                return passed
        return b""

    async def _receive(self, max_bytes: int) -> bytes:
        if self._stopped:
            raise httpcore.ReadError("no more is read")
        try:
            with self.clock.listen():
                data = await self._open_stream().receive_some(max_bytes)
                if len(self.first_bytes) < FIRST_BYTES:
                    self.first_bytes += data[:FIRST_BYTES]
                return bytes(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore.ReadError(plain_reason(error)) from error
        raise httpcore.ReadTimeout

    def stop(self) -> None:
        """From now on reading fails at once, so that whatever is in the middle of a body ends without waiting."""
        self._stopped = True

    @property
    def reusable(self) -> bool:
        """The last answer ended where its framing says, and nothing came after it."""
        return self._stream is not None and self._framing.complete

    def resume(self, clock: Clock) -> None:
        """Begin another exchange on the open connection."""
        self.clock = clock
        self._stopped = False

    async def aclose(self) -> None:
        """`close`, for httpcore."""
        self.close()

    def close(self) -> None:
        """Close the socket now, whatever is under way on it. Idempotent."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._sockets.open -= 1
            _socket(stream).close()

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks for: the TLS object (there is no HTTP/2 to find), and whether an idle peer spoke."""
        if info == "is_readable":
            return self._stream is None or _socket(self._stream).is_readable()
        return None

    def _open_stream(self) -> trio.SocketStream | trio.SSLStream[trio.SocketStream]:
        if self._stream is None:
            raise trio.ClosedResourceError
        return self._stream


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
