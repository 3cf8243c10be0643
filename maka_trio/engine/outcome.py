"""How a run ended, three ways: as a fact for the log, as a class for code, as an exception for its waiters."""

from __future__ import annotations

from maka_trio import limits
from maka_trio.errors import (
    AdapterError,
    Busy,
    CleanupUnconfirmed,
    CommitError,
    ContextOverflow,
    InvalidInput,
    MakaError,
    ModelIncomplete,
    ModelRefused,
    ModelTimedOut,
    ProviderFailure,
    ReconciliationRequired,
    RunCancelled,
    RunError,
    StepLimit,
    StoreError,
    ToolError,
    ToolOutcomeUnknown,
)
from maka_trio.facts.outcome import Cancelled, Completed, Failed, FailureClass, InvocationOutcome
from maka_trio.tools.failure import bounded, text_of

_CLASSES: tuple[tuple[type[MakaError], FailureClass], ...] = (
    (Busy, FailureClass.SESSION_BUSY),
    (ReconciliationRequired, FailureClass.RECONCILIATION_REQUIRED),
    (InvalidInput, FailureClass.INVALID_INPUT),
    (RunCancelled, FailureClass.CANCELLED),
    (StepLimit, FailureClass.STEP_LIMIT),
    (ModelIncomplete, FailureClass.MODEL_INCOMPLETE),
    (ModelTimedOut, FailureClass.MODEL_TIMEOUT),
    (ContextOverflow, FailureClass.CONTEXT_OVERFLOW),
    (ModelRefused, FailureClass.MODEL_REFUSED),
    (ProviderFailure, FailureClass.MODEL_PROVIDER),
    (AdapterError, FailureClass.MODEL_ADAPTER),
    (CleanupUnconfirmed, FailureClass.TOOL_EXECUTION),
    (ToolError, FailureClass.TOOL_EXECUTION),
    (CommitError, FailureClass.EVENT_COMMIT),
    (StoreError, FailureClass.EVENT_STORE),
)


def failure_class(error: BaseException) -> FailureClass:
    """The class of a failed end (semantics 1.6)."""
    for kind, name in _CLASSES:
        if isinstance(error, kind):
            return name
    return FailureClass.RUNTIME_INTERNAL


def outcome_of(error: BaseException | None, *, unsettled: bool) -> InvocationOutcome:
    """The outcome that an end carries.

    Args:
        error: what the run's work raised; None when it answered. What is no `Exception` is a cancellation.
        unsettled: an effect of the run has no settlement. Whatever else went wrong, that is what the next run of
            the session has to know.
    """
    if error is not None and unsettled:
        return Failed(FailureClass.OUTCOME_UNKNOWN, message_of(error))
    if error is None:
        return Completed()
    if not isinstance(error, Exception):
        return Cancelled()
    return Failed(failure_class(error), message_of(error))


def message_of(error: BaseException) -> str | None:
    """The error's text as a fact keeps it: bounded, encodable whatever it is, with the class where it is not ours."""
    words = str(error) if isinstance(error, MakaError) else text_of(error)
    return bounded(words, limits.FAILURE_MESSAGE_CHARACTERS) or None


def error_of(outcome: InvocationOutcome) -> MakaError | None:
    """What waiting for a run raises when only its recorded end is left of it; None if it completed.

    The class is that of the run's own error, its attributes are not known any more.
    """
    match outcome:
        case Failed(failure_class=FailureClass.OUTCOME_UNKNOWN, message=message):
            return ToolOutcomeUnknown(message or "the run ended with an effect whose outcome is unknown")
        case Failed(failure_class=failed, message=message):
            kind = next((kind for kind, name in reversed(_CLASSES) if name is failed), RunError)
            return kind(message or f"the run failed: {failed.value}")
        case Cancelled():
            return RunCancelled("the run was cancelled")
        case _:
            return None
