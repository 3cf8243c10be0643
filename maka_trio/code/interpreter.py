"""What an interpreter is to a cell, and the one that programs really run in: a worker process behind threads.

`Interpreter` is the narrow place where another language, another process or a script of a test fits in. Whoever takes
turns with one knows neither threads nor processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeVar

import trio

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.turn import Answer, Turn, Write
from maka_trio.code.worker import Worker, require_interpreter

T = TypeVar("T")


class Interpreter(Protocol):
    """Runs one program, one turn at a time. Every turn may raise `InterpreterLost`.

    A turn is not abandoned when it is cancelled: who cancels it calls `kill`, and then it returns.
    """

    async def open(self, tools: Iterable[str], helpers: Iterable[str]) -> None:
        """Make ready a fresh interpreter whose programs have functions of these names. `aclose` is due in any case."""
        ...

    async def start(self, program: str) -> Turn:
        """Run the program to its first turn."""
        ...

    async def go_on(self, answer: Answer) -> Turn:
        """Answer what the program wanted, or say `LATER`, and run it to the next turn."""
        ...

    async def go_on_alone(self, number: int, answer: Answer) -> Turn:
        """Answer a call that the program awaits alone, and run it to the next turn."""
        ...

    async def settle(self, answers: Mapping[int, Answer]) -> Turn:
        """Answer calls that the program waits for, and run it to the next turn."""
        ...

    def kill(self) -> None:
        """Stop it at once. Immediate and idempotent."""
        ...

    async def aclose(self) -> None:
        """Stop it and wait until nothing of it is left. Not cancellable, and short."""
        ...


class Interpreters(Protocol):
    """Makes interpreters."""

    def require(self) -> None:
        """Raise `InvalidInput` unless they can be made here."""
        ...

    def make(self, limits: CellLimits, write: Write, threads: trio.CapacityLimiter | None) -> Interpreter:
        """An interpreter for one program.

        Args:
            limits: what the program may use.
            write: takes what it prints, in whichever thread; false when that is too much.
            threads: how many programs run at the same moment.
        """
        ...


class PythonInterpreters:
    """The interpreters of the extra `code`: a subset of Python, a process for each program."""

    def require(self) -> None:
        """See `Interpreters.require`."""
        require_interpreter()

    def make(self, limits: CellLimits, write: Write, threads: trio.CapacityLimiter | None) -> Interpreter:
        """See `Interpreters.make`."""
        return _Threaded(Worker(limits, write), threads)


class _Threaded:
    """A worker whose turns are taken in threads."""

    def __init__(self, worker: Worker, threads: trio.CapacityLimiter | None) -> None:
        self._worker = worker
        self._threads = threads

    async def open(self, tools: Iterable[str], helpers: Iterable[str]) -> None:
        await self._in_thread(partial(self._worker.open, {name: name for name in tools}, helpers))

    async def start(self, program: str) -> Turn:
        return await self._in_thread(partial(self._worker.start, program))

    async def go_on(self, answer: Answer) -> Turn:
        return await self._in_thread(partial(self._worker.go_on, answer))

    async def go_on_alone(self, number: int, answer: Answer) -> Turn:
        return await self._in_thread(partial(self._worker.go_on_alone, number, answer))

    async def settle(self, answers: Mapping[int, Answer]) -> Turn:
        return await self._in_thread(partial(self._worker.settle, answers))

    def kill(self) -> None:
        self._worker.kill()

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):  # a killed process ends by itself
            # A limiter of its own: neither programs that run nor anybody's blocking work may keep it waiting.
            await trio.to_thread.run_sync(self._worker.close, limiter=trio.CapacityLimiter(1))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(call, limiter=self._threads)
