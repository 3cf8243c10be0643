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
from maka_trio.log.verification import Verification

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
        report(**verified(path), sealed=OPEN_RUNS / seconds, growth_mb=peak_mb() - written)


def verified(path: Path) -> dict[str, float]:
    """Check a log as the command does; events, and events a second, by the clock and of the CPU."""
    file = LogFile(path)
    begun, busy = time.perf_counter(), time.process_time()
    check = Verification(file.read, file.path)
    assert not list(check.violations())
    seconds, cpu = time.perf_counter() - begun, time.process_time() - busy
    return {"events": check.events, "verified": check.events / seconds, "verified_cpu": check.events / cpu}


if __name__ == "__main__":
    trio.run(main)
    sys.exit()
