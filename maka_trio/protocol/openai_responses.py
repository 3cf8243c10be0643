"""The OpenAI Responses adapter: `openai_responses_request` for what is asked, `openai_responses_stream` for answers."""

from __future__ import annotations

from collections.abc import Mapping

from maka_trio.errors import ModelError
from maka_trio.facts.model import ModelEvent
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.protocol.envelope import envelope
from maka_trio.protocol.failures import RESPONSES_RULES, classify_response
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.protocol.openai_responses_request import encode_body
from maka_trio.protocol.openai_responses_stream import ResponsesDecoder
from maka_trio.request import ApiKey, Credentials, ModelRequest


class OpenAIResponses:
    """`ProviderKind.OPENAI_RESPONSES`. Implements `adapter.Adapter`; holds no state."""

    name = "openai-responses"

    def encode(self, request: ModelRequest) -> EncodedRequest:
        """Encode a request. Its options are `provider_options["openai"]`, see `ResponsesOptions`."""
        options = ResponsesOptions.read(request.provider_options)
        return envelope(request.provider, "/responses", encode_body(request, options))

    def authorize(self, credentials: Credentials) -> Mapping[str, str]:
        """A bearer token for a key; prepared headers as they are."""
        if isinstance(credentials, ApiKey):
            return {"authorization": f"Bearer {credentials.value}"}
        return credentials.values

    def decoder(self, request: ModelRequest) -> ResponsesDecoder:
        """A decoder for a streamed answer."""
        return ResponsesDecoder(request, ResponsesOptions.read(request.provider_options))

    def decode_document(self, request: ModelRequest, body: bytes) -> list[ModelEvent]:
        """The events of a whole response."""
        return self.decoder(request).document(body)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        """What a non-2xx answer means."""
        return classify_response(status, headers, body, RESPONSES_RULES)
