"""Facts to messages: what the next request of a session says (semantics 3.11).

`History` folds the facts of one session in order and keeps the conversation ready, so that a step never projects
again what an earlier one did. Pairing is strict: what cannot be proven to answer a call is never guessed at, it
makes the session require reconciliation. The fold is pure, so whoever has the log can recompute every prompt.
"""

from __future__ import annotations

from maka_trio.dialogue import Dialogue, Replay, Route, Said, has_content, refusal_of, without_unsettled_text
from maka_trio.errors import ReconciliationRequired
from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import (
    BodyDeleted,
    ContextCheckpointRecorded,
    ExecutorCompleted,
    Fact,
    InvocationEnded,
    InvocationOpened,
    MessageSteered,
    ModelCompleted,
    ModelInterrupted,
    ModelRequested,
    RuntimeEvent,
    ToolDispatched,
    ToolNotified,
    ToolRejected,
    ToolResultArchived,
    ToolSettled,
)
from maka_trio.facts.identity import Invocation, Provider, provider_operation_id
from maka_trio.facts.message import (
    AssistantMessage,
    ErrorOutput,
    PromptMessage,
    SystemMessage,
    TextContent,
    ToolMessage,
    ToolOutput,
    UserMessage,
    carries_media,
)
from maka_trio.facts.model import ModelToolCall, SourcePart, TextKind, TextPart
from maka_trio.facts.opening import (
    CodeOpening,
    ContinuationOpening,
    InvocationConfiguration,
    MessageOpening,
    RequestSurface,
)
from maka_trio.facts.outcome import Completed
from maka_trio.records import define
from maka_trio.request import GrowingPrompt
from maka_trio.tellings import (
    OUTCOME_UNKNOWN_TEXT,
    UnknownOperation,
    outcome_output,
    steered,
    submitted,
    unknown_notice,
)


@define
class _Call:
    """One local call of an accepted step, on its way to an outcome."""

    step_id: str
    call: ModelToolCall
    dispatched: bool = False
    output: ToolOutput | None = None

    @property
    def operation_id(self) -> str:
        return provider_operation_id(self.step_id, self.call.id)


@define
class _Told:
    """What one invocation added to the session: the messages from `start` up to `end`, None while it is open.

    `continues` is the invocation that it goes on from; `settled` says whether it got to its own end, and `replayable`
    whether a model was part of it.
    """

    start: int
    continues: str | None = None
    end: int | None = None
    settled: bool = False
    replayable: bool = True


class History:
    """The fold of one session's facts. Observations may be left out of what is pushed: they are not history.

    The conversation of an open invocation is the session, or its lineage where it continues another. Facts of the
    session that are not of that lineage may be left out for it.
    """

    def __init__(self) -> None:
        self._session = Dialogue()
        self._lineage: Dialogue | None = None
        self._told: dict[str, _Told] = {}
        self._open_id = ""
        self._routes: dict[str, tuple[str, str] | None] = {}
        self._calls: dict[str, _Call] = {}
        self._unknown: list[UnknownOperation] = []
        self._in_flight: dict[str, str] = {}
        self._configuration = InvocationConfiguration()
        self._surface = RequestSurface()
        self._notice = False
        self._held: list[UserMessage] = []
        self._unattended = False
        self._notified = False
        self._media = False
        self._system: SystemMessage | None = None

    # --- reading ------------------------------------------------------------------------------------------

    @property
    def unknown_operations(self) -> tuple[UnknownOperation, ...]:
        """Effects of sealed runs that were never settled."""
        return tuple(self._unknown)

    @property
    def operations_in_flight(self) -> tuple[str, ...]:
        """Operations dispatched and not settled in the open invocation, oldest first, whoever asked for them."""
        return tuple(self._in_flight)

    @property
    def tools_in_flight(self) -> tuple[str, ...]:
        """The tools of these operations, in the same order."""
        return tuple(self._in_flight.values())

    @property
    def notified(self) -> bool:
        """Whether the next request tells the model something that a running program notified it of."""
        return self._notified

    @property
    def holds_media(self) -> bool:
        """Whether some message of the session carries media."""
        return self._media

    def open_steps(self) -> tuple[str, ...]:
        """Steps requested and neither completed nor interrupted in the open invocation."""
        return tuple(self._routes)

    def open_calls(self) -> tuple[tuple[str, ModelToolCall], ...]:
        """Step id and call of every accepted local call that was neither dispatched nor rejected, in call order."""
        return tuple(
            (call.step_id, call.call) for call in self._calls.values() if not call.dispatched and call.output is None
        )

    def prompt(self, *, route_identity: str, model_id: str) -> tuple[PromptMessage, ...]:
        """The messages of the next request of the open invocation, on this route.

        Raises:
            ReconciliationRequired: a call of the last step has no outcome yet.
        """
        self._check_answered()
        return GrowingPrompt.of(self._system_message(), self._dialogue().on_route((route_identity, model_id)))

    def input_digest(self, *, route_identity: str, model_id: str) -> str:
        """The `input_digest` of that request. Messages that an earlier digest covered are not read again."""
        self._check_answered()
        route = (route_identity, model_id)
        return self._dialogue().input_digest(route, self._system_message(), self._surface)

    @property
    def surface(self) -> RequestSurface:
        """What the open invocation's requests carry besides the conversation."""
        return self._surface

    def replay(self, invocation_id: str) -> Replay:
        """What a continuation of an ended invocation replays: its lineage, as far as there is something to answer.

        Raises:
            ReconciliationRequired: the facts do not hold the end of that invocation, or of one that it continues.
        """
        said: list[Said] = []
        refusal = None
        for told in self._lineage_of(invocation_id):
            if not told.replayable:
                refusal = "the run was not opened by a message or a continuation"
            own = self._session.said[told.start : told.end]
            said += self._session.said[: told.start] if told.continues is None else ()
            said += own if told.settled else without_unsettled_text(own)
        return Replay(tuple(said), refusal or refusal_of(said))

    # --- folding ------------------------------------------------------------------------------------------

    def push(self, event: RuntimeEvent) -> None:
        """Take the next fact of the session.

        Raises:
            ReconciliationRequired: the facts do not pair, or are of a kind that this version cannot continue.
        """
        fact = event.fact
        match fact:
            case InvocationOpened():
                self._open(fact, event.invocation)
            case ModelRequested():
                main = fact.purpose is StepPurpose.MAIN
                self._routes[fact.step_id] = (fact.route_identity, fact.model_id) if main else None
                self._notified = self._notified and not main
                self._surface = fact.surface or self._surface
            case ModelInterrupted():
                self._routes.pop(fact.step_id, None)
            case ModelCompleted():
                self._complete(fact)
            case ToolDispatched():
                self._dispatch(fact)
            case ToolSettled():
                self._settle(fact)
            case ToolRejected():
                self._reject(fact)
            case MessageSteered():
                self._say(UserMessage(steered(fact.message)))
            case ExecutorCompleted():
                self._say(AssistantMessage((TextPart(TextKind.TEXT, fact.text),)))
            case InvocationEnded():
                self._end(fact)
            case ToolNotified() if self._unattended:
                pass
            case ToolNotified():
                self._held.append(UserMessage((TextContent(fact.model_text),)))
            case ContextCheckpointRecorded() | ToolResultArchived() | BodyDeleted():
                raise ReconciliationRequired(f"this version cannot continue a session that holds {fact.kind}")
            case _:
                pass

    def _open(self, fact: InvocationOpened, invocation: Invocation) -> None:
        self._configuration = fact.configuration or InvocationConfiguration()
        self._unattended = False
        self._lineage = None
        self._open_id = invocation.invocation_id
        told = self._told[self._open_id] = _Told(len(self._session.said))
        match fact.input:
            case MessageOpening() as opening:
                self._surface = opening.surface or RequestSurface()
                self._notice = opening.allow_prior_unknown
                self._say(UserMessage(submitted(opening.content)))
            case ContinuationOpening() as opening:
                self._surface = opening.surface or RequestSurface()
                self._notice = False
                told.continues = opening.claim.source.invocation.invocation_id
            case CodeOpening():
                told.replayable = False
                self._unattended = True  # a program by itself, which no model asked for and none is told of
            case other:
                raise ReconciliationRequired(f"this version cannot continue a session opened by {other.kind}")

    def _complete(self, fact: ModelCompleted) -> None:
        route = self._routes.pop(fact.step_id, None)
        if route is None:
            return
        parts = tuple(part for part in fact.output.parts if not isinstance(part, SourcePart))
        if has_content(parts):
            self._say(AssistantMessage(parts), route)
        for call in fact.output.local_calls():
            pending = _Call(fact.step_id, call)
            self._calls[pending.operation_id] = pending
        if not self._calls:
            self._release()

    def _dispatch(self, fact: ToolDispatched) -> None:
        if isinstance(fact.call.origin, Provider):
            self._paired(fact.operation_id, fact.call.tool_call_id, fact.name, fact).dispatched = True
        self._in_flight[fact.operation_id] = fact.name

    def _settle(self, fact: ToolSettled) -> None:
        self._in_flight.pop(fact.operation_id, None)
        call = self._calls.get(fact.operation_id)
        if call is None:
            return
        if not call.dispatched:
            raise ReconciliationRequired(f"the operation {fact.operation_id!r} was settled but never dispatched")
        self._answer(call, outcome_output(fact.outcome))

    def _reject(self, fact: ToolRejected) -> None:
        if not isinstance(fact.call.origin, Provider):
            return
        call = self._paired(fact.operation_id, fact.call.tool_call_id, fact.name, fact)
        self._answer(call, ErrorOutput(str(fact.reason)))

    def _paired(self, operation_id: str, call_id: str, name: str, fact: Fact) -> _Call:
        call = self._calls.get(operation_id)
        if call is None or call.dispatched or call.output is not None:
            raise ReconciliationRequired(f"{fact.kind} for {operation_id!r}, which no accepted call waits for")
        if call.call.id != call_id or call.call.name != name:
            raise ReconciliationRequired(f"{fact.kind} for {operation_id!r} names another call than the model made")
        return call

    def _answer(self, call: _Call, output: ToolOutput) -> None:
        call.output = output
        if all(other.output is not None for other in self._calls.values()):
            self._flush()

    def _flush(self) -> None:
        """Say the answers of a step together and in call order, in whatever order the outcomes came."""
        for call in self._calls.values():
            assert call.output is not None
            self._say(ToolMessage(call.call.id, call.call.name, call.output))
        self._calls.clear()
        self._release()

    def _release(self) -> None:
        """Say what programs notified the model of, where a step has ended and all its calls are answered.

        What comes later waits for the next such place, also where no request is under way: programs go on beside the
        run, and a prompt must follow from what the log held at one certain fact, not from when it was put together.
        """
        for message in self._held:
            self._say(message)
        self._notified = self._notified or bool(self._held)
        self._held.clear()

    def _end(self, fact: InvocationEnded) -> None:
        self._unknown += [UnknownOperation(operation_id, name) for operation_id, name in self._in_flight.items()]
        for call in self._calls.values():
            if call.output is not None:
                continue
            if not call.dispatched:
                raise ReconciliationRequired(f"a sealed run left the call {call.operation_id!r} without an outcome")
            call.output = ErrorOutput(OUTCOME_UNKNOWN_TEXT)
        self._flush()
        told = self._told.get(self._open_id)
        if told is not None:
            told.end, told.settled = len(self._session.said), isinstance(fact.outcome, Completed)
        self._lineage, self._open_id = None, ""
        self._in_flight.clear()
        self._routes.clear()
        self._notice = False
        self._notified = False

    # --- rendering ----------------------------------------------------------------------------------------

    def _say(self, message: PromptMessage, route: Route | None = None) -> None:
        said = Said(message, route)
        self._session.say(said)
        self._media = self._media or carries_media(message)
        if self._lineage is not None:
            self._lineage.say(said)

    def _dialogue(self) -> Dialogue:
        """What the open invocation speaks in. A lineage is put together when it is first asked for."""
        told = self._told.get(self._open_id)
        if told is None or told.continues is None:
            return self._session
        if self._lineage is None:
            replay = self.replay(told.continues)
            if replay.refusal is not None:
                raise ReconciliationRequired(replay.refusal)
            self._lineage = Dialogue((*replay.said, *self._session.said[told.start : told.end]))
        return self._lineage

    def _lineage_of(self, invocation_id: str) -> list[_Told]:
        """What an ended invocation and those that it continues added, the first of them first."""
        lineage: list[_Told] = []
        name: str | None = invocation_id
        while name is not None:
            told = self._told.get(name)
            if told is None or told.end is None or len(lineage) == len(self._told):
                raise ReconciliationRequired(f"invocation {name!r}, which is continued, has not ended before")
            lineage.append(told)
            name = told.continues
        return lineage[::-1]

    def _check_answered(self) -> None:
        for operation_id, call in self._calls.items():
            if call.output is None:
                raise ReconciliationRequired(f"the call {operation_id!r} has no outcome")

    def _system_message(self) -> SystemMessage | None:
        prompt = self._configuration.system_prompt or ""
        if self._notice and self._unknown:
            notice = unknown_notice(self._unknown)
            prompt = f"{prompt}\n\n{notice}" if prompt else notice
        if self._system is None or self._system.text != prompt:  # else the very same, which is how it is known again
            self._system = SystemMessage(prompt) if prompt else None
        return self._system
