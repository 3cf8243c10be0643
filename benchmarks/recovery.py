"""How fast is a log read back: opened after a crash, recovered, verified against every law?"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import trio

from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import folder, peak_mb, report
from benchmarks.story import Story, write_story
from maka_trio import EventLog
from maka_trio.cli.log_file import LogFile
from maka_trio.laws import LawChecker

EVENTS = 100_000
OPEN_RUNS = 200
OURS = Contender("maka_trio", "benchmarks.recovery")

QUESTIONS = (
    Question(
        "recovery",
        f"Events a second that are verified (the {EVENTS:,} events of a file, every law and digest); open runs sealed "
        "a second after a crash.",
        (OURS,),
        (Aim(OURS.label, None, 50_000, None, "verified"),),
    ),
)


async def main() -> None:
    """Write a log, leave some runs open, then recover and verify it."""
    with folder() as place:
        path = place / "log.sqlite"
        async with EventLog.open(path, inline=True) as log:
            await write_story(log, EVENTS)
            for number in range(OPEN_RUNS):
                await Story(log, f"open {number}").run(ended=False)
        begun = time.perf_counter()
        async with EventLog.open(path) as log:
            sealed = await log.recover()
            seconds = time.perf_counter() - begun
        assert sealed == OPEN_RUNS, sealed
        written = peak_mb()
        events, rate = verified(path)
        report(verified=rate, events=events, sealed=OPEN_RUNS / seconds, growth_mb=peak_mb() - written)


def verified(path: Path) -> tuple[int, float]:
    """Check a log as the command does; events, and events a second."""
    file = LogFile(path)
    head = file.head()
    checker = LawChecker(head.scope, digest=head.digest)
    begun = time.perf_counter()
    events = 0
    for stored in file.events():
        events += 1
        assert not checker.push(stored)
    assert not checker.finish()
    return events, events / (time.perf_counter() - begun)


if __name__ == "__main__":
    trio.run(main)
    sys.exit()
