"""Ctrl-C and SIGTERM as events that a command answers, not exceptions that strike wherever they like."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from maka_trio.records import define
from maka_trio.scopes import owned_nursery

WATCHED = (signal.SIGINT, signal.SIGTERM)


@define
class Interruption:
    """Whether a signal came, and which came first."""

    signal_number: int | None = None

    def status(self, otherwise: int) -> int:
        """The exit status that shells expect: 128 and the signal, or `otherwise` where none came."""
        return otherwise if self.signal_number is None else 128 + self.signal_number


Reaction = Callable[[], Awaitable[object]]


@asynccontextmanager
async def watching_signals(first: Reaction, again: Reaction) -> AsyncGenerator[Interruption, None]:
    """Answer Ctrl-C and SIGTERM for as long as the block runs.

    Args:
        first: called for the first signal; it lets the block end in order, by cancelling what the block waits for.
        again: called for each further one. Neither may take long: signals wait meanwhile.
    """
    interruption = Interruption()
    with trio.open_signal_receiver(*WATCHED) as signals:
        async with owned_nursery() as nursery:
            nursery.start_soon(_watch, signals, interruption, first, again)
            yield interruption
            nursery.cancel_scope.cancel("the block is over")


async def _watch(signals: AsyncIterator[int], interruption: Interruption, first: Reaction, again: Reaction) -> None:
    async for signal_number in signals:
        if interruption.signal_number is None:
            interruption.signal_number = signal_number
            await first()
        else:
            await again()


async def cancelled_by_signals(work: Callable[[], Awaitable[int]]) -> int:
    """Run work that a signal cancels; return its exit status, or the signal's."""
    status = 1
    scope = trio.CancelScope()

    async def cancel() -> None:
        scope.cancel("interrupted by a signal")
        await trio.lowlevel.checkpoint()

    async with watching_signals(cancel, trio.lowlevel.checkpoint) as interruption:
        with scope:
            status = await work()
    return interruption.status(status)
