"""Read-only connections in worker threads, a few at a time. A read that nobody waits for any more is stopped.

Readers take short snapshots and never hold up the writer.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from maka_trio import limits
from maka_trio.log.reader import Reader
from maka_trio.log.schema import open_reader
from maka_trio.log.store import Store

T = TypeVar("T")

_STEPS = 50_000
"""Instructions of SQLite's machine between two looks at whether to go on: some milliseconds."""


class Readers(Protocol):
    """How the log reads."""

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """Answer a question from one snapshot. Cancelled, it stops within a few rows."""
        ...

    async def aclose(self) -> None:
        """Wait for the questions that were asked. The caller asks no more."""
        ...


class InlineReaders:
    """Reads through the writer's own connection, in the trio thread."""

    def __init__(self, store: Store) -> None:
        self._reader = Reader(store.connection)

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """See `Readers.ask`."""
        await trio.lowlevel.checkpoint()
        return question(self._reader)

    async def aclose(self) -> None:
        """See `Readers.aclose`."""
        await trio.lowlevel.checkpoint()


class _Unwanted(Exception):
    """The asker has gone."""


class _Question:
    """Whether an answer is still wanted: asked between rows, and by SQLite itself in the middle of a statement.

    SQLite's own interrupt would miss a statement that is just about to begin.
    """

    def __init__(self) -> None:
        self._unwanted = False

    @contextlib.contextmanager
    def on(self, reader: Reader) -> Generator[None, None, None]:
        reader.check = self._check
        reader.connection.set_progress_handler(lambda: self._unwanted, _STEPS)
        self._check()
        yield

    def _check(self) -> None:
        if self._unwanted:
            raise _Unwanted

    def drop(self) -> None:
        self._unwanted = True


class ReaderThreads:
    """Reads through up to `limits.READERS` connections to the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limiter = trio.CapacityLimiter(limits.READERS)
        self._free: deque[Reader] = deque()

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """See `Readers.ask`."""
        asked = _Question()

        def work() -> T:
            reader = self._take()
            try:
                with asked.on(reader):
                    return question(reader)
            finally:
                self._free.append(reader)

        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
        except BaseException:  # a cancel or Ctrl-C leaves the thread at work; after any other error this does nothing
            asked.drop()
            raise

    def _take(self) -> Reader:
        try:
            return self._free.pop()
        except IndexError:
            return Reader(open_reader(self._path))

    async def aclose(self) -> None:
        """See `Readers.aclose`. Each token stands for a thread, so having all of them means that none is left."""
        with trio.CancelScope(shield=True):  # reads end by themselves; those nobody waits for were stopped
            for _ in range(limits.READERS):
                await self._limiter.acquire_on_behalf_of(object())
            await trio.lowlevel.checkpoint()
        for reader in self._free:
            reader.connection.close()
