"""`ModelStream`: the events of one answer as they come, and the task that brings them.

The task keeps its failure as a value, hands on lots through a small channel, and is the only one that touches the
network; so a stream can be read in one task and closed from another, and no exception group leaves it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Final, final

import trio

from maka_trio import limits
from maka_trio.errors import AdapterError, CleanupUnconfirmed, ModelError, RunError
from maka_trio.facts.model import Finished, ModelEvent
from maka_trio.models.clock import ProviderClock, Timeouts
from maka_trio.models.exchange import Exchange, Lot, ModelCall
from maka_trio.models.lots import Lots
from maka_trio.models.transport import HttpTransport
from maka_trio.models.window import InputWindow, Reservation
from maka_trio.scopes import Latch, finish_within, owned_nursery

EVENTS_BETWEEN_YIELDS: Final = 16
"""Buffered events that `async for` takes before other tasks get a turn. Each one is a cancel point all the same."""


@final
class ModelStream(AsyncIterator[ModelEvent]):
    """The events of one answer, in order. Opened by `ModelExecutor.stream`.

    Everything that was received comes first; then the end, or one `ModelError` and after it the end. Cancelling a
    receive loses nothing. One task receives at a time; any task may close.
    """

    def __init__(self, clock: ProviderClock) -> None:
        self._clock = clock
        self._lots = Lots(limits.OUTPUT_CHANNEL_ITEMS)
        self._scope = trio.CancelScope()
        self._settled = Latch()
        self._failure: ModelError | None = None
        self._finished = False
        self._closed = False
        self._receiving = False
        self._ahead = 0  # lots that were handed on and not yet received
        self._buffer: list[ModelEvent] = []  # what is left of a lot, the next event last
        self._until_yield = EVENTS_BETWEEN_YIELDS

    # --- the reader's side ---

    async def __anext__(self) -> ModelEvent:
        """The next event.

        Raises:
            ModelError: once, after all events.
            trio.ClosedResourceError: the stream was closed, or its block was left.
            trio.BusyResourceError: another task is receiving.
        """
        self._begin_receiving()
        try:
            if self._buffer:
                await self._buffered_checkpoint()
            else:
                self._buffer.extend(reversed(await self._next_lot()))
            return self._buffer.pop()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        finally:
            self._receiving = False

    async def receive_lot(self) -> Lot:
        """The next events, all that is there by now; the fast way, for a consumer that takes many.

        A consumer that is slow for each call, because it writes to a disk say, so gets more the slower it is.

        Raises:
            trio.EndOfChannel: at the end.
            ModelError, trio.ClosedResourceError, trio.BusyResourceError: as iterating does.
        """
        self._begin_receiving()
        try:
            if not self._buffer:
                return self._with_waiting(await self._next_lot())
            await trio.lowlevel.checkpoint()
            lot = tuple(reversed(self._buffer))
            self._buffer.clear()
            return lot
        finally:
            self._receiving = False

    async def aclose(self) -> None:
        """Stop, and wait until the connection is closed and the input window has its bytes back.

        Unread events are discarded; receiving raises `trio.ClosedResourceError` from now on. Idempotent, from any
        task, at any time. Waits even if the caller is cancelled, at most `limits.CLEANUP_SECONDS`.

        Raises:
            CleanupUnconfirmed: it took longer. Sockets are closed by force and do not wait, so what still runs is an
                `auth` callable that shields itself.
        """
        await close_streams([self])

    def _close(self) -> None:
        self._closed = True
        self._scope.cancel()
        self._lots.close()

    def _leave(self) -> None:
        """The block was left. A complete answer keeps its moment to end, so that the connection can be used again."""
        self._closed = True
        self._lots.close()
        if not self._finished:
            self._scope.cancel()

    def _begin_receiving(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this model stream is closed")
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving from this model stream")
        self._receiving = True

    async def _next_lot(self) -> Lot:
        if not self._ahead:
            self._clock.caught_up()
            self._lots.ask()
        try:
            lot = await self._lots.take()
        except trio.EndOfChannel:
            pass
        else:
            self._ahead -= 1
            return lot
        raise self._end()

    def _with_waiting(self, lot: Lot) -> Lot:
        """The lot and those that wait behind it. What comes after them, the end included, is the next call's."""
        waiting = self._lots.take_waiting()
        self._ahead -= len(waiting)
        return tuple(chain(lot, *waiting)) if waiting else lot

    def _end(self) -> ModelError | trio.EndOfChannel:
        failure, self._failure = self._failure, None
        return failure or trio.EndOfChannel()

    async def _buffered_checkpoint(self) -> None:
        self._until_yield -= 1
        if self._until_yield:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._until_yield = EVENTS_BETWEEN_YIELDS
            await trio.lowlevel.checkpoint()

    # --- the task's side ---

    async def _run(self, call: ModelCall, place: Reservation) -> None:
        """Bring the answer. Never raises but for cancellation; ends the channel last of all."""
        try:
            with self._scope:
                await trio.lowlevel.checkpoint_if_cancelled()
                if place.waits:
                    await place.granted()
                await Exchange(call, self._clock, partial(self._hand_on, call.transport)).run()
                self._check_finished()
        except Exception as error:
            self._failure = _as_model_error(error)
            call.secrets.clean(self._failure)
        finally:
            place.release()  # the exchange is over, so its connection is closed
            self._settled.set()
            self._lots.end()

    async def _hand_on(self, transport: HttpTransport, lot: Lot) -> None:
        self._check_order(lot)
        self._clock.handed_on()
        self._ahead += 1
        await self._lots.give(lot)
        if transport.open_connections > limits.READ_AHEAD_STREAMS and self._ahead and not self._finished:
            await self._lots.wait_until_asked()

    def _check_order(self, lot: Lot) -> None:
        """Only the end may follow `Finished`."""
        kinds = list(map(type, lot))
        ends = kinds.count(Finished)
        if self._finished or ends > 1 or (ends and kinds[-1] is not Finished):
            raise AdapterError("the adapter made events after the end of the answer")
        self._finished = ends == 1

    def _check_finished(self) -> None:
        if not self._finished:
            raise AdapterError("the answer ended without saying how it finished")


def _as_model_error(error: Exception) -> ModelError:
    """Foreign exceptions are bugs, of an adapter most likely; their text may quote anything, so it is not told."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, RunError):
        return AdapterError(error.message)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return AdapterError(f"decoding the answer failed with {type(error).__name__}{where}")


async def close_streams(streams: Sequence[ModelStream]) -> None:
    """`ModelStream.aclose` for all of them, within one bound."""

    async def settled() -> None:
        for stream in streams:
            await stream._settled.wait()

    for stream in streams:
        stream._close()
    if not await finish_within(settled, limits.CLEANUP_SECONDS):
        late = sum(not stream._settled.is_set() for stream in streams)
        raise CleanupUnconfirmed(f"{late} model stream(s) not closed within {limits.CLEANUP_SECONDS:g} s")


@final
class StreamBlock(AbstractAsyncContextManager[ModelStream]):
    """A stream that lives as long as the block. Leaving the block stops the exchange and waits for its end.

    The place in the window's line is taken on entering, so streams are served in the order in which they are opened.

    Args:
        prepare: makes the call, and says whose window it goes through.
        timeouts: of the exchange.
        streams: the stream is one of these for as long as the block.
    """

    def __init__(
        self, prepare: Callable[[], tuple[ModelCall, InputWindow]], timeouts: Timeouts, streams: set[ModelStream]
    ) -> None:
        self._prepare = prepare
        self._timeouts = timeouts
        self._streams = streams

    async def __aenter__(self) -> ModelStream:
        """Begin the exchange; nothing is sent yet."""
        call, window = self._prepare()
        assert call.unsent is not None
        self._tasks = owned_nursery()
        nursery = await self._tasks.__aenter__()
        self._stream = stream = ModelStream(ProviderClock(self._timeouts))
        nursery.start_soon(stream._run, call, window.queue(len(call.unsent.body)))
        self._streams.add(stream)
        return stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Stop the exchange, and wait for its end."""
        self._stream._leave()
        try:
            return await self._tasks.__aexit__(kind, error, trace)  # noqa: ASYNC102 - sockets close without waiting
        finally:
            self._streams.discard(self._stream)
