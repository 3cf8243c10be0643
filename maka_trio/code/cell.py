"""`Cell`: one program of a run, from its beginning until somebody has seen its end. Decides nothing about logs."""

from __future__ import annotations

import trio

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.content import Content
from maka_trio.code.observation import CellState, observation
from maka_trio.code.sandbox import CellEnd
from maka_trio.errors import InvalidInput, ToolFailed
from maka_trio.facts.json_value import JSON
from maka_trio.tools.journal import Operation

NOT_BEGUN_TEXT = "the program was stopped before it began"


class Cell:
    """A program that runs, or has ended and was not looked at since.

    Args:
        operation: the cell as the log names it.
        program: what it runs.
        limits: what it may write and notify of.
    """

    def __init__(self, operation: Operation, program: str, limits: CellLimits) -> None:
        self.operation = operation
        self.program = program
        self.cell_id = f"cell-{operation.operation_id[:8]}"
        self.content = Content(limits.output_bytes)
        self.scope = trio.CancelScope()
        self.begun = False
        self.end: CellEnd | None = None
        self._limits = limits
        self._notifications = self._notified_bytes = 0
        self._fault: Exception | None = None
        self._ended = trio.Event()
        self._yielded = trio.Event()

    @property
    def state(self) -> CellState:
        """Where it is."""
        if not self.over:
            return CellState.RUNNING
        return CellState.TERMINATED if self.end is None else CellState.COMPLETED

    @property
    def over(self) -> bool:
        """Whether it has ended, durably unless the log failed."""
        return self._ended.is_set()

    def finish(self, fault: Exception | None) -> None:
        """It is over, and (without a fault) durably so."""
        self._fault = fault
        self._ended.set()
        self._yielded.set()

    def notifies(self, text: str) -> None:
        """It is about to notify the model. Raises InvalidInput where it has done so often enough, or at length."""
        number, size = self._notifications + 1, self._notified_bytes + len(text.encode())
        if number > self._limits.notifications:
            raise InvalidInput(f"notify: a program notifies at most {self._limits.notifications} times")
        if size > self._limits.notification_bytes:
            limit = self._limits.notification_bytes
            raise InvalidInput(f"notify: all notifications would have {size} bytes; the limit is {limit}")
        self._notifications, self._notified_bytes = number, size

    def yield_control(self) -> None:
        """Whoever waits for news of it is given what there is."""
        self._yielded.set()

    async def wait_ended(self) -> None:
        """Wait until it is over."""
        await self._ended.wait()

    async def wait_news(self) -> None:
        """Wait until it is over or yields."""
        await self._yielded.wait()
        if not self.over:
            self._yielded = trio.Event()

    def observe(self, *, tokens: int) -> JSON:
        """What there is to see of it now; what it wrote is shown once.

        Raises:
            ToolFailed: it never began.
            CommitError, StoreError, CleanupUnconfirmed: what it ended with, where that is no answer.
        """
        if self._fault is not None:
            raise self._fault
        state = self.state
        if state is CellState.TERMINATED and not self.begun:
            raise ToolFailed(NOT_BEGUN_TEXT)
        return observation(
            self.cell_id,
            state,
            self.content.take(),
            tokens=tokens,
            result=self.end.result if self.end is not None else None,
            tool_calls=self.end.tool_calls if self.end is not None else 0,
        )
