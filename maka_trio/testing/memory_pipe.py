"""One direction of a connection of a memory network: bytes on their way, and how they end."""

from __future__ import annotations

from collections.abc import Callable

import trio

BUFFER_BYTES = 64 * 1024
"""What one direction of a connection holds before its sender waits."""


class Pipe:
    """One direction of a connection. `eof` ends it in order, `reset` by force, after what is buffered."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.eof = False
        self.reset = False
        self.reader_gone = False
        self.silent = False
        self._changed = trio.lowlevel.ParkingLot()

    def room(self) -> int:
        """Bytes it takes before the sender has to wait."""
        return BUFFER_BYTES - len(self.data)

    def readable(self) -> bool:
        """Whether a reader has something to be told."""
        return not self.silent and (bool(self.data) or self.eof or self.reset)

    def writable(self) -> bool:
        """Whether a writer has something to be told."""
        return self.room() > 0 or self.reader_gone or self.reset

    def changed(self) -> None:
        """Wake both sides."""
        self._changed.unpark_all()

    async def wait(self, ready: Callable[[], bool]) -> None:
        """Wait for a change that makes it ready."""
        while not ready():
            await self._changed.park()

    def fail_reader(self, fault: str) -> None:
        """Let a fault happen to whoever reads here: what was under way is lost."""
        match fault:
            case "silence":
                self.silent = True
            case "end":
                self.data.clear()
                self.eof = self.reader_gone = True
            case _:
                self.fail_writer(fault)
        self.changed()

    def fail_writer(self, fault: str) -> None:
        """Let a fault happen to whoever writes here. One who only cannot hear any more can still speak."""
        if fault not in ("silence", "end"):
            self.data.clear()
            self.reset = True
            self.changed()
