"""One HTTP exchange with a provider: a request goes out, lots of model events come back, or one `ModelError`.

What the bytes mean is the adapter's to say; what a status, a content type, a silence and a broken connection mean
is said here.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import httpx

from maka_trio import limits
from maka_trio.errors import AdapterError, ModelError, ProviderFailure
from maka_trio.facts.model import ModelEvent
from maka_trio.models.clock import ProviderClock
from maka_trio.models.connection import NotHttp, PeerClosed
from maka_trio.models.masking import Secrets
from maka_trio.models.transport import HttpTransport
from maka_trio.models.wire_request import Post, resolve
from maka_trio.protocol.adapter import Adapter, Decoder, EncodedRequest
from maka_trio.protocol.failures import retry_after
from maka_trio.protocol.scrub import bounded_text
from maka_trio.records import define
from maka_trio.request import ModelRequest

Lot = tuple[ModelEvent, ...]
"""The events of one network read. Never empty."""

HandOn = Callable[[Lot], Awaitable[None]]

EVENT_STREAM: Final = "text/event-stream"


@define(eq=False)
class ModelCall:
    """A request that is ready to go out, and who understands the answer.

    `unsent` is a `Post` where it has its credentials already, and None once it is sent: it may be large, and an
    answer takes long.
    """

    request: ModelRequest
    adapter: Adapter
    unsent: EncodedRequest | Post | None
    transport: HttpTransport
    secrets: Secrets


class Exchange:
    """Carries out one `ModelCall`, once. Cancelling `run` closes the connection before it returns.

    Args:
        call: what to do.
        clock: the provider's time; started here when credentials and window are there.
        hand_on: takes each lot, in order.
    """

    def __init__(self, call: ModelCall, clock: ProviderClock, hand_on: HandOn) -> None:
        self._call = call
        self._clock = clock
        self._hand_on = hand_on

    async def run(self) -> None:
        """Send the request, hand on what is answered.

        Raises:
            ModelError: after everything that was decoded before it has been handed on.
            InvalidInput: the credentials make a header that HTTP cannot carry.
        """
        response = await self._send()
        try:
            await self._take_answer(response)
        except ModelError as error:
            _name_server(error, self._url)
            _note_wait(error, response)
            raise
        finally:
            await response.aclose()

    # --- the request ---

    async def _send(self) -> httpx.Response:
        call = self._call
        post = await self._post()
        self._url = post.url
        request = post.request(self._clock)
        self._clock.start()
        try:
            return await call.transport.handle_async_request(request)
        except httpx.TransportError as error:
            raise self._unanswered(error, request.url) from None

    async def _post(self) -> Post:
        call = self._call
        unsent, call.unsent = call.unsent, None
        assert unsent is not None
        if isinstance(unsent, Post):
            return unsent
        credentials = call.adapter.authorize(await resolve(call.request.provider.auth))
        call.secrets.add(credentials)
        return Post.of(unsent, credentials)

    def _unanswered(self, error: httpx.TransportError, url: httpx.URL) -> ModelError:
        """What it means that there is no response head. Nothing was answered, so all but nonsense can be retried."""
        server = _server(url)
        match error:
            case httpx.ConnectTimeout():
                return self._clock.timed_out(f"connecting to {server}")
            case httpx.WriteTimeout():
                return self._clock.timed_out("sending the request")
            case httpx.TimeoutException():
                return self._clock.timed_out("waiting for the response headers")
            case httpx.ConnectError():
                return _network(f"could not connect to {server}: {error}", replay_safe=True)
            case httpx.NetworkError():
                return _network(f"{server} broke the connection before it answered: {error}", replay_safe=True)
            case PeerClosed():
                return _network(f"{server} closed the connection before it answered", replay_safe=True)
            case NotHttp():
                return AdapterError(f"{server} does not speak HTTP: {self._quoted(error.first_bytes)}")
            case httpx.LocalProtocolError():
                return AdapterError("the request cannot be written as HTTP")
        return AdapterError(f"{server} sent no valid response head: {self._bounded(str(error))}")

    # --- the answer ---

    async def _take_answer(self, response: httpx.Response) -> None:
        if not response.is_success:
            raise await self._refusal(response)
        status, encoding = response.status_code, _encoding(response)
        if encoding:
            raise AdapterError(
                f"status {status} with content-encoding {self._bounded(encoding)}, which we refuse", status=status
            )
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type in ("", EVENT_STREAM):
            await self._take_stream(response)
        elif media_type == "application/json":
            await self._take_document(response)
        else:
            raise await self._foreign(response)

    async def _take_stream(self, response: httpx.Response) -> None:
        decoder = self._call.adapter.decoder(self._call.request)
        rest: Sequence[ModelEvent]
        try:
            async for piece in _body(response):
                if not decoder.finished:  # else only the end of the body is awaited
                    await self._decode(decoder, piece)
            rest = decoder.close()
        except httpx.TransportError as error:
            rest = self._broken_off(decoder, error)
        await self._emit(rest)

    async def _decode(self, decoder: Decoder, piece: bytes) -> None:
        await self._emit(decoder.feed(piece))
        if decoder.finished:
            self._clock.begin_linger()
        else:
            decoder.feed(b"")  # raises the fault that came after the events, which silence could hide for long
            if decoder.in_grace:
                self._clock.begin_grace()

    def _broken_off(self, decoder: Decoder, error: httpx.TransportError) -> Sequence[ModelEvent]:
        """The connection is of no more use: whether the answer is complete all the same."""
        if decoder.finished:
            return ()
        if decoder.in_grace:
            return decoder.settle()
        raise self._cut(error, replay_safe=decoder.replay_safe)

    def _cut(self, error: httpx.TransportError, *, replay_safe: bool) -> ModelError:
        match error:
            case httpx.TimeoutException():
                return self._clock.timed_out("waiting for the next bytes")
            case PeerClosed():
                return ProviderFailure(
                    "the connection ended in the middle of the answer",
                    reason="stream_truncated",
                    replay_safe=replay_safe,
                )
            case httpx.NetworkError():
                return _network(
                    f"the connection was lost in the middle of the answer: {error}", replay_safe=replay_safe
                )
        return AdapterError(f"the answer is not valid HTTP: {self._bounded(str(error))}")

    async def _take_document(self, response: httpx.Response) -> None:
        body = bytearray()
        try:
            await _read(response, body, limits.PLAIN_BODY_BYTES)
        except httpx.TransportError as error:
            raise self._cut(error, replay_safe=True) from None
        if len(body) > limits.PLAIN_BODY_BYTES:
            raise AdapterError(
                f"a JSON answer of more than {limits.PLAIN_BODY_BYTES} bytes", status=response.status_code
            )
        await self._emit(self._call.adapter.decode_document(self._call.request, bytes(body)))

    async def _emit(self, events: Sequence[ModelEvent]) -> None:
        if events:
            await self._hand_on(tuple(events))

    # --- answers that are none ---

    async def _refusal(self, response: httpx.Response) -> ModelError:
        """What a status outside 2xx means. It is known whatever becomes of the body."""
        status = response.status_code
        if response.is_redirect:
            return AdapterError(f"status {status}: redirects are not followed; is base_url right?", status=status)
        body = b""
        if not _encoding(response):
            body = await self._beginning(response, limits.ERROR_BODY_BYTES)
        return self._call.adapter.failure(status, dict(response.headers.items()), body)

    async def _foreign(self, response: httpx.Response) -> ModelError:
        status, content_type = response.status_code, response.headers["content-type"]
        body = await self._beginning(response, limits.PROVIDER_MESSAGE_BYTES)
        said = f"status {status} with content type {self._bounded(content_type)}, not an answer"
        return AdapterError(f"{said}: {self._quoted(body)}", status=status)

    async def _beginning(self, response: httpx.Response, limit: int) -> bytes:
        """As much of a body as comes in the short time that such a body is worth."""
        body = bytearray()
        self._clock.begin_grace()
        with suppress(httpx.TransportError):
            await _read(response, body, limit)
        return bytes(body[:limit])

    def _quoted(self, data: bytes) -> str:
        return repr(self._bounded(data.decode(errors="backslashreplace")))

    def _bounded(self, text: str) -> str:
        return bounded_text(text, limits.WIRE_EXCERPT_BYTES, self._call.secrets.values())


def _server(url: httpx.URL) -> str:
    return url.host if url.port is None else f"{url.host}:{url.port}"


def _name_server(error: ModelError, url: httpx.URL) -> None:
    """Say whose answer it was: a program talks to several providers, and a wrong base URL looks like a bad one."""
    error.message = f"{_server(url)}: {error.message}"
    error.args = (error.message,)


def _note_wait(error: ModelError, response: httpx.Response) -> None:
    """A header that says how long to wait counts beside an error in a successful answer, too."""
    if not isinstance(error, ProviderFailure) or error.reason not in ("rate_limit", "provider_unavailable"):
        return
    if error.retry_after is None:
        error.retry_after = retry_after(dict(response.headers.items()), time.time())


def _network(message: str, *, replay_safe: bool) -> ProviderFailure:
    return ProviderFailure(message, reason="network", replay_safe=replay_safe)


def _encoding(response: httpx.Response) -> str:
    """The content encoding, empty if the body is what it seems."""
    encoding: str = response.headers.get("content-encoding", "").strip()
    return "" if encoding.lower() == "identity" else encoding


def _body(response: httpx.Response) -> httpx.AsyncByteStream:
    """The body as it comes: `aiter_raw` would put three generators between."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return response.stream


async def _read(response: httpx.Response, body: bytearray, limit: int) -> None:
    """Read to the end, or until there is more than `limit`."""
    async for piece in _body(response):
        body += piece
        if len(body) > limit:
            return
