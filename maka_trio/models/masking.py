"""What of a request is secret, and keeping it out of the errors about it.

A provider may quote a key, a URL or a header in what it answers, and a library may quote them in its exceptions.
Every error of an exchange passes through `Secrets.clean` before anyone sees it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from maka_trio.errors import MakaError
from maka_trio.facts.json_value import JSON
from maka_trio.protocol.scrub import scrub_error
from maka_trio.request import ProviderConfig

VALUE_CHARACTERS: Final = 8
"""Configured headers, the overlay and parts of the URL only may be secret. Masking their short words would spoil
every message and guard nothing."""


class Secrets:
    """The secrets of one request. Nothing is computed until there is an error to clean."""

    def __init__(self, provider: ProviderConfig) -> None:
        self._provider = provider
        self._credentials: tuple[str, ...] = ()

    def add(self, credentials: Mapping[str, str]) -> None:
        """The headers that carry the credentials are known now."""
        self._credentials += tuple(credentials.values())

    def values(self) -> list[str]:
        """Everything that must not be shown."""
        named = (secret.value for secret in self._provider.secrets.values())
        decoded = (word for value in self._credentials for word in _decoded(value))
        return [*self._credentials, *decoded, *named, *_configured(self._provider)]

    def clean(self, error: MakaError) -> None:
        """Mask the error's text, in place, and cut its causes off, since they may quote anything."""
        scrub_error(error, self.values())
        error.__cause__ = error.__context__ = None


def _decoded(value: str) -> Iterator[str]:
    """What a server reads in a `Basic` header: `user:password`, and the password alone."""
    scheme, _, word = value.partition(" ")
    if scheme.lower() != "basic":
        return
    with suppress(ValueError):
        pair = base64.b64decode(word).decode(errors="replace")
        yield from (pair, pair.partition(":")[2])


def _configured(provider: ProviderConfig) -> Iterator[str]:
    values = [*provider.headers.values(), *_strings(provider.body_overlay), *_url_secrets(provider.base_url)]
    return (word for value in values for word in value.split() if len(word) >= VALUE_CHARACTERS)


def _url_secrets(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    for part in (parts.username, parts.password):
        if part:
            yield from (part, unquote(part))
    yield from (part for part in (parts.query, parts.fragment) if part)
    yield from (value for _, value in parse_qsl(parts.query))


def _strings(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
