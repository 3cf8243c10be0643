"""Which calls of one step may stand beside each other."""

from __future__ import annotations

from typing import Any

import pytest

from maka_trio.facts import RejectionKind
from maka_trio.tools import StepAdmission, ToolCall, ToolNesting, ToolSemantics
from tests.tools.scene import registration


async def handler(value: Any, call: ToolCall) -> None:
    raise AssertionError("admission runs nothing")


TOOLS = {
    "p": registration(handler),
    "x": registration(handler, semantics=ToolSemantics.EXCLUSIVE_STEP),
    "f": registration(handler, semantics=ToolSemantics.FINISH_TURN, nesting=ToolNesting.DIRECT_ONLY),
}
CONFLICT, UNKNOWN = RejectionKind.EXCLUSIVE_CONFLICT, RejectionKind.UNAVAILABLE


@pytest.mark.parametrize(
    ("calls", "refused"),
    [
        ("ppp", [None, None, None]),
        ("x", [None]),
        ("f", [None]),
        ("xpp", [None, CONFLICT, CONFLICT]),
        ("fp", [None, CONFLICT]),
        ("xx", [None, CONFLICT]),
        ("xf", [None, CONFLICT]),
        ("fx", [None, CONFLICT]),
        ("px", [None, CONFLICT]),
        ("pf", [None, CONFLICT]),
        ("pxp", [None, CONFLICT, None]),
        ("?", [UNKNOWN]),
        ("?x", [UNKNOWN, None]),
        ("x?", [None, UNKNOWN]),
        ("?p?x", [UNKNOWN, None, UNKNOWN, CONFLICT]),
    ],
)
def test_calls_are_admitted_in_order(calls: str, refused: list[RejectionKind | None]) -> None:
    """An exclusive call is the first of its step or refused, and blocks what follows; an unknown one blocks nothing."""
    admission = StepAdmission()
    verdicts = [admission.admit(TOOLS.get(call)) for call in calls]
    assert [verdict.kind if verdict else None for verdict in verdicts] == refused


def test_each_step_is_admitted_by_itself() -> None:
    """What one step held does not concern the next."""
    assert StepAdmission().admit(TOOLS["x"]) is None
    assert StepAdmission().admit(TOOLS["p"]) is None
