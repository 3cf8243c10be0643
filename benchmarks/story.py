"""A long lawful log, made without a network: runs of two model steps and a tool call, straight into the file."""

from __future__ import annotations

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
from maka_trio.facts.event import NO_SOURCE
from maka_trio.facts.identity import new_id
from maka_trio.history import History

DELTAS = 20
TEXT = "a dozen chars"
ROUTE = digest(b"route")
RUN_EVENTS = 2 * (DELTAS + 5) + 5
"""Events of one run."""


CALL = ModelToolCall("call_0", "echo", {"value": 1})


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
        self._writes: list[EventWrite] = []

    async def run(self, *, ended: bool = True) -> None:
        """Write one run. One that is not ended stops with its first effect under way."""
        self.tell(ended=ended)
        await self.write()

    async def write(self) -> None:
        """Write all that was told, in one commit."""
        writes, self._writes = self._writes, []
        await self._log.commit_batch(writes)

    def tell(self, *, ended: bool = True) -> None:
        """Make the events of one run."""
        self._invocation = Invocation.new(self._session)
        self._say(InvocationOpened(MessageOpening(MessageInput("go on"))))
        operation_id = self._dispatch()
        if ended:
            outcome = Succeeded(RawResult(1, digest(b"1")), JsonOutput(1))
            self._say(ToolSettled(operation_id, outcome), payload=b"1")
            self._answer(self._request(), FinishReason.STOP)
            self._say(InvocationEnded(Completed()))

    def _dispatch(self) -> str:
        step_id = self._request()
        self._answer(step_id, FinishReason.TOOL_CALLS, CALL)
        operation_id = provider_operation_id(step_id, CALL.id)
        self._say(ToolDispatched(operation_id, ToolCallIdentity.provider(step_id, CALL.id), CALL.name, CALL.input))
        return operation_id

    def _request(self) -> str:
        step_id = new_id()
        asked = self._history.input_digest(route_identity=ROUTE, model_id="bench")
        self._say(
            ModelRequested(step_id, "bench", Session(self._session), 0, NO_SOURCE, asked, ROUTE), source_here=True
        )
        return step_id

    def _answer(self, step_id: str, reason: FinishReason, *calls: ModelToolCall) -> None:
        said = TextPart(TextKind.TEXT, TEXT * DELTAS)
        events: list[ModelEvent] = [
            PartStarted("text-0"),
            *([PartDelta("text-0", TEXT)] * DELTAS),
            PartFinished("text-0"),
            *map(ToolCallReady, calls),
            Finished(reason),
        ]
        for event in events:
            self._say(ModelObserved(step_id, event))
        self._say(ModelCompleted(step_id, ModelStep((said, *map(ToolCallPart, calls)), reason)))

    def _say(self, fact: Fact, *, payload: bytes | None = None, source_here: bool = False) -> None:
        event = RuntimeEvent.new(self._invocation, fact)
        self._writes.append(EventWrite(event, payload, source_here=source_here))
        self._history.push(event)


async def write_story(log: EventLog, events: int, *, runs_of_a_session: int = 20) -> None:
    """Write about so many events, all runs of a session in one commit."""
    runs = events // RUN_EVENTS
    for first in range(0, runs, runs_of_a_session):
        story = Story(log, f"session {first}")
        for _ in range(min(runs_of_a_session, runs - first)):
            story.tell()
        await story.write()
