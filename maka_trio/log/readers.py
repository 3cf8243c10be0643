"""Read-only connections in worker threads, a few at a time. A read that nobody waits for any more is stopped.

Readers take short snapshots and never hold up the writer. A thread answers one question after the other while there
are any: to start one costs several times what most answers do, and hundreds of runs that begin at once ask hundreds.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import outcome
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
    """A question on its way, and whether its answer is still wanted.

    That is asked between rows, and by SQLite itself in the middle of a statement: its own interrupt would miss a
    statement that is just about to begin.
    """

    __slots__ = ("_question", "_unwanted", "answer", "answered")

    def __init__(self, question: Callable[[Reader], Any]) -> None:
        self.answered = trio.Event()
        self.answer: outcome.Value[Any] | outcome.Error
        self._question = question
        self._unwanted = False

    def put_to(self, reader: Reader) -> Any:
        reader.check = self._check
        reader.connection.set_progress_handler(lambda: self._unwanted, _STEPS)
        self._check()
        return self._question(reader)

    def _check(self) -> None:
        if self._unwanted:
            raise _Unwanted

    def drop(self) -> None:
        self._unwanted = True

    def result(self) -> Any:
        answer = self.answer
        del self.answer  # an error leads back to here, and what it leads to should go with it
        return answer.unwrap()


class ReaderThreads:
    """Reads through up to `limits.READERS` connections to the file, in as many threads.

    Made and used in one trio run.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = trio.lowlevel.current_trio_token()
        self._free: deque[Reader] = deque()
        self._lock = threading.Lock()  # of what follows
        self._waiting: deque[_Question] = deque()
        self._threads = 0
        self._last: trio.Event | None = None  # set by the last thread to end, once the log is closing

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """See `Readers.ask`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        asked = _Question(question)
        try:
            self._submit(asked)
            await asked.answered.wait()
        except BaseException:  # a cancel or Ctrl-C leaves the thread at work
            asked.drop()
            raise
        answer: T = asked.result()
        return answer

    @trio.lowlevel.enable_ki_protection
    def _submit(self, asked: _Question) -> None:
        with self._lock:
            self._waiting.append(asked)
            if self._threads == limits.READERS:
                return
            self._threads += 1
        try:
            trio.lowlevel.start_thread_soon(self._work, lambda _: None, "maka_trio log reader")
        except BaseException:  # the system has no thread for it
            with self._lock:
                self._threads -= 1
            raise

    async def aclose(self) -> None:
        """See `Readers.aclose`."""
        with trio.CancelScope(shield=True):  # reads end by themselves; those nobody waits for were stopped
            with self._lock:
                last = self._last = trio.Event() if self._threads else None
            if last is not None:
                await last.wait()
            await trio.lowlevel.checkpoint()
        for reader in self._free:
            reader.connection.close()

    # --- in the threads ---

    def _work(self) -> None:
        while asked := self._next():
            asked.answer = outcome.capture(self._answer, asked)
            self._set(asked.answered)

    def _next(self) -> _Question | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            ended = None if self._threads else self._last
        if ended is not None:
            self._set(ended)
        return None

    def _answer(self, asked: _Question) -> Any:
        reader = self._take()
        try:
            return asked.put_to(reader)
        finally:
            self._free.append(reader)

    def _take(self) -> Reader:
        try:
            return self._free.pop()
        except IndexError:
            return Reader(open_reader(self._path))

    def _set(self, event: trio.Event) -> None:
        with contextlib.suppress(trio.RunFinishedError):  # nobody waits any more
            self._token.run_sync_soon(event.set)
