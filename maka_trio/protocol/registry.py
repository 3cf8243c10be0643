"""Which adapter speaks to which kind of provider. A protocol is imported when a provider that speaks it is met."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Final

from maka_trio.errors import InvalidInput
from maka_trio.protocol.adapter import Adapter
from maka_trio.request import ProviderConfig, ProviderKind


@functools.cache
def _chat_completions() -> Adapter:
    from maka_trio.protocol.openai_chat import ChatCompletions

    return ChatCompletions()


@functools.cache
def _responses() -> Adapter:
    from maka_trio.protocol.openai_responses import OpenAIResponses

    return OpenAIResponses()


@functools.cache
def _messages() -> Adapter:
    from maka_trio.protocol.anthropic import AnthropicMessages

    return AnthropicMessages()


ADAPTERS: Final[Mapping[ProviderKind, Callable[[], Adapter]]] = {
    ProviderKind.OPENAI_CHAT_COMPLETIONS: _chat_completions,
    ProviderKind.OPENAI_COMPATIBLE: _chat_completions,
    ProviderKind.OPENAI_RESPONSES: _responses,
    ProviderKind.ANTHROPIC: _messages,
}
"""Adapters hold no state, so one of each serves every request."""


def adapter_for(provider: ProviderConfig) -> Adapter:
    """The adapter of a provider's protocol.

    Raises:
        InvalidInput: no adapter speaks this kind.
    """
    adapter = ADAPTERS.get(provider.kind)
    if adapter is None:
        raise InvalidInput(f"providers of kind {provider.kind.value!r} are not supported yet")
    return adapter()
