"""How many small runs does the explorer make a second, against an empty `trio.run`?"""

from __future__ import annotations

import sys

import trio

from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import Stopwatch
from maka_trio.testing import Trial, explore

EMPTY = Contender("empty trio.run", "benchmarks.explorer", ("empty",))
SMALL = Contender("maka_trio, explore", "benchmarks.explorer", ("explore",))
RUNS = 300

QUESTIONS = (
    Question(
        "explorer",
        "Runs a second: a scenario of two tasks and a channel, cancelled at every checkpoint, over many seeds.",
        (EMPTY, SMALL),
        (Aim(SMALL.label, EMPTY.label, None, None), Aim(SMALL.label, None, 500, None)),
    ),
)


async def scenario(trial: Trial) -> None:
    """Two tasks that hand three things over."""
    send, receive = trio.open_memory_channel[int](0)

    async def produce() -> None:
        with send:
            for number in range(3):
                await send.send(number)

    with receive, trial.cancellable():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            async for _ in receive:
                pass


async def nothing() -> None:
    """Nothing."""


def main(what: str) -> None:
    """Make the runs."""
    watch = Stopwatch()
    if what == "empty":
        for _ in range(RUNS):
            trio.run(nothing)
        watch.report(RUNS)
    else:
        exploration = explore(scenario, seeds=RUNS // 10)
        exploration.raise_for_violations()
        watch.report(exploration.runs)


if __name__ == "__main__":
    main(sys.argv[1])
