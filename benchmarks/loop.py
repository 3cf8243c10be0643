"""The agent loop: request, one tool call, its result, again. How many steps a second, everything durable?"""

from __future__ import annotations

import sys

import trio

from benchmarks.clients import Setup, run_input, setup
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import Stopwatch, folder, size_kb, warm_up_url

OURS = "maka_trio, durable"
FLOOR = "trio + httpx by hand, not durable"
DURABLE_FLOOR = "trio + httpx by hand, durable"
OPENAI = "openai-python by hand, not durable"
OPENAI_STREAMED = "openai-python by hand, streamed, not durable"
LANGGRAPH = "LangGraph, not durable"
LANGCHAIN = "LangChain agent, not durable"
LANGGRAPH_DURABLE = "LangGraph + AsyncSqliteSaver"
PYDANTIC_AI = "pydantic-ai, not durable"
PYDANTIC_AI_DBOS = "pydantic-ai + DBOS"
DBOS = "DBOS + openai-python by hand"
AGENTS = "openai-agents, not durable"


def contenders(runs: int, steps: int) -> dict[str, Contender]:
    """Everybody, by label, for this many runs at once of this many steps."""
    numbers = (str(runs), str(steps))
    peers = "benchmarks.peers."
    everybody = (
        Contender(FLOOR, "benchmarks.floors.loop", (*numbers, "quick")),
        Contender(DURABLE_FLOOR, "benchmarks.floors.loop", (*numbers, "durable")),
        Contender(OURS, "benchmarks.loop", numbers),
        Contender(OPENAI, f"{peers}openai_loop", (*numbers, "whole"), peer="openai"),
        Contender(OPENAI_STREAMED, f"{peers}openai_loop", (*numbers, "streamed"), peer="openai"),
        Contender(LANGGRAPH, f"{peers}langgraph_loop", (*numbers, "quick"), peer="langgraph"),
        Contender(LANGCHAIN, f"{peers}langchain_loop", numbers, peer="langgraph"),
        Contender(LANGGRAPH_DURABLE, f"{peers}langgraph_loop", (*numbers, "durable"), peer="langgraph"),
        Contender(PYDANTIC_AI, f"{peers}pydantic_ai_loop", numbers, peer="pydantic-ai"),
        Contender(PYDANTIC_AI_DBOS, f"{peers}pydantic_ai_dbos_loop", numbers, peer="dbos"),
        Contender(DBOS, f"{peers}dbos_loop", numbers, peer="dbos"),
        Contender(AGENTS, f"{peers}openai_agents_loop", numbers, peer="openai-agents"),
    )
    return {contender.label: contender for contender in everybody}


SHORT = Contender("maka_trio, durable, 50 steps", "benchmarks.loop", ("1", "50"), path="/loop/50")
SINGLE = Contender("maka_trio, durable, one run", "benchmarks.loop", ("1", "50"))


def question(
    name: str, asks: str, runs: int, steps: int, labels: tuple[str, ...], *aims: Aim, beside: tuple[Contender, ...] = ()
) -> Question:
    """The loop with some contenders, and others beside them."""
    everybody = contenders(runs, steps)
    return Question(name, asks, (*(everybody[label] for label in labels), *beside), aims, path=f"/loop/{steps}")


QUESTIONS = (
    question(
        "loop",
        "One run of 50 tool steps: steps a second.",
        1,
        50,
        tuple(contenders(1, 50)),
        Aim(OURS, FLOOR, 0.3, 0.45),
        Aim(OURS, DURABLE_FLOOR, None, None),
        Aim(OURS, LANGGRAPH, 5, 8),
        Aim(OURS, LANGCHAIN, 5, 8),
        Aim(OURS, OPENAI_STREAMED, None, None),
        Aim(OURS, OPENAI, None, None),
        Aim(OURS, PYDANTIC_AI_DBOS, 8, 12),
        Aim(OURS, LANGGRAPH_DURABLE, 7, 10),
        Aim(OURS, DBOS, 5, 8),
        Aim(OURS, None, 4, None, "kb_step", at_most=True),
    ),
    question(
        "loop-16",
        "16 runs of 50 tool steps at once: steps a second of all.",
        16,
        50,
        (FLOOR, DURABLE_FLOOR, OURS, LANGGRAPH_DURABLE, PYDANTIC_AI_DBOS),
        Aim(OURS, LANGGRAPH_DURABLE, 12, 24),
        Aim(OURS, PYDANTIC_AI_DBOS, 12, 24),
        Aim(OURS, SINGLE.label, 1.5, 2.2),
        Aim(OURS, FLOOR, None, None),
        beside=(SINGLE,),
    ),
    question(
        "loop-200",
        "One run of 200 tool steps: steps a second.",
        1,
        200,
        (FLOOR, DURABLE_FLOOR, OURS, LANGGRAPH_DURABLE, PYDANTIC_AI_DBOS),
        Aim(OURS, LANGGRAPH_DURABLE, 18, 28),
        Aim(OURS, PYDANTIC_AI_DBOS, 18, 28),
        Aim(OURS, SHORT.label, 0.8, 0.9),
        Aim(OURS, None, 4, None, "kb_step", at_most=True),
        beside=(SHORT,),
    ),
)


async def main(runs: int, steps: int, url: str) -> None:
    """Make all runs at once, after a short one; what they add to the log is seen when it has been closed."""
    with folder() as place:
        async with setup(place) as it:
            await run(it, warm_up_url(url), "warm")
        empty = size_kb(place)
        async with setup(place) as it:
            watch = Stopwatch()
            async with trio.open_nursery() as nursery:
                for number in range(runs):
                    nursery.start_soon(run, it, url, f"session {number}")
            watch.stop()
        watch.report(runs * steps, kb_step=(size_kb(place) - empty) / (runs * steps))


async def run(it: Setup, url: str, session: str) -> None:
    """One run."""
    await it.engine.run(run_input(url, session, tools=True))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
