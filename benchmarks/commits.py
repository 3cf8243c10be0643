"""Durable commits of small events by 1, 16 and 256 producers, against raw SQLite."""

from __future__ import annotations

import sys
import time

import trio

from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import Stopwatch, folder, quantile
from maka_trio import EventLog, Invocation
from maka_trio.facts import (
    InvocationOpened,
    MessageInput,
    MessageOpening,
    ModelObserved,
    ModelRequested,
    PartDelta,
    PartStarted,
    RuntimeEvent,
    Session,
)

FLOOR = Contender("SQLite, one event a transaction", "benchmarks.floors.commits", ("alone", "1"))
LIMIT = Contender("SQLite, 1,000 events a transaction", "benchmarks.floors.commits", ("alone", "1000"))
TURNS = Contender("SQLite, 16 tasks by turns", "benchmarks.floors.commits", ("tasks", "16"))
ONE, MANY, MOST = (
    Contender(f"maka_trio, {producers} producers", "benchmarks.commits", (str(producers),))
    for producers in (1, 16, 256)
)
EVENTS = {1: 3_000, 16: 20_000, 256: 60_000}
TEXT = "x" * 200

QUESTIONS = (
    Question(
        "commits",
        "Events a second, each waited for by its producer until it is durable (synchronous=FULL).",
        (FLOOR, LIMIT, TURNS, ONE, MANY, MOST),
        (
            Aim(ONE.label, FLOOR.label, 0.5, 0.7),
            Aim(MANY.label, FLOOR.label, 3.5, 5),
            Aim(MOST.label, LIMIT.label, 0.12, 0.25),
            Aim(MOST.label, TURNS.label, 8, 15),
            Aim(MANY.label, FLOOR.label, 10, 5, "p99_ms", at_most=True),
        ),
    ),
)


async def main(producers: int) -> None:
    """Let every producer commit its share, one event after the other."""
    share = EVENTS[producers] // producers
    waits: list[float] = []
    with folder() as place:
        async with EventLog.open(place / "log.sqlite") as log:
            invocations = [await opened(log, f"session {number}") for number in range(producers)]
            watch = Stopwatch()
            async with trio.open_nursery() as nursery:
                for invocation in invocations:
                    nursery.start_soon(produce, log, invocation, share, waits)
            watch.report(producers * share, p50_ms=quantile(waits, 0.5) * 1e3, p99_ms=quantile(waits, 0.99) * 1e3)


async def opened(log: EventLog, session: str) -> Invocation:
    """An invocation with a model request open."""
    invocation = Invocation.new(session)
    digest = f"sha256:{0:064x}"
    request = ModelRequested(
        step_id="step-" + invocation.invocation_id,
        model_id="bench",
        source_scope=Session(session),
        source_high_water=0,
        source_digest=digest,
        input_digest=digest,
        route_identity=digest,
    )
    begun = ModelObserved(request.step_id, PartStarted("text-0"))
    facts = (InvocationOpened(MessageOpening(MessageInput("go on"))), request, begun)
    await log.commit_batch([RuntimeEvent.new(invocation, fact) for fact in facts])
    return invocation


async def produce(log: EventLog, invocation: Invocation, count: int, waits: list[float]) -> None:
    """Commit observations, one after the other."""
    fact = ModelObserved("step-" + invocation.invocation_id, PartDelta("text-0", TEXT))
    for _ in range(count):
        begun = time.perf_counter()
        await log.commit(RuntimeEvent.new(invocation, fact))
        waits.append(time.perf_counter() - begun)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
