"""A process that commits from several tasks until it is killed, and says what was acknowledged."""

from __future__ import annotations

import os
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import trio

from maka_trio.facts import EventWrite, Fact, Invocation
from maka_trio.log import EventLog
from tests.log.log_story import COMPLETED, call, completed, dispatched, event, observed, opened, requested, success


async def produce(log: EventLog, number: int, told: Connection) -> None:
    for turn in count():
        invocation = Invocation.new(f"session {os.getpid()} {number}")
        step = f"{invocation.invocation_id} {turn}"
        facts: list[Fact | EventWrite] = [opened(), requested(step), *[observed(step)] * 5, completed(step, call())]
        facts += [dispatched(step), success(invocation, "x" * 3000, f"{step}:c1"), COMPLETED]
        for fact in facts:
            one = fact if isinstance(fact, EventWrite) else event(invocation, fact)
            told.send((await log.commit(one), (one.event if isinstance(one, EventWrite) else one).id))


async def main(path: Path, told: Connection) -> None:
    async with EventLog.open(path) as log:
        await log.recover()
        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(produce, log, number, told)


def commit_for_ever(path: Path, told: Connection) -> None:
    """Be the process."""
    trio.run(main, path, told)
