"""A process that kills itself around a commit, while several sessions run at once on one log.

What it is told is durable it says on a pipe, so that whoever reads that can hold the file against it.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import trio

from maka_trio.engine import Engine
from maka_trio.facts.event import EventWrite
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.testing import RecordedRequest, ScriptedProvider
from maka_trio.testing.commit_points import CommitPoints
from tests.engine.scene import QUICK, Scene, registration

SESSIONS: Final = ("red", "green", "blue")
LONGEST_COMMIT: Final = 0.002
"""Seconds, at most, between the submission of a commit and the kill during it."""

How = Literal["before", "during", "after", "anytime"]


@attrs.frozen
class Death:
    """When the process is to die: around commit number `at`, or `at` milliseconds after the sessions have started."""

    how: How
    at: int


def live(folder: Path, death: Death, told: Connection) -> None:
    """Be the process."""
    trio.run(_live, folder, death, told)
    if death.how == "during":
        signal.pause()  # the run was over before the kill came, which is on its way


async def _live(folder: Path, death: Death, told: Connection) -> None:
    async with (
        ScriptedProvider() as provider,
        EventLog.open(folder / "log.sqlite") as log,
        ModelExecutor(10) as models,
        Engine(log, models, retry=QUICK) as engine,
    ):
        points = CommitPoints(log, lambda number, _, perform: _commit(number, perform))

        async def _commit(number: int, perform: Callable[[], Awaitable[list[int]]]) -> list[int]:
            due = number == death.at
            if due and death.how == "before":
                _die()
            if due and death.how == "during":
                _die_soon(random.Random(death.at).uniform(0, LONGEST_COMMIT))
            sequences = await perform()
            told.send([(at, _id(write)) for at, write in zip(sequences, points.commits[-1].writes, strict=True)])
            if due and death.how == "after":
                _die()
            return sequences

        it = Scene(provider, log, models, engine)
        script_turns(provider, len(SESSIONS))
        tools = [registration("append", append_to(folder / "effects"))]
        if death.how == "anytime":
            _die_soon(death.at / 1000)
        async with trio.open_nursery() as nursery:
            for width, session in enumerate(SESSIONS, 1):
                run = it.input(tools=tools, session=session, tool_concurrency=width, allow_prior_unknown=True)
                nursery.start_soon(engine.run, run)


def _id(write: Any) -> str:
    event = write.event if isinstance(write, EventWrite) else write
    return str(event.id)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_soon(seconds: float) -> None:
    def sleep_and_die() -> None:
        time.sleep(seconds)
        _die()

    threading.Thread(target=sleep_and_die, daemon=True).start()


# --- what both the killed process and the one that follows it do ---------------------------------------------


def append_to(effects: Path) -> Callable[[Any, Any], Awaitable[str]]:
    """A tool whose effect is a line in a file, written at once and whole."""

    async def append(_: Any, call: Any) -> str:
        file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{call.operation_id}\n".encode())
        finally:
            os.close(file)
        await trio.sleep(0.001)
        return "appended"

    return append


def script_turns(provider: ScriptedProvider, count: int) -> None:
    """Turns of three steps: two calls, one call, an answer in pieces."""
    for _ in range(count):
        provider.call_tools(("append", {}), ("append", {}), text="two", when=lambda request: answered(request) == 0)
        provider.call_tools(("append", {}), when=lambda request: answered(request) == 2)
        provider.say("that ", "is ", "all", when=lambda request: answered(request) == 3)


def answered(request: RecordedRequest) -> int:
    """How many calls of the last turn have been answered."""
    messages: Any = request.body["messages"]  # type: ignore[call-overload, index]
    asked = max(index for index, message in enumerate(messages) if message["role"] == "user")
    return sum(message["role"] == "tool" for message in messages[asked:])
