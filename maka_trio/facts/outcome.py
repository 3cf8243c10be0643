"""How things ended: a tool's effect, a refused call, a model request, a run."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, TypeAlias

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.json_value import JsonObject, valid_object
from maka_trio.facts.message import ToolOutput
from maka_trio.records import frozen

RUNTIME_CANCELLATION = "runtime_cancellation"
"""The source in the end of a run whose scope was cancelled."""


@frozen
class RawResult:
    """Size and digest of a tool's raw result, whose bytes are stored beside the event."""

    bytes: int
    digest: str = attrs.field(validator=bounds.digest)


@frozen
class ArtifactRef:
    """A stored artifact that belongs to an event: media a tool returned or a user attached."""

    id: str = attrs.field(validator=bounds.identity)
    media_type: str
    bytes: int
    digest: str = attrs.field(validator=bounds.digest)


@frozen
class Succeeded:
    """The effect happened. `model_projection` is what the model is shown of the raw result."""

    kind: ClassVar[str] = "succeeded"
    raw: RawResult
    model_projection: ToolOutput
    artifacts: tuple[ArtifactRef, ...] = ()


@frozen
class EffectFailed:
    """The effect is known to have failed, or its result is lost although it happened; the message says which."""

    kind: ClassVar[str] = "failed"
    message: str = attrs.field(validator=bounds.text())


@frozen
class EffectUnknown:
    """The worker stopped; nobody can say whether the effect happened."""

    kind: ClassVar[str] = "unknown"
    message: str = attrs.field(validator=bounds.text())


ToolOutcome: TypeAlias = Succeeded | EffectFailed | EffectUnknown


class RejectionKind(StrEnum):
    """Why a call was refused before any effect."""

    UNAVAILABLE = "unavailable"
    INVALID_INPUT = "invalid_input"
    POLICY_DENIED = "policy_denied"
    PREPARATION_FAILED = "preparation_failed"
    EXCLUSIVE_CONFLICT = "exclusive_conflict"
    CANCELLED = "cancelled"


UNAVAILABLE_TEXT = "tool call rejected: no tool of this name is available"
INVALID_INPUT_TEXT = "tool call rejected: invalid input"
POLICY_DENIED_TEXT = "tool call rejected: denied by policy"
PREPARATION_FAILED_TEXT = "tool call rejected: it could not be prepared"
EXCLUSIVE_CONFLICT_TEXT = "tool call rejected: an exclusive tool must be the only call of its step"
CANCELLED_TEXT = "tool call rejected: the run was cancelled before the call was dispatched"
SCHEMA_MISMATCH_TEXT = "the arguments do not match the declared schema"

_REJECTION_TEXT = {
    RejectionKind.UNAVAILABLE: UNAVAILABLE_TEXT,
    RejectionKind.INVALID_INPUT: INVALID_INPUT_TEXT,
    RejectionKind.POLICY_DENIED: POLICY_DENIED_TEXT,
    RejectionKind.PREPARATION_FAILED: PREPARATION_FAILED_TEXT,
    RejectionKind.EXCLUSIVE_CONFLICT: EXCLUSIVE_CONFLICT_TEXT,
    RejectionKind.CANCELLED: CANCELLED_TEXT,
}
_WITH_MESSAGE = {RejectionKind.INVALID_INPUT, RejectionKind.POLICY_DENIED, RejectionKind.PREPARATION_FAILED}


def _rejection_kind(value: object) -> RejectionKind:
    return bounds.member(RejectionKind, value)


@frozen
class ToolRejection:
    """Why a call was refused. `str(rejection)` is the text that the caller and the model are given."""

    kind: RejectionKind = attrs.field(converter=_rejection_kind)
    message: str | None = attrs.field(default=None, validator=bounds.optional(bounds.text()))

    def __attrs_post_init__(self) -> None:
        if self.kind not in _WITH_MESSAGE and self.message is not None:
            raise InvalidInput(f"a rejection of kind {self.kind.value} carries no message")

    def __str__(self) -> str:
        text = _REJECTION_TEXT[self.kind]
        return f"{text}: {self.message}" if self.message else text

    @classmethod
    def unavailable(cls) -> ToolRejection:
        """No tool of this name in the catalog the request was made with."""
        return cls(RejectionKind.UNAVAILABLE)

    @classmethod
    def invalid_input(cls, message: str) -> ToolRejection:
        """The arguments are not what the tool declares."""
        return cls(RejectionKind.INVALID_INPUT, message)

    @classmethod
    def policy_denied(cls, message: str) -> ToolRejection:
        """A preparation step, or a person it asked, said no."""
        return cls(RejectionKind.POLICY_DENIED, message)

    @classmethod
    def preparation_failed(cls, message: str) -> ToolRejection:
        """The call could not be made ready, or belongs to an incomplete answer."""
        return cls(RejectionKind.PREPARATION_FAILED, message)

    @classmethod
    def exclusive_conflict(cls) -> ToolRejection:
        """An exclusive call and another call stand in one step."""
        return cls(RejectionKind.EXCLUSIVE_CONFLICT)

    @classmethod
    def cancelled(cls) -> ToolRejection:
        """The run ended before the call was dispatched."""
        return cls(RejectionKind.CANCELLED)


class InterruptionStatus(StrEnum):
    """How a model request ended without an accepted step."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    RETRYABLE_FAILURE = "retryable_failure"


class FailureClass(StrEnum):
    """The class of a failed end."""

    SESSION_BUSY = "session_busy"
    RECONCILIATION_REQUIRED = "reconciliation_required"
    INVALID_INPUT = "invalid_input"
    CANCELLED = "cancelled"
    STEP_LIMIT = "step_limit"
    MODEL_INCOMPLETE = "model_incomplete"
    MODEL_REFUSED = "model_refused"
    EVENT_COMMIT = "event_commit"
    EVENT_STORE = "event_store"
    MODEL_TIMEOUT = "model_timeout"
    MODEL_ADAPTER = "model_adapter"
    MODEL_PROVIDER = "model_provider"
    CONTEXT_OVERFLOW = "context_overflow"
    TOOL_EXECUTION = "tool_execution"
    RUNTIME_INTERNAL = "runtime_internal"
    HOST_INTERRUPTED = "host_interrupted"
    OUTCOME_UNKNOWN = "outcome_unknown"


@frozen
class Completed:
    """The run answered."""

    kind: ClassVar[str] = "completed"


def _failure_class(value: object) -> FailureClass:
    return bounds.member(FailureClass, value)


@frozen
class Failed:
    """The run failed; `failure_class` is what code decides on."""

    kind: ClassVar[str] = "failed"
    failure_class: FailureClass = attrs.field(converter=_failure_class, metadata={"key": "class"})
    message: str | None = None


@frozen
class Cancelled:
    """The run was cancelled."""

    kind: ClassVar[str] = "cancelled"
    source: str = RUNTIME_CANCELLATION


@frozen
class Compacted:
    """A compaction adopted this checkpoint."""

    kind: ClassVar[str] = "compacted"
    checkpoint_id: str


@frozen
class Unchanged:
    """A compaction had nothing to do."""

    kind: ClassVar[str] = "unchanged"
    reason: str


@frozen
class CompactionFailed:
    """A compaction left the old context as it was."""

    kind: ClassVar[str] = "failed"
    reason: str


CompactionOutcome: TypeAlias = Compacted | Unchanged | CompactionFailed


@frozen
class ContextCompactFinished:
    """A compaction run ended."""

    kind: ClassVar[str] = "context_compact_finished"
    outcome: CompactionOutcome


@frozen
class HandoffPaused:
    """The run paused at a step boundary for its successor."""

    kind: ClassVar[str] = "handoff_paused"
    pause: JsonObject = attrs.field(validator=valid_object)


InvocationOutcome: TypeAlias = Completed | Failed | Cancelled | ContextCompactFinished | HandoffPaused
