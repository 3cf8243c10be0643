"""Code Mode: how soon does a program run, and what does a call of a tool cost from within one?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import trio

from benchmarks.clients import echo
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import folder, median, report
from maka_trio.code import CellLimits, CodeExecutor
from maka_trio.code.cells import open_cells
from maka_trio.code.sandbox import CellFunctions, run_cell
from maka_trio.facts.event import InvocationOpened, RuntimeEvent
from maka_trio.facts.identity import CodeMode, Invocation, Standalone, ToolCallIdentity, new_id
from maka_trio.facts.opening import CodeOpening, ToolDefinition
from maka_trio.log.event_log import EventLog
from maka_trio.tools import ToolCatalog, ToolRegistration
from maka_trio.tools.journal import Operation, ToolJournal

NAME = "benchmarks.programs"
CELLS = 100
CALLS = 200
ROUNDS = 5
LIMITS = CellLimits(tool_calls=CALLS, host_calls=10 * CALLS)

OURS = Contender("maka_trio, Code Mode", NAME)

QUESTIONS = (
    Question(
        "programs",
        f"Milliseconds until a program has run (median of {CELLS}), and for one durable call of a tool: direct, from "
        f"within a program that makes {CALLS} one after the other, and the difference, in alternation.",
        (OURS,),
        (
            Aim(OURS.label, None, 10, 5, "start_ms", at_most=True),
            Aim(OURS.label, None, 1, 0.5, "beyond_ms", at_most=True),
            Aim(OURS.label, None, None, None, "times", at_most=True),
        ),
    ),
)


async def starts() -> list[float]:
    """Milliseconds of one whole cell, many times."""
    taken = []
    for _ in range(CELLS):
        began = time.perf_counter()
        await run_cell("1", CellFunctions(), LIMITS)
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


async def direct(journal: ToolJournal, parent: Operation) -> None:
    """The same operations as a program's, asked for by nobody in particular."""
    origin = CodeMode(parent.operation_id, parent.call.tool_call_id)
    for number in range(CALLS):
        await journal.perform(
            Operation(new_id(), ToolCallIdentity(new_id(), origin), echo.name, {"value": number}), echo
        )


async def measured(place: Path) -> tuple[float, float]:
    """Milliseconds of one call: direct, and from within a program."""
    invocation, tools = Invocation.new("s"), ToolCatalog([echo])
    direct_ms: list[float] = []
    nested_ms: list[float] = []

    async with EventLog.open(place / "log.sqlite") as log:
        await log.commit(RuntimeEvent.new(invocation, InvocationOpened(CodeOpening("bench"))))
        journal = ToolJournal(log, invocation)
        async with open_cells(CodeExecutor(LIMITS), journal, log, invocation, tools, log_name=log.name) as cells:
            outer = Operation(new_id(), ToolCallIdentity(new_id(), Standalone()), "exec", {})

            async def effect(given: Any, call: Any) -> None:
                for _ in range(ROUNDS):
                    began = time.perf_counter()
                    await direct(journal, outer)
                    direct_ms.append((time.perf_counter() - began) / CALLS * 1e3)
                    began = time.perf_counter()
                    told: Any = await cells.run_to_end(f"for i in range({CALLS}):\n  await echo(value=i)", call)
                    nested_ms.append((time.perf_counter() - began) / CALLS * 1e3)
                    assert told["result"]["ok"], told

            await journal.perform(outer, ToolRegistration(ToolDefinition("exec", "", True), effect, built_in=True))
    return median(direct_ms), median(nested_ms)


async def main() -> None:
    """Cells first, then calls."""
    start = median(await starts())
    with folder() as place:
        direct_ms, nested_ms = await measured(place)
    report(
        start_ms=start,
        direct_ms=direct_ms,
        nested_ms=nested_ms,
        beyond_ms=nested_ms - direct_ms,
        times=nested_ms / direct_ms,
    )


if __name__ == "__main__":
    trio.run(main)
