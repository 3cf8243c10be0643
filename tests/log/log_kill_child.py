"""Commits from several tasks until it is killed, and says what was acknowledged, line by line.

Usage: log_kill_child.py FILE
"""

from __future__ import annotations

import os
import sys
from itertools import count

import trio

from maka_trio.facts import EventWrite, Fact, Invocation, RuntimeEvent
from maka_trio.log import EventLog
from tests.log.log_story import COMPLETED, call, completed, dispatched, event, observed, opened, requested, success


def say(sequences: list[int], events: list[RuntimeEvent]) -> None:
    lines = "".join(f"{sequence} {one.id}\n" for sequence, one in zip(sequences, events, strict=True))
    os.write(1, lines.encode())  # at once, and whole


async def produce(log: EventLog, number: int) -> None:
    for turn in count():
        invocation = Invocation.new(f"session {os.getpid()} {number}")
        step = f"{invocation.invocation_id} {turn}"
        facts: list[Fact | EventWrite] = [opened(), requested(step), *[observed(step)] * 5, completed(step, call())]
        facts += [dispatched(step), success(invocation, "x" * 3000, f"{step}:c1"), COMPLETED]
        for fact in facts:
            one = fact if isinstance(fact, EventWrite) else event(invocation, fact)
            say([await log.commit(one)], [one.event if isinstance(one, EventWrite) else one])


async def main(path: str) -> None:
    async with EventLog.open(path) as log:
        await log.recover()
        os.write(1, b"ready\n")
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(produce, log, number)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
