"""One model step: the request, its stream, and retries of it (semantics 3.5 and 3.6).

An attempt is one physical request and one step of its own. What a failed attempt streamed stays in the log as
evidence and is fed back to nobody; every attempt of a step has the same prompt, and so the same input digest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import attrs
import trio

from maka_trio import limits
from maka_trio.engine.ledger import RunLedger
from maka_trio.engine.outcome import message_of
from maka_trio.engine.rest import rest_after
from maka_trio.errors import (
    AdapterError,
    CommitError,
    ModelError,
    ModelIncomplete,
    ModelTimedOut,
    ProviderFailure,
    StoreError,
)
from maka_trio.facts import bounds
from maka_trio.facts.event import (
    NO_SOURCE,
    EventWrite,
    Fact,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    RuntimeEvent,
    ToolRejected,
)
from maka_trio.facts.identity import ToolCallIdentity, new_id, provider_operation_id
from maka_trio.facts.model import Finished, FinishReason, ModelEvent, ModelStep, ModelToolCall
from maka_trio.facts.outcome import InterruptionStatus, ToolRejection
from maka_trio.facts.scope import Scope
from maka_trio.models.executor import ModelExecutor
from maka_trio.records import define, frozen
from maka_trio.request import ModelRequest
from maka_trio.steps import StepBuilder

_EVENTS_A_COMMIT = limits.BATCH_EVENTS // 2
"""Observations in one commit, with room for what is committed together with them."""

INCOMPLETE_TEXT = "the model stopped at its output limit before the step was complete"


_WAIT = bounds.number(minimum=0, maximum=limits.RETRY_AFTER_MAX_SECONDS)


@frozen
class RetryPolicy:
    """How often and how late a replay-safe failure is tried again. Times are seconds.

    Args:
        retries: attempts after the first, 0 to 1,000.
        base: the wait before the second attempt; it doubles with each.
        longest: the longest of these waits.
        jitter: up to this share of a wait is added to it at random, 0 to 10.
        honoured: the longest wait that a provider may ask for. A failure that asks for more is final.
    """

    retries: int = attrs.field(default=limits.RETRIES, validator=bounds.integer(minimum=0, maximum=1000))
    base: float = attrs.field(default=limits.RETRY_BASE_SECONDS, validator=_WAIT)
    longest: float = attrs.field(default=limits.RETRY_MAX_SECONDS, validator=_WAIT)
    jitter: float = attrs.field(default=limits.RETRY_JITTER, validator=bounds.number(minimum=0, maximum=10))
    honoured: float = attrs.field(default=limits.RETRY_AFTER_HONOURED_SECONDS, validator=_WAIT)

    def delay(self, failure: ModelError, failures: int, draw: Callable[[], float] = random.random) -> float | None:
        """Seconds to wait before the next attempt, or None where the failure is final.

        Args:
            failure: what the last attempt ended with.
            failures: how many attempts have failed, this one included.
            draw: a random number from 0 to 1.
        """
        if not isinstance(failure, ProviderFailure) or not failure.replay_safe or failures > self.retries:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.honoured else None
        backoff = min(self.base * float(1 << (failures - 1)), self.longest)
        return backoff * (1 + self.jitter * draw())


@frozen
class AcceptedStep:
    """A step that is history now."""

    step_id: str
    output: ModelStep


@frozen
class PreparedRequest:
    """A request, frozen for a step and all its attempts, with the scope and the digests that its facts carry."""

    request: ModelRequest
    source_scope: Scope
    input_digest: str
    route_identity: str


async def take_step(
    ledger: RunLedger,
    models: ModelExecutor,
    prepared: PreparedRequest,
    retry: RetryPolicy,
    is_followed: Callable[[], bool],
) -> AcceptedStep:
    """Ask the model until a step is accepted or a failure is final.

    Args:
        ledger: where everything is recorded.
        models: who is asked.
        prepared: what.
        retry: how often.
        is_followed: whether somebody waits for the events; a stream that nobody follows may rest.

    Raises:
        ModelIncomplete: the step was accepted, but stopped at its output limit; its calls are rejected.
        ModelError: the last failure.
    """
    failures = 0
    while True:
        try:
            return await _attempt(_Attempt(ledger, new_id(), is_followed), models, prepared)
        except ModelError as failure:
            failures += 1
            delay = retry.delay(failure, failures)
            if delay is None:
                raise
        await trio.sleep(delay)


async def _attempt(attempt: _Attempt, models: ModelExecutor, prepared: PreparedRequest) -> AcceptedStep:
    await attempt.record_request(prepared)
    try:
        await attempt.collect(models, prepared.request)
    except BaseException as error:
        with trio.CancelScope(shield=True):  # local commits, which end by themselves
            if attempt.step is None:
                await attempt.record_interruption(error)
            else:
                # The answer was whole before the cancel arrived: it stays, and the run stops before its tools.
                await attempt.record_completion(attempt.step)
        raise
    assert attempt.step is not None
    await attempt.record_completion(attempt.step)
    if attempt.step.finish_reason is FinishReason.LENGTH:
        raise ModelIncomplete(INCOMPLETE_TEXT)
    return AcceptedStep(attempt.step_id, attempt.step)


@define
class _Attempt:
    """One physical request. `unrecorded` was observed last and is committed together with the completion."""

    ledger: RunLedger
    step_id: str
    is_followed: Callable[[], bool]
    unrecorded: Sequence[ModelEvent] = ()
    step: ModelStep | None = None

    async def record_request(self, prepared: PreparedRequest) -> None:
        """Record that the request goes out. The log names its source, since others write to it meanwhile."""
        request = ModelRequested(
            step_id=self.step_id,
            model_id=prepared.request.provider.model,
            source_scope=prepared.source_scope,
            source_high_water=0,
            source_digest=NO_SOURCE,
            input_digest=prepared.input_digest,
            route_identity=prepared.route_identity,
        )
        event = RuntimeEvent.new(self.ledger.invocation, request)
        await self.ledger.commit(EventWrite(event, source_here=True))

    async def collect(self, models: ModelExecutor, request: ModelRequest) -> None:
        """Receive the answer: each lot is validated, then durable, before anybody is shown it."""
        builder = StepBuilder(self.step_id)
        async with models.stream(request) as stream:
            while self.step is None:
                try:
                    lot = await stream.receive_lot()
                except trio.EndOfChannel:
                    lot = ()
                except trio.ClosedResourceError:
                    raise AdapterError("the ModelExecutor was closed while the model answered") from None
                valid, fault = _valid_prefix(builder, lot)
                if fault is None and (not lot or isinstance(lot[-1], Finished)):
                    self.unrecorded, self.step = valid, builder.finish()
                else:
                    await self._observe(valid)
                if fault is not None:
                    raise fault
                if self.step is None and (rest := rest_after(lot, models.open_streams)) and not self.is_followed():
                    await trio.sleep(rest)

    async def record_completion(self, step: ModelStep) -> None:
        await self._observe(self.unrecorded[:-_EVENTS_A_COMMIT])
        facts = [*self._observations(self.unrecorded[-_EVENTS_A_COMMIT:]), ModelCompleted(self.step_id, step)]
        if step.finish_reason is FinishReason.LENGTH:
            # No tool of a cut answer ever runs, and its history stays acceptable: both in one commit.
            reason = ToolRejection.preparation_failed(INCOMPLETE_TEXT)
            facts.extend(rejected_call(self.step_id, call, reason) for call in step.local_calls())
        await self.ledger.record_soon(*facts)

    async def record_interruption(self, error: BaseException) -> None:
        """Record how the request ended. After a fault of the log itself there is nothing to record it in."""
        if isinstance(error, (CommitError, StoreError)):
            return
        diagnostic = message_of(error) if isinstance(error, Exception) else None
        await self.ledger.record(ModelInterrupted(self.step_id, _status(error), diagnostic))

    async def _observe(self, events: Sequence[ModelEvent]) -> None:
        for start in range(0, len(events), _EVENTS_A_COMMIT):
            await self.ledger.record(*self._observations(events[start : start + _EVENTS_A_COMMIT]))

    def _observations(self, events: Sequence[ModelEvent]) -> list[Fact]:
        return [ModelObserved(self.step_id, event) for event in events]


def _valid_prefix(builder: StepBuilder, lot: Sequence[ModelEvent]) -> tuple[list[ModelEvent], AdapterError | None]:
    """The events up to the first that breaks a rule, and that rule's error."""
    valid: list[ModelEvent] = []
    for event in lot:
        try:
            builder.push(event)
        except AdapterError as fault:
            return valid, fault
        valid.append(event)
    return valid, None


def _status(error: BaseException) -> InterruptionStatus:
    match error:
        case ModelTimedOut():
            return InterruptionStatus.TIMED_OUT
        case ProviderFailure(replay_safe=True):
            return InterruptionStatus.RETRYABLE_FAILURE
        case Exception():
            return InterruptionStatus.FAILED
        case _:
            return InterruptionStatus.CANCELLED


def rejected_call(step_id: str, call: ModelToolCall, reason: ToolRejection) -> ToolRejected:
    """The fact that refuses a call of a model step."""
    return ToolRejected(
        operation_id=provider_operation_id(step_id, call.id),
        call=ToolCallIdentity.provider(step_id, call.id),
        name=call.name,
        input=call.input,
        reason=reason,
    )
