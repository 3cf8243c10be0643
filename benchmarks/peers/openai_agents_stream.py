"""openai-agents reads one stream."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from benchmarks.sample import Stopwatch, warm_up_url

DELTAS = 20_000


async def main(url: str) -> None:
    """Read one stream, after a short one."""
    set_tracing_disabled(disabled=True)
    async with AsyncOpenAI(api_key="bench", base_url=url) as client:
        await read(client.with_options(base_url=warm_up_url(url)))
        watch = Stopwatch()
        text = await read(client)
        watch.report(DELTAS)
    assert text == DELTAS * 12, text


async def read(client: AsyncOpenAI) -> int:
    """Read one stream; return the characters of its text."""
    agent = Agent("bench", model=OpenAIChatCompletionsModel("bench", client))
    text = 0
    async for event in Runner.run_streamed(agent, "go on").stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += len(event.data.delta)
    return text


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
