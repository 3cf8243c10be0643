"""The Anthropic Messages adapter: `anthropic_request` for what is asked, `anthropic_stream` for what is answered."""

from __future__ import annotations

from collections.abc import Mapping

from maka_trio.errors import ModelError
from maka_trio.facts.model import ModelEvent
from maka_trio.protocol import anthropic_request
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.protocol.anthropic_options import AnthropicOptions
from maka_trio.protocol.anthropic_stream import AnthropicDecoder
from maka_trio.protocol.envelope import envelope
from maka_trio.protocol.failures import ANTHROPIC_RULES, classify_response
from maka_trio.request import ApiKey, Credentials, ModelRequest


class AnthropicMessages:
    """`ProviderKind.ANTHROPIC`. Implements `adapter.Adapter`; holds no state."""

    name = "anthropic-messages"

    def encode(self, request: ModelRequest) -> EncodedRequest:
        """Encode a request. Its options are `provider_options["anthropic"]`, see `AnthropicOptions`."""
        options = AnthropicOptions.read(request.provider_options)
        body = anthropic_request.encode_body(request, options)
        return envelope(request.provider, "/messages", body, anthropic_request.headers(options))

    def authorize(self, credentials: Credentials) -> Mapping[str, str]:
        """The vendor's own header for a key; prepared headers as they are."""
        return {"x-api-key": credentials.value} if isinstance(credentials, ApiKey) else credentials.values

    def decoder(self, request: ModelRequest) -> AnthropicDecoder:
        """A decoder for a streamed answer."""
        return AnthropicDecoder(request, AnthropicOptions.read(request.provider_options))

    def decode_document(self, request: ModelRequest, body: bytes) -> list[ModelEvent]:
        """The events of a whole message."""
        return self.decoder(request).document(body)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        """What a non-2xx answer means."""
        return classify_response(status, headers, body, ANTHROPIC_RULES)
