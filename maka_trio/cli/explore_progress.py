"""How far an exploration is, shown while it runs, where a person looks: with a bar if `rich` is there."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from maka_trio.cli.screen import Screen


class Progress:
    """One exploration's line.

    Args:
        screen: where; nothing is shown where nobody looks.
        title: what is explored.
    """

    def __init__(self, screen: Screen, title: str) -> None:
        self._title = title
        self._began = time.monotonic()
        self._bar: Any = _bar() if screen.is_terminal and screen.styled else None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=None, runs=0, broke=0, rate=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, runs: int, violations: int) -> None:
        """Show these counts."""
        if self._bar is not None:
            seconds = max(time.monotonic() - self._began, 0.001)
            self._bar.update(self._task, runs=runs, broke=violations, rate=round(runs / seconds))


def _bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    numbers = TextColumn("{task.fields[runs]} runs  {task.fields[rate]}/s  {task.fields[broke]} broke")
    text = TextColumn("{task.description}")
    return Bar(text, BarColumn(20), numbers, TimeElapsedColumn(), console=Console(file=sys.stderr), transient=True)
