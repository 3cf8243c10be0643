"""An agent loop on pydantic-ai, made durable by DBOS in SQLite."""

import asyncio
import sys

from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from benchmarks.sample import Stopwatch, folder, size_kb, warm_up_url

given: list[int] = []


async def echo(value: int) -> int:
    """Give the value back."""
    given.append(value)
    return value


def agent(name: str, url: str) -> DBOSAgent:
    """The durable agent; each call of its tool is a step too."""
    model = OpenAIChatModel("bench", provider=OpenAIProvider(base_url=url, api_key="bench"))
    return DBOSAgent(Agent(model, name=name, tools=[DBOS.step()(echo)]))


async def main(runs: int, steps: int, url: str) -> None:
    """Make all runs at once, after a short one."""
    limits = UsageLimits(request_limit=None)
    with folder() as place:
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": f"sqlite:///{place}/dbos.sqlite",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
        DBOS(config=config)
        warm, bench = agent("warm", warm_up_url(url)), agent("bench", url)
        DBOS.launch()
        await warm.run("go on", usage_limits=limits)
        given.clear()
        watch = Stopwatch()
        await asyncio.gather(*(bench.run("go on", usage_limits=limits) for _ in range(runs)))
        watch.stop()
        DBOS.destroy()
        watch.report(runs * steps, kb_step=size_kb(place) / (runs * steps))
    assert len(given) == runs * steps, len(given)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
