"""An agent loop by hand on openai-python, each request and each call a step of a DBOS workflow in SQLite."""

import asyncio
import json
import sys

from dbos import DBOS, DBOSConfig
from openai import AsyncOpenAI

from benchmarks.peers.openai_loop import TOOL
from benchmarks.sample import Stopwatch, folder, size_kb, warm_up_url

clients: dict[str, AsyncOpenAI] = {}


@DBOS.step()
async def ask(url: str, messages: list) -> dict:
    """One request; returns the message."""
    client = clients.setdefault(url, AsyncOpenAI(api_key="bench", base_url=url))
    completion = await client.chat.completions.create(model="bench", messages=messages, tools=[TOOL])
    return completion.choices[0].message.model_dump(exclude_none=True)


@DBOS.step()
async def call_tool(arguments: str) -> str:
    """One call."""
    return json.dumps(json.loads(arguments)["value"])


@DBOS.workflow()
async def run(url: str) -> int:
    """One run; returns its steps that called a tool."""
    messages: list = [{"role": "user", "content": "go on"}]
    step = 0
    while True:
        message = await ask(url, messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return step
        step += 1
        for call in message["tool_calls"]:
            content = await call_tool(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


async def main(runs: int, steps: int, url: str) -> None:
    """Make all runs at once, after a short one."""
    with folder() as place:
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": f"sqlite:///{place}/dbos.sqlite",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
        DBOS(config=config)
        DBOS.launch()
        await run(warm_up_url(url))
        watch = Stopwatch()
        made = await asyncio.gather(*(run(url) for _ in range(runs)))
        watch.stop()
        DBOS.destroy()
        watch.report(runs * steps, kb_step=size_kb(place) / (runs * steps))
    assert made == [steps] * runs, made


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
