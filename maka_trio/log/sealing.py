"""Sealing what was left open: the facts of it in transactions of bounded size, and past what cannot be written.

An invocation that left more than one transaction holds is sealed in several, its end in the last. Whoever is killed
between two of them leaves it open, and the next recovery writes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from maka_trio import limits
from maka_trio.errors import CommitRejected, MakaError
from maka_trio.facts.event import RuntimeEvent, ToolRejected
from maka_trio.log.commit import Result, Ticket
from maka_trio.log.prepared import PreparedWrite, prepare
from maka_trio.recovery import End, sealing_facts
from maka_trio.transitions import InvocationState

Write: TypeAlias = Callable[[Sequence[Ticket]], list[Result]]
"""Writes tickets together; what became of each."""


def seal(write: Write, states: Iterable[InvocationState], end: End) -> list[Result]:
    """Seal open invocations; a result for each.

    A rejection that cannot be written, because its operation id stands elsewhere in the log, does not keep the end
    from being written; its call then stays unanswered.
    """
    together: list[Ticket] = []
    results: list[Result] = []
    for state in states:
        parts = _parts(state, end)
        first, second = next(parts), next(parts, None)
        if second is None:
            together.append(first)
        else:
            results.append(_in_parts(write, chain((first, second), parts)))
    for ticket, result in zip(together, write(together), strict=True):
        results.append(_one_by_one(write, ticket) if isinstance(result, CommitRejected) else result)
    return results


def _parts(state: InvocationState, end: End) -> Iterator[list[PreparedWrite]]:
    part: list[PreparedWrite] = []
    size = 0
    for fact in sealing_facts(state, end):
        prepared = prepare(RuntimeEvent.new(state.invocation, fact))
        if part and (len(part) == limits.BATCH_EVENTS or size + prepared.size > limits.BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(prepared)
        size += prepared.size
    yield part


def _in_parts(write: Write, parts: Iterable[Ticket]) -> Result:
    whole: list[int] = []
    for part in parts:
        (result,) = write([part])
        if isinstance(result, CommitRejected):
            result = _one_by_one(write, part)
        if isinstance(result, MakaError):
            return result
        whole += result
    return whole


def _one_by_one(write: Write, ticket: Ticket) -> Result:
    """Write what can be written; the error of anything but a rejection that cannot."""
    whole: list[int] = []
    for prepared in ticket:
        (result,) = write([[prepared]])
        if isinstance(result, CommitRejected) and isinstance(prepared.event.fact, ToolRejected):
            continue
        if isinstance(result, MakaError):
            return result
        whole += result
    return whole
