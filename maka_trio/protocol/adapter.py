"""What an adapter is: it encodes a request, and makes a decoder for the answer. No I/O, no clock, no task.

The transport (`models.transport`) moves the bytes and keeps the time; an adapter says what they mean. A decoder
is fed the body in any pieces; for the same bytes it makes the same events, however they are cut (text deltas may
be cut differently, their concatenation is the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs

from maka_trio.errors import ModelError
from maka_trio.facts.model import ModelEvent
from maka_trio.records import frozen
from maka_trio.request import Credentials, ModelRequest


@frozen
class EncodedRequest:
    """A POST request, ready but for its credentials."""

    url: str = attrs.field(repr=False)
    headers: tuple[tuple[str, str], ...] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


class Decoder(Protocol):
    """Body bytes of one successful answer in, model events out.

    Every method raises a `ModelError` when the answer cannot become a step; after that the decoder is void. An
    error in the middle does not take back what was decoded before it: a call to `feed` that decodes events and
    then meets a fault returns the events, and the next call raises.
    """

    @property
    def finished(self) -> bool:
        """`Finished` was handed out: the answer is complete, whatever the socket still does."""
        ...

    @property
    def in_grace(self) -> bool:
        """The end of the answer was seen and only trailing usage or the end marker is still awaited.

        The transport then waits at most `limits.FINISH_GRACE_SECONDS`, whatever else arrives, and calls `settle`.
        """
        ...

    @property
    def replay_safe(self) -> bool:
        """No barrier was seen: the same request may be sent again (semantics 4.7)."""
        ...

    @property
    def observed_output(self) -> bool:
        """Some part of an answer was decoded."""
        ...

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode the next bytes of the body. After `finished`, bytes are ignored."""
        ...

    def settle(self) -> list[ModelEvent]:
        """The grace is over: finish with what is known."""
        ...

    def close(self) -> list[ModelEvent]:
        """The body ended cleanly. Raises ProviderFailure `stream_truncated` if the answer had not ended."""
        ...


class Adapter(Protocol):
    """One protocol, in both directions."""

    @property
    def name(self) -> str:
        """`chat-completions`, `openai-responses` or `anthropic-messages`: the key of `with_adapters`."""
        ...

    def encode(self, request: ModelRequest) -> EncodedRequest:
        """Encode a request.

        Raises:
            InvalidInput: the request holds something the protocol cannot carry, or a header or overlay key that
                contradicts a generated one. Names the key, never its value.
            AdapterError: the body is larger than `limits.REQUEST_BODY_BYTES`.
        """
        ...

    def authorize(self, credentials: Credentials) -> Mapping[str, str]:
        """The headers that carry the credentials."""
        ...

    def decoder(self, request: ModelRequest) -> Decoder:
        """A decoder for a `text/event-stream` answer."""
        ...

    def decode_document(self, request: ModelRequest, body: bytes) -> list[ModelEvent]:
        """The events of a plain JSON answer to a streaming request, or the error that it states."""
        ...

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        """What a non-2xx answer means. `body` may be cut at `limits.ERROR_BODY_BYTES`; header names are lower case."""
        ...
