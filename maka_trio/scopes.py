"""The few trio forms that the floors above use everywhere.

Nurseries raise groups, and a group that wraps the one plain error of its body is no use to a caller. Cleanup that
waits must be shielded and bounded. What runs by the hundred must weigh little. Each is written once, here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio

from maka_trio.errors import InvalidInput
from maka_trio.limits import CLEANUP_SECONDS


class owned_nursery(AbstractAsyncContextManager[trio.Nursery]):  # noqa: N801 - it is used as a function is
    """A nursery whose block raises its own exception bare.

    For nurseries whose tasks keep their failures as values: then the only error that can cross is the body's. It
    cancels the tasks, waits for them, and comes out as it went in. A task that raises all the same comes out as a
    group, which is a bug report; only what ends a program, Ctrl-C or `sys.exit`, comes out of any task as it is.
    Cancellation passes as in any nursery.
    """

    __slots__ = ("_manager", "_nursery")

    async def __aenter__(self) -> trio.Nursery:
        """Open it."""
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        return self._nursery

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Wait for the tasks. The failure of the block, if it has one, goes on as it came."""
        if error is None or not _comes_out_bare(error):
            return await self._leave(kind, error, trace)  # noqa: ASYNC102 - its tasks end by themselves
        self._nursery.cancel_scope.cancel()
        try:
            await self._leave(None, None, None)  # noqa: ASYNC102 - they are cancelled
        except BaseException as other:  # noqa: ASYNC103 - the block's failure takes the cancel's place
            # A cancel from outside that meets a failure does not hide it: as in a group, the failure stays.
            if not _is_cancellation(other):
                raise
        return None

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return await self._manager.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            ending = _end_of_program(group)
            if ending is None:
                raise
        raise ending


def _comes_out_bare(error: BaseException) -> bool:
    """Anything but a cancellation, or a group with one in it, of which the nursery takes what is its own."""
    return isinstance(error, Exception) or not isinstance(error, (trio.Cancelled, BaseExceptionGroup))


def _is_cancellation(error: BaseException) -> bool:
    """Nurseries wrap: a cancel that comes out of one is a group of `Cancelled`."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


def _end_of_program(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The one error of a group in which nothing else went wrong, a cancel apart, than that the program is to end."""
    failures: BaseException | None = group.split(trio.Cancelled)[1]
    while isinstance(failures, BaseExceptionGroup) and len(failures.exceptions) == 1:
        failures = failures.exceptions[0]
    return failures if isinstance(failures, (KeyboardInterrupt, SystemExit)) else None


class Latch:
    """A `trio.Event` that weighs little until somebody waits for it: most are set before, and there are many."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: trio.Event | None = None

    def is_set(self) -> bool:
        """Whether it happened."""
        return self._set

    def set(self) -> None:
        """It happened: wake whoever waits."""
        self._set = True
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait until it has happened. A checkpoint in any case."""
        if self._set:
            await trio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()


class Home:
    """The trio run that something was made in. In any other, tasks would be woken by the wrong loop, or never.

    Args:
        what: as errors name it.
    """

    __slots__ = ("_run", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._run = trio.lowlevel.current_trio_token()

    def check(self) -> None:
        """Raise InvalidInput where the caller is in another trio run."""
        if trio.lowlevel.current_trio_token() is not self._run:
            raise InvalidInput(
                f"{self._what} belongs to another trio run; from another thread, call it with trio.from_thread.run"
            )


async def finish_within(cleanup: Callable[[], Awaitable[object]], seconds: float = CLEANUP_SECONDS) -> bool:
    """Run a cleanup that waits, shielded from cancellation and bounded; say whether it came to its end.

    A bound around a call that shields itself bounds nothing: `cleanup` must not.
    """
    with trio.move_on_after(seconds, shield=True) as bound:
        await cleanup()
    return not bound.cancelled_caught
