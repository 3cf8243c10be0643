"""What seals an invocation that its process did not end (semantics 2.8). Pure: a state in, facts out.

Recovery calls no model and no tool and invents no settlement. Work whose outcome nobody knows stays unknown.
"""

from __future__ import annotations

from maka_trio.facts.codec import parse_json
from maka_trio.facts.event import Fact, InvocationEnded, ModelInterrupted, ToolRejected
from maka_trio.facts.identity import ToolCallIdentity
from maka_trio.facts.outcome import Failed, FailureClass, InterruptionStatus, ToolRejection
from maka_trio.transitions import InvocationState

HOST_STOPPED = "the host stopped before the request ended"
"""The diagnostic of a request that recovery closes."""


def open_call_rejections(state: InvocationState) -> list[ToolRejected]:
    """A `cancelled` rejection for each accepted local call that was neither dispatched nor rejected, in call order.

    Whoever ends an invocation commits them first, so that no call is ever left without an answer.
    """
    return [
        ToolRejected(
            call.operation_id,
            ToolCallIdentity.provider(call.step_id, call.call_id),
            call.name,
            parse_json(call.input, what="the input of an accepted call"),
            ToolRejection.cancelled(),
        )
        for call in state.calls.values()
    ]


def sealing_facts(state: InvocationState) -> list[Fact]:
    """The facts that seal an open invocation, in the order to commit them, as one batch.

    The end is `outcome_unknown` if an effect (or a foreign agent) was started and its outcome is not known, else
    `host_interrupted`. Empty for an invocation that has not opened or has ended.
    """
    if state.opening is None or state.outcome is not None:
        return []
    unknown = bool(state.operations) or state.executor_running
    failure = FailureClass.OUTCOME_UNKNOWN if unknown else FailureClass.HOST_INTERRUPTED
    return [
        *(ModelInterrupted(step_id, InterruptionStatus.FAILED, HOST_STOPPED) for step_id in state.steps),
        *open_call_rejections(state),
        InvocationEnded(Failed(failure)),
    ]
