"""What an idle stream weighs with openai-python."""

import asyncio
import sys

from openai import AsyncOpenAI

from benchmarks.sample import report, resident_kb

STREAMS = 256
MESSAGES = [{"role": "user", "content": "go on"}]


async def hold(client: AsyncOpenAI, opened: list) -> None:
    """Open a stream and wait for its first event, which never comes."""
    stream = await client.chat.completions.create(model="bench", messages=MESSAGES, stream=True)
    opened.append(stream)
    async for _ in stream:
        pass


async def main(url: str) -> None:
    """Open one, weigh, open the others, weigh again."""
    opened: list = []
    async with AsyncOpenAI(api_key="bench", base_url=url, timeout=600) as client:
        tasks = [asyncio.create_task(hold(client, opened))]
        while not opened:  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        before = resident_kb()
        tasks += [asyncio.create_task(hold(client, opened)) for _ in range(STREAMS)]
        while len(opened) <= STREAMS:  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        report(kb=(resident_kb() - before) / STREAMS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
