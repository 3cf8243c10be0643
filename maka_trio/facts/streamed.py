"""Observations, which are nearly all that a log holds, out of their bytes by a short way.

Shapes of their own, decoded in one go, instead of a value of every class on the way. They take the canonical form
and nothing unusual; whatever they do not take is for the converter, which says what is wrong with it, if anything is.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from maka_trio.errors import InvalidInput
from maka_trio.facts.event import ModelObserved
from maka_trio.facts.model import (
    Finished,
    FinishReason,
    ModelEvent,
    ModelToolCall,
    ModelUsage,
    PartDelta,
    PartFinished,
    PartStarted,
    TextKind,
    ToolCallReady,
)
from maka_trio.limits import IDENTITY_BYTES

_TEXT_END: Final = b'},"kind":"part_delta"}'
_OFTEN: Final = 256
_OFTEN_BYTES: Final = 256
"""How many events are remembered, and how large they may be."""

_SURE_IDENTITY: Final = IDENTITY_BYTES // 4
"""So many characters are within the limit in any alphabet."""


# --- streamed text ----------------------------------------------------------------------------------------


class _Text(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str
    text: str


class _Delta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    data: _Text
    kind: Literal["part_delta"]


class _Whole(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    event: _Delta
    kind: Literal["model_observed"]
    step_id: str


class StreamedText(msgspec.Struct, gc=False):
    """An observation of text and nothing else."""

    step_id: str
    part_id: str
    text: str

    def fact(self) -> ModelObserved:
        """The observation itself."""
        return ModelObserved(self.step_id, PartDelta(self.part_id, self.text))


Observed: TypeAlias = ModelObserved | StreamedText
"""An observation, as the value of its own or by the short way."""


# --- other observations -----------------------------------------------------------------------------------


class _Start(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    text_kind: Literal["text", "thinking"]

    def made(self) -> ModelEvent:
        return PartStarted(self.id, TextKind(self.text_kind))


class _Finish(msgspec.Struct, forbid_unknown_fields=True):
    id: str

    def made(self) -> ModelEvent:
        return PartFinished(self.id)


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    name: str
    input: Any
    provider_executed: bool

    def made(self) -> ModelEvent:
        return ToolCallReady(ModelToolCall(self.id, self.name, self.input, None, self.provider_executed))


class _Usage(msgspec.Struct, forbid_unknown_fields=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _End(msgspec.Struct, forbid_unknown_fields=True):
    reason: Literal["stop", "tool-calls", "length"]
    usage: _Usage

    def made(self) -> ModelEvent:
        return Finished(FinishReason(self.reason), ModelUsage(*msgspec.structs.astuple(self.usage)))


class _Event(msgspec.Struct, tag_field="kind", forbid_unknown_fields=True):
    pass


class _Started(_Event, tag=PartStarted.kind):
    data: _Start


class _PartFinished(_Event, tag=PartFinished.kind):
    data: _Finish


class _Called(_Event, tag=ToolCallReady.kind):
    data: _Call


class _Finished(_Event, tag=Finished.kind):
    data: _End


_ENCODER: Final = msgspec.json.Encoder()
_decoded_text: Final = msgspec.json.Decoder(str).decode
_decoded_whole: Final = msgspec.json.Decoder(_Whole).decode
_decoded_event: Final = msgspec.json.Decoder(_Started | _PartFinished | _Called | _Finished).decode

_BEFORE: Final = b'{"event":'
_BETWEEN: Final = b',"kind":"model_observed","step_id":'
_NO_HEAD: Final = b"\0"
"""With which no JSON begins."""

_often: dict[bytes, ModelEvent] = {}
"""Events that are said again and again, by their bytes: a part begins, a part ends, the answer ends."""


def short_observation(body: bytes) -> Observed | None:
    """The observation in the canonical bytes of a fact, if it is one and a usual one."""
    event, between, step_id = body.rpartition(_BETWEEN)
    if not between:
        return None
    try:
        if event.endswith(_TEXT_END):
            whole = _decoded_whole(body)
            data = whole.event.data
            return StreamedText(whole.step_id, data.id, data.text) if 0 < len(whole.step_id) <= _SURE_IDENTITY else None
        if step_id[-1:] != b"}":
            return None
        return ModelObserved(_decoded_text(step_id[:-1]), _often.get(event) or _event_in(event))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidInput):
        return None


def _event_in(data: bytes) -> ModelEvent:
    """The event in the beginning of an observation. Each of these two is JSON by itself, so that both together are."""
    if not data.startswith(_BEFORE):
        raise InvalidInput("an observation begins with its event")
    event: ModelEvent = _decoded_event(data[len(_BEFORE) :]).data.made()
    if len(data) <= _OFTEN_BYTES and not isinstance(event, ToolCallReady):
        if len(_often) >= _OFTEN:
            _often.clear()
        _often[data] = event
    return event


# --- a step as it streams ---------------------------------------------------------------------------------


class StreamedTexts(msgspec.Struct, gc=False):
    """Deltas of one part, of text and nothing else, one after the other."""

    part_id: str
    texts: list[str]


Streamed: TypeAlias = ModelEvent | StreamedTexts
"""What a step was observed to say next: an event, or deltas of text."""


class StepStream:
    """A step as it is observed. Its observations end alike, and deltas of a part begin alike: only the rest is decoded.

    Args:
        step_id: of the step, as one of its observations has it.
    """

    __slots__ = ("_from", "_head", "_part_id", "_tail", "_text_tail", "_to", "step_id")

    def __init__(self, step_id: str) -> None:
        self.step_id = step_id
        self._part_id = ""
        self._head = _NO_HEAD
        self._from = 0
        self._tail = b"%b%b}" % (_BETWEEN, _ENCODER.encode(step_id))
        self._text_tail = b'"%b%b' % (_TEXT_END, self._tail)
        self._to = 1 - len(self._text_tail)

    def text_of(self, body: bytes) -> str | None:
        """The text of one more delta of the part that `begin` was last called for, if these are its canonical bytes."""
        if not (body.startswith(self._head) and body.endswith(self._text_tail)):
            return None
        try:
            return _decoded_text(body[self._from : self._to])
        except (msgspec.MsgspecError, UnicodeError):
            return None

    def event_of(self, body: bytes) -> Streamed | None:
        """What one more observation brings, if these are the canonical bytes of a usual one."""
        text = self.text_of(body)
        if text is not None:
            return StreamedTexts(self._part_id, [text])
        if not body.endswith(self._tail):
            return None
        event = body[: -len(self._tail)]
        try:
            if event.endswith(_TEXT_END):
                data = _decoded_whole(body).event.data
                return self.begin(StreamedText(self.step_id, data.id, data.text))
            return _often.get(event) or _event_in(event)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidInput):
            return None

    def begin(self, delta: StreamedText) -> StreamedTexts:
        """The first of some deltas of a part."""
        self._part_id = delta.part_id
        self._head = b'{"event":{"data":{"id":%b,"text":"' % _ENCODER.encode(delta.part_id)
        self._from = len(self._head) - 1
        return StreamedTexts(delta.part_id, [delta.text])
