"""Do open streams slow down requests beside them?"""

from __future__ import annotations

import sys

import trio

from benchmarks.clients import request
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import Stopwatch
from maka_trio import ModelExecutor

REQUESTS = 500
NAME = "benchmarks.requests"

ALONE = Contender("maka_trio, no other stream", NAME, ("0",))
BESIDE = Contender("maka_trio, 256 idle streams", NAME, ("256",))
FLOOR = Contender("httpx on trio", "benchmarks.floors.requests", ("0",))
FLOOR_BESIDE = Contender("httpx on trio, 256 idle streams", "benchmarks.floors.requests", ("256",))

QUESTIONS = (
    Question(
        "requests",
        "Short requests a second, one after the other, beside open streams.",
        (ALONE, BESIDE, FLOOR, FLOOR_BESIDE),
        (Aim(BESIDE.label, ALONE.label, 0.7, None), Aim(ALONE.label, FLOOR.label, None, None)),
        path="/stream/1/12/event",
    ),
)


async def exchange(models: ModelExecutor, url: str) -> None:
    """One request with its whole answer."""
    async with models.stream(request(url)) as events:
        async for _ in events:
            pass


async def main(idle: int, url: str) -> None:
    """Hold idle streams open, then ask."""
    async with ModelExecutor() as models, trio.open_nursery() as nursery:
        for _ in range(idle):
            nursery.start_soon(exchange, models, url.replace("/stream/1/12/event/", "/idle/"))
        while models.statistics().open_connections < idle:  # noqa: ASYNC110 - nobody tells when
            await trio.sleep(0.01)
        await trio.sleep(0.3)
        await exchange(models, url)
        watch = Stopwatch()
        for _ in range(REQUESTS):
            await exchange(models, url)
        watch.report(REQUESTS)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
