"""What seals an invocation that its process did not end (semantics 2.8). Pure: a state in, facts out.

Recovery calls no model and no tool and invents no settlement. Work whose outcome nobody knows stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from maka_trio.facts.codec import parse_json
from maka_trio.facts.event import Fact, InvocationEnded, ModelInterrupted, ToolRejected
from maka_trio.facts.identity import ToolCallIdentity
from maka_trio.facts.outcome import Failed, FailureClass, InterruptionStatus, InvocationOutcome, ToolRejection
from maka_trio.transitions import InvocationState


class End(Protocol):
    """How an invocation ends, once it is known whether something of it is unsettled."""

    def __call__(self, *, unsettled: bool) -> InvocationOutcome:
        """The outcome."""
        ...


HOST_STOPPED = "the host stopped before the request ended"
"""The diagnostic of a request that recovery closes."""


def open_call_rejections(state: InvocationState) -> Iterator[ToolRejected]:
    """A `cancelled` rejection for each accepted local call that was neither dispatched nor rejected, in call order.

    Whoever ends an invocation commits them first, so that no call is ever left without an answer.
    """
    for call in tuple(state.calls.values()):
        yield ToolRejected(
            call.operation_id,
            ToolCallIdentity.provider(call.step_id, call.call_id),
            call.name,
            parse_json(call.input, what="the input of an accepted call"),
            ToolRejection.cancelled(),
        )


def host_stopped(*, unsettled: bool) -> InvocationOutcome:
    """How an invocation ends whose process is gone.

    Args:
        unsettled: an effect (or a foreign agent) was started and its outcome is not known.
    """
    return Failed(FailureClass.OUTCOME_UNKNOWN if unsettled else FailureClass.HOST_INTERRUPTED)


def sealing_facts(state: InvocationState, end: End = host_stopped) -> Iterator[Fact]:
    """The facts that seal an open invocation, in the order to commit them. The last of them ends it.

    They may be committed in parts: whoever seals what an earlier one left of them writes the rest. None for an
    invocation that has not opened or has ended.

    Args:
        state: what its facts left open.
        end: makes its outcome, of whether an effect or a foreign agent is unsettled.
    """
    if state.opening is None or state.outcome is not None:
        return
    unsettled = bool(state.operations) or state.executor_running
    diagnostic = HOST_STOPPED if end is host_stopped else None
    for step_id in tuple(state.steps):
        yield ModelInterrupted(step_id, InterruptionStatus.FAILED, diagnostic)
    yield from open_call_rejections(state)
    yield InvocationEnded(end(unsettled=unsettled))
