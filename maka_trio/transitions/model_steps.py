"""The rules of model requests: one end each, observations in between, no replay past a barrier (semantics 2.3, 4.7)."""

from __future__ import annotations

from maka_trio.facts.bounds import excerpt
from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import ModelCompleted, ModelInterrupted, ModelObserved, ModelRequested
from maka_trio.facts.model import (
    Finished,
    ModelEvent,
    ModelStep,
    PartDelta,
    PartFinished,
    PartStarted,
    ProviderToolResult,
    ToolCallReady,
    ToolResultPart,
)
from maka_trio.facts.opening import CodeOpening, ContextCompactOpening, InvocationInput
from maka_trio.facts.outcome import InterruptionStatus
from maka_trio.facts.scope import Scope
from maka_trio.transitions.open_work import OpenStep
from maka_trio.transitions.refusal import Refusal, Undo, refused


def replay_barrier(event: ModelEvent) -> str | None:
    """What in an observed event makes a replay of its request unsafe, or None.

    Text, thinking without metadata and the intent to call a local tool repeat nothing.
    """
    match event:
        case PartStarted() | PartDelta() | PartFinished():
            return "provider metadata on a part" if event.provider_options else None
        case ToolCallReady():
            return "a call that the provider executes" if event.call.provider_executed else None
        case ProviderToolResult():
            return "a result of the provider's own tool"
        case Finished():
            return "the end of the answer"
        case _:
            return None


def check_source(fact: ModelRequested, scope: Scope, high_water: int, digest: str) -> None:
    """A request is made of exactly this scope as it stands; nothing of what it claims is taken on trust.

    Raises:
        CommitRejected: scope, high water, digest or baseline are others.
    """
    expected = (scope, high_water, digest, None)
    claimed = (fact.source_scope, fact.source_high_water, fact.source_digest, fact.checkpoint_event_id)
    if claimed != expected or fact.effective_source_digest not in (None, digest):
        raise refused(
            Refusal.SOURCE,
            f"step {excerpt(fact.step_id)} names a source at {fact.source_high_water}; its {scope.kind} is at "
            f"{high_water} with another scope, digest or baseline",
        )


class ModelSteps:
    """The requests of one invocation.

    Attributes:
        open: requests without an end.
        unanswered_remote: calls of the provider's own that ended steps left without a result.
    """

    def __init__(self) -> None:
        self.open: dict[str, OpenStep] = {}
        self.unanswered_remote = 0
        self._ended: dict[str, None] = {}
        self._summary_showed_tools = False

    def request(self, fact: ModelRequested, opening: InvocationInput | None, undo: Undo) -> None:
        """A request is about to be sent."""
        step_id = fact.step_id
        if step_id in self.open or step_id in self._ended:
            raise refused(Refusal.STEP_REUSED, f"step {excerpt(step_id)} was requested before")
        self._check_purpose(fact.purpose, opening)
        self.open[step_id] = OpenStep(fact.purpose)
        undo.append(lambda: self.open.pop(step_id))

    def _check_purpose(self, purpose: StepPurpose, opening: InvocationInput | None) -> None:
        if isinstance(opening, CodeOpening):
            raise refused(Refusal.PURPOSE, "no model is asked under an opening of kind code")
        if isinstance(opening, ContextCompactOpening) and purpose is not StepPurpose.SUMMARY:
            raise refused(Refusal.PURPOSE, f"a compaction requests summaries only, not {purpose.value}")
        if purpose is StepPurpose.MAIN and self._summary_showed_tools:
            raise refused(Refusal.PURPOSE, "a summary of this run showed tools; no further main step may be requested")

    def observe(self, fact: ModelObserved, undo: Undo) -> None:
        """Something arrived for an open request."""
        if self.takes_text(fact):
            return
        step = self._open_step(fact.step_id, fact.kind)
        event = fact.event
        self._note_remote_call(step, event, undo)
        if step.purpose is StepPurpose.SUMMARY and isinstance(event, (ToolCallReady, ProviderToolResult)):
            self._note_summary_tools(undo)
        barrier = replay_barrier(event)
        if barrier is not None and step.barrier is None:
            step.barrier = barrier
            undo.append(lambda: setattr(step, "barrier", None))

    def takes_text(self, fact: ModelObserved) -> bool:
        """Whether something is more text for an open request, on which nothing depends; nearly everything is."""
        event = fact.event
        return type(event) is PartDelta and not event.provider_options and fact.step_id in self.open

    def interrupt(self, fact: ModelInterrupted, undo: Undo) -> None:
        """A request ended without an accepted step."""
        step = self._open_step(fact.step_id, fact.kind)
        if fact.status is InterruptionStatus.RETRYABLE_FAILURE and step.barrier is not None:
            raise refused(
                Refusal.REPLAY_BARRIER,
                f"step {excerpt(fact.step_id)} is not safe to replay: it observed {step.barrier}",
            )
        self._end(fact.step_id, len(step.remote_calls), undo)

    def complete(self, fact: ModelCompleted, undo: Undo) -> bool:
        """A request ended with an accepted step; say whether its local calls are to be run."""
        step = self._open_step(fact.step_id, fact.kind)
        self._end(fact.step_id, _unanswered_remote_calls(fact.output), undo)
        if step.purpose is StepPurpose.SUMMARY and fact.output.tool_calls():
            self._note_summary_tools(undo)
        return step.purpose is StepPurpose.MAIN

    def is_main_open(self) -> bool:
        """Whether a request for the turn itself, not a private summary, is open."""
        return any(step.purpose is StepPurpose.MAIN for step in self.open.values())

    def remote_calls_left(self) -> int:
        """Calls of the provider's own without a result, in ended and open steps."""
        return self.unanswered_remote + sum(len(step.remote_calls) for step in self.open.values())

    def _open_step(self, step_id: str, kind: str) -> OpenStep:
        step = self.open.get(step_id)
        if step is not None:
            return step
        if step_id in self._ended:
            raise refused(Refusal.STEP_CLOSED, f"{kind} after the end of step {excerpt(step_id)}")
        raise refused(Refusal.STEP_UNKNOWN, f"{kind} for step {excerpt(step_id)}, which was never requested")

    def _end(self, step_id: str, unanswered: int, undo: Undo) -> None:
        step = self.open.pop(step_id)
        self._ended[step_id] = None
        self.unanswered_remote += unanswered

        def back() -> None:
            self.unanswered_remote -= unanswered
            self._ended.pop(step_id, None)
            self.open[step_id] = step

        undo.append(back)

    def _note_remote_call(self, step: OpenStep, event: ModelEvent, undo: Undo) -> None:
        calls = step.remote_calls
        if isinstance(event, ToolCallReady) and event.call.provider_executed:
            call_id = event.call.id
            calls[call_id] = event.call.name
            undo.append(lambda: calls.pop(call_id, None))
        elif isinstance(event, ProviderToolResult) and calls.get(event.id) == event.name:
            answered, name = event.id, event.name
            del calls[answered]
            undo.append(lambda: calls.__setitem__(answered, name))

    def _note_summary_tools(self, undo: Undo) -> None:
        if not self._summary_showed_tools:
            self._summary_showed_tools = True
            undo.append(lambda: setattr(self, "_summary_showed_tools", False))


def _unanswered_remote_calls(output: ModelStep) -> int:
    results = {(part.id, part.name) for part in output.parts if isinstance(part, ToolResultPart)}
    return sum(call.provider_executed and (call.id, call.name) not in results for call in output.tool_calls())
