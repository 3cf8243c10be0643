"""What the laws say of runs that continue others: each has one, and claims what the log has.

A witness of its own: nothing here is shared with what admits a continuation. Digests of a lineage cannot be kept
beside those of the log, since each begins with the name of its run, so the events of a lineage are read once more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from maka_trio.errors import StoreError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import encode_event
from maka_trio.facts.continuation import ContinuationClaim
from maka_trio.facts.event import InvocationEnded, InvocationOpened, ModelRequested, StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import ContinuationOpening
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.facts.scope import Lineage
from maka_trio.records import define

Read: TypeAlias = Callable[[str, int, int], Iterable[tuple[int, bytes]]]
"""Reads sequence and canonical bytes of the events of a session from one sequence to another, both included.

Raises StoreError where it cannot: then nothing is said of what they prove.
"""

_BROKEN_RUN = 1
_BROKEN_EVIDENCE = 9


@define(eq=False)
class _Span:
    """Where an invocation began and ended (0 while it is open), and what it continues, by its hash."""

    opened: int
    ended: int = 0
    continues: int | None = None


@define(eq=False)
class _Growing:
    """The chain of an open continuation's lineage, up to `at`. Its own events are those from `opened` on."""

    invocation: Invocation
    opened: int
    scope: Lineage
    link: bytes
    at: int

    def position(self) -> tuple[Lineage, int, str]:
        return self.scope, self.at, chain_text(self.link)


class Ancestry:
    """Which invocation continues which, in one pass over a log.

    Args:
        read: reads events that have been passed before. None leaves out what only they prove.
    """

    def __init__(self, read: Read | None) -> None:
        self._read = read
        self._spans: dict[int, _Span] = {}
        self._claimed: set[int] = set()
        self._open: dict[str, _Growing] = {}

    def push(self, stored: StoredEvent) -> Iterator[tuple[int, str]]:
        """Take the next opening, request or end; yield the number of each law that it breaks, and how."""
        fact, invocation = stored.event.fact, stored.event.invocation
        key = hash(invocation.invocation_id)
        if isinstance(fact, InvocationOpened):
            self._spans.setdefault(key, _Span(stored.sequence))
            if isinstance(fact.input, ContinuationOpening):
                yield from self._continue(stored, fact.input.claim)
        elif isinstance(fact, ModelRequested):
            yield from self._request(stored, fact)
        elif isinstance(fact, InvocationEnded):
            self._open.pop(invocation.session_id, None)
            if key in self._spans:
                self._spans[key].ended = stored.sequence

    # --- claims -------------------------------------------------------------------------------------------

    def _continue(self, stored: StoredEvent, claim: ContinuationClaim) -> Iterator[tuple[int, str]]:
        source, invocation = claim.source.invocation, stored.event.invocation
        name, key = excerpt(source.run_id), hash(source.invocation_id)
        span = self._spans.get(key)
        if span is None or not span.ended or source.session_id != invocation.session_id:
            yield _BROKEN_RUN, f"an opening continues run {name}, which has not ended in this session before"
            return
        if key in self._claimed:
            yield _BROKEN_RUN, f"run {name} is continued a second time"
        self._claimed.add(key)
        self._spans[hash(invocation.invocation_id)].continues = key
        if claim.source.high_water != span.ended:
            yield _BROKEN_EVIDENCE, f"run {name} is claimed to end at {claim.source.high_water}, not at {span.ended}"
            return
        yield from self._digests(stored, claim, span)

    def _digests(self, stored: StoredEvent, claim: ContinuationClaim, span: _Span) -> Iterator[tuple[int, str]]:
        """Fold the lineage of the source: as it is claimed, its last run alone, and as that of the new run."""
        if self._read is None:
            return
        invocation, base = stored.event.invocation, claim.base.scope
        own = Lineage(base.session_id, invocation.run_id)
        links = chain_start(base), chain_start(base), chain_start(own)
        try:
            for first, last in self._stretches(span):
                links = self._folded(base.session_id, first, last, links, span.opened)
        except StoreError:
            return
        whole, run, growing = links
        name = excerpt(claim.source.invocation.run_id)
        if chain_text(run) != claim.source.digest:
            yield _BROKEN_EVIDENCE, f"run {name} has another digest than is claimed of it"
        if chain_text(whole) != claim.base.digest:
            yield _BROKEN_EVIDENCE, f"the lineage of run {name} has another digest than is claimed of it"
        self._open[invocation.session_id] = _Growing(invocation, stored.sequence, own, growing, span.ended)

    def _stretches(self, span: _Span) -> list[tuple[int, int]]:
        """The parts of the session that a lineage is made of, the first from its beginning."""
        spans = [span]
        while (before := spans[-1].continues) is not None:
            spans.append(self._spans[before])
        first, *rest = reversed(spans)
        return [(0, first.ended), *((one.opened, one.ended) for one in rest)]

    def _folded(
        self, session_id: str, first: int, last: int, links: tuple[bytes, bytes, bytes], run_from: int
    ) -> tuple[bytes, bytes, bytes]:
        assert self._read is not None
        whole, run, own = links
        for sequence, body in self._read(session_id, first, last):
            whole, own = chain_next(whole, sequence, body), chain_next(own, sequence, body)
            if sequence >= run_from:
                run = chain_next(run, sequence, body)
        return whole, run, own

    # --- requests -----------------------------------------------------------------------------------------

    def _request(self, stored: StoredEvent, fact: ModelRequested) -> Iterator[tuple[int, str]]:
        """The requests of a continuation name its lineage, up to the event before them."""
        growing = self._open.get(stored.event.invocation.session_id)
        if growing is None or growing.invocation != stored.event.invocation or self._read is None:
            return
        try:
            first = max(growing.at + 1, growing.opened)
            for sequence, body in self._read(growing.scope.session_id, first, stored.sequence - 1):
                growing.link, growing.at = chain_next(growing.link, sequence, body), sequence
        except StoreError:
            del self._open[stored.event.invocation.session_id]
            return
        if (fact.source_scope, fact.source_high_water, fact.source_digest) != growing.position():
            yield _BROKEN_EVIDENCE, f"step {excerpt(fact.step_id)} names another source than the lineage before it"


def reader_of(events: Sequence[StoredEvent]) -> Read:
    """Reads events that are all at hand."""

    def read(session_id: str, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        for number in range(bisect_left(events, first, key=lambda stored: stored.sequence), len(events)):
            stored = events[number]
            if stored.sequence > last:
                return
            if stored.event.invocation.session_id == session_id:
                yield stored.sequence, encode_event(stored.event)

    return read
