"""How far a long job is, on the terminal of whoever waits for it. Where nobody watches, nothing is written."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO

PATIENCE_SECONDS = 0.5
"""A job that ends sooner shows nothing, and the bar is drawn no more often than this."""

_WIDTH = 30


class Progress:
    """A bar on one line, drawn over itself and gone at the end.

    Args:
        what: what is being done.
        total: where it ends; None if nobody knows.
        stream: where it is drawn, if that is a terminal; standard error if not given.
    """

    def __init__(self, what: str, total: int | None, stream: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._watched = self._stream.isatty()
        self._next = time.monotonic() + PATIENCE_SECONDS
        self._shown = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.hide()

    def at(self, position: int) -> None:
        """Say how far it is."""
        if not self._watched or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PATIENCE_SECONDS
        line = f"{self._what} {position}"
        if self._total:
            done = min(position / self._total, 1.0)
            line = f"{self._what} [{'#' * int(done * _WIDTH):{_WIDTH}}] {done:4.0%} of {self._total}"
        self._draw(line)

    def hide(self) -> None:
        """Take it away for now, so that something else can be written."""
        if self._shown:
            self._draw("")
            self._shown = 0

    def _draw(self, line: str) -> None:
        self._stream.write(f"\r{line:{self._shown}}{'' if line else chr(13)}")
        self._stream.flush()
        self._shown = len(line)
