"""Bodies in, outcomes out: runs a decoder over a body cut in many ways and insists that all agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs

from maka_trio.errors import ModelError
from maka_trio.facts import ModelEvent, ModelStep, PartDelta
from maka_trio.protocol.adapter import Decoder
from maka_trio.steps import StepBuilder


@attrs.frozen
class Outcome:
    """What became of a body: the events (adjacent deltas joined), then a step or an error."""

    events: tuple[ModelEvent, ...]
    step: ModelStep | None = None
    error: ModelError | None = attrs.field(default=None, eq=False)
    error_text: str = ""
    replay_safe: bool = True
    observed_output: bool = False

    def __attrs_post_init__(self) -> None:
        assert (self.step is None) != (self.error is None)

    @property
    def done(self) -> ModelStep:
        """The step; fails the test where there is none."""
        assert self.step is not None, repr(self.error)
        return self.step

    @property
    def text(self) -> str:
        """All streamed text, whatever became of the answer."""
        return "".join(event.text for event in self.events if isinstance(event, PartDelta))


def two_way_cuts(body: bytes) -> Iterator[list[bytes]]:
    """The body whole, and in two pieces at every place."""
    yield [body]
    for at in range(1, len(body)):
        yield [body[:at], body[at:]]


def every_cut(body: bytes) -> Iterator[list[bytes]]:
    """The body whole, in two pieces at every place, and byte by byte."""
    yield from two_way_cuts(body)
    yield [body[at : at + 1] for at in range(len(body))]


def run(decoder: Decoder, pieces: Iterable[bytes], *, end: str = "close") -> Outcome:
    """Feed a decoder to its end: `close` for a clean end of the body, `settle` for the end of a grace."""
    seen = _decoded(decoder, pieces, end)
    return _outcome(seen)


def in_every_cut(make_decoder: Callable[[], Decoder], body: bytes, *, end: str = "close") -> Outcome:
    """The outcome of a body, the same for every cut of it."""
    first: _Decoded | None = None
    for pieces in every_cut(body):
        seen = _decoded(make_decoder(), pieces, end)
        first = first or seen
        assert seen == first, f"cut after {len(pieces[0])} bytes"
    assert first is not None
    return _outcome(first)


@attrs.frozen
class _Decoded:
    """What a decoder said of a body. The step follows from it."""

    events: list[ModelEvent]
    error_text: str
    replay_safe: bool
    observed_output: bool
    error: ModelError | None = attrs.field(eq=False)


def _decoded(decoder: Decoder, pieces: Iterable[bytes], end: str) -> _Decoded:
    events: list[ModelEvent] = []
    error: ModelError | None = None
    try:
        for piece in pieces:
            events += decoder.feed(piece)
        decoder.feed(b"")
        if not decoder.finished:
            events += decoder.close() if end == "close" else decoder.settle()
    except ModelError as fault:
        error = fault
    text = f"{type(error).__name__}: {error}" if error is not None else ""
    return _Decoded(_joined(events), text, decoder.replay_safe, decoder.observed_output, error)


def _outcome(seen: _Decoded) -> Outcome:
    step = None
    if seen.error is None:
        builder = StepBuilder("step")
        for event in seen.events:
            builder.push(event)
        step = builder.finish()
    return Outcome(tuple(seen.events), step, seen.error, seen.error_text, seen.replay_safe, seen.observed_output)


def _joined(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    joined: list[ModelEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, PartDelta) and isinstance(last, PartDelta) and last.id == event.id:
            joined[-1] = attrs.evolve(last, text=last.text + event.text)
        else:
            joined.append(event)
    return joined
