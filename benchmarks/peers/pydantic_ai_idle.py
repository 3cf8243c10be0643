"""What an idle stream weighs with pydantic-ai."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.sample import report, resident_kb

STREAMS = 256


async def hold(agent: Agent) -> None:
    """Wait for a stream that says nothing."""
    async with agent.run_stream("go on") as result:
        async for _ in result.stream_text(delta=True):
            pass


async def main(url: str) -> None:
    """Open one, weigh, open the others, weigh again. The library does not tell when a stream is open: wait."""
    agent = Agent(OpenAIChatModel("bench", provider=OpenAIProvider(base_url=url, api_key="bench")))
    tasks = [asyncio.create_task(hold(agent))]
    await asyncio.sleep(2)
    before = resident_kb()
    tasks += [asyncio.create_task(hold(agent)) for _ in range(STREAMS)]
    await asyncio.sleep(8)
    report(kb=(resident_kb() - before) / STREAMS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
