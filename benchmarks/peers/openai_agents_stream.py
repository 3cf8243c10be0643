"""openai-agents reads one stream."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from benchmarks.sample import Stopwatch

DELTAS = 20_000


async def main(url: str) -> None:
    """Read one stream."""
    set_tracing_disabled(disabled=True)
    async with AsyncOpenAI(api_key="bench", base_url=url) as client:
        agent = Agent("bench", model=OpenAIChatCompletionsModel("bench", client))
        watch = Stopwatch()
        result = Runner.run_streamed(agent, "go on")
        text = 0
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += len(event.data.delta)
        watch.report(DELTAS)
    assert text == DELTAS * 12, text


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
