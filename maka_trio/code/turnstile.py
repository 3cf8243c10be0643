"""Which calls of a run's programs may be under way beside each other: parallel ones may, an exclusive one is alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


class Turnstile:
    """First come, first served: who comes after an exclusive call waits for it, and it for those before it."""

    def __init__(self) -> None:
        self._next = trio.Lock()
        self._inside = 0
        self._empty = trio.Event()

    @asynccontextmanager
    async def passed(self, *, exclusive: bool) -> AsyncGenerator[None, None]:
        """Be inside for a block."""
        if exclusive:
            async with self._next:
                while self._inside:
                    self._empty = trio.Event()
                    await self._empty.wait()
                yield
            return
        if self._next.locked():  # by an exclusive call, or whoever waits behind it
            async with self._next:
                self._inside += 1
        else:
            self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._empty.set()
