"""Reading a log as evidence: every row held against its digests and what lies beside it, past whatever is damaged.

The other readers stop at the first thing that is wrong. This one says what is wrong and goes on: a page that SQLite
cannot read is read row by row, and a row that cannot be read costs that row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final, NamedTuple

import attrs

from maka_trio.errors import InvalidInput, LogCorrupt
from maka_trio.facts.codec import digest, parse_json
from maka_trio.facts.event import (
    Fact,
    InvocationOpened,
    MessageSteered,
    ModelObserved,
    StoredEvent,
    ToolSettled,
    indexed_operation_id,
)
from maka_trio.facts.message import MediaContent
from maka_trio.facts.opening import MessageInput, MessageOpening
from maka_trio.facts.outcome import Succeeded
from maka_trio.facts.prefix import chain_next, chain_start
from maka_trio.facts.scope import Session
from maka_trio.log.faults import is_corrupt, translated
from maka_trio.log.reader import Reader
from maka_trio.log.rows import OBSERVED, EventRow

_COLUMNS: Final = (
    "sequence, invocation, kind, event_id, recorded_at, root_digest, session_digest, body, "
    "session, previous, previous_fact, operation_id"
)
_PAGE: Final = f"SELECT {_COLUMNS} FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"
_ONE: Final = f"SELECT {_COLUMNS} FROM events WHERE sequence = ?"


class Row(NamedTuple):
    """One row of `events`, whole."""

    event: EventRow
    session: int
    previous: int
    previous_fact: int
    operation_id: str | None


@attrs.frozen
class Found:
    """One event as the file has it.

    Attributes:
        sequence: its sequence.
        words: what is wrong with it; empty for a sound one.
        stored: the event; None if it cannot be read.
        body: the canonical bytes of the whole event; None if they cannot be put together.
        session_id: its session; None if even that cannot be read.
        session_digest: the digest of its session, as its row has it.
        chains: the digests of the log and of its session, this event included; empty where they are in doubt.
    """

    sequence: int
    words: tuple[str, ...] = ()
    stored: StoredEvent | None = None
    body: bytes | None = None
    session_id: str | None = None
    session_digest: bytes = b""
    chains: tuple[bytes, bytes] = (b"", b"")


# --- rows, whatever the file is like ------------------------------------------------------------------------


def rows_after(connection: sqlite3.Connection, after: int, count: int) -> tuple[list[Row | int], int]:
    """The next rows, a bare sequence for each that cannot be read, and up to where this looked; no further is the end.

    Raises:
        sqlite3.Error: for anything but damage.
    """
    try:
        rows = connection.execute(_PAGE, (after, count)).fetchall()
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        return _past_damage(connection, after, count)
    made: list[Row | int] = [_row(values) for values in rows]
    return made, rows[-1][0] if rows else after


def _past_damage(connection: sqlite3.Connection, after: int, count: int) -> tuple[list[Row | int], int]:
    last = _last(connection)
    rows, end = _one_by_one(connection, after, after + count if last is None else min(after + count, last))
    if last is None and not any(isinstance(row, Row) for row in rows):
        return rows[:1], after  # nobody knows how many there were, and none can be read: that is the end
    return rows, end


def _one_by_one(connection: sqlite3.Connection, after: int, last: int) -> tuple[list[Row | int], int]:
    rows: list[Row | int] = []
    for sequence in range(after + 1, last + 1):
        try:
            found = connection.execute(_ONE, (sequence,)).fetchone()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            rows.append(sequence)
        else:
            if found is not None:
                rows.append(_row(found))
    return rows, max(last, after)


def _row(values: tuple[object, ...]) -> Row:
    return Row(EventRow._make(values[:8]), *values[8:])  # type: ignore[arg-type]


def _last(connection: sqlite3.Connection) -> int | None:
    """The last sequence by whatever can be read of it."""
    for question in ("SELECT max(sequence) FROM events", "SELECT max(head) FROM heads"):
        try:
            return int(connection.execute(question).fetchone()[0] or 0)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
    return None


def _is_damage(error: sqlite3.Error) -> bool:
    """Python's own module has no code for a text that is no UTF-8."""
    return is_corrupt(error) or not getattr(error, "sqlite_errorname", None)


# --- the chains ---------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Chain:
    """A digest chain up to here. `ends` has two entries after a wrong link: as it is written, and as it should be."""

    ends: tuple[bytes, ...]
    last: int = 0
    last_fact: int = 0
    gaps: int = 0

    @property
    def known(self) -> bytes:
        """The digest, if there is no doubt about it."""
        return self.ends[0] if len(self.ends) == 1 else b""

    def push(self, sequence: int, body: bytes | None, written: bytes) -> bool:
        """Take the next event; whether it holds."""
        if body is None or not self.ends:
            self.ends = (written,)
            return True
        made = [chain_next(end, sequence, body) for end in self.ends]
        holds = written in made
        self.ends = (written,) if holds else (written, made[0])
        return holds


class Auditor:
    """Holds rows, from the first of a log on, against their digests, their columns, and what is stored beside them.

    Args:
        root: the digest of the whole log before its first event.
    """

    def __init__(self, root: bytes) -> None:
        self._root = _Chain((root,))
        self._sessions: dict[int, _Chain] = {}
        self._names: dict[int, str] = {}
        self._gaps = 0

    def page(self, reader: Reader, after: int, count: int) -> tuple[list[Found], int]:
        """The next events with what is wrong with them, and up to where this looked; no further is the end."""
        with translated("reading the log"):
            reader.connection.text_factory = lambda data: data.decode(errors="surrogateescape")
            rows, end = rows_after(reader.connection, after, count)
            return [self._unreadable(row) if isinstance(row, int) else self._check(reader, row) for row in rows], end

    def lost(self, reader: Reader) -> list[str]:
        """What sessions say of their ends that the events do not show. After the last page."""
        with translated("reading the log"):
            heads = reader.connection.execute("SELECT session, head, head_fact FROM heads").fetchall()
        return [
            f"session {self._names.get(session, session)!r} ends at event {head}, and the log has it up to "
            f"{self._sessions[session].last if session in self._sessions else 0}"
            for session, head, head_fact in heads
            if (chain := self._sessions.get(session)) is None or (chain.last, chain.last_fact) != (head, head_fact)
        ]

    def _unreadable(self, sequence: int) -> Found:
        self._gaps += 1
        self._root.ends = ()
        return Found(sequence, (f"event {sequence} cannot be read: its page is damaged",))

    def _check(self, reader: Reader, row: Row) -> Found:
        event, words = row.event, []
        stored: StoredEvent | None = None
        body: bytes | None = None
        session_id: str | None = None
        try:
            session_id = reader.identities.of(reader.connection, event.invocation)[0].session_id
            body = reader.bytes_of(event)
            stored = reader.stored(event)
        except LogCorrupt as error:
            words.append(str(error))
        words += self._chains(row, body, session_id)
        if stored is not None and not _is_bare_observation(row, stored):
            words += _columns(row, stored.event.fact)
            words += _evidence(reader.connection, row, stored.event.fact)
        chains = (self._root.known, self._sessions[row.session].known)
        return Found(event.sequence, tuple(words), stored, body, session_id, event.session_digest, chains)

    def _chains(self, row: Row, body: bytes | None, session_id: str | None) -> Iterator[str]:
        event, chain = row.event, self._session(row, session_id)
        of_log = self._root.push(event.sequence, body, event.root_digest)
        of_session = chain.push(event.sequence, body, event.session_digest)
        if not (of_log and of_session):
            which = "of its session " if of_log else "of the log " if of_session else ""
            yield f"event {event.sequence} does not verify against the digest chain {which}".rstrip()
        elif chain.gaps == self._gaps and (row.previous, row.previous_fact) != (chain.last, chain.last_fact):
            yield f"event {event.sequence} does not name the events of its session before it"
        chain.last, chain.gaps = event.sequence, self._gaps
        chain.last_fact = event.sequence if event.kind != "model_observed" else chain.last_fact
        if row.previous_fact > chain.last_fact:
            chain.last_fact = row.previous_fact

    def _session(self, row: Row, session_id: str | None) -> _Chain:
        chain = self._sessions.get(row.session)
        if chain is None:
            ends = () if session_id is None or self._gaps else (chain_start(Session(session_id)),)
            chain = self._sessions[row.session] = _Chain(ends, gaps=self._gaps)
            self._names[row.session] = session_id or ""
        elif chain.gaps != self._gaps:
            chain.ends = ()  # what could not be read may have been of this session
        return chain


def _is_bare_observation(row: Row, stored: StoredEvent) -> bool:
    """Nothing lies beside an observation, and it is filed under nothing."""
    return isinstance(stored.event.fact, ModelObserved) and row.event.kind == OBSERVED and row.operation_id is None


def _columns(row: Row, fact: Fact) -> Iterator[str]:
    if (row.event.kind, row.operation_id) != (fact.kind, indexed_operation_id(fact)):
        yield f"event {row.event.sequence} is filed as something else than it is"


# --- what lies beside an event ------------------------------------------------------------------------------


def _evidence(connection: sqlite3.Connection, row: Row, fact: Fact) -> Iterator[str]:
    try:
        yield from _evidence_of(connection, row, fact)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        yield f"what is stored beside event {row.event.sequence} cannot be read: {error}"


def _evidence_of(connection: sqlite3.Connection, row: Row, fact: Fact) -> Iterator[str]:
    sequence = row.event.sequence
    if isinstance(fact, ToolSettled) and isinstance(fact.outcome, Succeeded):
        found = connection.execute("SELECT data, digest FROM payloads WHERE sequence = ?", (sequence,)).fetchone()
        raw = fact.outcome.raw
        if found is None:
            yield f"event {sequence} has lost its raw result"
        elif not _is(found[0], raw.digest) or len(found[0]) != raw.bytes or found[1] != raw.digest:
            yield f"the raw result of event {sequence} does not verify"
        elif not _is_json(found[0]):
            yield f"the raw result of event {sequence} is no JSON"
        yield from _artifacts(connection, row, {ref.id: ref.digest for ref in fact.outcome.artifacts})
    elif isinstance(fact, (InvocationOpened, MessageSteered)):
        yield from _artifacts(connection, row, dict.fromkeys(_media(fact)))


def _artifacts(connection: sqlite3.Connection, row: Row, named: dict[str, str | None]) -> Iterator[str]:
    """Each artifact that a fact names. Media of a message are named without their digest."""
    for artifact_id, expected in named.items():
        found = connection.execute(
            "SELECT data, digest FROM artifacts WHERE session = ? AND artifact_id = ?", (row.session, artifact_id)
        ).fetchone()
        if found is None:
            yield f"event {row.event.sequence} has lost its artifact {artifact_id!r}"
        elif not _is(found[0], found[1]) or expected not in (None, found[1]):
            yield f"the artifact {artifact_id!r} of event {row.event.sequence} does not verify"


def _media(fact: InvocationOpened | MessageSteered) -> Iterator[str]:
    content: MessageInput | None = None
    if isinstance(fact, MessageSteered):
        content = fact.message
    elif isinstance(fact.input, MessageOpening):
        content = fact.input.content
    for part in content.parts if content else ():
        if isinstance(part, MediaContent) and part.artifact is not None:
            yield part.artifact


def _is(data: object, named: str) -> bool:
    return isinstance(data, bytes) and digest(data) == named


def _is_json(data: bytes) -> bool:
    try:
        parse_json(data, what="the raw result")
    except InvalidInput:
        return False
    return True


# --- the first thing that is wrong --------------------------------------------------------------------------


def first_damage(reader: Reader) -> int | None:
    """The first row that SQLite cannot read. Looks at rows only, whole, and at nothing beside them."""
    after = 0
    while True:
        rows, end = rows_after(reader.connection, after, 1024)
        damaged = next((row for row in rows if isinstance(row, int)), None)
        if damaged is not None or end == after:
            return damaged
        after = end
