"""How fast is a log read back: opened after a crash, recovered, verified against every law?"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import trio

from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import folder, peak_mb, report
from benchmarks.story import Story, write_story
from maka_trio import EventLog
from maka_trio.cli.log_file import LogFile
from maka_trio.cli.verify_together import processes_for, verify_together
from maka_trio.log.verification import Verification

EVENTS = 100_000
OPEN_RUNS = 200
VERIFY = "--verify"
OURS = Contender("maka_trio", "benchmarks.recovery")

QUESTIONS = (
    Question(
        "recovery",
        f"Events a second that are verified (the {EVENTS:,} events of a file, every law and digest), by all processors "
        "and by one; open runs sealed a second after a crash.",
        (OURS,),
        (Aim(OURS.label, None, 50_000, None, "verified"),),
    ),
)


def main() -> None:
    """Write a log, leave some runs open, then recover and verify it; or verify the one that is named."""
    if sys.argv[1] == VERIFY:
        report(**verified(Path(sys.argv[2])))
        return
    with folder() as place:
        path = place / "log.sqlite"
        sealed = trio.run(written_and_recovered, path)
        report(**json.loads(verified_by_another(path)), sealed=sealed)


def verified_by_another(path: Path) -> bytes:
    """What a new process reports of it: the command has not written it either."""
    command = [sys.executable, "-m", "benchmarks.recovery", VERIFY, path]
    return subprocess.run(command, check=True, capture_output=True).stdout


async def written_and_recovered(path: Path) -> float:
    """Open runs sealed a second."""
    async with EventLog.open(path, inline=True) as log:
        await write_story(log, EVENTS)
        for number in range(OPEN_RUNS):
            await Story(log, f"open {number}").run(ended=False)
    begun = time.perf_counter()
    async with EventLog.open(path) as log:
        sealed = await log.recover()
        seconds = time.perf_counter() - begun
    assert sealed == OPEN_RUNS, sealed
    return sealed / seconds


def verified(path: Path) -> dict[str, float]:
    """Check a log as the command does, and in a single pass; events, and events a second."""
    file, before = LogFile(path), peak_mb()
    begun = time.perf_counter()
    check = Verification(file.read, file.path)
    assert not list(check.violations())
    alone = time.perf_counter() - begun
    begun = time.perf_counter()
    processes = processes_for(file, check.high_water)
    sound = verify_together(file, processes, lambda _: None)
    together = time.perf_counter() - begun
    assert sound is not None
    assert sound.events == check.events
    return {
        "events": check.events,
        "verified": check.events / together,
        "by_one": check.events / alone,
        "processes": processes,
        "growth_mb": peak_mb() - before,
    }


if __name__ == "__main__":
    main()
    sys.exit()
