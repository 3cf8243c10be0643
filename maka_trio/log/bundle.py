"""A session, or a whole log, as JSON Lines: what the lines are, and what of them must be true.

A bundle is a header, a line for each event in the order of the log, and an end that covers everything before it. An
event keeps its sequence and carries its session's digest, so a bundle proves itself against the log it came from,
and a log made of it has the same digests.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from typing import Any, Final

from maka_trio.errors import InvalidInput
from maka_trio.facts.codec import canonical, digest, encode_event, parse_json, structure, unstructure
from maka_trio.facts.event import Artifact, EventWrite, RuntimeEvent
from maka_trio.facts.json_value import JSON
from maka_trio.facts.outcome import ArtifactRef
from maka_trio.records import frozen

FORMAT: Final = 1
_BUNDLE: Final = "maka-trio log"
_MAX_SEQUENCE: Final = 2**63 - 1


@frozen
class Header:
    """The first line. `session` is the session that the bundle holds; None for a whole log."""

    session: str | None

    def encode(self) -> bytes:
        """The line, without its end."""
        return canonical({"bundle": _BUNDLE, "format": FORMAT, "session": self.session})

    @classmethod
    def decode(cls, value: dict[str, JSON]) -> Header:
        """The header in its JSON.

        Raises:
            InvalidInput: it is none, or of a format that this version does not read.
        """
        _check_fields(value, {"bundle", "format", "session"}, set())
        session = value["session"]
        if (value["bundle"], value["format"]) != (_BUNDLE, FORMAT) or not isinstance(session, (str, type(None))):
            raise InvalidInput("it is no header of a bundle that this version reads")
        return cls(session)


@frozen
class Line:
    """One event of a bundle, with what is stored beside it. `digest` is its session's, this event included."""

    sequence: int
    digest: str
    event: RuntimeEvent
    payload: bytes | None = None
    artifacts: tuple[Artifact, ...] = ()

    def write(self) -> EventWrite:
        """What is to be appended."""
        return EventWrite(self.event, self.payload, self.artifacts)

    def encode(self) -> bytes:
        """The line, without its end."""
        value: dict[str, JSON] = {
            "sequence": self.sequence,
            "digest": self.digest,
            "event": unstructure(self.event, RuntimeEvent),
        }
        if self.payload is not None:
            value["payload"] = base64.b64encode(self.payload).decode()
        if self.artifacts:
            value["artifacts"] = [_artifact_json(artifact) for artifact in self.artifacts]
        return canonical(value)

    @classmethod
    def decode(cls, value: dict[str, JSON]) -> Line:
        """The line in its JSON.

        Raises:
            InvalidInput: it has other fields, or one of another type.
        """
        _check_fields(value, {"sequence", "digest", "event"}, {"payload", "artifacts"})
        sequence, named = value["sequence"], value["digest"]
        if type(sequence) is not int or not 0 < sequence <= _MAX_SEQUENCE or not isinstance(named, str):
            raise InvalidInput("sequence is a number that a log can have, and digest a text")
        payload = value.get("payload")
        artifacts = value.get("artifacts", [])
        if not isinstance(artifacts, list):
            raise InvalidInput("artifacts is an array")
        event = structure(value["event"], RuntimeEvent, what="event")
        if encode_event(event) != canonical(value["event"]):
            raise InvalidInput("its event is not spelled as it is exported")
        return cls(
            sequence,
            named,
            event,
            None if payload is None else _from_base64(payload),
            tuple(_artifact(one) for one in artifacts),
        )


@frozen
class SessionEnd:
    """Where a session of a bundle ends."""

    session_id: str
    events: int
    high_water: int
    digest: str


@frozen
class End:
    """The last line. `damaged` are the sequences of events that could not be read, or did not verify.

    `digest` covers every byte of the lines before.
    """

    events: int
    sessions: tuple[SessionEnd, ...]
    damaged: tuple[int, ...]
    digest: str


def encode_end(end: End) -> bytes:
    """The last line."""
    return canonical({"end": unstructure(end, End)})


def read_lines(lines: Iterator[bytes]) -> Iterator[Header | Line | End]:
    """The header of a bundle, its events, then its end, each checked as far as it can be by itself.

    Raises:
        InvalidInput: it is no bundle, or not as it was written; the message names the line.
    """
    seen = hashlib.sha256()
    number = 0
    for number, text in enumerate(lines, 1):
        try:
            item = _read(number, text)
            if isinstance(item, End) and item.digest != f"sha256:{seen.hexdigest()}":
                raise InvalidInput("the digest of the bundle does not verify")
        except InvalidInput as error:
            raise InvalidInput(f"line {number} of the bundle: {error}") from error
        seen.update(text)
        yield item
        if isinstance(item, End):
            break
    else:
        raise InvalidInput(f"the bundle has no end: it was cut off after line {number}")
    if next(lines, None) is not None:
        raise InvalidInput(f"line {number + 1} of the bundle comes after its end")


def _read(number: int, text: bytes) -> Header | Line | End:
    value = parse_json(text, what="the line")
    if not isinstance(value, dict) or canonical(value) + b"\n" != text:
        raise InvalidInput("it is no object in canonical form")
    if number == 1:
        return Header.decode(value)
    if "end" not in value:
        return Line.decode(value)
    _check_fields(value, {"end"}, set())
    end: End = structure(value["end"], End, what="end")
    return end


def _check_fields(value: dict[str, JSON], needed: set[str], possible: set[str]) -> None:
    if not needed <= set(value) <= needed | possible:
        raise InvalidInput(f"its fields are {', '.join(sorted(value))}, not {', '.join(sorted(needed))}")


def _artifact_json(artifact: Artifact) -> JSON:
    ref = artifact.ref
    return {"id": ref.id, "media_type": ref.media_type, "data": base64.b64encode(artifact.data).decode()}


def _artifact(value: Any) -> Artifact:
    if not isinstance(value, dict):
        raise InvalidInput("an artifact is an object")
    _check_fields(value, {"id", "media_type", "data"}, set())
    data = _from_base64(value["data"])
    if not isinstance(value["media_type"], str):
        raise InvalidInput("media_type is a text")
    return Artifact(ArtifactRef(value["id"], value["media_type"], len(data), digest(data)), data)


def _from_base64(value: JSON) -> bytes:
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]  # other types are what it refuses
    except (binascii.Error, TypeError, ValueError):
        raise InvalidInput("data is base64") from None
