"""How fast does one stream of 20,000 deltas become typed events, undurable and durable?"""

from __future__ import annotations

import sys

import trio

from benchmarks.clients import request, run_input, setup
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import Stopwatch, folder, warm_up_url
from maka_trio import ModelExecutor, ModelRequest
from maka_trio.facts import ModelCompleted, PartDelta, Session

DELTAS = 20_000
SIZE = 12
NAME = "benchmarks.decode"

FLOOR = Contender("socket + json", "benchmarks.floors.decode")
STREAM = Contender("maka_trio, stream", NAME, ("stream",))
EACH = Contender("maka_trio, stream, async for", NAME, ("each",))
DURABLE = Contender("maka_trio, engine.run, durable", NAME, ("durable",))
OPENAI = Contender("openai-python", "benchmarks.peers.openai_stream", peer="openai")
PYDANTIC_AI = Contender("pydantic-ai", "benchmarks.peers.pydantic_ai_stream", peer="pydantic-ai")
AGENTS = Contender("openai-agents", "benchmarks.peers.openai_agents_stream", peer="openai-agents")

AIMS = (
    Aim(STREAM.label, FLOOR.label, 0.2, 1.2),
    Aim(STREAM.label, OPENAI.label, 5, 30),
    Aim(STREAM.label, PYDANTIC_AI.label, 10, 70),
    Aim(DURABLE.label, FLOOR.label, 0.15, 0.8),
    Aim(DURABLE.label, OPENAI.label, 4, 20),
)

QUESTIONS = (
    Question(
        "decode",
        "One stream of 20,000 deltas, one SSE event in each HTTP chunk: deltas a second.",
        (FLOOR, STREAM, EACH, DURABLE, OPENAI, PYDANTIC_AI, AGENTS),
        AIMS,
        path=f"/stream/{DELTAS}/{SIZE}/event",
    ),
    Question(
        "decode-packed",
        "The same in HTTP chunks of 16 KiB.",
        (FLOOR, STREAM, DURABLE, OPENAI, PYDANTIC_AI),
        path=f"/stream/{DELTAS}/{SIZE}/16384",
    ),
    Question(
        "decode-anthropic",
        "The same in Anthropic's format, one SSE event in each HTTP chunk.",
        (
            Contender("maka_trio, stream", NAME, ("anthropic",)),
            Contender("anthropic SDK", "benchmarks.peers.anthropic_stream", peer="anthropic"),
        ),
        (Aim("maka_trio, stream", "anthropic SDK", None, None),),
        path=f"/stream/{DELTAS}/{SIZE}/event",
    ),
)


async def stream(url: str, *, anthropic: bool = False) -> None:
    """`models.stream`, lot by lot, after a short one."""
    async with ModelExecutor() as models:
        await take_lots(models, request(warm_up_url(url), anthropic=anthropic))
        watch = Stopwatch()
        text = await take_lots(models, request(url, anthropic=anthropic))
    finish(text, watch)


async def take_lots(models: ModelExecutor, asked: ModelRequest) -> int:
    """Read one stream; return the characters of its text."""
    text = 0
    async with models.stream(asked) as events:
        while True:
            try:
                lot = await events.receive_lot()
            except trio.EndOfChannel:
                return text
            text += sum(len(event.text) for event in lot if type(event) is PartDelta)


async def each(url: str) -> None:
    """`models.stream`, event by event, after a short one."""
    async with ModelExecutor() as models:
        await take_events(models, request(warm_up_url(url)))
        watch = Stopwatch()
        text = await take_events(models, request(url))
    finish(text, watch)


async def take_events(models: ModelExecutor, asked: ModelRequest) -> int:
    """Read one stream; return the characters of its text."""
    text = 0
    async with models.stream(asked) as events:
        async for event in events:
            if type(event) is PartDelta:
                text += len(event.text)
    return text


async def durable(url: str) -> None:
    """`engine.run`, after a short one: every observation is durable, and the step too."""
    with folder() as place:
        async with setup(place) as it:
            await it.engine.run(run_input(warm_up_url(url), "warm"))
            watch = Stopwatch()
            await it.engine.run(run_input(url))
            watch.report(DELTAS)
            prefix = await it.log.prefix(DELTAS + 10, 1 << 30, Session("session"))
            (step,) = [
                stored.event.fact.output for stored in prefix.events if type(stored.event.fact) is ModelCompleted
            ]
            assert len(step.text()) == DELTAS * SIZE


def finish(text: int, watch: Stopwatch) -> None:
    """Report, and check that nothing was lost."""
    watch.report(DELTAS)
    assert text == DELTAS * SIZE, text


if __name__ == "__main__":
    match sys.argv[1]:
        case "stream":
            trio.run(stream, sys.argv[2])
        case "anthropic":
            trio.run(lambda: stream(sys.argv[2], anthropic=True))
        case "each":
            trio.run(each, sys.argv[2])
        case "durable":
            trio.run(durable, sys.argv[2])
