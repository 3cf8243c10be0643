"""`RunLedger`: a run's own door to the log. What it commits is folded into the session's history at once.

Everything a run writes goes through here, under a shield: a commit that was handed to the log is waited for,
whoever is cancelled meanwhile, and history never lags behind what is durable. Programs of the run commit beside its
steps, so what is folded keeps the order of the log.

Facts between which no effect lies share a transaction: what is recorded `soon` is in history at once and in the log
together with what comes next. Nothing may leave the process, and nothing may be waited for, on account of such a
fact alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs
import trio

from maka_trio import limits
from maka_trio.errors import CommitRejected, CommitUnknown, InvalidInput
from maka_trio.facts.event import EventSink, EventWrite, Fact, RuntimeEvent
from maka_trio.facts.identity import Invocation
from maka_trio.history import History
from maka_trio.records import define

Write: TypeAlias = RuntimeEvent | EventWrite


@define(eq=False)
class _Append:
    """One append between the log and the history."""

    events: Sequence[Write]
    known: int = 0
    """How many of them are in the history already."""
    sequences: list[int] = attrs.field(factory=list)
    answered: bool = False
    fault: Exception | None = None
    folded: bool = False
    awaited: trio.Event | None = None
    """Set once it is folded, where its own task has to wait for that."""


class RunLedger:
    """An `EventSink` for one invocation.

    Args:
        sink: the log.
        invocation: whose facts these are.
        history: what they are folded into.
        patient: let facts that are recorded `soon` wait for company. Only where one task at a time writes: history
            would not keep the order of the log otherwise.

    Attributes:
        last_sequence: of the last fact that is durable.
        ahead: the history is not what the log holds: it has a fact that was refused, or could not take one.
        uncertain: nobody can say whether the log holds an append; nothing more is written.
    """

    def __init__(self, sink: EventSink, invocation: Invocation, history: History, *, patient: bool = False) -> None:
        self._sink = sink
        self._patient = patient
        self._held: list[Write] = []
        self.ahead = False
        self.invocation = invocation
        self.history = history
        self.last_sequence = 0
        self.uncertain = False
        self._appends: list[_Append] = []  # a few at most

    async def record(self, *facts: Fact) -> None:
        """Append facts of this invocation, all or nothing."""
        await self.commit_batch([RuntimeEvent.new(self.invocation, fact) for fact in facts])

    async def record_soon(self, *facts: Fact) -> None:
        """Append facts together with what comes next, or now if the ledger is not patient."""
        await self.commit_soon(*(RuntimeEvent.new(self.invocation, fact) for fact in facts))

    async def commit_soon(self, *events: Write) -> None:
        """Append events together with what comes next, or now if the ledger is not patient.

        Artifacts do not wait: the next request may have to read them.
        """
        waits = self._patient and not any(isinstance(event, EventWrite) and event.artifacts for event in events)
        if not waits or len(self._held) + len(events) > limits.BATCH_EVENTS // 2:
            await self.commit_batch(events)
            return
        self._held.extend(events)
        for event in events:
            self._push(event)

    async def flush(self) -> None:
        """Append what was to be appended soon."""
        if self._held:
            await self.commit_batch(())

    async def commit(self, event: Write) -> int:
        """Append one event. Shielded: it ends when the log answers."""
        (sequence,) = await self.commit_batch([event])
        return sequence

    async def commit_batch(self, events: Sequence[Write]) -> list[int]:
        """Append all or nothing. Shielded: it ends when the log answers.

        What was to be appended together with them stands by itself: it is written also where they are refused.
        """
        if self._held and len(self._held) + len(events) > limits.BATCH_EVENTS:
            await self.flush()
        held, self._held = self._held, []
        append = _Append([*held, *events], len(held))
        with trio.CancelScope(shield=True):  # the log answers by itself
            try:
                await self._append(append)
            except (CommitRejected, InvalidInput):
                await self._append_alone(held if events else [])  # noqa: ASYNC120 - within the shield
                self.ahead |= bool(held) and not events
                raise
            except BaseException:
                self.ahead |= bool(held)
                raise
        if append.fault is not None:
            self.ahead = True
            raise append.fault
        return append.sequences[len(held) :]

    async def _append_alone(self, held: list[Write]) -> None:
        if held:
            try:
                await self._append(_Append(held, len(held)))
            except Exception:  # whoever is told of the other refusal ends the run
                self.ahead = True

    async def _append(self, append: _Append) -> None:
        self._appends.append(append)
        try:
            append.sequences = await self._hand_over(append.events)
        finally:
            append.answered = True
            self._fold()
        if not append.folded:  # those before it are answered already, and folded first
            append.awaited = trio.Event()
            await append.awaited.wait()

    async def _hand_over(self, events: Sequence[Write]) -> list[int]:
        """Hand events over, and once more where the log cannot say whether it wrote them: an exact retry tells.

        If even that is unknown, nothing more is written: an end over a hole in the history would be a lie, and the
        next process seals what it finds.
        """
        if self.uncertain:
            raise CommitUnknown(
                "an earlier append of this run may or may not be in the log; the run waits for recovery"
            )
        for last in (False, True):
            try:
                if len(events) == 1:
                    return [await self._sink.commit(events[0])]
                return await self._sink.commit_batch(events)
            except CommitUnknown:
                if last:
                    self.uncertain = True
                    raise
        raise AssertionError

    def _fold(self) -> None:
        """Fold what the log has answered, up to the first append that it has not, in the order of the log."""
        answered = []
        while self._appends and self._appends[0].answered:
            answered.append(self._appends.pop(0))
        if len(answered) > 1:
            answered.sort(key=lambda append: append.sequences[:1])
        for append in answered:
            if append.sequences:
                self.last_sequence = append.sequences[-1]
                self._fold_one(append)
            append.folded = True
            if append.awaited is not None:
                append.awaited.set()

    def _fold_one(self, append: _Append) -> None:
        try:
            for event in append.events[append.known :]:
                self._push(event)
        except Exception as fault:  # its own task raises it
            append.fault = fault

    def _push(self, event: Write) -> None:
        self.history.push(event.event if isinstance(event, EventWrite) else event)
