"""Stands before the commits of a log: counts them, keeps what became durable, and lets something happen at one.

What happens at a commit (a crash, a fault) is somebody else's; here is only where.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from maka_trio.facts.event import EventWrite, RuntimeEvent
from maka_trio.facts.scope import Session
from maka_trio.log.event_log import EventLog
from maka_trio.records import frozen
from maka_trio.recovery import End, host_stopped

Write: TypeAlias = RuntimeEvent | EventWrite
Perform: TypeAlias = Callable[[], Awaitable[list[int]]]

AtCommit: TypeAlias = Callable[[int, str, Perform], Awaitable[list[int]]]
"""Given a commit's number, from 1, its kinds, and the way to really do it, returns its sequences or raises."""


@frozen
class Committed:
    """One commit as it was asked for.

    Attributes:
        kinds: the kinds of its facts.
        durable: it is in the log.
        sequence: where it begins there.
    """

    writes: tuple[Write, ...]
    durable: bool
    sequence: int = 0

    @property
    def kinds(self) -> str:
        """The kinds of its facts, in order, each once in a row."""
        return _kinds(self.writes)


def _kinds(writes: Sequence[Write]) -> str:
    names = [_kind(write) for write in writes]
    return ", ".join(name for position, name in enumerate(names) if names[position - 1 : position] != [name])


def _event(write: Write) -> RuntimeEvent:
    return write.event if isinstance(write, EventWrite) else write


def _kind(write: object) -> str:
    match write:
        case EventWrite():
            return write.event.fact.kind
        case RuntimeEvent():
            return write.fact.kind
        case _:
            return f"{type(write).__name__}, which is no event"


class CommitPoints:
    """Watches the commits of one log, for as long as the log is used.

    Args:
        log: its `commit`, `commit_batch` and `seal` are replaced on this one object; everything else is as it was.
        at_commit: does what is to be done in place of a commit, usually the commit. What `seal` writes is no such
            point, and is known as durable.
    """

    def __init__(self, log: EventLog, at_commit: AtCommit) -> None:
        self._at_commit = at_commit
        self._log = log
        self._commit_batch = log.commit_batch
        self._seal = log.seal
        self._commits: list[Committed] = []
        self._asked = 0
        log.commit = self._one  # type: ignore[method-assign]
        log.commit_batch = self._many  # type: ignore[method-assign]
        log.seal = self._sealed  # type: ignore[method-assign]

    @property
    def commits(self) -> tuple[Committed, ...]:
        """Every commit that came to an end, in that order, and those that were stopped on their way."""
        return tuple(self._commits)

    def durable_writes(self) -> list[Write]:
        """What is in the log, in its order: those who wait for commits are not woken in it."""
        durable = sorted((commit for commit in self._commits if commit.durable), key=lambda commit: commit.sequence)
        return [write for commit in durable for write in commit.writes]

    async def _sealed(self, session_id: str, end: End = host_stopped) -> bool:
        if not await self._seal(session_id, end):
            return False
        known = {_event(write).id for write in self.durable_writes()}
        for stored in (await self._log.prefix(sys.maxsize, sys.maxsize, Session(session_id))).events:
            if stored.event.id not in known:
                self._commits.append(Committed((stored.event,), durable=True, sequence=stored.sequence))
        return True

    async def _one(self, event: Write) -> int:
        (sequence,) = await self._many([event])
        return sequence

    async def _many(self, events: Sequence[Write]) -> list[int]:
        writes = tuple(events)
        self._asked += 1
        durable = False

        async def perform() -> list[int]:
            nonlocal durable
            sequences = await self._commit_batch(writes)
            durable = True
            self._commits.append(Committed(writes, durable=True, sequence=sequences[0] if sequences else 0))
            return sequences

        try:
            return await self._at_commit(self._asked, _kinds(writes), perform)
        finally:
            if not durable:
                self._commits.append(Committed(writes, durable=False))
