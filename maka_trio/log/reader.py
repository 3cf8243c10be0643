"""A read-only connection with what a question needs: a snapshot, remembered identities, a way to be stopped."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager

from maka_trio.errors import (
    LogCorrupt,
)
from maka_trio.facts.event import StoredEvent, ToolSettled
from maka_trio.facts.outcome import Succeeded
from maka_trio.log.faults import translated
from maka_trio.log.rows import (
    EventRow,
    Identities,
    event_bytes,
    stored_event,
)


class Reader:
    """A connection for questions, what it remembers, and whether its answer is still wanted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.identities = Identities()
        self.check: Callable[[], None] = lambda: None

    @contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection, None, None]:
        """Everything read in the block is of one moment."""
        with translated("reading the log"):
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def stored(self, row: EventRow) -> StoredEvent:
        """The event in a row; LogCorrupt if it holds none."""
        return stored_event(row, self.identities.of(self.connection, row.invocation)[0])

    def bytes_of(self, row: EventRow) -> bytes:
        """The canonical bytes of the event in a row."""
        return event_bytes(row, self.identities.of(self.connection, row.invocation)[1])

    def with_payload(self, row: EventRow) -> StoredEvent:
        """The event in a row, and a look at whether its payload is there with the length it should have."""
        stored = self.stored(row)
        fact = stored.event.fact
        if isinstance(fact, ToolSettled) and isinstance(fact.outcome, Succeeded):
            found = self.connection.execute("SELECT length(data) FROM payloads WHERE sequence = ?", (row.sequence,))
            length = found.fetchone()
            if length is None or length[0] != fact.outcome.raw.bytes:
                raise LogCorrupt(f"event {row.sequence} has lost its raw result", sequence=row.sequence)
        return stored
