"""`CodeExecutor`: what all programs share: their limits, the capacity to run, and what sessions keep."""

from __future__ import annotations

import os
from typing import Final

import trio

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.interpreter import Interpreters, PythonInterpreters
from maka_trio.code.sandbox import CellEnd, CellFunctions, run_cell
from maka_trio.code.store import SessionStore
from maka_trio.code.turn import Write
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import check_integer
from maka_trio.records import frozen
from maka_trio.scopes import Home

MOST: Final = 4096

LIVE_CELLS: Final = 64
"""Cells that live at once, whichever runs they belong to. Each is a process; idle, it takes about 12 MiB."""


@frozen
class CodeStatistics:
    """A snapshot of a `CodeExecutor`.

    Args:
        live: cells between their beginning and their end.
        running: programs that run at this moment; others wait for tools.
        waiting: programs that wait for their turn to run.
        started: cells that were begun so far.
        ended: cells that came to an end of their own.
        stopped: cells that were stopped from outside, by a cancel, a termination or a fault.
        tool_calls: calls of tools by programs that ended.
        sessions: sessions that keep values.
    """

    live: int
    running: int
    waiting: int
    started: int
    ended: int
    stopped: int
    tool_calls: int
    sessions: int


class CodeExecutor:
    """Runs programs within their limits; engines of one trio run may share one.

    Making one needs no interpreter. Running a program does, and says so where the extra `code` is not installed.

    Args:
        limits: what each cell may use.
        concurrency: programs that run at the same moment; more wait, first come first served. One that waits for a
            tool does not count, so that programs whose tools run programs cannot wait for each other.
        live_cells: cells that live at once, waiting ones included; more are refused.
        store: what sessions keep.
        interpreters: what programs run in.
    """

    def __init__(
        self,
        limits: CellLimits | None = None,
        *,
        concurrency: int | None = None,
        live_cells: int = LIVE_CELLS,
        store: SessionStore | None = None,
        interpreters: Interpreters | None = None,
    ) -> None:
        if limits is not None and not isinstance(limits, CellLimits):
            raise InvalidInput(f"CodeExecutor takes CellLimits, not {type(limits).__name__}")
        count = concurrency if concurrency is not None else max(4, os.cpu_count() or 1)
        check_integer(count, "concurrency", minimum=1, maximum=MOST)
        check_integer(live_cells, "live_cells", minimum=1, maximum=MOST)
        if store is not None and not isinstance(store, SessionStore):
            raise InvalidInput(f"store must be a SessionStore, not {type(store).__name__}")
        if interpreters is not None and not callable(getattr(interpreters, "make", None)):
            raise InvalidInput(f"interpreters must be Interpreters, not {type(interpreters).__name__}")
        self.limits = limits if limits is not None else CellLimits()
        self.store = store if store is not None else SessionStore()
        self._interpreters = interpreters if interpreters is not None else PythonInterpreters()
        self._threads = trio.CapacityLimiter(count)
        self._live_cells = live_cells
        self._home: Home | None = None
        self._live = self._started = self._ended = self._tool_calls = 0

    def require(self) -> None:
        """Raise unless programs can be run here.

        Raises:
            InvalidInput: the interpreter is not installed; the message names the extra.
        """
        self._interpreters.require()

    def has_room(self) -> bool:
        """Whether one more cell may begin."""
        return self._live < self._live_cells

    async def run(self, program: str, functions: CellFunctions, *, write: Write) -> CellEnd:
        """Run a program to its end; see `sandbox.run_cell`.

        Raises:
            InvalidInput: programs of another trio run are running.
        """
        if self._home is None or not self._live:
            self._home = Home("this CodeExecutor")
        self._home.check()
        self._live += 1
        self._started += 1
        try:
            end = await run_cell(
                program, functions, self.limits, write=write, threads=self._threads, interpreters=self._interpreters
            )
        finally:
            self._live -= 1
        self._ended += 1
        self._tool_calls += end.tool_calls
        return end

    def statistics(self) -> CodeStatistics:
        """What runs, what waits, and what there has been."""
        threads = self._threads.statistics()
        return CodeStatistics(
            live=self._live,
            running=threads.borrowed_tokens,
            waiting=threads.tasks_waiting,
            started=self._started,
            ended=self._ended,
            stopped=self._started - self._ended - self._live,
            tool_calls=self._tool_calls,
            sessions=len(self.store),
        )
