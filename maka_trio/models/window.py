"""The input window: how many bytes of request bodies are in flight through one adapter binding.

It counts and queues. It knows nothing of HTTP, and its owner says when a body's transport has really closed.
"""

from __future__ import annotations

from collections import deque

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.scopes import Latch


class Reservation:
    """A place in the line for the window, and later the bytes themselves. Made by `InputWindow.queue`."""

    def __init__(self, window: InputWindow, size: int) -> None:
        self._window = window
        self._granted = Latch()
        self.size = size

    @property
    def waits(self) -> bool:
        """Whether its bytes are still to come."""
        return not self._granted.is_set()

    async def granted(self) -> None:
        """Wait until the bytes are ours. A cancelled wait keeps the place: `release` gives it up."""
        await self._granted.wait()

    def release(self) -> None:
        """Leave the line, or return the bytes. Only the first call does anything."""
        self._window._leave(self)


class InputWindow:
    """A budget of bytes, given strictly first come, first served.

    A body larger than the whole window waits until it is alone and then owns all of it. Nobody overtakes the one
    at the head of the line, however small.

    Args:
        capacity: bytes.
    """

    def __init__(self, capacity: int = limits.INPUT_WINDOW_BYTES) -> None:
        if type(capacity) is not int or capacity < 1:
            raise InvalidInput(f"input_window={excerpt(capacity)} is not a positive number of bytes")
        self.capacity = capacity
        self._line: deque[Reservation] = deque()
        self._owners: set[Reservation] = set()
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes that are given out."""
        return self._used

    @property
    def waiting(self) -> int:
        """Reservations in the line."""
        return len(self._line)

    def queue(self, size: int) -> Reservation:
        """Take a place in the line at once; the order of these calls is the order of service."""
        reservation = Reservation(self, min(size, self.capacity))
        self._line.append(reservation)
        self._serve()
        return reservation

    def _leave(self, reservation: Reservation) -> None:
        if reservation in self._owners:
            self._owners.remove(reservation)
            self._used -= reservation.size
        elif reservation in self._line:
            self._line.remove(reservation)
        self._serve()

    def _serve(self) -> None:
        while self._line and self._used + self._line[0].size <= self.capacity:
            first = self._line.popleft()
            self._owners.add(first)
            self._used += first.size
            first._granted.set()
