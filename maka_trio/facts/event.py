"""The facts of a log: what happened to which invocation, and the envelope they travel in.

A fact says one thing in the past tense. Its rules stand beside it: limits here, which fact may follow which in
`transitions`, what a lawful log is in `laws`. An event is evidence with an identity; `recorded_at` is wall-clock
time, captured once, and orders nothing. Order is `StoredEvent.sequence`, one line for the whole log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeAlias

import attrs

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.context import ArchivedPlaceholder, ContextCheckpoint, ModelRequestContext, StepPurpose
from maka_trio.facts.identity import Invocation, ToolCallIdentity, new_id
from maka_trio.facts.json_value import JSON, JsonObject, valid_json, valid_object
from maka_trio.facts.model import ModelEvent, ModelStep, ModelUsage
from maka_trio.facts.opening import InvocationConfiguration, InvocationInput, MessageInput, RequestSurface
from maka_trio.facts.outcome import (
    ArtifactRef,
    InterruptionStatus,
    InvocationOutcome,
    Succeeded,
    ToolOutcome,
    ToolRejection,
)
from maka_trio.facts.scope import Scope
from maka_trio.records import frozen

# --- facts ------------------------------------------------------------------------------------------------


@frozen
class InvocationOpened:
    """First fact of an invocation; committing it *is* admission."""

    kind: ClassVar[str] = "invocation_opened"
    input: InvocationInput
    configuration: InvocationConfiguration | None = None


NO_SOURCE = "sha256:" + "0" * 64
"""The source digest of a request whose source the log is to name."""


@frozen
class ModelRequested:
    """Committed before any byte is sent; freezes the history that the request was built from.

    `source_*` name the prefix of `source_scope` right before the request. `input_digest` covers the prompt, the
    tools and the options, and can be recomputed from the log alone. `route_identity` names the provider
    configuration without its secrets.
    """

    kind: ClassVar[str] = "model_requested"
    step_id: str = attrs.field(validator=bounds.identity)
    model_id: str
    source_scope: Scope
    source_high_water: int
    source_digest: str = attrs.field(validator=bounds.digest)
    input_digest: str = attrs.field(validator=bounds.digest)
    route_identity: str = attrs.field(validator=bounds.digest)
    purpose: StepPurpose = StepPurpose.MAIN
    checkpoint_event_id: str | None = None
    context: ModelRequestContext | None = None
    effective_source_digest: str | None = attrs.field(default=None, validator=bounds.optional(bounds.digest))
    surface: RequestSurface | None = None


@frozen
class ModelObserved:
    """A streamed event, durable before anybody is shown it. Not history until its step completes."""

    kind: ClassVar[str] = "model_observed"
    step_id: str = attrs.field(validator=bounds.identity)
    event: ModelEvent


def _interruption_status(value: object) -> InterruptionStatus:
    return bounds.member(InterruptionStatus, value)


@frozen
class ModelInterrupted:
    """The request ended without an accepted step. `retryable_failure` is evidence, not an order to retry."""

    kind: ClassVar[str] = "model_interrupted"
    step_id: str = attrs.field(validator=bounds.identity)
    status: InterruptionStatus = attrs.field(converter=_interruption_status)
    diagnostic: str | None = None


@frozen
class ModelCompleted:
    """The whole step passed validation and is history."""

    kind: ClassVar[str] = "model_completed"
    step_id: str = attrs.field(validator=bounds.identity)
    output: ModelStep


@frozen
class ToolDispatched:
    """T1: the effect may happen from here on, and is never dispatched again by anyone."""

    kind: ClassVar[str] = "tool_dispatched"
    operation_id: str = attrs.field(validator=bounds.identity)
    call: ToolCallIdentity
    name: str
    input: JSON = attrs.field(validator=valid_json)


@frozen
class ToolSettled:
    """T2: what became of a dispatched effect."""

    kind: ClassVar[str] = "tool_settled"
    operation_id: str = attrs.field(validator=bounds.identity)
    outcome: ToolOutcome


@frozen
class ToolRejected:
    """The call was refused: no T1, no effect, and never a T2."""

    kind: ClassVar[str] = "tool_rejected"
    operation_id: str = attrs.field(validator=bounds.identity)
    call: ToolCallIdentity
    name: str
    input: JSON = attrs.field(validator=valid_json)
    reason: ToolRejection


@frozen
class ToolNotified:
    """Extra output of a live code cell; not a settlement."""

    kind: ClassVar[str] = "tool_notified"
    operation_id: str = attrs.field(validator=bounds.identity)
    text: str = attrs.field(validator=bounds.text(limit=limits.NOTIFICATION_BYTES, blank=False))
    model_text: str = attrs.field(validator=bounds.text(limit=limits.NOTIFICATION_BYTES, blank=False))


@frozen
class MessageSteered:
    """A user message that joined a running turn at a step boundary."""

    kind: ClassVar[str] = "message_steered"
    message: MessageInput
    message_id: str = attrs.field(factory=new_id, validator=bounds.identity)


@frozen
class ContextCheckpointRecorded:
    """A summary was adopted."""

    kind: ClassVar[str] = "context_checkpoint_recorded"
    checkpoint: ContextCheckpoint


@frozen
class ToolResultArchived:
    """A large tool result is shown to the model as a page from here on."""

    kind: ClassVar[str] = "tool_result_archived"
    placeholder: ArchivedPlaceholder


@frozen
class ExecutorStarted:
    """A foreign agent executes the turn instead of the model loop."""

    kind: ClassVar[str] = "executor_started"
    binding: JsonObject = attrs.field(validator=valid_object)
    settings: JsonObject = attrs.field(factory=dict, validator=valid_object)


@frozen
class ExecutorObserved:
    """Output of a foreign agent, durable before it is shown."""

    kind: ClassVar[str] = "executor_observed"
    output: JSON = attrs.field(validator=valid_json)


@frozen
class ExecutorCompleted:
    """The foreign agent's answer."""

    kind: ClassVar[str] = "executor_completed"
    text: str = attrs.field(validator=bounds.text(limit=limits.EXECUTOR_TEXT_BYTES))


@frozen
class MessageImported:
    """A message of a foreign history. Only an import admission may write it."""

    kind: ClassVar[str] = "message_imported"
    source: str
    record: JsonObject = attrs.field(validator=valid_object)


@frozen
class InvocationEnded:
    """Last fact of an invocation."""

    kind: ClassVar[str] = "invocation_ended"
    outcome: InvocationOutcome


@frozen
class BodyDeleted:
    """What is left of a fact whose session's bodies were deleted. It is read from a log and never written to one.

    Attributes:
        of_kind: the kind of the fact.
        size: bytes of JSON that it had.
        root_digest: the digest of the log with its event, as it was; nobody can compute it any more.
        session_digest: that of its session.
        operation_id: what the log indexes it under; see `indexed_operation_id`.
        name: the tool, of a dispatch or a rejection.
        outcome: how it ended, for an end, an interruption, a settlement or a rejection; its class after a colon.
        model_id: the model that was asked, or that answered.
        usage: what a completed step cost.
    """

    kind: ClassVar[str] = "body_deleted"
    of_kind: str = attrs.field(validator=bounds.text(blank=False))
    size: int
    root_digest: str = attrs.field(validator=bounds.digest)
    session_digest: str = attrs.field(validator=bounds.digest)
    operation_id: str | None = None
    name: str | None = None
    outcome: str | None = None
    model_id: str | None = None
    usage: ModelUsage | None = None


Fact: TypeAlias = (
    InvocationOpened
    | ModelRequested
    | ModelObserved
    | ModelInterrupted
    | ModelCompleted
    | ToolDispatched
    | ToolSettled
    | ToolRejected
    | ToolNotified
    | MessageSteered
    | ContextCheckpointRecorded
    | ToolResultArchived
    | ExecutorStarted
    | ExecutorObserved
    | ExecutorCompleted
    | MessageImported
    | InvocationEnded
    | BodyDeleted
)


def indexed_operation_id(fact: Fact) -> str | None:
    """What the log indexes a fact under: the operation of a tool fact, the step of a model fact, else None.

    Observations and notifications are many and are found through their invocation, so they are not indexed.
    """
    match fact:
        case ToolDispatched() | ToolSettled() | ToolRejected() | BodyDeleted():
            return fact.operation_id
        case ModelRequested() | ModelCompleted() | ModelInterrupted():
            return fact.step_id
        case _:
            return None


# --- the envelope -----------------------------------------------------------------------------------------


@frozen
class RuntimeEvent:
    """A fact with its identity. A retry of an append uses the same event, never a new one.

    `recorded_at` is milliseconds since the epoch, by the wall clock.
    """

    id: str = attrs.field(validator=bounds.identity)
    recorded_at: int
    invocation: Invocation
    fact: Fact

    @classmethod
    def new(cls, invocation: Invocation, fact: Fact, *, event_id: str | None = None) -> RuntimeEvent:
        """An event made now, with a fresh id unless one is given."""
        return cls(event_id or new_id(), time.time_ns() // 1_000_000, invocation, fact)


@frozen
class StoredEvent:
    """An event in its place in the log. Sequences rise strictly over the whole log, all sessions together."""

    sequence: int
    event: RuntimeEvent


@frozen
class Artifact:
    """Bytes that belong to an event and are stored beside it, in the same transaction."""

    ref: ArtifactRef
    data: bytes = attrs.field(repr=False)


@frozen
class EventWrite:
    """An event together with what is stored beside it.

    A succeeded settlement always comes with its raw result, so success without evidence cannot be written. With
    `source_here` the log names the source of a `model_requested`, up to the event before it: its session, or the
    lineage of its run where that continues another.
    """

    event: RuntimeEvent
    payload: bytes | None = attrs.field(default=None, repr=False)
    artifacts: tuple[Artifact, ...] = ()
    source_here: bool = False

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.event, RuntimeEvent):
            raise InvalidInput(f"an EventWrite takes a RuntimeEvent, not {type(self.event).__name__}")
        fact = self.event.fact
        if self.source_here and not isinstance(fact, ModelRequested):
            raise InvalidInput(f"a {fact.kind} has no source that the log could name")
        succeeded = isinstance(fact, ToolSettled) and isinstance(fact.outcome, Succeeded)
        if succeeded and self.payload is None:
            raise InvalidInput("a succeeded tool_settled is written together with its raw result")
        if not succeeded and self.payload is not None:
            raise InvalidInput(f"a {fact.kind} carries no raw result")
        if isinstance(fact, MessageImported):
            raise InvalidInput("message_imported is written by an import admission only")


class EventSink(Protocol):
    """Where the engine and the tools commit. `EventLog` is the real one; tests may stand in front of it."""

    async def commit(self, event: RuntimeEvent | EventWrite) -> int:
        """Append one event durably and return its sequence. A submitted append is never taken back by a cancel.

        Raises:
            CommitError: the append was not acknowledged; the subclass says what is known.
        """
        ...

    async def commit_batch(self, events: Sequence[RuntimeEvent | EventWrite]) -> list[int]:
        """Append all or nothing, in order. An effect never lies between two events of one batch."""
        ...
