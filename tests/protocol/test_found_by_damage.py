"""Faults that damaged recordings brought to light, each in its smallest form."""

from __future__ import annotations

import pytest

from maka_trio.errors import AdapterError
from maka_trio.facts.message import Message
from maka_trio.facts.model import ModelToolCall
from maka_trio.protocol.parts import AnswerParts
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind


def test_a_stated_error_with_a_number_beyond_all_numbers_is_an_adapter_error() -> None:
    """The parser's own exception never comes out."""
    provider = ProviderConfig(ProviderKind.OPENAI_CHAT_COMPLETIONS, "m", "http://h/v1", ApiKey("k"))
    decoder = adapter_for(provider).decoder(ModelRequest(provider, [Message.user("hi")]))
    with pytest.raises(AdapterError):
        decoder.feed(b'data: {"error": {"message": "x"}, "other": [1e999]}\n\n')
        decoder.feed(b"")


@pytest.mark.parametrize("call", [ModelToolCall("", "name", {}), ModelToolCall("id", "", {})], ids=["id", "name"])
def test_a_call_without_id_or_name_is_refused_where_it_is_decoded(call: ModelToolCall) -> None:
    """No adapter hands on what a step could not hold."""
    with pytest.raises(AdapterError, match="without id or name"):
        AnswerParts().call(call)
