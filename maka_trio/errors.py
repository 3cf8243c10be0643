"""The exception tree. It imports nothing of ours, so every floor may raise from it.

    MakaError
    ├── RunError        the run was refused or did not complete
    │   ├── Busy                      another run holds the session
    │   ├── ReconciliationRequired    the session's history may not be continued as it stands
    │   ├── InvalidInput              a value given to the library is out of its bounds (also a ValueError)
    │   ├── RunCancelled              the run was cancelled; its end is durable
    │   ├── StepLimit                 `max_steps` steps were made and the model wants more
    │   ├── ModelIncomplete           the model stopped at its output limit
    │   └── EngineClosed              the engine admits no more runs
    ├── ModelError      one model request failed
    │   ├── ModelTimedOut             the provider was silent, or a configured deadline passed
    │   ├── ContextOverflow           the provider says the prompt does not fit
    │   ├── ModelRefused              the provider or model declined to answer
    │   ├── ProviderFailure           the provider or the network failed; `replay_safe` says whether to try again
    │   └── AdapterError              the exchange is not what the protocol allows, or passed a local limit
    ├── ToolError       one tool call did not succeed; sorted by what is known of its effect
    │   ├── ToolFailed                the effect is known to have failed
    │   ├── ToolOutcomeUnknown        the worker is gone; the effect may or may not have happened
    │   └── CleanupUnconfirmed        something may still be running
    ├── CommitError     an append was not acknowledged
    │   ├── CommitRejected            definitely not written
    │   ├── CommitUnknown             may or may not be written; never treat it as success
    │   └── SessionRetired            the session accepts no more work; nothing was written
    └── StoreError      the log itself
        ├── LogInUse                  another process (or another `EventLog`) owns the file
        ├── LogCorrupt                the file is damaged; `sequence` is the first bad event where known
        ├── LogFull                   no space; nothing was written, and the log is usable once there is space
        ├── LogTooNew                 written by a newer format
        ├── LogUnsupported            not a log of ours, or a file that must not be shared
        ├── LogClosed                 used after `aclose`
        ├── PrefixTooLarge            the bounds of a read do not hold what was asked for
        ├── ResultUnavailable         a tool result or artifact is missing, foreign or damaged
        └── SessionDeleted            what was asked for was deleted with the bodies of its session

Messages are for people; what code decides on stands in attributes. No message ever carries a secret.
"""

from __future__ import annotations

from typing import Literal

ProviderFailureReason = Literal["network", "rate_limit", "provider_unavailable", "stream_truncated"]


class MakaError(Exception):
    """Base of every exception that maka_trio raises on purpose."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class RunError(MakaError):
    """A run was refused, or ended without completing."""


class Busy(RunError):
    """Another run holds the session; nothing was written.

    Attributes:
        session_id: the session asked for.
        run_id: the run that holds it.
        operation_ids: effects of that run that are in flight right now.
    """

    def __init__(
        self,
        message: str = "",
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        operation_ids: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.run_id = run_id
        self.operation_ids = operation_ids


class ReconciliationRequired(RunError):
    """The session's history cannot be continued as it stands; nothing was written."""


class InvalidInput(RunError, ValueError):
    """A value is outside what the library accepts. The message names the value and the limit."""


class RunCancelled(RunError):
    """The run was cancelled. Its effects are settled and its end is durable."""


class StepLimit(RunError):
    """The run made `max_steps` model steps and the model still wants to call tools."""


class ModelIncomplete(RunError):
    """The model stopped at its output limit; the partial step is kept, its calls are rejected."""


class EngineClosed(RunError):
    """The engine is draining or closed, or was never entered; nothing was written."""


class ModelError(MakaError):
    """One model request failed."""


class ModelTimedOut(ModelError):
    """The provider was silent for the idle timeout, or another configured model deadline passed."""


class ContextOverflow(ModelError):
    """The provider says that the prompt does not fit its context window.

    Attributes:
        observed_output: whether any part of an answer had been streamed before.
    """

    def __init__(self, message: str = "", *, observed_output: bool = False) -> None:
        super().__init__(message)
        self.observed_output = observed_output


class ModelRefused(ModelError):
    """The provider filtered the answer, or the model declined. Never retried."""


class ProviderFailure(ModelError):
    """The provider or the network failed.

    Attributes:
        reason: `network`, `rate_limit`, `provider_unavailable` or `stream_truncated`.
        status: HTTP status where there was one.
        replay_safe: whether the same request may be sent again without repeating anything the provider did.
        retry_after: seconds the provider asks to wait, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        reason: ProviderFailureReason = "provider_unavailable",
        status: int | None = None,
        replay_safe: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.replay_safe = replay_safe
        self.retry_after = retry_after


class AdapterError(ModelError):
    """The exchange broke the protocol, or passed one of our limits. Never retried.

    Attributes:
        status: HTTP status where there was one.
        offset: byte offset in the response body where the fault was seen, where known.
    """

    def __init__(self, message: str = "", *, status: int | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.offset = offset


class ToolError(MakaError):
    """One tool call did not succeed."""


class ToolFailed(ToolError):
    """The effect is known to have failed. A handler may raise it to choose the text the model sees."""


class ToolOutcomeUnknown(ToolError):
    """The worker of an effect is gone: the effect may or may not have happened."""


class CleanupUnconfirmed(ToolError):
    """Something that was started may still be running. Raised by a tool, it seals the run `outcome_unknown`."""


class CommitError(MakaError):
    """An append was not acknowledged."""


class CommitRejected(CommitError):
    """The append is definitely not in the log.

    Attributes:
        reason: why, as a code: one of `transitions.Refusal` for a rule that refused it, `conflict` for an event id
            that stands for something else, `deleted` for one of a session whose bodies were deleted, `overloaded`,
            `locked` or `log_failed` for the log's own state.
    """

    def __init__(self, message: str = "", *, reason: str = "rejected") -> None:
        super().__init__(message)
        self.reason = reason


class CommitUnknown(CommitError):
    """The append may or may not be in the log."""


class SessionRetired(CommitError):
    """The session accepts no more work; nothing was written."""


class StoreError(MakaError):
    """The log could not be opened, read or written."""


class LogInUse(StoreError):
    """Another owner holds the file."""


class LogCorrupt(StoreError):
    """The file is damaged.

    Attributes:
        sequence: the first bad event, where it is known.
    """

    def __init__(self, message: str = "", *, sequence: int | None = None) -> None:
        super().__init__(message)
        self.sequence = sequence


class LogFull(StoreError):
    """There is no space for the append; nothing of it was written."""


class LogTooNew(StoreError):
    """The log was written by a newer format and is left untouched."""


class LogUnsupported(StoreError):
    """The file is not a log of ours, or one that cannot be owned safely (hard links, a dangling link)."""


class LogClosed(StoreError):
    """The log was used after it was closed."""


class PrefixTooLarge(StoreError):
    """A read asked for more events or bytes than its bounds allow. Nothing is ever cut short instead."""


class ResultUnavailable(StoreError):
    """A stored tool result or artifact is missing, belongs to another session, or does not verify."""


class SessionDeleted(StoreError):
    """What was asked for was deleted with the bodies of its session; what is left says only that it was there.

    Attributes:
        session_id: the session.
    """

    def __init__(self, message: str = "", *, session_id: str | None = None) -> None:
        super().__init__(message)
        self.session_id = session_id
