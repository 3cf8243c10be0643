"""A log file read by somebody who does not own it: beside its owner, or without one, and leaving no trace.

SQLite's read-only connections to a write-ahead log leave files beside it, and cannot read where they may not write.
So a log that has no `-wal` file, and therefore no writer, is read as the immutable file it then is; whether it
stayed one is checked after each page, which is read again if not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

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

PAGE_EVENTS = 512
PAGE_BYTES = 4 * MIB
"""What is read in one short transaction: a reader must not keep the write-ahead log from being reset."""

T = TypeVar("T")

_State: TypeAlias = tuple[int, int, int]


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

    # --- connections ------------------------------------------------------------------------------------------

    def read(self, question: Callable[[Reader], T]) -> T:
        """Answer a question from one snapshot. Raises StoreError."""
        while True:
            state = self._unowned_state()
            result: T | None = None
            failure: StoreError | None = None
            try:
                with translated(f"reading {str(self.path)!r}"), closing(self._connect(state)) as connection:
                    result = question(Reader(connection))
            except StoreError as error:
                failure = error
            if state is not None and state != self._unowned_state():
                continue  # somebody began to write in the middle of it
            if failure is not None:
                raise failure
            return cast(T, result)

    def _connect(self, state: _State | None) -> sqlite3.Connection:
        if state is None:
            return open_reader(self.path)
        return open_immutable(self.path)

    def _unowned_state(self) -> _State | None:
        """What tells a changed file from an unchanged one, or None for a file that is being written."""
        if self.path.with_name(self.path.name + "-wal").exists():
            return None
        try:
            found = self.path.stat()
        except OSError as error:
            raise StoreError(f"cannot read {str(self.path)!r}: {error.strerror}") from error
        return found.st_ino, found.st_size, found.st_mtime_ns
