"""The Anthropic SDK reads one stream."""

import asyncio
import sys

from anthropic import AsyncAnthropic

from benchmarks.sample import Stopwatch

DELTAS = 20_000


async def main(url: str) -> None:
    """Read one stream with the SDK's helper, which also builds the message."""
    async with AsyncAnthropic(api_key="bench", base_url=url.removesuffix("/v1")) as client:
        watch = Stopwatch()
        text = 0
        messages = [{"role": "user", "content": "go on"}]
        async with client.messages.stream(model="bench", max_tokens=1000, messages=messages) as stream:
            async for delta in stream.text_stream:
                text += len(delta)
        watch.report(DELTAS)
    assert text == DELTAS * 12, text


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
