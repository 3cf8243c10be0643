"""An agent loop on LangGraph's prebuilt agent, with its SQLite checkpointer or without one."""

import asyncio
import sys
import warnings
from contextlib import AsyncExitStack

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import create_react_agent

from benchmarks.sample import Stopwatch, folder, size_kb, warm_up_url

warnings.simplefilter("ignore")


@tool
async def echo(value: int) -> int:
    """Give the value back."""
    return value


def agent(url: str, saver: AsyncSqliteSaver | None):
    """The agent."""
    model = ChatOpenAI(model="bench", base_url=url, api_key="bench", use_responses_api=False)
    return create_react_agent(model, [echo], checkpointer=saver)


async def run(graph, thread: str, steps: int, durable: bool) -> None:
    """One run."""
    config = {"recursion_limit": 10 * steps + 10, "configurable": {"thread_id": thread}}
    how = {"durability": "sync"} if durable else {}
    state = await graph.ainvoke({"messages": [("user", "go on")]}, config, **how)
    made = sum(message.type == "tool" for message in state["messages"])
    assert made == steps, made


async def main(runs: int, steps: int, durable: bool, url: str) -> None:
    """Make all runs at once, after a short one."""
    with folder() as place:
        async with AsyncExitStack() as stack:
            saver = None
            if durable:
                saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(place / "graph.sqlite")))
            await run(agent(warm_up_url(url), saver), "warm", 2, durable)
            graph = agent(url, saver)
            watch = Stopwatch()
            await asyncio.gather(*(run(graph, f"thread {number}", steps, durable) for number in range(runs)))
            watch.stop()
        watch.report(runs * steps, kb_step=size_kb(place) / (runs * steps))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "durable", sys.argv[4]))
