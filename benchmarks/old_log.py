"""Does age cost? Appends and openings in a log of 1,000,000 events against those in a young one."""

from __future__ import annotations

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
        openings: dict[Path, list[float]] = {old: [], young: []}
        for number in range(7):
            for path, times in openings.items():
                times.append(await opening(path, number))
        async with EventLog.open(old) as aged, EventLog.open(empty) as fresh:
            appends = await append_in_turns(aged, fresh)
    old_ms, new_ms = (median(times) * 1e3 for times in appends)
    old_open, young_open = (median(times) * 1e3 for times in openings.values())
    report(
        append_old_ms=old_ms,
        append_new_ms=new_ms,
        append_ratio=old_ms / new_ms,
        open_old_ms=old_open,
        open_young_ms=young_open,
        open_ratio=old_open / young_open,
    )


async def opening(path: Path, number: int) -> float:
    """Leave a run open, then take the time of opening the log and sealing it."""
    async with EventLog.open(path, inline=True) as log:
        await Story(log, f"crashed {number}").run(ended=False)
    begun = time.perf_counter()
    async with EventLog.open(path) as log:
        assert await log.recover() == 1
        return time.perf_counter() - begun


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
