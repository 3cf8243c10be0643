"""Which fact may follow which: every rule refuses what it forbids, and admits what looks like it and is right."""

from __future__ import annotations

from typing import Any

import pytest

from maka_trio.errors import CommitRejected
from maka_trio.facts import (
    CodeCell,
    CodeMode,
    Compacted,
    CompactionFailed,
    ContextCheckpoint,
    ContextCheckpointRecorded,
    ContextCompactFinished,
    ContinuationClaim,
    ContinuationOpening,
    ExecutorCompleted,
    ExecutorObserved,
    ExecutorStarted,
    Fact,
    HandoffOpening,
    HandoffPaused,
    HostSdk,
    InterruptionStatus,
    Invocation,
    InvocationEnded,
    ModelRequested,
    PartDelta,
    PartFinished,
    PartStarted,
    ProviderToolResult,
    ResponseMetadata,
    RunBoundary,
    Session,
    SourceCited,
    Standalone,
    StepPurpose,
    ToolCallIdentity,
    ToolCallReady,
    ToolDispatched,
    ToolNotified,
    Unchanged,
    UrlSource,
)
from maka_trio.facts.context import CheckpointMode
from maka_trio.transitions import InvocationState, Refusal, Residue, Undo, check_source
from tests.log.log_story import (
    CANCELLED,
    COMPACTION,
    COMPLETED,
    DIGEST,
    FAILED,
    PROGRAM,
    UNKNOWN,
    call,
    child,
    completed,
    dispatched,
    finish,
    interrupted,
    nested_call,
    observed,
    opened,
    rejected,
    requested,
    running_call,
    running_cell,
    settled,
    steered,
)

R = Refusal
SUMMARY = StepPurpose.SUMMARY
RETRYABLE = InterruptionStatus.RETRYABLE_FAILURE
OPTIONS = {"anthropic": {"signature": "x"}}
REMOTE = call("r1", "search", remote=True)
TOOL_RESULT = ProviderToolResult("r1", "search", "found")


def continuing(session: str = "session") -> ContinuationOpening:
    """A continuation of a run of that session."""
    return ContinuationOpening(ContinuationClaim.of(RunBoundary(Invocation.new(session), 3, DIGEST)), DIGEST)


CHECKPOINT = ContextCheckpointRecorded(ContextCheckpoint(CheckpointMode.STANDALONE, 1, DIGEST, "summary", "s1"))


def compaction_ended(outcome: Any) -> InvocationEnded:
    return InvocationEnded(ContextCompactFinished(outcome))


def standalone(operation: str = "op1", call_id: str = "k1") -> ToolDispatched:
    return ToolDispatched(operation, ToolCallIdentity(call_id, Standalone()), "put", {})


def notified(operation: str = "cell") -> ToolNotified:
    return ToolNotified(operation, "text", "text")


def provider_call(operation: str, step: str = "s1", call_id: str = "c1") -> ToolDispatched:
    return ToolDispatched(operation, ToolCallIdentity.provider(step, call_id), "put", {})


def state_after(facts: list[Fact]) -> InvocationState:
    state = InvocationState(Invocation.new("session"))
    for fact in facts:
        state.advance(fact)
    return state


def watched(step: str, *events: Any) -> list[Fact]:
    return [opened(), requested(step), *(observed(step, one) for one in events)]


REFUSED: dict[str, tuple[list[Fact], Fact, Refusal]] = {
    "a fact before the opening": ([], requested(), R.NOT_OPEN),
    "a second opening": ([opened()], opened(), R.ALREADY_OPEN),
    "a fact after the end": ([opened(), COMPLETED], requested(), R.SEALED),
    "a second end": ([opened(), COMPLETED], FAILED, R.SEALED),
    "an opening after the end": ([opened(), COMPLETED], opened(), R.SEALED),
    "a continuation of another session's run": ([], opened(continuing("other")), R.CLAIM),
    "a handoff, which is not supported yet": ([], opened(HandoffOpening({}, {})), R.UNSUPPORTED),
    "a pause, which is not supported yet": ([opened()], InvocationEnded(HandoffPaused({})), R.UNSUPPORTED),
    "a checkpoint, which is not supported yet": ([opened()], CHECKPOINT, R.UNSUPPORTED),
    # steps
    "an observation without a request": ([opened()], observed(), R.STEP_UNKNOWN),
    "a completion without a request": ([opened()], completed(), R.STEP_UNKNOWN),
    "an interruption without a request": ([opened()], interrupted(), R.STEP_UNKNOWN),
    "an observation of another step": ([opened(), requested("s1")], observed("s2"), R.STEP_UNKNOWN),
    "an observation after the completion": ([opened(), requested(), completed()], observed(), R.STEP_CLOSED),
    "an observation after the interruption": ([opened(), requested(), interrupted()], observed(), R.STEP_CLOSED),
    "a completion after an interruption": ([opened(), requested(), interrupted()], completed(), R.STEP_CLOSED),
    "an interruption after a completion": ([opened(), requested(), completed()], interrupted(), R.STEP_CLOSED),
    "a second completion": ([opened(), requested(), completed()], completed(), R.STEP_CLOSED),
    "a step id that is open": ([opened(), requested()], requested(), R.STEP_REUSED),
    "a step id that ended": ([opened(), requested(), interrupted()], requested(), R.STEP_REUSED),
    "a main step in a compaction": ([opened(COMPACTION)], requested(), R.PURPOSE),
    "a main step in a program": ([opened(PROGRAM)], requested(), R.PURPOSE),
    "a summary in a program": ([opened(PROGRAM)], requested("s1", SUMMARY), R.PURPOSE),
    "a main step after a summary that completed with a call": (
        [opened(), requested("s1", SUMMARY), completed("s1", call())],
        requested("s2"),
        R.PURPOSE,
    ),
    "a main step after a summary that streamed a call": (
        [opened(), requested("s1", SUMMARY), observed("s1", ToolCallReady(call())), interrupted("s1")],
        requested("s2"),
        R.PURPOSE,
    ),
    # replay barriers
    "a retryable failure after the answer finished": (
        watched("s1", finish()),
        interrupted("s1", RETRYABLE),
        R.REPLAY_BARRIER,
    ),
    "a retryable failure after a remote call": (
        watched("s1", ToolCallReady(REMOTE)),
        interrupted("s1", RETRYABLE),
        R.REPLAY_BARRIER,
    ),
    "a retryable failure after a remote result": (
        watched("s1", ToolCallReady(REMOTE), TOOL_RESULT),
        interrupted("s1", RETRYABLE),
        R.REPLAY_BARRIER,
    ),
    "a retryable failure after metadata on a part's start": (
        watched("s1", PartStarted("p", provider_options=OPTIONS)),
        interrupted("s1", RETRYABLE),
        R.REPLAY_BARRIER,
    ),
    "a retryable failure after metadata on a delta": (
        watched("s1", PartDelta("p", "x", OPTIONS)),
        interrupted("s1", RETRYABLE),
        R.REPLAY_BARRIER,
    ),
    "a retryable failure after metadata on a part's end": (
        watched("s1", PartFinished("p", OPTIONS)),
        interrupted("s1", RETRYABLE),
        R.REPLAY_BARRIER,
    ),
    # operations
    "a settlement without a dispatch": ([opened()], settled(), R.OPERATION_UNKNOWN),
    "a settlement of a call that was only accepted": (
        [opened(), requested(), completed("s1", call())],
        settled(),
        R.OPERATION_UNKNOWN,
    ),
    "a settlement of a rejected call": (
        [opened(), requested(), completed("s1", call()), rejected()],
        settled(),
        R.OPERATION_REJECTED,
    ),
    "a second settlement": (running_call(settled()), settled(), R.OPERATION_SETTLED),
    "a second dispatch": (running_call(), dispatched(), R.OPERATION_REUSED),
    "a dispatch after the settlement": (running_call(settled()), dispatched(), R.OPERATION_REUSED),
    "a rejection after the dispatch": (running_call(), rejected(), R.OPERATION_REUSED),
    "a dispatch after the rejection": (
        [opened(), requested(), completed("s1", call()), rejected()],
        dispatched(),
        R.OPERATION_REUSED,
    ),
    "a call id used by a program and by a model": (
        [opened(), requested(), completed("s1", call("k1")), standalone("op1", "k1")],
        dispatched("s1", "k1"),
        R.CALL_REUSED,
    ),
    "a call id used twice outside of steps": (
        [opened(), standalone("op1", "k1")],
        standalone("op2", "k1"),
        R.CALL_REUSED,
    ),
    "a model's call under another operation id": (
        [opened(), requested(), completed("s1", call())],
        provider_call("other"),
        R.CALL_NOT_ACCEPTED,
    ),
    "a call before its step completed": (
        [opened(), requested(), observed("s1", ToolCallReady(call()))],
        dispatched(),
        R.CALL_NOT_ACCEPTED,
    ),
    "a call of an interrupted step": (
        [opened(), requested(), observed("s1", ToolCallReady(call())), interrupted()],
        dispatched(),
        R.CALL_NOT_ACCEPTED,
    ),
    "a call that the model did not make": (
        [opened(), requested(), completed("s1", call("c1"))],
        dispatched("s1", "c2"),
        R.CALL_NOT_ACCEPTED,
    ),
    "a call that the provider executed": (
        [opened(), requested(), completed("s1", REMOTE, answered=[REMOTE])],
        dispatched("s1", "r1", "search"),
        R.CALL_NOT_ACCEPTED,
    ),
    "a rejection of a call that the provider executed": (
        [opened(), requested(), completed("s1", REMOTE, answered=[REMOTE])],
        rejected("s1", "r1", "search"),
        R.CALL_NOT_ACCEPTED,
    ),
    "a call of a summary": (
        [opened(), requested("s1", SUMMARY), completed("s1", call())],
        dispatched(),
        R.CALL_NOT_ACCEPTED,
    ),
    "a dispatch under another name": (
        [opened(), requested(), completed("s1", call())],
        dispatched(name="other"),
        R.CALL_DIFFERS,
    ),
    "a dispatch with another input": (
        [opened(), requested(), completed("s1", call(n=1))],
        dispatched(n=2),
        R.CALL_DIFFERS,
    ),
    "a dispatch with true for one": (
        [opened(), requested(), completed("s1", call(n=1))],
        dispatched(n=True),
        R.CALL_DIFFERS,
    ),
    "a rejection with another input": (
        [opened(), requested(), completed("s1", call(n=1))],
        rejected(n=2),
        R.CALL_DIFFERS,
    ),
    # children
    "a program's call without a live parent": ([opened()], child(CodeMode), R.PARENT_NOT_LIVE),
    "a program's call under a settled parent": (running_call(settled()), child(CodeMode), R.PARENT_NOT_LIVE),
    "a program's call under another call id": (running_call(), child(CodeMode, parent_call="c2"), R.PARENT_NOT_LIVE),
    "a cell without a live parent": ([opened()], child(CodeCell), R.PARENT_NOT_LIVE),
    "an extension's call under a settled parent": (running_call(settled()), child(HostSdk), R.PARENT_NOT_LIVE),
    "an extension's call under nothing": ([opened()], child(HostSdk, parent=None), R.PARENT_NOT_LIVE),
    "an extension's call after the foreign agent": (
        [opened(), ExecutorStarted({}), ExecutorCompleted("answer")],
        child(HostSdk, parent=None),
        R.PARENT_NOT_LIVE,
    ),
    "a settlement before a program's call": (nested_call(), settled("cell"), R.CHILDREN_UNSETTLED),
    "a settlement before an extension's call": (running_call(child(HostSdk)), settled(), R.CHILDREN_UNSETTLED),
    # notifications
    "a notification of nothing": ([opened()], notified(), R.OPERATION_UNKNOWN),
    "a notification of an ordinary call": (running_call(), notified("s1:c1"), R.NOT_A_CELL),
    "a notification of a program's call": (nested_call(), notified("op1"), R.NOT_A_CELL),
    "a notification of a settled cell": (running_cell(settled("cell")), notified(), R.OPERATION_SETTLED),
    # steering
    "a message into an open step": ([opened(), requested()], steered(), R.NOT_IDLE),
    "a message into a running call": (running_call(), steered(), R.NOT_IDLE),
    "a message before a call is answered": ([opened(), requested(), completed("s1", call())], steered(), R.NOT_IDLE),
    "a message into a compaction": ([opened(COMPACTION)], steered(), R.NOT_IDLE),
    "a message into a program": ([opened(PROGRAM)], steered(), R.NOT_IDLE),
    # ends
    "completed with a running call": (running_call(), COMPLETED, R.UNRESOLVED_WORK),
    "completed with an open step": ([opened(), requested()], COMPLETED, R.UNRESOLVED_WORK),
    "completed with an open summary": ([opened(), requested("s1", SUMMARY)], COMPLETED, R.UNRESOLVED_WORK),
    "completed with a running foreign agent": ([opened(), ExecutorStarted({})], COMPLETED, R.UNRESOLVED_WORK),
    "completed for a compaction": ([opened(COMPACTION)], COMPLETED, R.WRONG_OUTCOME),
    "a compaction's end for a message": ([opened()], compaction_ended(Unchanged("no")), R.WRONG_OUTCOME),
    "a compaction's end with an open summary": (
        [opened(COMPACTION), requested("s1", SUMMARY)],
        compaction_ended(Unchanged("no")),
        R.UNRESOLVED_WORK,
    ),
    "a checkpoint of somebody else": ([opened(COMPACTION)], compaction_ended(Compacted("c")), R.WRONG_OUTCOME),
    # foreign agents
    "a foreign agent's output before its start": ([opened()], ExecutorObserved("x"), R.EXECUTOR),
    "a foreign agent's answer before its start": ([opened()], ExecutorCompleted("x"), R.EXECUTOR),
    "a second foreign agent": (
        [opened(), ExecutorStarted({}), ExecutorCompleted("x")],
        ExecutorStarted({}),
        R.EXECUTOR,
    ),
    "a foreign agent's output after its answer": (
        [opened(), ExecutorStarted({}), ExecutorCompleted("x")],
        ExecutorObserved("x"),
        R.EXECUTOR,
    ),
}

ADMITTED: dict[str, list[Fact]] = {
    "a message, a step, an answer": [
        opened(),
        requested(),
        observed(),
        observed("s1", finish()),
        completed(),
        COMPLETED,
    ],
    "two steps": [opened(), requested("s1"), completed("s1"), requested("s2"), completed("s2"), COMPLETED],
    "a retry after text, thinking and a local call": [
        *watched(
            "s1",
            PartStarted("p"),
            PartDelta("p", "x"),
            PartFinished("p"),
            ToolCallReady(call()),
            SourceCited(UrlSource("u", "https://example.org")),
            ResponseMetadata("id"),
        ),
        interrupted("s1", RETRYABLE),
        requested("s2"),
    ],
    "any other interruption after a barrier": [*watched("s1", finish()), interrupted()],
    "a barrier of one step does not bind the next": [
        *watched("s1", finish()),
        interrupted(),
        requested("s2"),
        interrupted("s2", RETRYABLE),
    ],
    "a call dispatched and settled": running_call(settled(), COMPLETED),
    "calls in any order": [
        opened(),
        requested(),
        completed("s1", call("c1"), call("c2")),
        rejected("s1", "c2"),
        dispatched("s1", "c1"),
        settled(),
        COMPLETED,
    ],
    "an input whose keys stand in another order": [
        opened(),
        requested(),
        completed("s1", call(a=1, b={"x": 1, "y": 2})),
        dispatched(b={"y": 2, "x": 1}, a=1),
    ],
    "one call id in two steps": [
        *running_call(settled()),
        requested("s2"),
        completed("s2", call("c1")),
        dispatched("s2", "c1"),
    ],
    "a remote call with its result": [opened(), requested(), completed("s1", REMOTE, answered=[REMOTE]), COMPLETED],
    "a cell, a program's call, each settled before its parent": nested_call(
        settled("op1"), settled("cell"), settled(), COMPLETED
    ),
    "a cell that outlives the call that started it": running_cell(settled(), settled("cell"), COMPLETED),
    "two calls of a program": nested_call(
        child(CodeMode, "op2", "k2", "cell", "k0"), settled("op2"), settled("op1"), settled("cell")
    ),
    "an extension's call under a live one": running_call(child(HostSdk), settled("op1"), settled()),
    "an extension's call under a foreign agent": [
        opened(),
        ExecutorStarted({}),
        child(HostSdk, parent=None),
        settled("op1"),
        ExecutorObserved("x"),
        ExecutorCompleted("answer"),
        COMPLETED,
    ],
    "a call that stands for itself": [opened(PROGRAM), standalone(), settled("op1"), COMPLETED],
    "a notification of a live cell": running_cell(notified(), notified()),
    "a message between steps": [opened(), requested(), completed(), steered(), requested("s2")],
    "a message before the first step": [opened(), steered()],
    "a continuation, and a message into it": [opened(continuing()), steered(), requested(), completed(), COMPLETED],
    "a message beside a private summary": [opened(), requested("s1", SUMMARY), steered()],
    "a summary beside a step": [opened(), requested("s1"), requested("s2", SUMMARY), completed("s2"), completed("s1")],
    "a compaction": [opened(COMPACTION), requested("s1", SUMMARY), completed("s1"), compaction_ended(Unchanged("no"))],
    "a compaction that failed": [opened(COMPACTION), compaction_ended(CompactionFailed("no"))],
    "a failure with everything open": [*running_call(requested("s2")), FAILED],
    "a cancel with everything open": [*running_call(requested("s2")), CANCELLED],
    "a failed compaction by failure": [opened(COMPACTION), requested("s1", SUMMARY), FAILED],
}


@pytest.mark.parametrize("name", REFUSED)
def test_rule_refuses(name: str) -> None:
    """A fact that a rule forbids is refused, with the rule's own reason, and changes nothing."""
    history, fact, reason = REFUSED[name]
    state = state_after(history)
    before = state.residue()
    with pytest.raises(CommitRejected) as caught:
        state.advance(fact)
    assert reason.value == caught.value.reason
    assert before == state.residue()


@pytest.mark.parametrize("name", ADMITTED)
def test_rule_admits(name: str) -> None:
    """A lawful course of facts is admitted to its end."""
    state_after(ADMITTED[name])


def test_every_rule_is_tested() -> None:
    """Each reason that an invocation by itself can give has a case above."""
    elsewhere = {R.SESSION_OPEN, R.IDENTITY, R.SOURCE, R.MESSAGE_REUSED, R.MEDIA, R.UNSAFE, R.TOO_MUCH_OPEN}
    assert set(Refusal) - elsewhere == {reason for _, _, reason in REFUSED.values()}


@pytest.mark.parametrize("name", [*ADMITTED, *(name for name in REFUSED)])
def test_fold_is_taken_back_whole(name: str) -> None:
    """Undone from the last fact to the first, a state admits the same course once more, and refuses the same fact."""
    facts = ADMITTED.get(name) or REFUSED[name][0]
    state = InvocationState(Invocation.new("session"))
    undo: Undo = []
    for fact in facts:
        state.advance(fact, undo)
    residue = state.residue()
    while undo:
        undo.pop()()
    assert (state.residue(), state.opening, state.outcome) == (None, None, None)
    for fact in facts:
        state.advance(fact)
    assert residue == state.residue()
    if name in REFUSED:
        with pytest.raises(CommitRejected):
            state.advance(REFUSED[name][1])


def test_undo_keeps_the_order_of_calls() -> None:
    """A dispatch that is taken back puts its call where the model had it."""
    state = state_after([opened(), requested(), completed("s1", call("c1"), call("c2"), call("c3"))])
    undo: Undo = []
    state.advance(dispatched("s1", "c2"), undo)
    while undo:
        undo.pop()()
    assert [accepted.call_id for accepted in state.calls.values()] == ["c1", "c2", "c3"]


# --- what is left -----------------------------------------------------------------------------------------

LEFT: dict[str, tuple[list[Fact], Residue | None]] = {
    "nothing": ([opened(), requested(), completed(), COMPLETED], None),
    "nothing after a rejection": ([opened(), requested(), completed("s1", call()), rejected(), CANCELLED], None),
    "nothing after an interruption": ([*watched("s1", finish()), interrupted(), FAILED], None),
    "an unknown effect, sealed so": (
        running_call(UNKNOWN),
        Residue(uncertain_operations=1, only_unknown_effects=True),
    ),
    "an unknown effect under another class": (running_call(FAILED), Residue(uncertain_operations=1)),
    "an unknown effect of a cancelled run": (running_call(CANCELLED), Residue(uncertain_operations=1)),
    "an unknown effect and an unanswered call": (
        [opened(), requested(), completed("s1", call("c1"), call("c2")), dispatched(), UNKNOWN],
        Residue(uncertain_operations=1, unanswered_calls=1),
    ),
    "an open step": ([opened(), requested(), FAILED], Residue(unfinished_steps=1)),
    "an unanswered call": ([opened(), requested(), completed("s1", call()), FAILED], Residue(unanswered_calls=1)),
    "a completed remote call without result": (
        [opened(), requested(), completed("s1", REMOTE), COMPLETED],
        Residue(unanswered_remote_calls=1),
    ),
    "a remote call seen before an interruption": (
        [*watched("s1", ToolCallReady(REMOTE)), interrupted(), FAILED],
        Residue(unanswered_remote_calls=1),
    ),
    "a remote call seen with its result": (
        [*watched("s1", ToolCallReady(REMOTE), TOOL_RESULT), interrupted(), FAILED],
        None,
    ),
    "a remote call seen with the result of another tool": (
        [*watched("s1", ToolCallReady(REMOTE), ProviderToolResult("r1", "other", "x")), interrupted(), FAILED],
        Residue(unanswered_remote_calls=1),
    ),
    "a running foreign agent": ([opened(), ExecutorStarted({}), FAILED], Residue(unfinished_executor=True)),
}


@pytest.mark.parametrize("name", LEFT)
def test_residue(name: str) -> None:
    """What an ended invocation leaves unresolved is counted, and told apart from what a new message may tolerate."""
    facts, residue = LEFT[name]
    assert residue == state_after(facts).residue()


def test_residue_says_what_is_open() -> None:
    """The words of a residue name each thing that is open, and nothing else."""
    state = state_after(running_call(requested("s2")))
    assert str(state.residue()) == "1 dispatched operations without settlement, 1 model requests without end"


def test_uncertain_operations_are_sorted() -> None:
    """Dispatched and unsettled operations come in the order of their ids."""
    state = state_after([opened(), standalone("z", "k1"), standalone("a", "k2"), standalone("m", "k3"), settled("m")])
    assert state.uncertain_operations() == ("a", "z")


# --- the source of a summary ------------------------------------------------------------------------------


def summary(**changes: Any) -> ModelRequested:
    values: dict[str, Any] = {
        "source_scope": Session("session"),
        "source_high_water": 7,
        "source_digest": DIGEST,
        "input_digest": DIGEST,
        "route_identity": DIGEST,
        "purpose": SUMMARY,
    }
    return ModelRequested("s1", "model", **(values | changes))


@pytest.mark.parametrize("changes", [{}, {"effective_source_digest": DIGEST}])
def test_summary_of_the_session_as_it_stands(changes: dict[str, Any]) -> None:
    """A summary request that names the session's own end is right."""
    check_source(summary(**changes), Session("session"), 7, DIGEST)


@pytest.mark.parametrize(
    "changes",
    [
        {"source_scope": Session("other")},
        {"source_high_water": 6},
        {"source_digest": "sha256:" + "1" * 64},
        {"checkpoint_event_id": "x"},
        {"effective_source_digest": "sha256:" + "1" * 64},
    ],
)
def test_summary_of_anything_else(changes: dict[str, Any]) -> None:
    """A summary request that names another source than the log computes is refused."""
    with pytest.raises(CommitRejected) as caught:
        check_source(summary(**changes), Session("session"), 7, DIGEST)
    assert R.SOURCE.value == caught.value.reason
