"""The Anthropic SDK reads one stream."""

import asyncio
import sys

from anthropic import AsyncAnthropic

from benchmarks.sample import Stopwatch, warm_up_url

DELTAS = 20_000


async def main(url: str) -> None:
    """Read one stream, after a short one."""
    async with AsyncAnthropic(api_key="bench", base_url=url.removesuffix("/v1")) as client:
        await read(client.with_options(base_url=warm_up_url(url).removesuffix("/v1")))
        watch = Stopwatch()
        text = await read(client)
        watch.report(DELTAS)
    assert text == DELTAS * 12, text


async def read(client: AsyncAnthropic) -> int:
    """Read one stream with the SDK's helper, which also builds the message; return the characters of its text."""
    messages = [{"role": "user", "content": "go on"}]
    async with client.messages.stream(model="bench", max_tokens=1000, messages=messages) as stream:
        return sum([len(delta) async for delta in stream.text_stream])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
