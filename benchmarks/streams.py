"""256 streams at once, each a durable run: how fast, how large, and what a delta costs when they come slowly."""

from __future__ import annotations

import sys

import trio

from benchmarks.clients import Setup, run_input, setup
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import Stopwatch, folder, warm_up_url

STREAMS = 256
DELTAS = 200
NUMBERS = (str(STREAMS), str(DELTAS))

FLOOR = Contender("httpx on trio + json", "benchmarks.floors.streams", NUMBERS)
OURS = Contender("maka_trio, durable", "benchmarks.streams", NUMBERS)
OPENAI = Contender("openai-python", "benchmarks.peers.openai_stream", NUMBERS, peer="openai")
PYDANTIC_AI = Contender("pydantic-ai", "benchmarks.peers.pydantic_ai_stream", NUMBERS, peer="pydantic-ai")

QUESTIONS = (
    Question(
        "streams",
        "256 streams of 200 deltas at once, one event in each HTTP chunk: deltas a second of all.",
        (FLOOR, OURS, OPENAI, PYDANTIC_AI),
        (
            Aim(OURS.label, FLOOR.label, 0.5, 1.3),
            Aim(OURS.label, OPENAI.label, 4, 10),
            Aim(OURS.label, PYDANTIC_AI.label, 12, 35),
            Aim(OURS.label, OPENAI.label, 0.9, 0.65, "peak_mb", at_most=True),
            Aim(OURS.label, PYDANTIC_AI.label, 0.9, None, "peak_mb", at_most=True),
        ),
        path=f"/stream/{DELTAS}/12/event",
    ),
    Question(
        "streams-paced",
        "The same, one delta each 20 ms in each stream: CPU microseconds a delta, seconds of the whole (best 4.06).",
        (FLOOR, OURS, OPENAI),
        (
            Aim(OURS.label, FLOOR.label, 1.8, 0.75, "cpu_us", at_most=True),
            Aim(OURS.label, OPENAI.label, 0.95, 0.4, "cpu_us", at_most=True),
            Aim(OURS.label, None, 1.15 * 4.06, 1.1 * 4.06, "seconds", at_most=True),
        ),
        path=f"/paced/{DELTAS}/12/20",
    ),
)


async def main(streams: int, deltas: int, url: str) -> None:
    """Make all runs at once, after a short one."""
    with folder() as place:
        async with setup(place) as it:
            await run(it, warm_up_url(url), "warm")
            watch = Stopwatch()
            async with trio.open_nursery() as nursery:
                for number in range(streams):
                    nursery.start_soon(run, it, url, f"session {number}")
            watch.report_all(streams * deltas)


async def run(it: Setup, url: str, session: str) -> None:
    """One run."""
    await it.engine.run(run_input(url, session))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
