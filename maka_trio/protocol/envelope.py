"""What every encoded request has in common: its URL, its headers, its bytes. Knows no protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit, urlunsplit

import msgspec

from maka_trio import limits
from maka_trio.errors import AdapterError, InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.request import ProviderConfig

JSON_HEADERS = (("content-type", "application/json"), ("accept", "text/event-stream"))
"""What says that JSON goes out and server-sent events should come back."""


def envelope(
    provider: ProviderConfig, path: str, body: dict[str, JSON], headers: Iterable[tuple[str, str]] = ()
) -> EncodedRequest:
    """A request to `path` under the provider's base URL, with its own headers and overlay joined in.

    Raises:
        InvalidInput: a configured header or overlay key contradicts a generated one. Names it, never its value.
        AdapterError: the body is larger than `limits.REQUEST_BODY_BYTES`.
    """
    return EncodedRequest(
        endpoint(provider.base_url, path),
        join_headers((*JSON_HEADERS, *headers), provider.headers),
        encode_body(body, provider.body_overlay),
    )


def endpoint(base_url: str, path: str) -> str:
    """The base URL with `path` added to its own. A query stays where it belongs, a trailing slash is fine."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, parts.query, ""))


def join_headers(generated: Iterable[tuple[str, str]], configured: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Generated and configured headers, one of each name, names in lower case."""
    joined = dict(generated)
    for name, value in configured.items():
        if joined.setdefault(name.lower(), value) != value:
            raise InvalidInput(f"the configured header {excerpt(name)} contradicts one that the protocol needs")
    return tuple(joined.items())


def encode_body(body: dict[str, JSON], overlay: JsonObject | None) -> bytes:
    """The bytes of a body with the overlay's keys added."""
    for key in overlay or {}:
        if key in body:
            raise InvalidInput(f"the body_overlay key {excerpt(key)} is already in the body")
    data = msgspec.json.encode({**body, **(overlay or {})})
    if len(data) > limits.REQUEST_BODY_BYTES:
        raise AdapterError(f"the request body has {len(data)} bytes; the limit is {limits.REQUEST_BODY_BYTES}")
    return data
