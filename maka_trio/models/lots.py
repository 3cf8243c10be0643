"""`Lots`: what is between the task that brings an answer and the task that reads it. Bounded, in order.

A memory channel with one task on each side. trio's own serves any number of tasks and weighs several times as much,
which counts where hundreds of streams are open and wait. Knows nothing of what is handed over.
"""

from __future__ import annotations

from typing import final

import trio
from trio.lowlevel import Abort, RaiseCancelT, Task

from maka_trio.models.exchange import Lot


@final
class Lots:
    """Lots on their way.

    Args:
        bound: how many may wait to be taken.
    """

    __slots__ = ("_bound", "_closed", "_ended", "_giver", "_patient", "_taker", "_waiting")

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._waiting: list[Lot] = []
        self._giver: Task | None = None
        self._patient = False  # the giver waits until it is asked, and not for room only
        self._taker: Task | None = None
        self._ended = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def holds_up(self) -> bool:
        """Whether the task that brings them waits here."""
        return self._giver is not None

    # --- the side that brings them ---

    async def give(self, lot: Lot) -> None:
        """Hand a lot over; waits while too many wait already, and is no checkpoint otherwise.

        Raises:
            trio.BrokenResourceError: nobody will take it.
        """
        while len(self._waiting) >= self._bound and not self._closed:
            await self._wait_to_give(patient=False)
        if self._closed:
            raise trio.BrokenResourceError
        self._waiting.append(lot)
        self._wake_taker()

    async def wait_until_asked(self) -> None:
        """Wait until all was taken and more is asked for, or nobody will take anything any more."""
        if not self._closed:
            await self._wait_to_give(patient=True)

    def end(self) -> None:
        """There will be no more."""
        self._ended = True
        self._wake_taker()

    async def _wait_to_give(self, *, patient: bool) -> None:
        def abort(_: RaiseCancelT) -> Abort:
            self._giver = None
            return Abort.SUCCEEDED

        self._giver, self._patient = trio.lowlevel.current_task(), patient
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake_taker(self) -> None:
        taker, self._taker = self._taker, None
        if taker is not None:
            trio.lowlevel.reschedule(taker)

    # --- the side that takes them ---

    async def take(self) -> Lot:
        """The next lot. A cancelled call has taken nothing.

        Raises:
            trio.EndOfChannel: all were taken, and there will be no more.
            trio.ClosedResourceError: they were closed, before or meanwhile.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._waiting or self._ended or self._closed:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._wait_for_lot()
        if self._closed:
            raise trio.ClosedResourceError
        if not self._waiting:
            raise trio.EndOfChannel
        lot = self._waiting.pop(0)
        self._made_room()
        return lot

    def take_waiting(self) -> list[Lot]:
        """All that wait now."""
        taken, self._waiting = self._waiting, []
        self._made_room()
        return taken

    def ask(self) -> None:
        """All were taken, and more are waited for."""
        self._wake_giver()

    def close(self) -> None:
        """Nothing will be taken any more; what waits is discarded. Idempotent."""
        self._closed = True
        self._waiting.clear()
        self._wake_taker()
        self._wake_giver()

    async def _wait_for_lot(self) -> None:
        def abort(_: RaiseCancelT) -> Abort:
            self._taker = None
            return Abort.SUCCEEDED

        self._taker = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _made_room(self) -> None:
        if not self._patient:
            self._wake_giver()

    def _wake_giver(self) -> None:
        giver, self._giver = self._giver, None
        if giver is not None:
            trio.lowlevel.reschedule(giver)
