"""Why a fact may not come, as a code and as words; and how a fold is taken back."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from maka_trio.errors import CommitRejected

Undo: TypeAlias = list[Callable[[], object]]
"""What takes folded facts back, to be called from the last to the first."""


class Refusal(StrEnum):
    """The rule that refused a fact: `CommitRejected.reason`."""

    SEALED = "sealed"
    NOT_OPEN = "not_open"
    ALREADY_OPEN = "already_open"
    SESSION_OPEN = "session_open"
    IDENTITY = "identity"
    STEP_UNKNOWN = "step_unknown"
    STEP_CLOSED = "step_closed"
    STEP_REUSED = "step_reused"
    PURPOSE = "purpose"
    SOURCE = "source"
    CLAIM = "claim"
    UNSAFE = "unsafe"
    REPLAY_BARRIER = "replay_barrier"
    OPERATION_UNKNOWN = "operation_unknown"
    OPERATION_SETTLED = "operation_settled"
    OPERATION_REJECTED = "operation_rejected"
    OPERATION_REUSED = "operation_reused"
    CHILDREN_UNSETTLED = "children_unsettled"
    CALL_REUSED = "call_reused"
    CALL_NOT_ACCEPTED = "call_not_accepted"
    CALL_DIFFERS = "call_differs"
    PARENT_NOT_LIVE = "parent_not_live"
    NOT_A_CELL = "not_a_cell"
    NOT_IDLE = "not_idle"
    MESSAGE_REUSED = "message_reused"
    MEDIA = "media"
    UNRESOLVED_WORK = "unresolved_work"
    TOO_MUCH_OPEN = "too_much_open"
    WRONG_OUTCOME = "wrong_outcome"
    EXECUTOR = "executor"
    UNSUPPORTED = "unsupported"


def refused(reason: Refusal, message: str) -> CommitRejected:
    """The error of a fact that may not come here."""
    return CommitRejected(message, reason=reason.value)
