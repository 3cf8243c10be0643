"""A process that dies in a call of a step, or of programs, as large as the limits admit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from maka_trio import limits
from maka_trio.code.executor import CodeExecutor
from maka_trio.engine import Engine, RunInput
from maka_trio.facts.opening import InvocationConfiguration, ToolMode
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.testing import Gate, ScriptedProvider
from tests.engine.scene import QUICK, Scene, registration

NESTED: Final = 32
"""Calls that the programs of a run may have in flight: four of them, with eight each."""

PROGRAM: Final = (
    "import asyncio\nyield_control()\nawait asyncio.gather(*[save(text='x' * 1048500, n=n) for n in range(8)])"
)


@asynccontextmanager
async def code_engine(folder: Path) -> AsyncGenerator[Scene, None]:
    """A scene whose engine also runs programs."""
    async with (
        ScriptedProvider() as provider,
        EventLog.open(folder / "log.sqlite") as log,
        ModelExecutor(60) as models,
        Engine(log, models, code=CodeExecutor(), retry=QUICK) as engine,
    ):
        yield Scene(provider, log, models, engine)


def inputs(kind: str) -> list[tuple[str, Any]]:
    """The calls of the largest step."""
    if kind == "many":
        return [("save", {"n": number}) for number in range(limits.STEP_CALLS)]
    text = "x" * (limits.STEP_INPUT_BYTES // 6 - 20)
    return [("save", {"text": text}) for _ in range(6)]


def work(it: Scene, tools: list[Any], *, code: bool, **settings: Any) -> RunInput:
    """A run of the scene, in Code Mode or not."""
    run = it.input(tools=tools, **settings)
    if not code:
        return run
    return attrs.evolve(run, configuration=InvocationConfiguration(tool_mode=ToolMode.CODE))


async def main(folder: Path, kind: str) -> None:
    """Die in the first call of a step, or in the last that programs may have in flight."""
    begun = 0

    async def save(value: Any, call: Any) -> None:
        nonlocal begun
        begun += 1
        if begun == (NESTED if kind == "programs" else 1):
            os.kill(os.getpid(), signal.SIGKILL)
        await trio.sleep_forever()

    async with code_engine(folder) as it:
        if kind == "programs":
            for _ in range(4):
                it.provider.call_tools(("exec", {"code": PROGRAM, "yield_time_ms": 0}))
            it.provider.say(Gate())  # the model takes its time
        else:
            it.provider.call_tools(*inputs(kind))
        await it.engine.run(work(it, [registration("save", save)], code=kind == "programs"))


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2])
