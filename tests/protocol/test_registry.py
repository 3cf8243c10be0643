"""Which adapter speaks to which provider."""

from __future__ import annotations

import pytest

from maka_trio.errors import InvalidInput
from maka_trio.protocol import registry
from maka_trio.request import ApiKey, ProviderConfig, ProviderKind


def provider(kind: ProviderKind) -> ProviderConfig:
    name = "server" if kind is ProviderKind.OPENAI_COMPATIBLE else None
    return ProviderConfig(kind, "m", "http://127.0.0.1", ApiKey("k"), name=name)


def test_every_kind_has_its_adapter() -> None:
    """Under the names by which adapters are bound."""
    names = {kind: registry.adapter_for(provider(kind)).name for kind in ProviderKind}
    assert names == {
        ProviderKind.OPENAI_CHAT_COMPLETIONS: "chat-completions",
        ProviderKind.OPENAI_COMPATIBLE: "chat-completions",
        ProviderKind.OPENAI_RESPONSES: "openai-responses",
        ProviderKind.ANTHROPIC: "anthropic-messages",
    }


def test_a_kind_without_adapter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clear error, not a look-up that fails."""
    monkeypatch.setattr(registry, "ADAPTERS", {})
    with pytest.raises(InvalidInput, match="'anthropic'"):
        registry.adapter_for(provider(ProviderKind.ANTHROPIC))
