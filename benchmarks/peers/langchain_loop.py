"""An agent loop on LangChain's agent, which stores nothing."""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from benchmarks.sample import Stopwatch, warm_up_url


@tool
async def echo(value: int) -> int:
    """Give the value back."""
    return value


def agent(url: str):
    """The agent."""
    model = ChatOpenAI(model="bench", base_url=url, api_key="bench", use_responses_api=False)
    return create_agent(model, [echo])


async def run(graph, steps: int) -> None:
    """One run."""
    state = await graph.ainvoke({"messages": [("user", "go on")]}, {"recursion_limit": 10 * steps + 10})
    made = sum(message.type == "tool" for message in state["messages"])
    assert made == steps, made


async def main(runs: int, steps: int, url: str) -> None:
    """Make all runs at once, after a short one."""
    await run(agent(warm_up_url(url)), 2)
    graph = agent(url)
    watch = Stopwatch()
    await asyncio.gather(*(run(graph, steps) for _ in range(runs)))
    watch.report(runs * steps)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
