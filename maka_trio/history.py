"""Facts to messages: what the next request of a session says (semantics 3.11).

`History` folds the facts of one session in order and keeps the conversation ready, so that a step never projects
again what an earlier one did. Pairing is strict: what cannot be proven to answer a call is never guessed at, it
makes the session require reconciliation. The fold is pure, so whoever has the log can recompute every prompt.
"""

from __future__ import annotations

import attrs

from maka_trio.errors import ReconciliationRequired
from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import (
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
from maka_trio.facts.identity import Provider, provider_operation_id
from maka_trio.facts.message import (
    AssistantMessage,
    ContentPart,
    ErrorOutput,
    MediaContent,
    PromptMessage,
    SystemMessage,
    TextContent,
    ToolMessage,
    ToolOutput,
    UserMessage,
)
from maka_trio.facts.model import ModelPart, ModelToolCall, SourcePart, TextKind, TextPart, ToolCallPart
from maka_trio.facts.opening import CodeOpening, InvocationConfiguration, MessageInput, MessageOpening, RequestSurface
from maka_trio.facts.outcome import EffectFailed, EffectUnknown, Succeeded, ToolOutcome
from maka_trio.request import PromptDigest

OUTCOME_UNKNOWN_TEXT = (
    "outcome_unknown: the call was started and then lost; its effect may or may not have happened. "
    "Check the current state before doing it again."
)
"""What the model is told of a call whose effect nobody can confirm."""

NOTICE_OPERATIONS = 64
"""Unknown operations that the notice lists by name; more are counted."""


@attrs.define
class _Call:
    """One local call of an accepted step, on its way to an outcome."""

    step_id: str
    call: ModelToolCall
    dispatched: bool = False
    output: ToolOutput | None = None

    @property
    def operation_id(self) -> str:
        return provider_operation_id(self.step_id, self.call.id)


@attrs.frozen
class UnknownOperation:
    """An effect that an earlier run left without a settlement."""

    operation_id: str
    name: str


@attrs.frozen
class _Said:
    """A message with the route that made it, where one did: reasoning is replayed on its own route only."""

    message: PromptMessage
    route: tuple[str, str] | None = None


class History:
    """The fold of one session's facts. Observations may be left out of what is pushed: they are not history."""

    def __init__(self) -> None:
        self._said: list[_Said] = []
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
        self._rendered: tuple[tuple[str, str], list[PromptMessage]] | None = None
        self._digest: tuple[tuple[object, ...], PromptDigest] | None = None

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
        for operation_id, call in self._calls.items():
            if call.output is None:
                raise ReconciliationRequired(f"the call {operation_id!r} has no outcome")
        conversation = self._conversation((route_identity, model_id))
        system = self._system_prompt()
        return (SystemMessage(system), *conversation) if system else tuple(conversation)

    def input_digest(self, *, route_identity: str, model_id: str) -> str:
        """The `input_digest` of that request. Messages that an earlier digest covered are not read again."""
        prompt = self.prompt(route_identity=route_identity, model_id=model_id)
        system = prompt[0] if prompt and isinstance(prompt[0], SystemMessage) else None
        key = (route_identity, model_id, system, self._surface.max_output_tokens)
        if self._digest is None or self._digest[0] != key:
            self._digest = (key, PromptDigest(self._surface.max_output_tokens))
        growing = self._digest[1]
        growing.extend(prompt[growing.messages :])
        return growing.value(self._surface)

    @property
    def surface(self) -> RequestSurface:
        """What the open invocation's requests carry besides the conversation."""
        return self._surface

    # --- folding ------------------------------------------------------------------------------------------

    def push(self, event: RuntimeEvent) -> None:
        """Take the next fact of the session.

        Raises:
            ReconciliationRequired: the facts do not pair, or are of a kind that this version cannot continue.
        """
        fact = event.fact
        match fact:
            case InvocationOpened():
                self._open(fact)
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
                self._say(UserMessage(_steered(fact.message)))
            case ExecutorCompleted():
                self._say(AssistantMessage((TextPart(TextKind.TEXT, fact.text),)))
            case InvocationEnded():
                self._end()
            case ToolNotified() if self._unattended:
                pass
            case ToolNotified():
                self._held.append(UserMessage((TextContent(fact.model_text),)))
            case ContextCheckpointRecorded() | ToolResultArchived():
                raise ReconciliationRequired(f"this version cannot continue a session that holds {fact.kind}")
            case _:
                pass

    def _open(self, fact: InvocationOpened) -> None:
        self._configuration = fact.configuration or InvocationConfiguration()
        self._unattended = False
        match fact.input:
            case MessageOpening() as opening:
                self._surface = opening.surface or RequestSurface()
                self._notice = opening.allow_prior_unknown
                self._say(UserMessage(_submitted(opening.content)))
            case CodeOpening():
                self._unattended = True  # a program by itself, which no model asked for and none is told of
            case other:
                raise ReconciliationRequired(f"this version cannot continue a session opened by {other.kind}")

    def _complete(self, fact: ModelCompleted) -> None:
        route = self._routes.pop(fact.step_id, None)
        if route is None:
            return
        parts = tuple(part for part in fact.output.parts if not isinstance(part, SourcePart))
        if _has_content(parts):
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
        self._answer(call, _outcome_output(fact.outcome))

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

    def _end(self) -> None:
        self._unknown += [UnknownOperation(operation_id, name) for operation_id, name in self._in_flight.items()]
        for call in self._calls.values():
            if call.output is not None:
                continue
            if not call.dispatched:
                raise ReconciliationRequired(f"a sealed run left the call {call.operation_id!r} without an outcome")
            call.output = ErrorOutput(OUTCOME_UNKNOWN_TEXT)
        self._flush()
        self._in_flight.clear()
        self._routes.clear()
        self._notice = False
        self._notified = False

    # --- rendering ----------------------------------------------------------------------------------------

    def _say(self, message: PromptMessage, route: tuple[str, str] | None = None) -> None:
        said = _Said(message, route)
        self._said.append(said)
        if self._rendered is not None:
            target, messages = self._rendered
            messages.extend(_on_route(said, target))

    def _conversation(self, route: tuple[str, str]) -> list[PromptMessage]:
        if self._rendered is None or self._rendered[0] != route:
            self._rendered = (route, [message for said in self._said for message in _on_route(said, route)])
        return self._rendered[1]

    def _system_prompt(self) -> str:
        prompt = self._configuration.system_prompt or ""
        if not (self._notice and self._unknown):
            return prompt
        notice = _unknown_notice(self._unknown)
        return f"{prompt}\n\n{notice}" if prompt else notice


def _on_route(said: _Said, route: tuple[str, str]) -> list[PromptMessage]:
    """The message as it may be sent on a route.

    Reasoning and provider metadata mean something on the route and model that made them; elsewhere they are
    refused or, worse, taken for something else.
    """
    message = said.message
    if not isinstance(message, AssistantMessage) or said.route is None or said.route == route:
        return [message]
    parts = tuple(
        _without_metadata(part)
        for part in message.parts
        if not (isinstance(part, TextPart) and part.text_kind is TextKind.THINKING)
    )
    return [AssistantMessage(parts)] if _has_content(parts) else []


def _without_metadata(part: ModelPart) -> ModelPart:
    if isinstance(part, ToolCallPart):
        return ToolCallPart(attrs.evolve(part.call, provider_options=None))
    return attrs.evolve(part, provider_options=None)


def _has_content(parts: tuple[ModelPart, ...]) -> bool:
    return any(not isinstance(part, TextPart) or part.text or part.provider_options for part in parts)


def _outcome_output(outcome: ToolOutcome) -> ToolOutput:
    match outcome:
        case Succeeded(model_projection=projection):
            return projection
        case EffectFailed(message=message) | EffectUnknown(message=message):
            return ErrorOutput(message)


def _submitted(content: MessageInput) -> tuple[ContentPart, ...]:
    parts = content.parts or (TextContent(content.text),)
    if not content.quotes:
        return parts
    quoted = "\n\n".join(
        "\n".join(f"> {line}" for line in quote.text.splitlines()) + (f"\n({quote.label})" if quote.label else "")
        for quote in content.quotes
    )
    return (TextContent(quoted), *parts)


def _steered(message: MessageInput) -> tuple[ContentPart, ...]:
    """An envelope, so that what the user adds in the middle of a turn is not mistaken for a tool's output."""
    envelope = f"The user adds the following to the running turn.\n<user_query>\n{message.text}\n</user_query>"
    return (TextContent(envelope), *(part for part in message.parts if isinstance(part, MediaContent)))


def _unknown_notice(unknown: list[UnknownOperation]) -> str:
    lines = [f"- {operation.name} ({operation.operation_id})" for operation in unknown[:NOTICE_OPERATIONS]]
    if len(unknown) > NOTICE_OPERATIONS:
        lines.append(f"- and {len(unknown) - NOTICE_OPERATIONS} more")
    return (
        "An earlier run of this session was interrupted while these tool calls were in progress. Their effects are "
        "possible but unconfirmed. Check the current state before you repeat any of them:\n" + "\n".join(lines)
    )
