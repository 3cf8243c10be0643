"""Which calls of one step may run beside each other, decided in call order (semantics 5.3). No I/O."""

from __future__ import annotations

from maka_trio.facts.outcome import ToolRejection
from maka_trio.tools.catalog import ToolRegistration, ToolSemantics


class StepAdmission:
    """The admission of one step's calls.

    An exclusive (or turn-finishing) call must be the first of its step and blocks all later ones. A call is counted
    before its arguments are looked at, so an invalid exclusive call blocks its siblings too; an unknown tool counts
    for nothing, and neither does a refused call.
    """

    def __init__(self) -> None:
        self._admitted = 0
        self._exclusive = False

    def admit(self, registration: ToolRegistration | None) -> ToolRejection | None:
        """Take the next call in order, None for an unknown tool. Returns why it is refused, or None."""
        if registration is None:
            return ToolRejection.unavailable()
        exclusive = registration.semantics is not ToolSemantics.PARALLEL
        if self._exclusive or (exclusive and self._admitted):
            return ToolRejection.exclusive_conflict()
        self._admitted += 1
        self._exclusive = exclusive
        return None
