"""The journal of a run's tool calls: T1, then the shielded effect, then T2.

    prepare            free of effects; a cancelled run leaves it at once, and nothing is written
    T1 is committed    `tool_dispatched`: from here on the effect may have happened, and nobody dispatches it again
    the effect         shielded, in a task of its own; the abort of the run is told to it, and it ends by itself
    T2 is committed    `tool_settled`: what became of it; only then is the result handed out

A call that is refused before T1 has one fact, `tool_rejected`, and no effect. A call that has a T1 gets a T2 whatever
becomes of the run, with one exception: when the log fails, or the tool says that something of it may still be running,
the operation stays unsettled and the error ends the run. Whoever seals that run then says `outcome_unknown`.

Which calls of a step may run beside each other is not decided here (`tools.admission`), nor in which order
(`engine.dispatch`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import attrs
import trio

from maka_trio.facts.codec import canonical, digest
from maka_trio.facts.event import EventSink, EventWrite, RuntimeEvent, ToolDispatched, ToolRejected, ToolSettled
from maka_trio.facts.identity import Invocation, ToolCallIdentity, new_id, provider_operation_id
from maka_trio.facts.json_value import JSON, check_json
from maka_trio.facts.model import ModelToolCall
from maka_trio.facts.outcome import ToolRejection
from maka_trio.records import frozen
from maka_trio.tools.call import AbortSwitch, ToolCall
from maka_trio.tools.catalog import ToolRegistration
from maka_trio.tools.effect import Effect, Returned, Verdict
from maka_trio.tools.failure import Fatal
from maka_trio.tools.handler import PreparedEffect
from maka_trio.tools.output import EncodedResult, encode_result
from maka_trio.tools.prepare import prepare

Settle: TypeAlias = Callable[[EventWrite], Awaitable[object]]
"""Sees to it that a settlement becomes durable."""


@frozen
class Operation:
    """One call, as every fact of it names it, whoever made it."""

    operation_id: str
    call: ToolCallIdentity
    name: str
    input: JSON

    @classmethod
    def of(cls, step_id: str, call: ModelToolCall) -> Operation:
        """A call that the model made in a step."""
        identity = ToolCallIdentity.provider(step_id, call.id)
        return cls(provider_operation_id(step_id, call.id), identity, call.name, call.input)

    def fresh_input(self) -> JSON:
        """The arguments, in a copy that the handler may change."""
        return check_json(self.input, what="tool input")


@frozen
class Performed:
    """The last fact of a call, and the raw result of one that succeeded, as it is stored."""

    fact: ToolSettled | ToolRejected
    payload: bytes | None = attrs.field(default=None, repr=False)


class ToolJournal:
    """The tool calls of one invocation.

    Args:
        sink: where the facts go. An append that was handed to it is waited for under a shield.
        invocation: whose calls these are.
        shielded: the sink shields what it is handed by itself, and so does whoever else is to `settle`.
    """

    def __init__(self, sink: EventSink, invocation: Invocation, *, shielded: bool = False) -> None:
        self._sink = sink
        self._invocation = invocation
        self._shield: Callable[[], AbstractContextManager[object]] = nullcontext if shielded else _shield

    async def reject(self, step_id: str, call: ModelToolCall, reason: ToolRejection) -> ToolRejected:
        """Commit that a call is refused.

        A cancel that arrives before the append leaves the call without a fact.

        Raises:
            CommitError, StoreError: the refusal is not known to be written.
        """
        return await self._reject(Operation.of(step_id, call), reason)

    async def execute(
        self,
        step_id: str,
        call: ModelToolCall,
        registration: ToolRegistration,
        *,
        dispatched: Callable[[], None] = lambda: None,
        settle: Settle | None = None,
    ) -> ToolSettled | ToolRejected:
        """Bring a call of the model to its outcome; see `perform`.

        Args:
            step_id: the step that holds the call.
            call: the call as the step recorded it.
            registration: the tool of its name.
            dispatched: called once T1 is durable, before the effect starts.
            settle: see `perform`.
        """
        operation = Operation.of(step_id, call)
        return (await self.perform(operation, registration, dispatched=dispatched, settle=settle)).fact

    async def perform(
        self,
        operation: Operation,
        registration: ToolRegistration,
        *,
        dispatched: Callable[[], None] = lambda: None,
        settle: Settle | None = None,
    ) -> Performed:
        """Bring a call to its outcome (semantics 5.3, steps 4 to 10).

        Cancelled before T1, it writes nothing and the call is the caller's to reject. Cancelled after T1, it waits
        for the effect to end and for T2 to be durable, and only then lets the cancellation through.

        Args:
            operation: the call.
            registration: the tool of its name.
            dispatched: called once T1 is durable, before the effect starts.
            settle: commits T2 in place of the sink. It may do so together with what the run writes next, and
                whoever passes it lets the result go nowhere before.

        Raises:
            CommitError, StoreError: from the log, or from within the tool; the operation may be left unsettled.
            CleanupUnconfirmed: the tool says that something of it may still be running; it is left unsettled.
        """
        switch = AbortSwitch()
        ready = await prepare(registration, operation.input, self._handed(operation, switch))
        if isinstance(ready, ToolRejection):
            return Performed(await self._reject(operation, ready))
        await self._append(ToolDispatched(operation.operation_id, operation.call, operation.name, operation.input))
        dispatched()
        return await self._run(operation, ready, switch, settle or self._sink.commit)

    def _handed(self, operation: Operation, switch: AbortSwitch) -> ToolCall:
        return ToolCall(
            self._invocation,
            operation.operation_id,
            operation.name,
            identity=operation.call,
            input_digest=digest(canonical(operation.input)),
            abort=switch,
        )

    async def _reject(self, operation: Operation, reason: ToolRejection) -> ToolRejected:
        rejected = ToolRejected(operation.operation_id, operation.call, operation.name, operation.input, reason)
        await self._append(rejected)
        return rejected

    async def _append(self, fact: ToolDispatched | ToolRejected) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled here: the fact was not handed to the log
        with self._shield():
            await self._sink.commit(RuntimeEvent.new(self._invocation, fact))

    async def _run(self, operation: Operation, ready: PreparedEffect, switch: AbortSwitch, settle: Settle) -> Performed:
        """From T1 to T2. Whatever comes out of the nursery, the effect has ended then, and is settled first."""
        effect = Effect(lambda: ready.run(operation.fresh_input()), switch)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(effect.run, name=f"tool {operation.name}")
                await effect.ended_or_aborted()
        except BaseExceptionGroup as group:
            effect.leaked(group)
            raise
        finally:
            performed = await self._settle(operation, effect.verdict, settle)  # noqa: ASYNC102 - shields its commit
        return performed

    async def _settle(self, operation: Operation, verdict: Verdict, settle: Settle) -> Performed:
        """Commit T2. An error of the log, or one that forbids a T2, takes the place of a cancellation."""
        if isinstance(verdict, Fatal):
            raise verdict.error
        event_id = new_id()
        result = encode_result(verdict.value, event_id) if isinstance(verdict, Returned) else EncodedResult(verdict)
        settled = ToolSettled(operation.operation_id, result.outcome)
        event = RuntimeEvent.new(self._invocation, settled, event_id=event_id)
        with self._shield():
            await settle(EventWrite(event, result.payload, result.artifacts))
        return Performed(settled, result.payload)


def _shield() -> trio.CancelScope:
    """For a commit, which ends when the log answers."""
    return trio.CancelScope(shield=True)
