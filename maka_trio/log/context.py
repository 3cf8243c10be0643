"""What of a session a run reads: the facts that the next request is made of, and no more.

Left out are observations, and the calls of programs that were settled or rejected: only the program was told of them.
Of a call that has no settlement the dispatch is there, without its input, since the next run has to know of such an
effect. So neither counts against the bounds, and nor do inputs in dispatches and rejections of a model's calls, which
are in its step as well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice

import attrs

from maka_trio.errors import LogCorrupt, PrefixTooLarge
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import canonical
from maka_trio.facts.event import StoredEvent, ToolDispatched, ToolRejected, ToolSettled
from maka_trio.facts.identity import Provider
from maka_trio.log.rows import EventRow, FactRow, facts_back, rows_at
from maka_trio.records import frozen

_OPERATIONS = frozenset((ToolDispatched.kind, ToolSettled.kind, ToolRejected.kind))
_WITH_INPUT = frozenset((ToolDispatched.kind, ToolRejected.kind))


@frozen
class ContextBounds:
    """How much a run reads of one session."""

    session_id: str
    max_events: int
    max_bytes: int

    def check_events(self, count: int) -> None:
        """Raise PrefixTooLarge where there are more."""
        if count > self.max_events:
            raise self._too_large(f"more than max_events={self.max_events} facts")

    def check_bytes(self, size: int) -> None:
        """Raise PrefixTooLarge where they have more."""
        if size > self.max_bytes:
            raise self._too_large(f"at least {size} bytes of JSON, more than max_bytes={self.max_bytes}")

    def _too_large(self, what: str) -> PrefixTooLarge:
        return PrefixTooLarge(
            f"session {excerpt(self.session_id)} has outgrown what a run reads of it: {what}. Go on in a new session"
        )


class Context:
    """Collects the facts of a session, in order, within bounds."""

    def __init__(self, bounds: ContextBounds) -> None:
        self._bounds = bounds
        self._told: list[StoredEvent] = []
        self._apart: dict[str, StoredEvent] = {}
        self._bytes = 0

    def push(self, stored: StoredEvent, size: int) -> None:
        """Take the next fact, and how many bytes of JSON it has. Raises PrefixTooLarge."""
        match stored.event.fact:
            case ToolDispatched(call=call) as fact if not isinstance(call.origin, Provider):
                event = attrs.evolve(stored.event, fact=attrs.evolve(fact, input=None))
                self._apart[fact.operation_id] = attrs.evolve(stored, event=event)
                return
            case ToolRejected(call=call) if not isinstance(call.origin, Provider):
                return
            case ToolSettled(operation_id=operation_id) if self._apart.pop(operation_id, None) is not None:
                return
            case ToolDispatched(input=given) | ToolRejected(input=given):
                size -= len(canonical(given))
        self._told.append(stored)
        self._bytes += size
        self._bounds.check_events(len(self._told))
        self._bounds.check_bytes(self._bytes)

    def events(self) -> tuple[StoredEvent, ...]:
        """All that was taken. Raises PrefixTooLarge."""
        self._bounds.check_events(len(self._told) + len(self._apart))
        return tuple(sorted((*self._told, *self._apart.values()), key=lambda stored: stored.sequence))


# --- by what the rows tell ----------------------------------------------------------------------------------


def told_rows(
    connection: sqlite3.Connection, last: int, bounds: ContextBounds
) -> Iterator[tuple[EventRow, bytes | None]]:
    """The rows of a session whose facts a `Context` takes, from the first to fact `last`.

    Beside each is the digest of its session right before it, which the row of the event before it has; None at the
    beginning. Bodies of what is left out are not read.

    Raises:
        PrefixTooLarge: so much is certain before any body is read.
        LogCorrupt: a fact is missing.
    """
    facts = _told(_chain(connection, last, bounds))
    bounds.check_events(len(facts))
    bounds.check_bytes(sum(fact.size for fact in facts if fact.kind not in _WITH_INPUT))
    sequences = iter([fact.sequence for fact in facts])
    while some := list(islice(sequences, 256)):
        found = 0
        for row in rows_at(connection, some):
            found += 1
            yield row
        if found != len(some):
            raise LogCorrupt(f"facts between event {some[0]} and event {some[-1]} of a session are missing")


def _chain(connection: sqlite3.Connection, last: int, bounds: ContextBounds) -> list[FactRow]:
    """All facts of a session, in order."""
    facts: list[FactRow] = []
    certain, before = 0, last
    for fact, previous in facts_back(connection, last):
        certain += fact.kind not in _OPERATIONS
        bounds.check_events(certain)
        facts.append(fact)
        before = previous
    if before:
        raise LogCorrupt(f"event {before} is missing", sequence=before)
    facts.reverse()
    return facts


def _told(facts: list[FactRow]) -> list[FactRow]:
    """Without the calls of programs that have come to an end: their operations are named after no step."""
    steps = {fact.operation_id for fact in facts if fact.kind == "model_requested"}
    apart = {fact.operation_id for fact in facts if fact.kind in _WITH_INPUT and not _is_of(fact.operation_id, steps)}
    ended = apart & {fact.operation_id for fact in facts if fact.kind in (ToolSettled.kind, ToolRejected.kind)}
    if not ended:
        return facts
    return [fact for fact in facts if fact.kind not in _OPERATIONS or fact.operation_id not in ended]


def _is_of(operation_id: str | None, steps: Iterable[str | None]) -> bool:
    """Whether an operation bears the name of one of these steps, as that of a model's call does."""
    if operation_id is None:
        return True
    at = operation_id.find(":")
    while at >= 0:
        if operation_id[:at] in steps:
            return True
        at = operation_id.find(":", at + 1)
    return False
