"""The corpus of recorded provider streams: where it lies, and how one protocol's part of it is compared.

The recordings are read in place. Each comes with what the vendor's own SDK made of it, and an adapter is held to
that. A protocol is described by a `Protocol`; `test_corpus` runs all of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from maka_trio.facts import FinishReason, TextKind, TextPart
from maka_trio.protocol.adapter import Decoder
from tests.protocol.decoding import Outcome

CORPUS = Path(os.environ.get("MAKA_TRIO_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))


@attrs.frozen
class Deviation:
    """Where an adapter decides otherwise than the SDK: why, and what it says instead.

    `error` is the class of error it raises where the SDK does not; `accepted` says that it accepts what the SDK
    raises on.
    """

    decision: str
    instead: Mapping[str, Any] = attrs.field(factory=dict)
    error: str | None = None
    accepted: bool = False


@attrs.frozen
class Protocol:
    """One folder of the corpus.

    Args:
        folder: its name.
        decoder: makes a decoder for one recording, by its name.
        view: an outcome in the terms of the expected values.
        compared: the keys of the expected values that are compared.
        deviations: by the front of a recording's name.
    """

    folder: str
    decoder: Callable[[str], Decoder]
    view: Callable[[Outcome], dict[str, Any]]
    compared: frozenset[str]
    deviations: Mapping[str, Deviation] = attrs.field(factory=dict)

    def streams(self) -> list[Path]:
        """The recordings, none where there is no corpus."""
        return sorted((CORPUS / "streams" / self.folder).glob("*.sse"))

    def deviation(self, stream: Path) -> Deviation | None:
        """What is decided otherwise for this recording."""
        found = [deviation for front, deviation in self.deviations.items() if stream.name.startswith(front)]
        return found[0] if found else None


def expected_of(stream: Path) -> dict[str, Any]:
    """What the SDK made of a recording."""
    values: dict[str, Any] = json.loads(
        (CORPUS / "expected" / stream.parent.name / stream.name).with_suffix(".json").read_text()
    )
    return values


def texts_of(outcome: Outcome, kind: TextKind) -> list[TextPart]:
    """The text parts of a step that are of one kind."""
    return [part for part in outcome.done.parts if isinstance(part, TextPart) and part.text_kind is kind]


def reason_of(outcome: Outcome, key: str) -> str:
    """The finish reason as the provider stated it: kept where it is not the canonical word."""
    kept = (outcome.done.provider_options or {}).get(key)
    if isinstance(kept, Mapping) and "finish_reason" in kept:
        return str(kept["finish_reason"])
    names = {FinishReason.STOP: "stop", FinishReason.TOOL_CALLS: "tool_calls", FinishReason.LENGTH: "length"}
    return names[outcome.done.finish_reason]
