"""What an invocation has under way, as values: open steps, accepted calls, live operations; and what it leaves."""

from __future__ import annotations

import attrs

from maka_trio.facts.context import StepPurpose
from maka_trio.facts.identity import ToolCallIdentity, provider_operation_id
from maka_trio.records import define, frozen


@define(eq=False)
class OpenStep:
    """A model request without its end.

    `barrier` is what was observed that makes a replay unsafe; `remote_calls` are observed calls of the provider's
    own (id to name) whose result was not observed.
    """

    purpose: StepPurpose
    barrier: str | None = None
    remote_calls: dict[str, str] = attrs.field(factory=dict)


@frozen
class AcceptedCall:
    """A local call of a completed step that was neither dispatched nor rejected.

    `input` is canonical JSON; `number` counts the accepted calls of the invocation, which is their order.
    """

    number: int
    step_id: str
    call_id: str
    name: str
    input: bytes

    @property
    def operation_id(self) -> str:
        """The id its dispatch or rejection has."""
        return provider_operation_id(self.step_id, self.call_id)


@define(eq=False)
class LiveOperation:
    """A dispatched operation without settlement; `blocking` children must settle before it may."""

    name: str
    call: ToolCallIdentity
    blocking: int = 0


@frozen
class Residue:
    """What an ended invocation left unresolved, and so what makes its session unsafe to continue (semantics 2.7).

    Counts only; the log itself has the names. `only_unknown_effects` is the one kind that a new message may tolerate.
    """

    uncertain_operations: int = 0
    unfinished_steps: int = 0
    unanswered_calls: int = 0
    unanswered_remote_calls: int = 0
    unfinished_executor: bool = False
    only_unknown_effects: bool = False

    def __str__(self) -> str:
        counts = (
            (self.uncertain_operations, "dispatched operations without settlement"),
            (self.unfinished_steps, "model requests without end"),
            (self.unanswered_calls, "tool calls neither dispatched nor rejected"),
            (self.unanswered_remote_calls, "calls of the provider's own without their result"),
            (int(self.unfinished_executor), "unfinished foreign agent"),
        )
        return ", ".join(f"{count} {what}" for count, what in counts if count)
