"""What seals an invocation whose process is gone."""

from __future__ import annotations

import pytest

from maka_trio.facts import (
    Fact,
    Failed,
    FailureClass,
    InterruptionStatus,
    Invocation,
    InvocationEnded,
    ModelInterrupted,
    ToolRejected,
)
from maka_trio.recovery import HOST_STOPPED, open_call_rejections, sealing_facts
from maka_trio.transitions import InvocationState
from tests.log.log_story import (
    COMPLETED,
    UNFINISHED,
    call,
    completed,
    dispatched,
    opened,
    rejected,
    requested,
)

UNKNOWN = InvocationEnded(Failed(FailureClass.OUTCOME_UNKNOWN))
HOST = InvocationEnded(Failed(FailureClass.HOST_INTERRUPTED))
CLOSED = ModelInterrupted("s1", InterruptionStatus.FAILED, HOST_STOPPED)

SEALS: dict[str, list[Fact]] = {
    "only opened": [HOST],
    "a step in flight": [CLOSED, HOST],
    "between steps": [HOST],
    "during a backoff": [HOST],
    "accepted calls": [rejected("s1", "c1", n=1), rejected("s1", "c2"), HOST],
    "a running call and one behind it": [rejected("s1", "c2"), UNKNOWN],
    "a settled call": [HOST],
    "nested calls": [UNKNOWN],
    "a foreign agent": [UNKNOWN],
    "an answered call and a step": [ModelInterrupted("s2", InterruptionStatus.FAILED, HOST_STOPPED), HOST],
    "a remote call in flight": [CLOSED, HOST],
}


def state_after(facts: list[Fact]) -> InvocationState:
    state = InvocationState(Invocation.new("session"))
    for fact in facts:
        state.advance(fact)
    return state


@pytest.mark.parametrize("name", UNFINISHED)
def test_sealing_facts(name: str) -> None:
    """Steps are interrupted, open calls rejected, the end says whether an outcome is unknown; nothing is invented."""
    assert list(sealing_facts(state_after(UNFINISHED[name]))) == SEALS[name]


@pytest.mark.parametrize("name", UNFINISHED)
def test_sealing_facts_are_lawful(name: str) -> None:
    """The rules admit what recovery writes, and then there is nothing left to recover."""
    state = state_after(UNFINISHED[name])
    for fact in sealing_facts(state):
        state.advance(fact)
    assert list(sealing_facts(state)) == []
    assert {**state.calls, **state.steps} == {}


@pytest.mark.parametrize("facts", [[], [opened(), COMPLETED]], ids=["never opened", "sealed"])
def test_nothing_to_seal(facts: list[Fact]) -> None:
    """An invocation that has not begun, or has ended, is left as it is."""
    assert list(sealing_facts(state_after(facts))) == []


def test_rejections_of_open_calls() -> None:
    """Each open call is rejected as cancelled, in call order, with the name and input that the model gave it."""
    state = state_after(
        [opened(), requested(), completed("s1", call("b", x=1), call("a", "get")), dispatched("s1", "b", x=1)]
    )
    (only,) = open_call_rejections(state)
    assert isinstance(only, ToolRejected)
    assert (only.operation_id, only.name, only.input, only.reason.kind) == ("s1:a", "get", {}, "cancelled")
