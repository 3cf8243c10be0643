"""Which adapter speaks to which kind of provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from maka_trio.errors import InvalidInput
from maka_trio.protocol.adapter import Adapter
from maka_trio.protocol.anthropic import AnthropicMessages
from maka_trio.protocol.openai_chat import ChatCompletions
from maka_trio.protocol.openai_responses import OpenAIResponses
from maka_trio.request import ProviderConfig, ProviderKind

_CHAT: Final = ChatCompletions()

ADAPTERS: Final[Mapping[ProviderKind, Adapter]] = {
    ProviderKind.OPENAI_CHAT_COMPLETIONS: _CHAT,
    ProviderKind.OPENAI_COMPATIBLE: _CHAT,
    ProviderKind.OPENAI_RESPONSES: OpenAIResponses(),
    ProviderKind.ANTHROPIC: AnthropicMessages(),
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
    return adapter
