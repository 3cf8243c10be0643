"""Which facts of a program may follow which: on a real log, and as the laws see it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from maka_trio import facts
from maka_trio.errors import CommitRejected
from maka_trio.facts.event import EventWrite, RuntimeEvent, StoredEvent
from maka_trio.laws import check
from maka_trio.log import EventLog
from maka_trio.tools.output import encode_result

RUN = facts.Invocation("s", "t", "r", "i")
OPENING = facts.InvocationOpened(facts.CodeOpening("1"))
EXEC = facts.ToolDispatched("e", facts.ToolCallIdentity("ec", facts.Standalone()), "exec", {})
CELL = facts.ToolDispatched("c", facts.ToolCallIdentity("cc", facts.CodeCell("e", "ec")), "code_cell", {})
NESTED = facts.ToolDispatched("n", facts.ToolCallIdentity("nc", facts.CodeMode("c", "cc")), "echo", {})
SECOND = facts.ToolDispatched("m", facts.ToolCallIdentity("mc", facts.CodeMode("c", "cc")), "echo", {})
REFUSED = facts.ToolRejected("m", SECOND.call, "echo", {}, facts.ToolRejection.unavailable())
NOTE = facts.ToolNotified("c", "text", "text for the model")
END = facts.InvocationEnded(facts.Completed())
UNKNOWN = facts.InvocationEnded(facts.Failed(facts.FailureClass.OUTCOME_UNKNOWN))


def settled(operation: str) -> facts.ToolSettled:
    return facts.ToolSettled(operation, facts.EffectFailed("it failed"))


OTHER_CALL = facts.CodeCell("e", "another call than that of e")


def below(origin: facts.CodeCell) -> facts.ToolDispatched:
    return attrs.evolve(CELL, call=attrs.evolve(CELL.call, origin=origin))


LAWFUL: list[list[Any]] = [
    [OPENING, EXEC, CELL, NESTED, NOTE, settled("n"), settled("c"), settled("e"), END],
    [OPENING, EXEC, CELL, settled("e"), NESTED, NOTE, REFUSED, settled("n"), settled("c"), END],
    [OPENING, EXEC, CELL, NESTED, SECOND, settled("m"), settled("n"), settled("c"), settled("e"), END],
    [OPENING, EXEC, CELL, NESTED, settled("e"), UNKNOWN],
]

REFUSALS: list[tuple[list[Any], Any, str]] = [
    ([OPENING, EXEC, CELL, NESTED], settled("c"), "children_unsettled"),
    ([OPENING, EXEC], below(facts.CodeCell("x", "ec")), "parent_not_live"),
    ([OPENING, EXEC], below(OTHER_CALL), "parent_not_live"),
    ([OPENING, EXEC, settled("e")], CELL, "parent_not_live"),
    ([OPENING, EXEC, CELL, settled("c")], NESTED, "parent_not_live"),
    ([OPENING, EXEC, CELL, settled("c")], REFUSED, "parent_not_live"),
    ([OPENING, EXEC, CELL, settled("c")], NOTE, "operation_settled"),
    ([OPENING, EXEC], NOTE, "operation_unknown"),
    ([OPENING, EXEC, CELL], attrs.evolve(NOTE, operation_id="e"), "not_a_cell"),
    ([OPENING, EXEC, CELL, NESTED, settled("n")], NESTED, "operation_reused"),
    ([OPENING, EXEC, CELL, NESTED, settled("n")], attrs.evolve(NESTED, operation_id="z"), "call_reused"),
    ([OPENING, EXEC, CELL, settled("e")], END, "unresolved_work"),
]


@asynccontextmanager
async def written(path: Path, story: list[Any]) -> AsyncGenerator[EventLog, None]:
    """A log with these facts, closed once and opened again."""
    async with EventLog.open(path / "log") as log:
        for fact in story:
            await log.commit(RuntimeEvent.new(RUN, fact))
    async with EventLog.open(path / "log") as log:
        yield log


@pytest.mark.parametrize("story", LAWFUL)
async def test_a_cell_may_outlive_its_call_and_nothing_outlives_its_cell(tmp_path: Path, story: list[Any]) -> None:
    """The log takes it, and the laws find nothing."""
    async with written(tmp_path, story) as log:
        prefix = await log.prefix(100, 1 << 20)
        assert [str(violation) for violation in check(prefix.events, digest=prefix.digest)] == []


@pytest.mark.parametrize(("before", "fact", "reason"), REFUSALS)
async def test_what_may_not_follow_is_refused_also_after_a_reopen(
    tmp_path: Path, before: list[Any], fact: Any, reason: str
) -> None:
    """By its reason; nothing is written."""
    async with written(tmp_path, before) as log:
        with pytest.raises(CommitRejected) as refused:
            await log.commit(RuntimeEvent.new(RUN, fact))
        assert refused.value.reason == reason
        assert (await log.head()).high_water == len(before)


@pytest.mark.parametrize(
    ("before", "fact"),
    [
        (before, fact)
        for before, fact, reason in REFUSALS
        if reason in ("children_unsettled", "operation_settled", "parent_not_live") and fact != below(OTHER_CALL)
    ],
)
def test_the_laws_see_what_a_log_should_have_refused(before: list[Any], fact: Any) -> None:
    """They share no code with it."""
    events = [StoredEvent(n + 1, RuntimeEvent.new(RUN, each)) for n, each in enumerate([*before, fact])]
    assert {violation.law for violation in check(events)} == {3}


async def test_recovery_seals_a_program_and_runs_nothing(tmp_path: Path) -> None:
    """Unsettled cells and calls stay unknown, whatever was settled beside them."""
    async with written(tmp_path, [OPENING, EXEC, CELL, settled("e"), NESTED, SECOND]) as log:
        result = encode_result({"n": 1}, "event")
        event = RuntimeEvent.new(RUN, facts.ToolSettled("m", result.outcome), event_id="event")
        await log.commit(EventWrite(event, result.payload))
        assert await log.recover() == 1
        prefix = await log.prefix(100, 1 << 20)
        ended = prefix.events[-1].event.fact
        assert isinstance(ended, facts.InvocationEnded)
        assert ended.outcome == facts.Failed(facts.FailureClass.OUTCOME_UNKNOWN)
        assert prefix.project_invocation("i").uncertain_operations == ("c", "n")
        assert [str(violation) for violation in check(prefix.events)] == []
        assert await log.recover() == 0
