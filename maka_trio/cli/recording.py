"""A recorded response body through an adapter, event by event, so that each knows the byte it comes from.

No network and no trio: an adapter's decoder is all it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from maka_trio import limits
from maka_trio.cli.usage import UsageError
from maka_trio.errors import AdapterError, InvalidInput, ModelError
from maka_trio.facts.codec import parse_json
from maka_trio.facts.json_value import JsonObject
from maka_trio.facts.message import Message
from maka_trio.facts.model import ModelEvent, ModelStep
from maka_trio.protocol.registry import adapter_for
from maka_trio.protocol.sse import SseDecoder
from maka_trio.records import frozen
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from maka_trio.steps import StepBuilder

NO_STEP_ID = "00000000-0000-0000-0000-000000000000"
"""As long as a real one, so that a call id is judged as in a run."""

_LOOKED_AT = 64 * limits.KIB

_ANTHROPIC = frozenset({"message_start", "content_block_start", "content_block_delta", "message_delta"})

_KINDS = {"message": ProviderKind.ANTHROPIC, "response": ProviderKind.OPENAI_RESPONSES}


def read_recording(path: Path) -> bytes:
    """A recorded body.

    Raises:
        UsageError: it is larger than any response that would be accepted.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        body = file.read(limits.RESPONSE_BYTES + 1)
    if len(body) > limits.RESPONSE_BYTES:
        raise UsageError(f"{path} is larger than any response may be: {limits.RESPONSE_BYTES} bytes")
    return body


def protocol_of(body: bytes) -> ProviderKind:
    """Which protocol a recording speaks, by the kinds of its first events; chat completions name none."""
    if body.lstrip().startswith(b"{"):
        said = _object(body)
        return _KINDS.get(str(said.get("object", said.get("type"))), ProviderKind.OPENAI_CHAT_COMPLETIONS)
    for _, piece in islice(wire_events(body[:_LOOKED_AT]), 16):
        for event in SseDecoder().feed(piece + b"\n\n"):
            said = _object(event.data)
            kind = str(said.get("type"))
            if kind.startswith("response."):
                return ProviderKind.OPENAI_RESPONSES
            if kind in _ANTHROPIC or (kind == "error" and "error" in said):
                return ProviderKind.ANTHROPIC
    return ProviderKind.OPENAI_CHAT_COMPLETIONS


def _object(data: bytes) -> JsonObject:
    try:
        value = parse_json(data, what="the recording")
    except InvalidInput:
        return {}
    return value if isinstance(value, dict) else {}


@frozen
class Decoded:
    """A model event and the byte at which the wire event that completed it begins."""

    offset: int
    event: ModelEvent


@frozen
class Fault:
    """Why a recording is no step, and the byte at which that was seen."""

    offset: int
    error: ModelError


class Replay:
    """Decodes one recording. Iterate over `events`; then `step` or `fault` says what became of it."""

    def __init__(self, body: bytes, kind: ProviderKind, dialect: str | None) -> None:
        provider = ProviderConfig(
            kind=kind, model="recorded", base_url="http://recording.invalid", auth=ApiKey("none"), name=dialect
        )
        self._request = ModelRequest(provider, (Message.user("recorded"),))
        self._adapter = adapter_for(provider)
        self._body = body
        self.step: ModelStep | None = None
        self.fault: Fault | None = None

    def events(self) -> Iterator[Decoded]:
        """The events, up to the end or the first fault."""
        builder = StepBuilder(NO_STEP_ID)
        offset = 0
        try:
            for offset, events in self._lots():
                for event in events:
                    builder.push(event)
                    yield Decoded(offset, event)
            self.step = builder.finish()
        except ModelError as error:
            known = error.offset if isinstance(error, AdapterError) else None
            self.fault = Fault(offset if known is None else known, error)

    def _lots(self) -> Iterator[tuple[int, list[ModelEvent]]]:
        if self._body.lstrip().startswith(b"{"):
            yield 0, self._adapter.decode_document(self._request, self._body)
            return
        decoder = self._adapter.decoder(self._request)
        for offset, piece in wire_events(self._body):
            yield offset, []  # whatever is raised next was seen here
            yield offset, decoder.feed(piece)
            if decoder.finished:
                return
            yield offset, decoder.feed(b"")
        yield len(self._body), []
        yield len(self._body), decoder.close()


def wire_events(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The body in pieces of one SSE event each, with their offsets; together they are the whole body."""
    splitter = SseDecoder()
    starts: list[int] = []
    try:
        starts += [event.offset for event in splitter.feed(body)]
        starts += [event.offset for event in splitter.end()]
    except AdapterError:
        pass  # the decoder of the protocol will say so, in its place
    starts[:1] = [0]
    for start, end in zip(starts, [*starts[1:], len(body)], strict=True):
        yield start, body[start:end]
