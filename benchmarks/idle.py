"""What does an idle stream weigh, and a run that waits for one?"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import trio

from benchmarks.clients import Setup, request, run_input, setup
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import folder, report, resident_kb

STREAMS = 256
NAME = "benchmarks.idle"

FLOOR = Contender("trio socket", "benchmarks.floors.idle")
STREAM = Contender("maka_trio, stream", NAME, ("stream",))
RUN = Contender("maka_trio, run in a log", NAME, ("run",))
OPENAI = Contender("openai-python", "benchmarks.peers.openai_idle", peer="openai")
PYDANTIC_AI = Contender("pydantic-ai", "benchmarks.peers.pydantic_ai_idle", peer="pydantic-ai")

QUESTIONS = (
    Question(
        "idle",
        "Growth of resident memory for each of 256 streams of which the headers have come, KB.",
        (FLOOR, STREAM, RUN, OPENAI, PYDANTIC_AI),
        (
            Aim(STREAM.label, None, 32, None, "kb", at_most=True),
            Aim(RUN.label, FLOOR.label, 4, 2.5, "kb", at_most=True),
            Aim(RUN.label, OPENAI.label, 1, 0.65, "kb", at_most=True),
            Aim(RUN.label, PYDANTIC_AI.label, 0.3, 0.2, "kb", at_most=True),
        ),
        path="/idle",
    ),
)


async def stream(it: Setup, url: str, number: int) -> None:
    """Hold one stream open."""
    async with it.models.stream(request(url)) as events:
        async for _ in events:
            pass


async def run(it: Setup, url: str, number: int) -> None:
    """Hold one run open."""
    await it.engine.run(run_input(url, f"session {number}"))


async def main(hold: Callable[[Setup, str, int], Awaitable[None]], url: str) -> None:
    """Open one, weigh, open the others, weigh again."""
    with folder() as place:
        async with setup(place) as it, trio.open_nursery() as nursery:
            nursery.start_soon(hold, it, url, 0)
            await settled(it, 1)
            before = resident_kb()
            for number in range(1, STREAMS + 1):
                nursery.start_soon(hold, it, url, number)
            await settled(it, STREAMS + 1)
            report(kb=(resident_kb() - before) / STREAMS)
            nursery.cancel_scope.cancel()


async def settled(it: Setup, count: int) -> None:
    """Wait until so many connections are open and nothing moves."""
    while it.models.statistics().open_connections < count:  # noqa: ASYNC110 - nobody tells when
        await trio.sleep(0.01)
    await trio.sleep(0.5)


if __name__ == "__main__":
    trio.run(main, {"stream": stream, "run": run}[sys.argv[1]], sys.argv[2])
