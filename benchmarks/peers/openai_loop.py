"""An agent loop by hand on openai-python."""

import asyncio
import json
import sys

from openai import AsyncOpenAI

from benchmarks.sample import Stopwatch, warm_up_url

TOOL = {
    "type": "function",
    "function": {
        "name": "echo",
        "description": "Give the value back.",
        "parameters": {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]},
    },
}


async def asked(client: AsyncOpenAI, messages: list, streamed: bool):
    """The answer to a conversation."""
    if not streamed:
        completion = await client.chat.completions.create(model="bench", messages=messages, tools=[TOOL])
        return completion.choices[0].message
    async with client.chat.completions.stream(model="bench", messages=messages, tools=[TOOL]) as stream:
        return (await stream.get_final_completion()).choices[0].message


async def run(client: AsyncOpenAI, streamed: bool) -> int:
    """One run; returns its steps that called a tool."""
    messages: list = [{"role": "user", "content": "go on"}]
    step = 0
    while True:
        message = await asked(client, messages, streamed)
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return step
        step += 1
        for call in message.tool_calls:
            value = json.loads(call.function.arguments)["value"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(value)})


async def main(runs: int, steps: int, streamed: bool, url: str) -> None:
    """Make all runs at once, after a short one."""
    async with AsyncOpenAI(api_key="bench", base_url=warm_up_url(url)) as client:
        await run(client, streamed)
    async with AsyncOpenAI(api_key="bench", base_url=url) as client:
        watch = Stopwatch()
        made = await asyncio.gather(*(run(client, streamed) for _ in range(runs)))
        watch.report(runs * steps)
    assert made == [steps] * runs, made


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "streamed", sys.argv[4]))
