"""openai-python reads one stream, or many at once."""

import asyncio
import sys

from openai import AsyncOpenAI

from benchmarks.sample import Stopwatch, warm_up_url

MESSAGES = [{"role": "user", "content": "go on"}]


async def read(client: AsyncOpenAI) -> int:
    """Read one stream; return the characters of its text."""
    text = 0
    stream = await client.chat.completions.create(model="bench", messages=MESSAGES, stream=True)
    async for chunk in stream:
        if chunk.choices:
            text += len(chunk.choices[0].delta.content or "")
    return text


async def main(streams: int, deltas: int, url: str) -> None:
    """Read `streams` streams of `deltas` deltas."""
    async with AsyncOpenAI(api_key="bench", base_url=url, timeout=600) as client:
        await read(client.with_options(base_url=warm_up_url(url)))
        watch = Stopwatch()
        texts = await asyncio.gather(*(read(client) for _ in range(streams)))
        watch.report_all(streams * deltas)
    assert texts == [deltas * 12] * streams


if __name__ == "__main__":
    *numbers, url = sys.argv[1:]
    streams, deltas = map(int, numbers) if numbers else (1, 20_000)
    asyncio.run(main(streams, deltas, url))
