"""Short ways to run a program in a test, and to watch what it does to its host."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.outcome import ProgramError, ProgramFault, ProgramValue
from maka_trio.code.sandbox import CellEnd, CellFunctions, Exit, run_cell


async def echo(arguments: Any) -> str:
    """Return the arguments, as JSON."""
    import json

    return json.dumps(arguments)


async def leave(value: Any = None) -> Any:
    """End the program."""
    raise Exit(ProgramValue(value))


@attrs.define
class Output:
    """What a program printed, at most `limit` characters."""

    limit: int = 1 << 20
    text: str = ""

    def write(self, text: str) -> bool:
        self.text += text
        return len(self.text) <= self.limit


async def run(
    program: str,
    *,
    tools: dict[str, Callable[[Any], Awaitable[str]]] | None = None,
    helpers: dict[str, Callable[..., Awaitable[Any]]] | None = None,
    output: Output | None = None,
    **limits: Any,
) -> CellEnd:
    """Run a program with `echo` and `leave`, unless told otherwise."""
    limits.setdefault("execution_seconds", 5.0)
    out = output if output is not None else Output()
    return await run_cell(
        program,
        CellFunctions(
            tools if tools is not None else {"echo": echo}, helpers if helpers is not None else {"leave": leave}
        ),
        CellLimits(**limits),
        write=out.write,
    )


def value_of(end: CellEnd) -> Any:
    """The value of a program that must have ended well."""
    assert isinstance(end.result, ProgramValue), end.result
    return end.result.value


def fault_of(end: CellEnd) -> ProgramFault | None:
    """What ended a program, None for one that ended well."""
    return end.result.fault if isinstance(end.result, ProgramError) else None


# --- watching ---------------------------------------------------------------------------------------------


def workers() -> list[int]:
    """The interpreters that are children of this process now."""
    return [pid for pid in children_of(os.getpid()) if _told(Path(f"/proc/{pid}/comm")).strip() == "monty"]


def children_of(pid: int) -> set[int]:
    """The processes that the threads of a process have started, as far as those threads are still there."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return set()
    return {int(child) for task in tasks for child in _told(task / "children").split()}


def _told(account: Path) -> str:
    """What /proc says; nothing once the thread or the process that it spoke of has ended."""
    try:
        return account.read_text()
    except OSError:
        return ""


def peak_memory(pid: int) -> int:
    """The most memory that a process has had resident, in bytes; 0 once it is gone."""
    for line in _told(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


@attrs.define
class Watched:
    """What was seen of the host while a block ran."""

    longest_stall: float = 0.0
    peak_memory: int = 0


@asynccontextmanager
async def watching(interval: float = 0.005) -> AsyncGenerator[Watched, None]:
    """Watch how long the loop stalls and how much memory interpreters take."""
    seen = Watched()

    async def beat() -> None:
        while True:
            before = time.perf_counter()
            await trio.sleep(interval)
            seen.longest_stall = max(seen.longest_stall, time.perf_counter() - before - interval)
            seen.peak_memory = max(seen.peak_memory, *(peak_memory(pid) for pid in workers()), 0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        yield seen
        nursery.cancel_scope.cancel()
