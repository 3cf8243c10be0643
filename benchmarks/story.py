"""A long lawful log, made without a network: runs of two model steps and a tool call, straight into the file."""

from __future__ import annotations

from collections.abc import Sequence

from maka_trio import EventLog, Invocation
from maka_trio.facts import (
    Completed,
    EventWrite,
    Fact,
    Finished,
    FinishReason,
    InvocationEnded,
    InvocationOpened,
    JsonOutput,
    MessageInput,
    MessageOpening,
    ModelCompleted,
    ModelEvent,
    ModelObserved,
    ModelRequested,
    ModelStep,
    ModelToolCall,
    PartDelta,
    PartFinished,
    PartStarted,
    RawResult,
    RuntimeEvent,
    Session,
    Succeeded,
    TextKind,
    TextPart,
    ToolCallIdentity,
    ToolCallPart,
    ToolCallReady,
    ToolDispatched,
    ToolSettled,
    provider_operation_id,
)
from maka_trio.facts.codec import digest
from maka_trio.facts.identity import new_id
from maka_trio.history import History

DELTAS = 20
TEXT = "a dozen chars"
ROUTE = digest(b"route")
RUN_EVENTS = 2 * (DELTAS + 5) + 5
"""Events of one run."""


class Story:
    """Writes runs of one session.

    Args:
        log: where to; nobody else writes to the session.
        session: its name.
    """

    def __init__(self, log: EventLog, session: str) -> None:
        self._log = log
        self._session = session
        self._history = History()
        self._invocation = Invocation.new(session)

    async def run(self, *, ended: bool = True) -> None:
        """Write one run. One that is not ended stops with its first effect under way."""
        self._invocation = Invocation.new(self._session)
        await self._write(InvocationOpened(MessageOpening(MessageInput("go on"))))
        call = ModelToolCall("call_0", "echo", {"value": 1})
        step_id = await self._request()
        await self._write(
            *self._answer(step_id, FinishReason.TOOL_CALLS, call),
            ToolDispatched(
                provider_operation_id(step_id, call.id),
                ToolCallIdentity.provider(step_id, call.id),
                call.name,
                call.input,
            ),
        )
        if not ended:
            return
        settled = ToolSettled(
            provider_operation_id(step_id, call.id), Succeeded(RawResult(1, digest(b"1")), JsonOutput(1))
        )
        await self._commit([EventWrite(RuntimeEvent.new(self._invocation, settled), b"1")])
        step_id = await self._request()
        await self._write(*self._answer(step_id, FinishReason.STOP), InvocationEnded(Completed()))

    async def _request(self) -> str:
        scope, step_id = Session(self._session), new_id()
        head = await self._log.head(scope)
        await self._write(
            ModelRequested(
                step_id=step_id,
                model_id="bench",
                source_scope=scope,
                source_high_water=head.high_water,
                source_digest=head.digest,
                input_digest=self._history.input_digest(route_identity=ROUTE, model_id="bench"),
                route_identity=ROUTE,
            )
        )
        return step_id

    def _answer(self, step_id: str, reason: FinishReason, *calls: ModelToolCall) -> list[Fact]:
        said = TextPart(TextKind.TEXT, TEXT * DELTAS)
        step = ModelStep((said, *map(ToolCallPart, calls)), reason)
        events: list[ModelEvent] = [
            PartStarted("text-0"),
            *([PartDelta("text-0", TEXT)] * DELTAS),
            PartFinished("text-0"),
            *map(ToolCallReady, calls),
            Finished(reason),
        ]
        return [*(ModelObserved(step_id, event) for event in events), ModelCompleted(step_id, step)]

    async def _write(self, *facts: Fact) -> None:
        await self._commit([RuntimeEvent.new(self._invocation, fact) for fact in facts])

    async def _commit(self, events: Sequence[RuntimeEvent | EventWrite]) -> None:
        await self._log.commit_batch(events)
        for event in events:
            self._history.push(event.event if isinstance(event, EventWrite) else event)


async def write_story(log: EventLog, events: int, *, runs_of_a_session: int = 20) -> None:
    """Write about so many events."""
    for number in range(events // RUN_EVENTS):
        if number % runs_of_a_session == 0:
            story = Story(log, f"session {number}")
        await story.run()
