"""One POST request as it goes out: the adapter's headers, the credentials and our own, and the body in pieces.

Nothing is overwritten in silence: a header that contradicts another is refused, before the network is used.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

import attrs
import httpx
import trio

from maka_trio import limits
from maka_trio.errors import AdapterError, InvalidInput
from maka_trio.models.network import Clock
from maka_trio.models.transport import CLOCK
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.records import frozen
from maka_trio.request import ApiKey, Credentials, ProviderAuth, RequestHeaders

Headers = list[tuple[bytes, bytes]]

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")

OURS: Final = {"accept-encoding": "identity"}
"""Compression would cost the bounds on what one read may bring."""

DEFAULTS: Final = {"user-agent": "maka-trio"}
"""Sent unless the request says otherwise."""

REFUSED: Final = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "te", "trailer"})
"""They would change how the exchange runs."""


@frozen(eq=False)
class Post:
    """A POST request, checked and ready to go out."""

    url: httpx.URL = attrs.field(repr=False)
    headers: Headers = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)

    @classmethod
    def of(cls, encoded: EncodedRequest, credentials: Mapping[str, str]) -> Post:
        """The request with these credentials.

        Raises:
            InvalidInput: the URL or a header cannot be sent; see `request_headers`.
        """
        url = _parsed(encoded.url)
        given = [*encoded.headers, *credentials.items()]
        return cls(url, request_headers(given, host=url.netloc, length=len(encoded.body)), encoded.body)

    def request(self, clock: Clock) -> httpx.Request:
        """The request for `HttpTransport`."""
        return httpx.Request(
            "POST", self.url, headers=self.headers, stream=Upload(self.body), extensions={CLOCK: clock}
        )


@functools.lru_cache(maxsize=64)
def _parsed(url: str) -> httpx.URL:
    """Parsing takes a tenth of a short request's time, and programs talk to few servers."""
    try:
        return httpx.URL(url)
    except httpx.InvalidURL:
        raise InvalidInput("base_url is not a URL that HTTP can carry") from None


class Upload(httpx.AsyncByteStream):
    """A body in pieces. Its own iterator: it is dropped in the middle when a server stops reading."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._at = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = self._body[self._at : self._at + limits.UPLOAD_PIECE_BYTES]
        if not piece:
            raise StopAsyncIteration
        self._at += len(piece)
        return piece  # type: ignore[return-value]  # as good as bytes to whoever sends it, and no copy


async def resolve(auth: ProviderAuth) -> Credentials:
    """The credentials, asked for if they come from a callable.

    Raises:
        AdapterError: the callable failed or returned something else. Only the kind of its error is told: its text
            may hold the secret.
    """
    if isinstance(auth, (ApiKey, RequestHeaders)):
        return auth
    try:
        answer: object = auth()
        credentials = await answer if inspect.isawaitable(answer) else answer
    except BaseException as error:  # whatever it lets out, other runs must not suffer for it
        if _is_not_its_own(error):
            raise
        words = f"resolving the credentials failed with {type(error).__name__}"
        raise AdapterError(words) from None  # noqa: ASYNC104 - no cancel, as was asked just now
    if not isinstance(credentials, (ApiKey, RequestHeaders)):
        raise AdapterError(f"auth returned {type(credentials).__name__}, not ApiKey or RequestHeaders")
    return credentials


def _is_not_its_own(error: BaseException) -> bool:
    """What ends the task, or the program, that asks."""
    if isinstance(error, BaseExceptionGroup):
        return any(_is_not_its_own(inner) for inner in error.exceptions)
    return isinstance(error, (trio.Cancelled, KeyboardInterrupt, SystemExit, GeneratorExit))


def request_headers(given: Iterable[tuple[str, str]], *, host: bytes, length: int) -> Headers:
    """All headers of a POST, names in lower case, one of each name.

    Raises:
        InvalidInput: for a header that HTTP cannot carry, that contradicts another, or that is ours to set. Names
            the header, never its value.
    """
    merged: dict[str, str] = {}
    for name, value in [*OURS.items(), ("content-length", str(length)), *given]:
        _merge(merged, name.lower(), value)
    for name, value in DEFAULTS.items():
        merged.setdefault(name, value)
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in merged.items()]
    return encoded if "host" in merged else [(b"host", host), *encoded]


def _merge(merged: dict[str, str], name: str, value: str) -> None:
    if not _is_header(name, value):
        raise InvalidInput(f"the header {name[:80]!r} is not one that HTTP can carry")
    if name in REFUSED:
        raise InvalidInput(f"the header {name!r} cannot be set: it would change how the exchange runs")
    value = value.strip(" \t")
    if merged.setdefault(name, value) != value:
        raise InvalidInput(f"the header {name!r} is given twice with different values")


def _is_header(name: str, value: str) -> bool:
    try:
        return bool(_NAME.fullmatch(name.encode("ascii")) and _VALUE.fullmatch(value.encode("latin-1")))
    except UnicodeEncodeError:
        return False
