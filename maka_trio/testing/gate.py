"""What tests wait on: gates that hold an answer or a tool, and tallies that count up. Knows nothing of HTTP."""

from __future__ import annotations

import trio


class Tally:
    """A count that only rises, and that tasks can wait for."""

    def __init__(self) -> None:
        self._value = 0
        self._changed = trio.Event()

    @property
    def value(self) -> int:
        """The count so far."""
        return self._value

    def add(self) -> int:
        """Count one more, wake the waiters, and return the new count."""
        self._value += 1
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        return self._value

    async def wait(self, count: int) -> None:
        """Wait until the count is at least `count`. Waits for ever if it never is: bound it with a scope."""
        while self._value < count:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()


class Gate:
    """A place where a scripted answer (or a test's own tool) stops until the test lets it on.

        gate = Gate()
        provider.say("Hel", gate, "lo")
        ...
        await gate.reached()      # "Hel" is on the wire, "lo" is not
        gate.open()

    A gate may stand in several answers: it holds each of them, and opens for all at once, for good.
    """

    def __init__(self) -> None:
        self._arrivals = Tally()
        self._open = trio.Event()

    def __repr__(self) -> str:
        state = "open" if self._open.is_set() else "shut"
        return f"<Gate {state}, reached {self._arrivals.value} times>"

    async def reached(self, times: int = 1) -> None:
        """Wait until something has arrived here, `times` times in all. Returns at once if it already has."""
        await self._arrivals.wait(times)

    def open(self) -> None:
        """Let everything on that waits here or comes later. Idempotent."""
        self._open.set()

    def is_open(self) -> bool:
        """Whether `open` was called."""
        return self._open.is_set()

    async def pass_through(self) -> None:
        """Arrive, then wait until the gate is open. Cancelled, the arrival stays counted."""
        self._arrivals.add()
        await self._open.wait()
