"""What a reader of a log keeps in mind while it checks the laws. No rule is here, only what has been seen.

The book holds what is open: invocations between opening and end, their steps, their operations and the calls that
wait for an outcome. Of each ended invocation it keeps one number, of each session its digest so far and, where
wanted, its conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from maka_trio.dialogue import Replay
from maka_trio.errors import AdapterError
from maka_trio.facts.codec import encode_event
from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import (
    ExecutorCompleted,
    ExecutorStarted,
    InvocationEnded,
    InvocationOpened,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    RuntimeEvent,
    StoredEvent,
    ToolDispatched,
    ToolRejected,
    ToolSettled,
)
from maka_trio.facts.identity import CodeMode, HostSdk, Invocation, Provider, provider_operation_id
from maka_trio.facts.model import ModelToolCall
from maka_trio.facts.prefix import chain_both, chain_start
from maka_trio.facts.scope import Scope, Session
from maka_trio.facts.streamed import Streamed, StreamedTexts
from maka_trio.records import define
from maka_trio.steps import StepBuilder


class HistoryFold(Protocol):
    """What recomputes a request's input digest: `maka_trio.history.History`."""

    def push(self, event: RuntimeEvent, /) -> None:
        """Take the next fact of the session."""
        ...

    def input_digest(self, *, route_identity: str, model_id: str) -> str:
        """The digest that the next request on this route must state."""
        ...

    def replay(self, invocation_id: str, /) -> Replay:
        """What a continuation of an ended invocation tells the model."""
        ...


@define(eq=False)
class StepBook:
    """A model request of an open invocation. `builder` makes of its observations what its output must be."""

    purpose: StepPurpose
    builder: StepBuilder
    observed: bool = False
    ended: bool = False
    completed: bool = False

    def take(self, events: Sequence[Streamed]) -> None:
        """Take observations. A builder that refuses one stays void: whatever completes the step has another source."""
        self.observed = True
        try:
            for event in events:
                if isinstance(event, StreamedTexts):
                    self.builder.push_texts(event.part_id, event.texts)
                else:
                    self.builder.push(event)
        except AdapterError:
            return


@define(eq=False)
class RunBook:
    """An invocation between its opening and its end.

    `operations` says of each whether it is `dispatched`, `settled` or `rejected`; `callers` names, of each that a
    program or an extension asked for, the operation it belongs to. `calls` are the local calls, by operation id, of
    the steps that completed since the last request.
    """

    invocation: Invocation
    steps: dict[str, StepBook] = attrs.field(factory=dict)
    operations: dict[str, str] = attrs.field(factory=dict)
    callers: dict[str, str] = attrs.field(factory=dict)
    calls: dict[str, ModelToolCall] = attrs.field(factory=dict)
    executor_running: bool = False

    def alive(self) -> list[str]:
        """Operations without a settlement."""
        return [operation for operation, state in self.operations.items() if state == "dispatched"]

    def alive_below(self, operation_id: str) -> list[str]:
        """Operations without a settlement that this one asked for. A program is none: it may outlive its call."""
        return [operation for operation in self.alive() if self.callers.get(operation) == operation_id]

    def undecided_calls(self) -> list[str]:
        """Calls that were neither dispatched nor rejected."""
        return [operation for operation in self.calls if operation not in self.operations]

    def unanswered_calls(self) -> list[str]:
        """Calls that were dispatched and are not settled."""
        return [operation for operation in self.calls if self.operations.get(operation) == "dispatched"]

    def step_of(self, fact: ToolDispatched | ToolRejected) -> StepBook | None:
        """The step whose call a fact is about, if a model made the call in this invocation."""
        origin = fact.call.origin
        return self.steps.get(origin.step_id) if isinstance(origin, Provider) else None

    def enter(self, stored: StoredEvent) -> None:
        """Take in a fact of this invocation, neither its opening nor its end."""
        fact = stored.event.fact
        match fact:
            case ModelObserved():
                self._observe(fact)
            case ModelRequested():
                if fact.purpose is StepPurpose.MAIN:
                    self.calls.clear()
                # Without the id: how much of an answer an engine takes is no law.
                self.steps.setdefault(fact.step_id, StepBook(fact.purpose, StepBuilder()))
            case ModelInterrupted():
                self.end_step(fact.step_id)
            case ModelCompleted():
                self._complete(fact)
            case ToolDispatched():
                self.operations[fact.operation_id] = "dispatched"
                if (
                    isinstance(fact.call.origin, (CodeMode, HostSdk))
                    and fact.call.origin.parent_operation_id is not None
                ):
                    self.callers[fact.operation_id] = fact.call.origin.parent_operation_id
            case ToolSettled():
                self.operations[fact.operation_id] = "settled"
            case ToolRejected():
                self.operations.setdefault(fact.operation_id, "rejected")
            case ExecutorStarted():
                self.executor_running = True
            case ExecutorCompleted():
                self.executor_running = False
            case _:
                pass

    def _observe(self, fact: ModelObserved) -> None:
        step = self.steps.get(fact.step_id)
        if step is not None and not step.ended:
            step.take((fact.event,))

    def end_step(self, step_id: str) -> StepBook | None:
        """Let a step have ended; None if there is none that had not."""
        step = self.steps.get(step_id)
        if step is None or step.ended:
            return None
        step.ended = True
        step.builder = StepBuilder()  # what the old one holds may be large
        return step

    def _complete(self, fact: ModelCompleted) -> None:
        step = self.end_step(fact.step_id)
        if step is None:
            return
        step.completed = True
        if step.purpose is StepPurpose.MAIN:
            for call in fact.output.local_calls():
                self.calls[provider_operation_id(fact.step_id, call.id)] = call


def _caller(fact: ToolDispatched) -> str | None:
    origin = fact.call.origin
    return origin.parent_operation_id if isinstance(origin, (CodeMode, HostSdk)) else None


@define(eq=False)
class SessionBook:
    """A session: its chain and high water so far, the invocations open in it, its conversation."""

    chain: bytes
    high_water: int = 0
    running: set[str] = attrs.field(factory=set)
    history: HistoryFold | None = None


class Book:
    """What has been seen of the log so far.

    Args:
        scope: what the events are all of.
        history: makes the conversation of a session, or None where none is wanted.
    """

    def __init__(self, scope: Scope, history: Callable[[], HistoryFold] | None) -> None:
        self.scope = scope
        self.chain = chain_start(scope)
        self.high_water = 0
        self._open: dict[str, RunBook] = {}
        self._ended: set[int] = set()
        self._sessions: dict[str, SessionBook] = {}
        self._new_history = history

    def run_of(self, stored: StoredEvent) -> RunBook | None:
        """The open invocation that an event belongs to."""
        return self._open.get(stored.event.invocation.invocation_id)

    def has_ended(self, invocation_id: str) -> bool:
        """Whether an invocation of this id ended before."""
        return hash(invocation_id) in self._ended

    def session(self, session_id: str) -> SessionBook:
        """What is known of a session."""
        book = self._sessions.get(session_id)
        if book is None:
            history = None if self._new_history is None else self._new_history()
            book = self._sessions[session_id] = SessionBook(chain_start(Session(session_id)), history=history)
        return book

    def open_step(self, sequence: int, invocation: Invocation, step_id: str) -> StepBook | None:
        """The step of which there may be an observation at a sequence, if there is no doubt about that."""
        run = self._open.get(invocation.invocation_id)
        if run is None or (run.invocation is not invocation and run.invocation != invocation):
            return None
        step = run.steps.get(step_id)
        return None if step is None or step.ended or sequence <= self.high_water else step

    def enter_observations(
        self,
        last: int,
        invocation: Invocation,
        step_id: str,
        events: Sequence[Streamed],
        chains: tuple[bytes, bytes],
    ) -> None:
        """Take in observations of an open step, the last of them at sequence `last`."""
        self._open[invocation.invocation_id].steps[step_id].take(events)
        self.advance(last, invocation, chains)

    def advance(self, sequence: int, invocation: Invocation, chains: tuple[bytes, bytes]) -> None:
        """Let the log and a session end with an event, and with these digests."""
        session = self.session(invocation.session_id)
        self.chain, session.chain = chains
        self.high_water = session.high_water = sequence

    def enter(self, stored: StoredEvent, chains: tuple[bytes, bytes] | None = None) -> None:
        """Take the event in, whatever the laws say of it. `chains` are the digests with it, where somebody has them."""
        self._chain(stored, chains)
        run = self.run_of(stored)
        match stored.event.fact:
            case InvocationOpened():
                self.open(stored.event.invocation)
            case InvocationEnded():
                self.end(stored.event.invocation)
            case _ if run is not None:
                run.enter(stored)

    def _chain(self, stored: StoredEvent, chains: tuple[bytes, bytes] | None) -> None:
        if chains is None:
            session = self.session(stored.event.invocation.session_id)
            chains = chain_both(self.chain, session.chain, stored.sequence, encode_event(stored.event))
        self.advance(stored.sequence, stored.event.invocation, chains)

    def open(self, invocation: Invocation) -> None:
        """Let an invocation be open."""
        self._open.setdefault(invocation.invocation_id, RunBook(invocation))
        self.session(invocation.session_id).running.add(invocation.invocation_id)

    def end(self, invocation: Invocation) -> None:
        """Let it have ended."""
        self._open.pop(invocation.invocation_id, None)
        self._ended.add(hash(invocation.invocation_id))
        self.session(invocation.session_id).running.discard(invocation.invocation_id)
