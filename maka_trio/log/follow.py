"""Followers: durable events as they come, from any place on, for any number of readers of any speed.

A follower near the end is handed each event as it becomes durable, up to a bound. One that does not keep up stops
being handed anything, drains what it holds and goes on from the file, until it has caught up. So a slow follower
costs the writer nothing and the memory a fixed amount.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeAlias
from weakref import WeakSet

import trio

from maka_trio import limits
from maka_trio.errors import LogClosed
from maka_trio.facts.event import StoredEvent
from maka_trio.log.commit import Commit
from maka_trio.log.prepared import PreparedWrite

ReadAfter: TypeAlias = Callable[[str | None, int], Awaitable[tuple[list[StoredEvent], bool]]]
"""The next events after a sequence, from the file, and whether there may be more."""


class Follower:
    """An async iterator of the durable events of a log or a session. Ends when the log closes.

    Each event comes once, in order. One task iterates it at a time. Cancelling a wait loses nothing. May be used in
    `async with`, or just be left: a follower that is dropped costs nothing.
    """

    def __init__(self, hub: Hub, read: ReadAfter, after: int, session_id: str | None) -> None:
        self.session_id = session_id
        self._hub = hub
        self._read = read
        self._position = after
        self._held: deque[tuple[StoredEvent, int]] = deque()
        self._held_bytes = 0
        self._behind = True
        self._closed = False
        self._ended = False
        self._busy = False
        self._news = trio.Event()
        hub.add(self)

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> StoredEvent:
        """The next event.

        Raises:
            StopAsyncIteration: the log was closed. A follower that was behind then ends where it is.
            trio.ClosedResourceError: the follower was closed.
            trio.BusyResourceError: another task is waiting here.
        """
        if self._busy:
            raise trio.BusyResourceError("another task is iterating this follower")
        self._busy = True
        try:
            await trio.lowlevel.checkpoint()
            while not self._held:
                await self._wait()
            if self._closed:
                raise trio.ClosedResourceError("the follower was closed")
            stored, size = self._held.popleft()
            self._held_bytes -= size
            self._position = stored.sequence
            return stored
        finally:
            self._busy = False

    async def _wait(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("the follower was closed")
        if self._ended or (self._hub.closed and not self._behind):
            raise StopAsyncIteration
        if self._behind:
            await self._catch_up()
        else:
            self._news = trio.Event()
            await self._news.wait()

    async def _catch_up(self) -> None:
        """Read on from the file; what becomes durable meanwhile is held, so that nothing falls between the two."""
        self._behind = False
        try:
            events, more = await self._read(self.session_id, self._position)
        except LogClosed:
            self._forget()
            self._ended = True  # what the log still writes while it closes would leave a gap
            raise StopAsyncIteration from None
        except BaseException:
            self._forget()
            raise
        if more:
            self._forget()
        last = events[-1].sequence if events else self._position
        fresh = [(stored, size) for stored, size in self._held if stored.sequence > last]
        self._held = deque([(stored, 0) for stored in events] + fresh)
        self._held_bytes = sum(size for _, size in fresh)

    def _forget(self) -> None:
        self._held.clear()
        self._held_bytes = 0
        self._behind = True

    def offer(self, stored: StoredEvent, size: int) -> None:
        """Hand a new event over, if there is room."""
        newest = self._held[-1][0].sequence if self._held else self._position
        if self._behind or stored.sequence <= newest:  # it may have been read before it was handed over
            return
        if self._held and (len(self._held) >= limits.FOLLOW_EVENTS or self._held_bytes + size > limits.FOLLOW_BYTES):
            self._behind = True
            return
        self._held.append((stored, size))
        self._held_bytes += size
        self._news.set()

    def wake(self) -> None:
        """Let a waiting task look again."""
        self._news.set()

    async def aclose(self) -> None:
        """Stop following. A task that waits for an event is told."""
        self._closed = True
        self._forget()
        self._hub.remove(self)
        self._news.set()
        with trio.CancelScope(shield=True):  # a cancel must not take the place of an error that ends the block
            await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Follower:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class Hub:
    """Who follows what. Used in the trio thread only."""

    def __init__(self) -> None:
        self.closed = False
        self._followers: dict[str | None, WeakSet[Follower]] = {}

    def add(self, follower: Follower) -> None:
        """Hand events to this follower from now on."""
        self._followers.setdefault(follower.session_id, WeakSet()).add(follower)

    def remove(self, follower: Follower) -> None:
        """Hand it no more."""
        group = self._followers.get(follower.session_id)
        if group is not None:
            group.discard(follower)
            if not group:
                del self._followers[follower.session_id]

    def has_follower(self, session_id: str) -> bool:
        """Whether somebody follows a session, or everything."""
        return any(self._followers.get(followed) for followed in (session_id, None))

    def publish(self, commit: Commit) -> None:
        """Hand the new events of a commit to those who follow their sessions, or everything."""
        if not self._followers:
            return
        for first, writes in commit.added:
            for sequence, write in enumerate(writes, first):
                self._hand(None, sequence, write)
                self._hand(write.event.invocation.session_id, sequence, write)

    def _hand(self, session_id: str | None, sequence: int, write: PreparedWrite) -> None:
        group = self._followers.get(session_id)
        if group is None:
            return
        if not group:  # its last follower was dropped
            del self._followers[session_id]
        stored = StoredEvent(sequence, write.event)
        for follower in group:
            follower.offer(stored, len(write.body))

    def close(self) -> None:
        """No more events will come."""
        self.closed = True
        for group in self._followers.values():
            for follower in group:
                follower.wake()
