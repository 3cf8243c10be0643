"""An agent loop on openai-agents."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from benchmarks.sample import Stopwatch, warm_up_url

given: list[int] = []


@function_tool
async def echo(value: int) -> int:
    """Give the value back."""
    given.append(value)
    return value


def agent(url: str) -> Agent:
    """The agent."""
    client = AsyncOpenAI(api_key="bench", base_url=url)
    return Agent("bench", model=OpenAIChatCompletionsModel("bench", client), tools=[echo])


async def main(runs: int, steps: int, url: str) -> None:
    """Make all runs at once, after a short one."""
    set_tracing_disabled(disabled=True)
    await Runner.run(agent(warm_up_url(url)), "go on")
    bench = agent(url)
    given.clear()
    watch = Stopwatch()
    await asyncio.gather(*(Runner.run(bench, "go on", max_turns=steps + 5) for _ in range(runs)))
    watch.report(runs * steps)
    assert len(given) == runs * steps, len(given)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
