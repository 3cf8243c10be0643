"""Recorded streams of real providers decode to what the vendors' SDKs make of them, however they are cut.

What a comparison leaves out, and each deviation with the decision behind it, stands with the protocol's description
(`corpus_chat` and its siblings).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from maka_trio.facts import PartDelta, PartStarted, TextKind
from tests.protocol import corpus_anthropic, corpus_chat, corpus_responses
from tests.protocol.corpus import Protocol, expected_of
from tests.protocol.decoding import Outcome, run

PROTOCOLS = [*corpus_chat.PROTOCOLS, *corpus_anthropic.PROTOCOLS, *corpus_responses.PROTOCOLS]
"""A protocol joins by adding its descriptions here."""

STREAMS = [
    pytest.param(protocol, stream, id=f"{protocol.folder}/{stream.stem[:40]}")
    for protocol in PROTOCOLS
    for stream in protocol.streams()
]

__test__ = bool(STREAMS)  # collected only where the corpus lies

LARGE = 40_000
"""Bytes from which a stream is cut into pieces of a few bytes instead of single ones."""


def streamed(outcome: Outcome, kind: TextKind) -> str:
    """The text that was streamed, whatever became of the answer."""
    parts = {event.id for event in outcome.events if isinstance(event, PartStarted) and event.text_kind is kind}
    return "".join(event.text for event in outcome.events if isinstance(event, PartDelta) and event.id in parts)


def cuts(body: bytes) -> Iterator[list[bytes]]:
    """Small pieces of one size, then random ones: mostly single bytes, some the size of a read."""
    size = 1 if len(body) < LARGE else 3
    yield [body[at : at + size] for at in range(0, len(body), size)]
    chance = random.Random(len(body))
    for _ in range(3):
        pieces, at = [], 0
        while at < len(body):
            size = chance.choice((1, 2, 7, 100, 1460, 16_384))
            pieces.append(body[at : at + size])
            at += size
        yield pieces


@pytest.mark.parametrize(("protocol", "stream"), STREAMS)
def test_a_recording_decodes_to_what_the_sdk_makes_of_it(protocol: Protocol, stream: Path) -> None:
    """Content, calls, reason, usage and model are the oracle's, or what a decision puts in their place."""
    expected = expected_of(stream)
    deviation = protocol.deviation(stream)
    outcome = run(protocol.decoder(stream.name), [stream.read_bytes()])
    raised = expected["error"] is not None and not (deviation is not None and deviation.accepted)
    if raised or (deviation is not None and deviation.error is not None):
        assert outcome.error is not None
        if deviation is not None and deviation.error is not None:
            assert type(outcome.error).__name__ == deviation.error
        assert streamed(outcome, TextKind.TEXT) == expected["text"]
        assert streamed(outcome, TextKind.THINKING) == expected["reasoning"]
        return
    wanted = {key: expected.get(key, "") for key in protocol.compared} | dict(deviation.instead if deviation else {})
    viewed = protocol.view(outcome)
    assert {key: viewed[key] for key in protocol.compared} == wanted


@pytest.mark.parametrize(("protocol", "stream"), STREAMS)
def test_a_recording_decodes_alike_however_it_is_cut(protocol: Protocol, stream: Path) -> None:
    """Byte by byte (a few bytes for the largest) and in random pieces: the same events, step and error."""
    body = stream.read_bytes()
    whole = run(protocol.decoder(stream.name), [body])
    for pieces in cuts(body):
        assert run(protocol.decoder(stream.name), pieces) == whole


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.folder)
def test_every_deviation_is_one(protocol: Protocol) -> None:
    """A deviation that no recording needs any more is taken off the list."""
    streams = protocol.streams()
    for front in protocol.deviations:
        (stream,) = [stream for stream in streams if stream.name.startswith(front)]
        expected = expected_of(stream)
        outcome = run(protocol.decoder(stream.name), [stream.read_bytes()])
        if protocol.deviations[front].accepted:
            assert outcome.error is None
            assert expected["error"] is not None
        elif outcome.error is None:
            viewed = protocol.view(outcome)
            assert any(viewed[key] != expected.get(key, "") for key in protocol.compared)
        else:
            assert expected["error"] is None
