"""The few trio forms that the floors above use everywhere.

Nurseries raise groups, and a group that wraps the one plain error of its body is no use to a caller. Cleanup that
waits must be shielded and bounded. Both are written once, here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from maka_trio.limits import CLEANUP_SECONDS


@asynccontextmanager
async def owned_nursery() -> AsyncGenerator[trio.Nursery, None]:
    """A nursery whose block raises its own exception bare.

    For nurseries whose tasks keep their failures as values: then the only error that can cross is the body's. It
    cancels the tasks, waits for them, and comes out as it went in. A task that raises all the same comes out as a
    group, which is a bug report. Cancellation passes as in any nursery.
    """
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except Exception as error:
                failure = error
                nursery.cancel_scope.cancel()
    except BaseException as error:  # noqa: ASYNC103 - the body's failure takes the cancel's place
        # A cancel from outside that meets the body's own failure does not hide it: as in a group, the failure stays.
        if failure is None or not _is_cancellation(error):
            raise
    if failure is not None:
        raise failure


def _is_cancellation(error: BaseException) -> bool:
    """Nurseries wrap: a cancel that comes out of one is a group of `Cancelled`."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


async def finish_within(cleanup: Callable[[], Awaitable[object]], seconds: float = CLEANUP_SECONDS) -> bool:
    """Run a cleanup that waits, shielded from cancellation and bounded; say whether it came to its end.

    A bound around a call that shields itself bounds nothing: `cleanup` must not.
    """
    with trio.move_on_after(seconds, shield=True) as bound:
        await cleanup()
    return not bound.cancelled_caught
