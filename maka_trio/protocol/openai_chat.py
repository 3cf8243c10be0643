"""The chat completions adapter, for the vendor and for servers that speak the same in their own dialect.

`chat_request` says what is asked, `chat_stream` what is answered, `dialects` where servers differ.
"""

from __future__ import annotations

from collections.abc import Mapping

from maka_trio.errors import ModelError
from maka_trio.facts.model import ModelEvent
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.protocol.chat_request import encode_chat, option_key
from maka_trio.protocol.chat_stream import ChatDecoder
from maka_trio.protocol.dialects import dialect_of
from maka_trio.protocol.envelope import envelope
from maka_trio.protocol.failures import CHAT_RULES, classify_response
from maka_trio.request import ApiKey, Credentials, ModelRequest


class ChatCompletions:
    """`ProviderKind.OPENAI_CHAT_COMPLETIONS` and `OPENAI_COMPATIBLE`. Implements `adapter.Adapter`; holds no state."""

    name = "chat-completions"

    def encode(self, request: ModelRequest) -> EncodedRequest:
        """Encode a request. Its options are `provider_options["openai"]`, or those under the server's name."""
        return envelope(request.provider, "/chat/completions", encode_chat(request, dialect_of(request.provider)))

    def authorize(self, credentials: Credentials) -> Mapping[str, str]:
        """A bearer token for a key; prepared headers as they are."""
        if isinstance(credentials, ApiKey):
            return {"authorization": f"Bearer {credentials.value}"}
        return credentials.values

    def decoder(self, request: ModelRequest) -> ChatDecoder:
        """A decoder for a streamed answer."""
        return ChatDecoder(dialect_of(request.provider), option_key(request))

    def decode_document(self, request: ModelRequest, body: bytes) -> list[ModelEvent]:
        """The events of a whole completion, or the error that it states."""
        return self.decoder(request).document(body)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        """What a non-2xx answer means."""
        return classify_response(status, headers, body, CHAT_RULES)
