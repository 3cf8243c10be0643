"""`InvocationState`: what the rules need to know of one invocation.

Each fact is checked in constant time and then folded in. The state grows with what is open, plus one short entry for
each id that was used; it never holds what was said.

What spans invocations is not known here: that an operation id is new in the whole log, that a session runs one
invocation at a time, that an event id is new. The log adds those.
"""

from __future__ import annotations

from typing import assert_never

import attrs

from maka_trio import limits
from maka_trio.continuing import identity_objection
from maka_trio.errors import CommitRejected
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.event import (
    BodyDeleted,
    ContextCheckpointRecorded,
    ExecutorCompleted,
    ExecutorObserved,
    ExecutorStarted,
    Fact,
    InvocationEnded,
    InvocationOpened,
    MessageImported,
    MessageSteered,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    ToolDispatched,
    ToolNotified,
    ToolRejected,
    ToolResultArchived,
    ToolSettled,
)
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import (
    CodeOpening,
    ContextCompactOpening,
    ContinuationOpening,
    HandoffOpening,
    InvocationInput,
)
from maka_trio.facts.outcome import (
    Cancelled,
    Compacted,
    Completed,
    ContextCompactFinished,
    Failed,
    FailureClass,
    HandoffPaused,
    InvocationOutcome,
)
from maka_trio.transitions.model_steps import ModelSteps
from maka_trio.transitions.open_work import AcceptedCall, LiveOperation, OpenStep, Residue
from maka_trio.transitions.operations import ToolOperations
from maka_trio.transitions.refusal import Refusal, Undo, refused


class InvocationState:
    """What the facts of one invocation have left open.

    Args:
        invocation: the identity that each of its events must carry.

    Attributes:
        opening: the input it was opened with; None before the opening.
        outcome: how it ended; None before the end.
        executor_running: a foreign agent was started and has not completed.
    """

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.opening: InvocationInput | None = None
        self.outcome: InvocationOutcome | None = None
        self.executor_running = False
        self._executor_used = False
        self._steps = ModelSteps()
        self._tools = ToolOperations()
        self._checkpoints: set[str] = set()

    @property
    def steps(self) -> dict[str, OpenStep]:
        """Model requests without an end, by step id."""
        return self._steps.open

    @property
    def calls(self) -> dict[str, AcceptedCall]:
        """Accepted calls neither dispatched nor rejected, by operation id, in call order."""
        return self._tools.calls

    @property
    def operations(self) -> dict[str, LiveOperation]:
        """Dispatched operations without settlement, by operation id."""
        return self._tools.live

    def uncertain_operations(self) -> tuple[str, ...]:
        """Dispatched and not settled, sorted."""
        return tuple(sorted(self.operations))

    def advance(self, fact: Fact, undo: Undo | None = None) -> None:
        """Check that `fact` may come next, and fold it in. A refused fact changes nothing.

        Args:
            fact: the next fact of this invocation.
            undo: collects what takes the fold back; given by whoever may have to.

        Raises:
            CommitRejected: the fact may not come here; `reason` is a `Refusal`.
        """
        if undo is None:
            undo = []
        if self.outcome is not None:
            raise refused(Refusal.SEALED, f"{fact.kind} after the end of invocation {self._name}")
        if self.opening is None and not isinstance(fact, InvocationOpened):
            raise refused(Refusal.NOT_OPEN, f"{fact.kind} before the opening of invocation {self._name}")
        match fact:
            case ModelObserved():
                self._steps.observe(fact, undo)
            case ModelRequested():
                self._steps.request(fact, self.opening, undo)
            case ModelCompleted():
                if self._steps.complete(fact, undo):
                    self._tools.accept(fact, undo)
            case ModelInterrupted():
                self._steps.interrupt(fact, undo)
            case ToolDispatched():
                self._tools.dispatch(fact, executor_running=self.executor_running, undo=undo)
            case ToolSettled():
                self._tools.settle(fact, undo)
            case ToolRejected():
                self._tools.reject(fact, executor_running=self.executor_running, undo=undo)
            case ToolNotified():
                self._tools.check_notification(fact)
            case InvocationOpened():
                self._open(fact, undo)
            case InvocationEnded():
                self._end(fact, undo)
            case MessageSteered():
                self._check_steering()
            case ExecutorStarted() | ExecutorObserved() | ExecutorCompleted():
                self._execute(fact, undo)
            case ContextCheckpointRecorded() | ToolResultArchived() | MessageImported() | BodyDeleted():
                raise self._unsupported(fact.kind)
            case _:
                assert_never(fact)

    def takes_text(self, fact: ModelObserved) -> bool:
        """Whether `advance` would admit `fact` and fold nothing of it in, as with nearly all streamed text."""
        return self.outcome is None and self.opening is not None and self._steps.takes_text(fact)

    def check_room(self, fact: Fact) -> None:
        """Check that recovery can hold what is unresolved with `fact`, which was folded in last.

        For new facts only: a log may hold more, from when there was no such rule.

        Raises:
            CommitRejected: it is more than `limits.RECOVERY_OPERATIONS`, or has more input than
                `limits.RECOVERY_BYTES`.
        """
        if not isinstance(fact, (ModelRequested, ModelCompleted, ToolDispatched)):
            return
        unresolved, size = len(self.operations) + len(self.calls) + len(self.steps), self._tools.input_bytes
        if unresolved > limits.RECOVERY_OPERATIONS or size > limits.RECOVERY_BYTES:
            raise refused(
                Refusal.TOO_MUCH_OPEN,
                f"{fact.kind} leaves invocation {self._name} with {unresolved} requests, calls and operations "
                f"unresolved and {size} bytes of input; the limits are {limits.RECOVERY_OPERATIONS} and "
                f"{limits.RECOVERY_BYTES}",
            )

    def residue(self) -> Residue | None:
        """What is unresolved now; None when nothing is, and the session may be continued."""
        residue = Residue(
            uncertain_operations=len(self.operations),
            unfinished_steps=len(self.steps),
            unanswered_calls=len(self.calls),
            unanswered_remote_calls=self._steps.remote_calls_left(),
            unfinished_executor=self.executor_running,
        )
        if residue == Residue():
            return None
        sealed_unknown = isinstance(self.outcome, Failed) and self.outcome.failure_class is FailureClass.OUTCOME_UNKNOWN
        only_effects = residue == Residue(uncertain_operations=residue.uncertain_operations)
        return attrs.evolve(residue, only_unknown_effects=sealed_unknown and only_effects)

    # --- opening and end ----------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return excerpt(self.invocation.invocation_id)

    def _unsupported(self, what: str) -> CommitRejected:
        return refused(Refusal.UNSUPPORTED, f"this version does not write {what}")

    def _open(self, fact: InvocationOpened, undo: Undo) -> None:
        if self.opening is not None:
            raise refused(Refusal.ALREADY_OPEN, f"invocation {self._name} is already open")
        if isinstance(fact.input, HandoffOpening):
            raise self._unsupported(f"an opening of kind {fact.input.kind}")
        if isinstance(fact.input, ContinuationOpening):
            objection = identity_objection(self.invocation, fact.input.claim.source.invocation)
            if objection is not None:
                raise refused(Refusal.CLAIM, objection)
        self.opening = fact.input
        undo.append(lambda: setattr(self, "opening", None))

    def _end(self, fact: InvocationEnded, undo: Undo) -> None:
        self._check_outcome(fact.outcome)
        self.outcome = fact.outcome
        undo.append(lambda: setattr(self, "outcome", None))

    def _check_outcome(self, outcome: InvocationOutcome) -> None:
        match outcome:
            case Failed() | Cancelled():
                return  # allowed with anything open, which then stays uncertain for ever
            case HandoffPaused():
                raise self._unsupported("a handoff")
            case Completed() | ContextCompactFinished():
                self._check_kind(outcome)
                self._check_resolved(outcome.kind)
            case _:
                assert_never(outcome)
        if isinstance(outcome, ContextCompactFinished):
            self._check_checkpoint(outcome)

    def _check_kind(self, outcome: Completed | ContextCompactFinished) -> None:
        compaction = isinstance(self.opening, ContextCompactOpening)
        if compaction is not isinstance(outcome, ContextCompactFinished):
            raise refused(
                Refusal.WRONG_OUTCOME,
                f"invocation {self._name} is {'a' if compaction else 'no'} compaction; {outcome.kind} cannot end it",
            )

    def _check_resolved(self, what: str) -> None:
        if self.operations or self.steps or self.executor_running:
            raise refused(
                Refusal.UNRESOLVED_WORK, f"invocation {self._name} cannot end as {what}; open are: {self.residue()}"
            )

    def _check_checkpoint(self, outcome: ContextCompactFinished) -> None:
        result = outcome.outcome
        if isinstance(result, Compacted) and result.checkpoint_id not in self._checkpoints:
            raise refused(
                Refusal.WRONG_OUTCOME,
                f"checkpoint {excerpt(result.checkpoint_id)} was not recorded by invocation {self._name}",
            )

    # --- steering, foreign agents -------------------------------------------------------------------------

    def _check_steering(self) -> None:
        if isinstance(self.opening, (ContextCompactOpening, CodeOpening)):
            raise refused(Refusal.NOT_IDLE, f"an opening of kind {self.opening.kind} takes no steering messages")
        if self._steps.is_main_open() or self.operations or self.calls:
            raise refused(Refusal.NOT_IDLE, f"a message joins between steps only; open are: {self.residue()}")

    def _execute(self, fact: ExecutorStarted | ExecutorObserved | ExecutorCompleted, undo: Undo) -> None:
        before, used = self.executor_running, self._executor_used
        starting = isinstance(fact, ExecutorStarted)
        if starting and used:
            raise refused(Refusal.EXECUTOR, "an invocation has one foreign agent; it was started before")
        if not starting and not before:
            raise refused(Refusal.EXECUTOR, f"{fact.kind} without a running foreign agent")
        self._executor_used = True
        self.executor_running = not isinstance(fact, ExecutorCompleted)

        def back() -> None:
            self.executor_running, self._executor_used = before, used

        undo.append(back)
