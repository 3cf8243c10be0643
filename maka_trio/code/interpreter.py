"""What an interpreter is to a cell, and the one that programs really run in: a worker process behind threads.

`Interpreter` is the narrow place where another language, another process or a script of a test fits in. Whoever takes
turns with one knows neither threads nor processes.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import outcome
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
        return _Threaded(Worker(limits, write), threads or trio.to_thread.current_default_thread_limiter())


class _Turns:
    """A thread in which the turns of one worker are taken, so that none has to look for a thread first."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[trio.lowlevel.Task, Callable[[], object]] | None] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._ending: trio.lowlevel.Task | None = None
        trio.lowlevel.start_thread_soon(self._work, self._free, name="maka_trio program")

    async def take(self, call: Callable[[], T]) -> T:
        """Call it there. Not cancellable."""
        self._queue.put((trio.lowlevel.current_task(), call))
        result: T = await trio.lowlevel.wait_task_rescheduled(_keep_waiting)
        return result

    async def end(self) -> None:
        """No more turns are taken, and the thread is free for others. Not cancellable."""
        self._ending = trio.lowlevel.current_task()
        self._queue.put(None)
        await trio.lowlevel.wait_task_rescheduled(_keep_waiting)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            task, call = job
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(trio.lowlevel.reschedule, task, outcome.capture(call))
            del job, call  # whoever waits for the next one does not keep the last

    def _free(self, ended: outcome.Outcome[None]) -> None:
        assert self._ending is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(trio.lowlevel.reschedule, self._ending)


def _keep_waiting(_: object) -> trio.lowlevel.Abort:
    """A turn ends by itself; who cannot wait kills the interpreter."""
    return trio.lowlevel.Abort.FAILED


class _Threaded:
    """A worker whose turns are taken in a thread."""

    def __init__(self, worker: Worker, running: trio.CapacityLimiter) -> None:
        self._worker = worker
        self._running = running
        self._turns: _Turns | None = None

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
        turns, self._turns = self._turns, None
        if turns is None:
            return
        try:
            await turns.take(self._worker.close)  # a killed process ends by itself, and is not one that runs
        finally:
            await turns.end()  # noqa: ASYNC102 - not cancellable, and the thread has nothing left to do

    async def _in_thread(self, call: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._running.acquire_on_behalf_of_nowait(self)
        except trio.WouldBlock:
            await self._running.acquire_on_behalf_of(self)
        self._turns = self._turns or _Turns()
        try:
            return await self._turns.take(call)
        finally:
            self._running.release_on_behalf_of(self)
