"""A process to be killed: runs an agent on a log and says what is durable."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import trio

from maka_trio import facts
from maka_trio.testing import Gate
from tests.engine.scene import registration, scene

STUCK = (0, "stuck")
"""Told once the call that never comes back is under way."""


async def main(folder: Path, told: Connection) -> None:
    """Two steps with two calls each, the third of which never comes back; each durable event is told of."""
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
            told.send((stored.sequence, stored.event.id))
            dispatched += isinstance(stored.event.fact, facts.ToolDispatched)
            if dispatched == 3:
                await never.reached()
                told.send(STUCK)


def live(folder: Path, told: Connection) -> None:
    """Be the process."""
    trio.run(main, folder, told)
