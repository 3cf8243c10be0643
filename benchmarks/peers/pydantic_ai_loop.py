"""An agent loop on pydantic-ai."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from benchmarks.sample import Stopwatch, warm_up_url


def agent(url: str) -> tuple[Agent, list[int]]:
    """The agent, and what its tool was given."""
    given: list[int] = []
    made = Agent(OpenAIChatModel("bench", provider=OpenAIProvider(base_url=url, api_key="bench")), name="bench")

    @made.tool_plain
    async def echo(value: int) -> int:
        """Give the value back."""
        given.append(value)
        return value

    return made, given


async def main(runs: int, steps: int, url: str) -> None:
    """Make all runs at once, after a short one."""
    limits = UsageLimits(request_limit=None)
    await agent(warm_up_url(url))[0].run("go on", usage_limits=limits)
    bench, given = agent(url)
    watch = Stopwatch()
    await asyncio.gather(*(bench.run("go on", usage_limits=limits) for _ in range(runs)))
    watch.report(runs * steps)
    assert len(given) == runs * steps, len(given)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
