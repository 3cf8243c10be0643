"""The clock of the tests: real time that does not run on while a busy machine keeps the whole program waiting."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

STEP = 0.001
"""Seconds, at most, for which a pass of trio's loop counts."""

T = TypeVar("T")


class PatientClock(trio.abc.Clock):
    """Real time, in which a pass of trio's loop takes no longer than it slept and one step.

    A pass that is late, because other processes had the processor, is late for everybody in the program: for the
    client that waits and for the server that is about to answer. So a timeout of 0.4 s does not end before there were
    400 passes, or a sleep of that length, in which the answer could have come.
    """

    def __init__(self) -> None:
        self._seen = self._now = self._slept = 0.0

    def start_clock(self) -> None:
        """Begin to count."""
        self._seen = time.perf_counter()

    def current_time(self) -> float:
        """Seconds since the clock was started, as far as they count."""
        seen = time.perf_counter()
        self._now += min(seen - self._seen, self._slept + STEP)
        self._seen, self._slept = seen, 0.0
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """The seconds until then: trio is about to sleep so long, if nothing happens before."""
        self._slept = max(deadline - self.current_time(), 0.0)
        return self._slept


def run(
    main: Callable[[], Awaitable[T]],
    *,
    clock: trio.abc.Clock | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> T:
    """`trio.run` on this clock, unless the test has brought another."""
    return trio.run(main, clock=clock or PatientClock(), instruments=instruments)
