"""A process to be killed: runs an agent on a log and says on standard output what is durable, line by line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import trio

from maka_trio import facts
from maka_trio.testing import Gate
from tests.engine.scene import registration, scene


async def main(folder: Path) -> None:
    """Two tool calls, the second of which never comes back, and a line for each durable event."""
    never = Gate()

    async def append(value: Any, call: Any) -> str:
        with (folder / "effects").open("a") as file:
            file.write(f"{call.operation_id}\n")
        if value["wait"]:
            await never.pass_through()
        return "appended"

    async with scene(folder) as it:
        it.provider.call_tools(("append", {"wait": False}), ("append", {"wait": False}))
        it.provider.call_tools(("append", {"wait": True}), ("append", {"wait": False}))
        running = await it.engine.start(it.input(tools=[registration("append", append)]))
        dispatched = 0
        async for stored in running.events():
            print(stored.sequence, stored.event.id, flush=True)
            dispatched += isinstance(stored.event.fact, facts.ToolDispatched)
            if dispatched == 3:
                await never.reached()
                print("stuck", flush=True)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
