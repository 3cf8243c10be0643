"""What a tool returned: the raw result that is stored, and the projection that the model is shown (semantics 5.4).

A result is durable evidence and must be representable as JSON, whole. The projection is a view of it and is
bounded: when it would be too large, the model is told so and the tool has succeeded all the same. Media goes beside
the event as artifacts, never into it. Knows nothing of calls and effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import attrs

from maka_trio import limits
from maka_trio.errors import InvalidInput, MakaError
from maka_trio.facts import bounds
from maka_trio.facts.codec import canonical, digest, encode
from maka_trio.facts.event import Artifact
from maka_trio.facts.image_type import media_type_of
from maka_trio.facts.json_value import JSON, check_json
from maka_trio.facts.message import (
    ContentOutput,
    ContentPart,
    ErrorOutput,
    JsonOutput,
    MediaContent,
    TextContent,
    TextOutput,
    ToolOutput,
)
from maka_trio.facts.outcome import ArtifactRef, EffectFailed, RawResult, Succeeded, ToolOutcome
from maka_trio.records import frozen
from maka_trio.tools.failure import bounded, text_of

RESULT_LOST_TEXT: Final = "effect done, result not representable"
"""Begins the message of a call that is settled as failed because its result was lost."""

RESULT_HIDDEN_TEXT: Final = "the tool succeeded, but its result cannot be shown"
"""Begins what the model is shown of a result that is stored, when its projection would be too large or is not valid."""

_REASON_BYTES: Final = 512


# --- what a handler may return besides JSON -----------------------------------------------------------------


@frozen
class ToolText:
    """A text whose raw result says that it is one: `{"kind": "text", "text": ...}`. A plain str is shown as text."""

    text: str = attrs.field(validator=bounds.text())


@frozen
class ToolImage:
    """An image: PNG, JPEG, GIF, WebP or AVIF, at most `limits.MEDIA_BYTES`.

    Its type is read from the bytes; what `media_type` says, and providers of images say much, does not count.
    """

    data: bytes = attrs.field(repr=False, validator=bounds.instance(bytes))
    media_type: str | None = None


ToolPart: TypeAlias = str | TextContent | MediaContent | ToolImage


def _tuple_of(parts: Iterable[ToolPart]) -> tuple[ToolPart, ...]:
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise InvalidInput(f"content takes a sequence of parts, not {type(parts).__name__}")
    return tuple(parts)


@frozen
class ToolContent:
    """Ordered text and media. `raw` is the stored result; without one, a list that describes the parts."""

    parts: tuple[ToolPart, ...] = attrs.field(converter=_tuple_of)
    raw: JSON = None


@frozen
class ToolProjection:
    """A raw result together with what the model is to be shown of it."""

    raw: JSON
    projection: ToolOutput


# --- encoding ---------------------------------------------------------------------------------------------


@frozen
class EncodedResult:
    """A result as it is written: what the settlement says, and what is stored beside it."""

    outcome: ToolOutcome
    payload: bytes | None = attrs.field(default=None, repr=False)
    artifacts: tuple[Artifact, ...] = ()


def encode_result(value: object, event_id: str) -> EncodedResult:
    """Encode what a handler returned, for the settlement with this event id.

    A result that is not JSON, is too large or too deep, or holds media that is too large or of an unknown type, is
    lost: the outcome is a failure that says so, since the effect is done and the model must know.
    """
    media = _Media(event_id)
    try:
        raw, shown = _view(value, media)
        payload = canonical(raw)
        if len(payload) > limits.TOOL_RESULT_BYTES:
            raise _NotRepresentableError(f"it has {len(payload)} bytes; the limit is {limits.TOOL_RESULT_BYTES}")
    except Exception as error:  # the value is the handler's, and so is the code of its class that runs here
        return EncodedResult(EffectFailed(f"{RESULT_LOST_TEXT}: {bounded(text_of(error), _REASON_BYTES)}"))
    shown = _within_limits(shown, len(payload))
    outcome = Succeeded(RawResult(len(payload), digest(payload)), shown, media.references())
    return EncodedResult(outcome, payload, tuple(media.artifacts))


class _NotRepresentableError(MakaError):
    """A result that cannot be stored, or a projection that cannot be shown; the text says why."""


def _view(value: object, media: _Media) -> tuple[JSON, ToolOutput]:
    """The raw result, and the projection as it would be without limits."""
    match value:
        case ToolText(text=text):
            raw: JSON = {"kind": "text", "text": text}
            return raw, JsonOutput(raw)
        case ToolImage(data=data):
            part = media.add(data)
            return _described(part), ContentOutput((TextContent(f"image ({part.media_type})"), part))
        case ToolContent(parts=parts, raw=raw):
            return _content(parts, raw, media)
        case ToolProjection(raw=raw, projection=ContentOutput(parts=parts)):
            return _content(parts, raw, media)
        case ToolProjection(raw=raw, projection=projection):
            return _checked(raw), projection
        case _:
            raw = _checked(value)
            return raw, TextOutput(raw) if isinstance(raw, str) else JsonOutput(raw)


def _checked(value: object) -> JSON:
    try:
        return check_json(value, what="it", depth=limits.TOOL_RESULT_DEPTH, nodes=limits.TOOL_RESULT_NODES)
    except InvalidInput as error:
        raise _NotRepresentableError(bounded(str(error), _REASON_BYTES)) from None


# --- content ----------------------------------------------------------------------------------------------


class _Media:
    """The images of one result. Their ids follow from the event and their place, so a retry of it is the same."""

    def __init__(self, event_id: str) -> None:
        self._event_id = event_id
        self.artifacts: list[Artifact] = []

    def references(self) -> tuple[ArtifactRef, ...]:
        return tuple(artifact.ref for artifact in self.artifacts)

    def add(self, data: bytes) -> MediaContent:
        media_type = media_type_of(data)
        if media_type is None:
            raise _NotRepresentableError("it holds media that is no PNG, JPEG, GIF, WebP or AVIF image")
        if len(data) > limits.MEDIA_BYTES:
            raise _NotRepresentableError(f"it holds an image of {len(data)} bytes; the limit is {limits.MEDIA_BYTES}")
        name = f"{self._event_id}:{len(self.artifacts)}"
        self.artifacts.append(Artifact(ArtifactRef(name, media_type, len(data), digest(data)), data))
        return MediaContent(media_type, artifact=name)


def _content(parts: Sequence[ToolPart], given: JSON, media: _Media) -> tuple[JSON, ToolOutput]:
    """Content whose raw result is `given`. Without one the parts are the result, and must all be representable."""
    if given is None:
        shown = _parts(parts, media)
        return [_described(part) for part in shown], _joined(shown)
    raw = _checked(given)
    try:
        return raw, _joined(_parts(parts, media))
    except _NotRepresentableError as error:
        media.artifacts.clear()
        return raw, _hidden(str(error))


def _parts(parts: Sequence[ToolPart], media: _Media) -> tuple[ContentPart, ...]:
    if len(parts) > limits.PROJECTION_PARTS:
        raise _NotRepresentableError(f"it has {len(parts)} parts; the limit is {limits.PROJECTION_PARTS}")
    return tuple(_part(part, media) for part in parts)


def _part(part: ToolPart, media: _Media) -> ContentPart:
    match part:
        case str():
            return TextContent(_text(part))
        case TextContent():
            return part
        case ToolImage(data=data):
            return media.add(data)
        case MediaContent(data=bytes() as data):
            return media.add(data)
        case MediaContent(url=str()):
            return part
        case _:
            # An artifact of another event is not this tool's to show; anything else is no part at all.
            raise _NotRepresentableError(f"its content holds a {type(part).__name__} that is neither text nor media")


def _text(text: str) -> str:
    raw = _checked(text)
    assert isinstance(raw, str)
    return raw


def _joined(parts: tuple[ContentPart, ...]) -> ToolOutput:
    """Texts alone are one text."""
    texts = [part.text for part in parts if isinstance(part, TextContent)]
    return TextOutput("\n".join(texts)) if len(texts) == len(parts) else ContentOutput(parts)


def _described(part: ContentPart) -> JSON:
    if isinstance(part, TextContent):
        return {"kind": "text", "text": part.text}
    if part.url is not None:
        return {"kind": "media", "mimeType": part.media_type, "url": part.url}
    return {"kind": "image", "mimeType": part.media_type, "ref": part.artifact}


# --- the limits of projections ----------------------------------------------------------------------------


def _within_limits(shown: ToolOutput, raw_bytes: int) -> ToolOutput:
    """The projection, or an error in its place that says why it cannot be shown."""
    try:
        match shown:
            case JsonOutput(value=value):
                return JsonOutput(_shown_json(value))
            case TextOutput(text=text) | ErrorOutput(text=text):
                _check_size(bounds.utf8_size(text, "its text"))
            case ContentOutput(parts=parts):
                _check_size(sum(bounds.utf8_size(_weighed(part), "its text") for part in parts))
        encode(shown, ToolOutput)  # a projection that a tool made itself may hold anything
    except InvalidInput as error:
        return _hidden(f"{bounded(str(error), _REASON_BYTES)} (the stored result has {raw_bytes} bytes)")
    return shown


def _shown_json(value: JSON) -> JSON:
    checked = check_json(value, what="it", depth=limits.PROJECTION_DEPTH, nodes=limits.PROJECTION_NODES)
    _check_size(len(canonical(checked)))
    return checked


def _weighed(part: ContentPart) -> str:
    """What of a part stands in the event: its text, or where its bytes are."""
    return part.text if isinstance(part, TextContent) else part.url or ""


def _check_size(size: int) -> None:
    if size > limits.PROJECTION_BYTES:
        raise InvalidInput(f"it is too large, {size} bytes; the limit is {limits.PROJECTION_BYTES}")


def _hidden(reason: str) -> ErrorOutput:
    return ErrorOutput(f"{RESULT_HIDDEN_TEXT}: {reason}")
