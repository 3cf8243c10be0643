"""A log file read by somebody who does not own it: beside its owner, or without one, and leaving no trace.

SQLite's read-only connections to a write-ahead log leave files beside it, and cannot read where they may not write.
So a log that has no `-wal` file, and therefore no writer, is read as the immutable file it then is, and one that was
left with such a file and has no owner is read in a copy; whether it stayed so is checked after each page, which is read
again if not.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from maka_trio.errors import LogCorrupt, LogUnsupported, StoreError
from maka_trio.facts.event import StoredEvent
from maka_trio.facts.scope import Root, Session
from maka_trio.limits import MIB
from maka_trio.log import queries
from maka_trio.log.faults import translated
from maka_trio.log.lease import lock_path
from maka_trio.log.queries import Head
from maka_trio.log.reader import Reader
from maka_trio.log.schema import open_immutable, open_reader, recognise
from maka_trio.log.unowned import State, is_unowned, open_copy, state_of

PAGE_EVENTS = 512
PAGE_BYTES = 4 * MIB
"""What is read in one short transaction: a reader must not keep the write-ahead log from being reset."""

T = TypeVar("T")


class LogFile:
    """A log file, open for reading by anyone.

    Args:
        path: the file. It is never created, changed or locked against its owner.

    Raises:
        StoreError: there is no such file, or it cannot be read.
        LogUnsupported: it is no log of ours.
        LogTooNew: a newer version wrote it.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise StoreError(f"{str(path)!r}: no such log")
        if not path.is_file():
            raise LogUnsupported(f"{str(path)!r} is not a regular file")
        self.path = path.resolve()
        recognise(path, known=lock_path(self.path).exists())
        self._kept: tuple[sqlite3.Connection, State] | None = None
        self._drop_kept: Callable[[], object] = lambda: None

    def head(self, session_id: str | None = None) -> Head:
        """Where the log, or a session of it, ends now."""
        scope = Root() if session_id is None else Session(session_id)
        return self.read(lambda reader: queries.head(reader, scope))

    def events(self, after: int = 0, session_id: str | None = None) -> Iterator[StoredEvent]:
        """The events after a sequence, of one session or of all, up to where the log ends by then.

        Raises:
            LogCorrupt: after the events before it, an event is damaged.
            StoreError: the file cannot be read.
        """
        while page := self._page(after, session_id):
            yield from page
            after = page[-1].sequence

    def _page(self, after: int, session_id: str | None) -> list[StoredEvent]:
        def read(reader: Reader, count: int) -> list[StoredEvent]:
            return queries.events_after(reader, session_id, after, count, PAGE_BYTES)[0]

        try:
            return self.read(partial(read, count=PAGE_EVENTS))
        except LogCorrupt:
            return self.read(partial(read, count=1))  # what is before the damage can be shown

    def is_at_rest(self) -> bool:
        """Whether nobody writes to it, or was killed as he did."""
        return not _has_wal(self.path)

    # --- connections ------------------------------------------------------------------------------------------

    def read(self, question: Callable[[Reader], T]) -> T:
        """Answer a question from one snapshot. Raises StoreError."""
        while True:
            state = self._unowned_state()
            result: T | None = None
            failure: StoreError | None = None
            try:
                with translated(f"reading {str(self.path)!r}"), self._connected(state) as connection:
                    result = question(Reader(connection))
            except StoreError as error:
                failure = error
            if state is not None and state != self._unowned_state():
                continue  # somebody began to write in the middle of it
            if failure is not None:
                raise failure
            return cast(T, result)

    @contextmanager
    def _connected(self, state: State | None) -> Generator[sqlite3.Connection, None, None]:
        if state is not None:
            yield self._alone(state)
            return
        with closing(open_reader(self.path)) as connection:  # one that is kept would be in the way of the owner's end
            yield connection

    def _alone(self, state: State) -> sqlite3.Connection:
        """A connection to the files in this state, or to a copy of them, which is kept for as long as they stay so."""
        if self._kept is None or self._kept[1] != state:
            self._drop_kept()
            kept = open_copy(self.path) if _has_wal(self.path) else (open_immutable(self.path), state)
            self._kept = kept
            self._drop_kept = weakref.finalize(self, kept[0].close)
        connection = self._kept[0]
        connection.text_factory = str  # a question may have changed it
        return connection

    def _unowned_state(self) -> State | None:
        """What tells changed files from unchanged ones, or None for a log that is being written."""
        if _has_wal(self.path) and not is_unowned(self.path):
            return None
        try:
            return state_of(self.path)
        except OSError as error:
            raise StoreError(f"cannot read {str(self.path)!r}: {error.strerror}") from error


def _has_wal(path: Path) -> bool:
    return path.with_name(path.name + "-wal").exists()
