"""Does a step of a long session cost more than one of a short session? Engine CPU, the body's encoding apart."""

from __future__ import annotations

import sys
import time
from typing import Any

import trio

from benchmarks.clients import config, run_input, setup
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import folder, median, report
from maka_trio import ModelExecutor
from maka_trio.models import AdapterBinding
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.request import ModelRequest

STEPS = 1020
OURS = Contender("maka_trio, durable", "benchmarks.sessions")

QUESTIONS = (
    Question(
        "sessions",
        "CPU milliseconds of a step without encoding its request, around step 10, 100 and 1,000 of one run; the same "
        "with it; bytes of the log a step.",
        (OURS,),
        (
            Aim(OURS.label, None, 1.5, None, "growth", at_most=True),
            Aim(OURS.label, None, 4, None, "kb_step", at_most=True),
        ),
        path=f"/loop/{STEPS}",
    ),
)


class Timed:
    """An adapter that says when each request was encoded, and how much CPU that took."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.encoded: list[tuple[float, float]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def encode(self, request: ModelRequest) -> EncodedRequest:
        """Encode, and take the time."""
        begun = time.process_time()
        encoded: EncodedRequest = self._adapter.encode(request)
        self.encoded.append((begun, time.process_time()))
        return encoded


async def main(url: str) -> None:
    """Make one long run."""
    plain = ModelExecutor()
    timed = Timed(plain.binding(config(url)).adapter)
    models = plain.with_adapters({timed.name: AdapterBinding(timed)})
    with folder() as place:
        async with setup(place, models) as it:
            await it.engine.run(run_input(url, tools=True))
        size = (place / "log.sqlite").stat().st_size / 1024 / STEPS
    bare = [after[0] - before[1] for before, after in zip(timed.encoded, timed.encoded[1:], strict=False)]
    whole = [after[0] - before[0] for before, after in zip(timed.encoded, timed.encoded[1:], strict=False)]
    early, middle, late = (median(bare[at - 6 : at + 14]) * 1e3 for at in (10, 100, 1000))
    report(
        cost=late,
        step_10=early,
        step_100=middle,
        step_1000=late,
        growth=late / early,
        whole_10=median(whole[4:24]) * 1e3,
        whole_1000=median(whole[994:1014]) * 1e3,
        kb_step=size,
    )


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
