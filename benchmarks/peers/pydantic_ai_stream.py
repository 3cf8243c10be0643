"""pydantic-ai reads one stream, or many at once."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.sample import Stopwatch, warm_up_url


async def read(agent: Agent) -> int:
    """Read one stream; return the characters of its text."""
    text = 0
    async with agent.run_stream("go on") as result:
        async for delta in result.stream_text(delta=True, debounce_by=None):
            text += len(delta)
    return text


async def main(streams: int, deltas: int, url: str) -> None:
    """Read `streams` streams of `deltas` deltas."""
    warm, agent = (
        Agent(OpenAIChatModel("bench", provider=OpenAIProvider(base_url=address, api_key="bench")))
        for address in (warm_up_url(url), url)
    )
    await read(warm)
    watch = Stopwatch()
    texts = await asyncio.gather(*(read(agent) for _ in range(streams)))
    watch.report_all(streams * deltas)
    assert texts == [deltas * 12] * streams, texts


if __name__ == "__main__":
    *numbers, url = sys.argv[1:]
    streams, deltas = map(int, numbers) if numbers else (1, 20_000)
    asyncio.run(main(streams, deltas, url))
