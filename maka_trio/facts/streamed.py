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

_OBSERVED: Final = b'"},"kind":"model_observed","step_id":"'
_TEXT: Final = b'},"kind":"part_delta' + _OBSERVED
_SURE_IDENTITY: Final = IDENTITY_BYTES // 4
"""So many characters are within the limit in any alphabet."""


# --- streamed text ----------------------------------------------------------------------------------------


class _Text(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: str
    text: str


class _Delta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    data: _Text
    kind: Literal["part_delta"]


class StreamedText(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An observation of text and nothing else."""

    event: _Delta
    kind: Literal["model_observed"]
    step_id: str

    def fact(self) -> ModelObserved:
        """The observation itself."""
        return ModelObserved(self.step_id, PartDelta(self.event.data.id, self.event.data.text))


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


class _Other(msgspec.Struct, forbid_unknown_fields=True):
    event: _Started | _PartFinished | _Called | _Finished
    kind: Literal["model_observed"]
    step_id: str


_TEXTS: Final = msgspec.json.Decoder(StreamedText)
_OTHERS: Final = msgspec.json.Decoder(_Other)


def short_observation(body: bytes) -> Observed | None:
    """The observation in the canonical bytes of a fact, if it is one and a usual one."""
    if _OBSERVED not in body:
        return None
    try:
        if _TEXT in body:
            text = _TEXTS.decode(body)
            return text if 0 < len(text.step_id) <= _SURE_IDENTITY else None
        other = _OTHERS.decode(body)
        return ModelObserved(other.step_id, other.event.data.made())
    except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidInput):
        return None
