"""Does age cost? Appends and openings in a log of 1,000,000 events against those in a young one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import trio

from benchmarks.commits import opened
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import folder, median, report
from benchmarks.story import Story, write_story
from maka_trio import EventLog
from maka_trio.facts import ModelObserved, PartDelta, RuntimeEvent

OLD, YOUNG = 1_000_000, 10_000
APPENDS = 500
OPENINGS = 15
OURS = Contender("maka_trio", "benchmarks.old_log")

QUESTIONS = (
    Question(
        "old-log",
        "Milliseconds to commit an event, and to open and recover with one run left open, in a log of 1,000,000 "
        "events against a new one (opening: one of 10,000).",
        (OURS,),
        (
            Aim(OURS.label, None, 1.3, None, "append_ratio", at_most=True),
            Aim(OURS.label, None, 3, None, "open_ratio", at_most=True),
        ),
    ),
)


async def main() -> None:
    """Write an old log and a young one, then take turns with them."""
    with folder() as place:
        old, young, empty = (place / name for name in ("old.sqlite", "young.sqlite", "empty.sqlite"))
        for path, events in ((old, OLD), (young, YOUNG), (empty, 0)):
            async with EventLog.open(path, inline=True) as log:
                await write_story(log, events)
        os.sync()  # else the first openings wait until the disk has what was just written
        openings = await open_in_turns(old, young)
        async with EventLog.open(old) as aged, EventLog.open(empty) as fresh:
            appends = await append_in_turns(aged, fresh)
    old_ms, new_ms = (median(times) * 1e3 for times in appends)
    (old_open, old_cpu), (young_open, young_cpu) = openings
    report(
        append_old_ms=old_ms,
        append_new_ms=new_ms,
        append_ratio=old_ms / new_ms,
        open_old_ms=old_open,
        open_young_ms=young_open,
        open_ratio=old_open / young_open,
        open_cpu_ratio=old_cpu / young_cpu,
    )


async def open_in_turns(*paths: Path) -> list[tuple[float, float]]:
    """Open each log in turn; milliseconds and CPU milliseconds of an opening, as medians."""
    taken: list[list[tuple[float, float]]] = [[] for _ in paths]
    for number in range(OPENINGS):
        for path, times in zip(paths, taken, strict=True):
            times.append(await opening(path, number))
    return [(median([wall for wall, _ in times]) * 1e3, median([cpu for _, cpu in times]) * 1e3) for times in taken]


async def opening(path: Path, number: int) -> tuple[float, float]:
    """Leave a run open, then take the time of opening the log and sealing it, by the clock and of the CPU."""
    async with EventLog.open(path, inline=True) as log:
        await Story(log, f"crashed {number}").run(ended=False)
    begun, busy = time.perf_counter(), time.process_time()
    async with EventLog.open(path) as log:
        assert await log.recover() == 1
        return time.perf_counter() - begun, time.process_time() - busy


async def append_in_turns(*logs: EventLog) -> list[list[float]]:
    """Commit observations to each log in turn; seconds of each commit."""
    invocations = [await opened(log, "now") for log in logs]
    times: list[list[float]] = [[] for _ in logs]
    for _ in range(APPENDS):
        for log, invocation, taken in zip(logs, invocations, times, strict=True):
            fact = ModelObserved("step-" + invocation.invocation_id, PartDelta("text-0", "x" * 200))
            begun = time.perf_counter()
            await log.commit(RuntimeEvent.new(invocation, fact))
            taken.append(time.perf_counter() - begun)
    return times


if __name__ == "__main__":
    trio.run(main)
