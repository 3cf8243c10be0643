"""The events of one answer while it is decoded: what every protocol's decoder builds with.

`AnswerParts` knows the rules of model events (ids, order of start and end, delta sizes, limits, replay barriers) and
nothing of any provider. `payload` reads a provider's JSON, `stream_decoder` joins both to a stream of bytes.
"""

from __future__ import annotations

import itertools

import msgspec

from maka_trio import limits
from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.model import (
    Finished,
    FinishReason,
    ModelEvent,
    ModelToolCall,
    ModelUsage,
    PartDelta,
    PartFinished,
    PartStarted,
    ProviderToolResult,
    ResponseMetadata,
    Source,
    SourceCited,
    TextKind,
    ToolCallReady,
    is_replay_barrier,
)

_FRAME_BYTES = 96
"""What an encoded event takes besides its texts: braces, keys, kind."""

_CONTINUATION_MASK = 0b1100_0000
_CONTINUATION = 0b1000_0000


def split_text(text: str, limit: int = limits.DELTA_BYTES) -> list[str]:
    """Cut a text into pieces of at most `limit` bytes of UTF-8, between characters. Joined they are the text."""
    if len(text) * 4 <= limit or (len(text) <= limit and text.isascii()):
        return [text]
    data = text.encode()
    pieces = []
    start = 0
    while len(data) - start > limit:
        cut = start + limit
        while data[cut] & _CONTINUATION_MASK == _CONTINUATION:
            cut -= 1
        pieces.append(data[start:cut].decode())
        start = cut
    pieces.append(data[start:].decode())
    return pieces


def encoded_size(value: JSON) -> int:
    """Bytes of a JSON value as it would be written to the log."""
    return len(msgspec.json.encode(value))


class AnswerParts:
    """Collects the events of one answer.

    Text of one part that arrives between two calls to `take` is handed out as one delta (cut at
    `limits.DELTA_BYTES`); it is never kept longer than that. Every method raises AdapterError when one event passes
    `limits.WIRE_EVENT_BYTES` or all of them pass `limits.RESPONSE_BYTES`.
    """

    def __init__(self) -> None:
        self._events: list[ModelEvent] = []
        self._open: dict[str, TextKind] = {}
        self._ids = itertools.count()
        self._run_id = ""  # the part whose text is being gathered
        self._run: list[str] = []
        self._bytes = 0
        self._metadata = ResponseMetadata()
        self._call_ids: dict[str, None] = {}  # few or none, and an empty set weighs three times as much
        self.finished = False
        """`Finished` was added."""
        self.replay_safe = True
        """No replay barrier was added (semantics 4.7)."""
        self.observed_output = False
        """Some part of an answer was added; metadata is none."""

    # --- text --------------------------------------------------------------------------------------------

    def open_text(self, kind: TextKind, options: JsonObject | None = None) -> str:
        """Begin a text part and return its id, which is unique in the answer."""
        self._end_run()
        part_id = f"{kind.value}-{next(self._ids)}"
        self._open[part_id] = kind
        self._add(PartStarted(part_id, kind, options), 0, options)
        return part_id

    def text(self, part_id: str, text: str, options: JsonObject | None = None) -> None:
        """Add text to an open part. Options stand on the first piece of a text that must be cut."""
        if self._run_id != part_id or options:
            self._end_run()
            self._check_open(part_id)
            self._run_id = part_id
        if options:
            self._add_delta(part_id, text, options)
        elif text:
            self._run.append(text)

    def close_text(self, part_id: str, options: JsonObject | None = None) -> None:
        """End an open part."""
        self._end_run()
        self._check_open(part_id)
        del self._open[part_id]
        self._add(PartFinished(part_id, options), 0, options)

    def close_texts(self) -> None:
        """End every part that is still open, in the order they began."""
        for part_id in list(self._open):
            self.close_text(part_id)

    # --- everything else ---------------------------------------------------------------------------------

    def call(self, call: ModelToolCall) -> None:
        """Add a complete tool call. One without id or name, or with the id of another, is refused."""
        self._end_run()
        if not call.id or not call.name:
            raise AdapterError("the answer holds a tool call without id or name")
        if call.id in self._call_ids:
            raise AdapterError(f"the answer holds two tool calls with the id {excerpt(call.id)}")
        self._call_ids[call.id] = None
        size = len(call.id.encode()) + len(call.name.encode()) + encoded_size(call.input)
        self._add(ToolCallReady(call), size, call.provider_options)

    def provider_result(self, result: ProviderToolResult) -> None:
        """Add the result of a call that the provider executed."""
        self._end_run()
        self._add(result, encoded_size(result.output), result.provider_options)

    def cite(self, source: Source, options: JsonObject | None = None) -> None:
        """Add a citation."""
        self._end_run()
        named = "".join(text for text in (source.id, source.title, getattr(source, "url", "")) if text)
        self._add(SourceCited(source, options), len(named.encode()), options)

    def metadata(self, response_id: str | None, model: str | None, timestamp: int | None) -> None:
        """Say what the provider says of the response; only what is new makes an event."""
        known = self._metadata
        stated = ResponseMetadata(
            response_id if response_id is not None else known.id,
            model if model is not None else known.model,
            timestamp if timestamp is not None else known.timestamp,
        )
        if stated != known:
            self._end_run()
            self._metadata = stated
            self._charge(stated, len(f"{stated.id}{stated.model}".encode()))
            self._events.append(stated)

    def finish(self, reason: FinishReason, usage: ModelUsage, options: JsonObject | None = None) -> None:
        """End the answer. Parts that are still open are ended first."""
        self._end_run()
        self.close_texts()
        self.finished = True
        self.replay_safe = False
        event = Finished(reason, usage, options)
        self._charge(event, encoded_size(options))
        self._events.append(event)

    def reserve(self, size: int) -> None:
        """Count bytes that are kept for a later event, such as pieces of tool arguments."""
        self._bytes += size
        if self._bytes > limits.RESPONSE_BYTES:
            raise AdapterError(f"the answer passes the limit of {limits.RESPONSE_BYTES} bytes")

    def take(self) -> list[ModelEvent]:
        """The events added since the last call, whole."""
        self._end_run()
        events, self._events = self._events, []
        return events

    # --- inside ------------------------------------------------------------------------------------------

    def _check_open(self, part_id: str) -> None:
        if part_id not in self._open:
            raise AdapterError(f"text for part {excerpt(part_id)}, which is not open")

    def _end_run(self) -> None:
        if self._run:
            text = "".join(self._run)
            self._run.clear()
            self._add_delta(self._run_id, text, None)
        self._run_id = ""

    def _add_delta(self, part_id: str, text: str, options: JsonObject | None) -> None:
        for piece in split_text(text):
            self._add(PartDelta(part_id, piece, options), encoded_size(piece), options)
            options = None

    def _add(self, event: ModelEvent, size: int, options: JsonObject | None) -> None:
        self._charge(event, size + (encoded_size(options) if options else 0))
        self.observed_output = True
        if is_replay_barrier(event):
            self.replay_safe = False
        self._events.append(event)

    def _charge(self, event: ModelEvent, size: int) -> None:
        if size > limits.WIRE_EVENT_BYTES:
            raise AdapterError(f"a {event.kind} event passes the limit of {limits.WIRE_EVENT_BYTES} bytes")
        self.reserve(size + _FRAME_BYTES)
