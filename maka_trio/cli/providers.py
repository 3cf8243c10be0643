"""Which provider a command means: protocol, base URL, and the key from its usual environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping

from maka_trio.cli.usage import UsageError
from maka_trio.records import frozen
from maka_trio.request import ApiKey, ProviderConfig, ProviderKind


@frozen
class Route:
    """What a word on the command line stands for."""

    kind: ProviderKind
    key_variable: str
    base_url: str | None = None


ROUTES: Mapping[str, Route] = {
    "openai": Route(ProviderKind.OPENAI_CHAT_COMPLETIONS, "OPENAI_API_KEY", "https://api.openai.com/v1"),
    "responses": Route(ProviderKind.OPENAI_RESPONSES, "OPENAI_API_KEY", "https://api.openai.com/v1"),
    "anthropic": Route(ProviderKind.ANTHROPIC, "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1"),
    "compatible": Route(ProviderKind.OPENAI_COMPATIBLE, "MAKA_TRIO_API_KEY"),
}

PROTOCOLS: Mapping[str, ProviderKind] = {
    "chat": ProviderKind.OPENAI_CHAT_COMPLETIONS,
    "compatible": ProviderKind.OPENAI_COMPATIBLE,
    "messages": ProviderKind.ANTHROPIC,
    "responses": ProviderKind.OPENAI_RESPONSES,
}
"""Protocols by the end of their paths, as recordings are named after them."""

DEFAULT_DIALECT = "compatible"
"""The name of a compatible server that was given none: no quirks of a vendor."""


def provider_of(word: str, model: str, *, base_url: str | None, name: str | None) -> ProviderConfig:
    """The configuration for a provider on the command line.

    Raises:
        UsageError: the key, a base URL or the right to a name is missing.
        InvalidInput: a value is out of its bounds.
    """
    route = ROUTES[word]
    url = base_url or route.base_url
    if url is None:
        raise UsageError(f"--provider {word} needs --base-url: everything before /chat/completions")
    return ProviderConfig(
        kind=route.kind, model=model, base_url=url, auth=_key(route), name=dialect_name(route.kind, name)
    )


def dialect_name(kind: ProviderKind, name: str | None) -> str | None:
    """The dialect to use: `--name`, or the one without quirks.

    Raises:
        UsageError: a strict protocol was given one.
    """
    if kind is ProviderKind.OPENAI_COMPATIBLE:
        return name or DEFAULT_DIALECT
    if name is not None:
        raise UsageError("--name is for compatible servers only")
    return None


def _key(route: Route) -> ApiKey:
    key = os.environ.get(route.key_variable, "").strip()
    if not key:
        local = " (any text will do for a server that asks for none)" if route.base_url is None else ""
        raise UsageError(f"no key: set the environment variable {route.key_variable}{local}")
    return ApiKey(key)
