"""Moving a session, or a whole log, out of a log file into a bundle, and out of a bundle into a new log file.

What goes out is verified, and so is what comes in: every rule of an append, every digest, every law. An imported
event keeps its sequence, because requests and digests name it; so a bundle becomes a new log, and is not merged into
one that has sequences of its own.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from maka_trio import limits
from maka_trio.errors import CommitError, InvalidInput, LogCorrupt
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import encode_event
from maka_trio.facts.event import Artifact, ModelObserved, RuntimeEvent, StoredEvent
from maka_trio.facts.outcome import ArtifactRef
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.facts.scope import Root, Session
from maka_trio.laws import LawChecker
from maka_trio.log import schema
from maka_trio.log.audit import Found
from maka_trio.log.bundle import End, Header, Line, SessionEnd, encode_end, read_lines
from maka_trio.log.deletion import refuse_deleted
from maka_trio.log.faults import os_error
from maka_trio.log.lease import IMPORTING, Lease
from maka_trio.log.placing import place_new
from maka_trio.log.prepared import prepare
from maka_trio.log.queries import Head
from maka_trio.log.reader import Reader
from maka_trio.log.store import Store
from maka_trio.log.verification import Ask, Verification

# --- out ----------------------------------------------------------------------------------------------------


class Export:
    """One log, or one session of it, on its way into a bundle.

    Args:
        ask: reads the log.
        path: its real path.
        session_id: export only this session.

    Attributes:
        damaged: sequence and words of what could not be read or did not verify. Such a bundle is for reading only.
        end: the last line, once it was reached.
    """

    def __init__(self, ask: Ask, path: Path, session_id: str | None = None) -> None:
        self._ask = ask
        self._session_id = session_id
        self.verification = Verification(ask, path, session_id)
        self.damaged: list[tuple[int, str]] = []
        self.end: End | None = None
        self._sessions: dict[str, SessionEnd] = {}

    def lines(self) -> Iterator[bytes]:
        """The lines of the bundle, each with its end.

        Raises:
            SessionDeleted: a session that would be in it has lost its bodies, which a bundle proves itself with.
        """
        seen = hashlib.sha256()
        for text in self._lines():
            seen.update(text)
            yield text
        damaged = tuple(sorted({sequence for sequence, _ in self.damaged}))
        self.end = End(self.verification.events, tuple(self._sessions.values()), damaged, f"sha256:{seen.hexdigest()}")
        yield encode_end(self.end) + b"\n"

    def _lines(self) -> Iterator[bytes]:
        self._ask(lambda reader: _check_kept(reader.connection, self._session_id))
        yield Header(self._session_id).encode() + b"\n"
        for found in self.verification.found():
            self.damaged += [(found.sequence, words) for words in found.words]
            if found.stored is not None:
                line = self._line(found, found.stored.event)
                self._count(line)
                yield line.encode() + b"\n"
        self.damaged += [(one.sequence or 0, one.words) for one in self.verification.ends()]

    def _line(self, found: Found, event: RuntimeEvent) -> Line:
        digest = chain_text(found.session_digest) if isinstance(found.session_digest, bytes) else ""
        if isinstance(event.fact, ModelObserved):  # most events, and nothing lies beside them
            return Line(found.sequence, digest, event, None, ())
        try:
            payload, artifacts = self._ask(lambda reader: _beside(reader, found))
        except (LogCorrupt, InvalidInput) as error:
            self.damaged.append((found.sequence, str(error)))
            payload, artifacts = None, ()
        return Line(found.sequence, digest, event, payload, artifacts)

    def _count(self, line: Line) -> None:
        session_id = line.event.invocation.session_id
        before = self._sessions.get(session_id)
        count = before.events + 1 if before else 1
        self._sessions[session_id] = SessionEnd(session_id, count, line.sequence, line.digest)


def _beside(reader: Reader, found: Found) -> tuple[bytes | None, tuple[Artifact, ...]]:
    """The payload and the artifacts of an event."""
    beside = (found.sequence,)
    with reader.snapshot() as connection:
        _check_kept(connection, found.session_id)  # the owner may have begun to delete since the event was read
        payload = connection.execute("SELECT data FROM payloads WHERE sequence = ?", beside).fetchone()
        artifacts = connection.execute(
            "SELECT artifact_id, media_type, length(data), digest, data FROM artifacts WHERE sequence = ? "
            "ORDER BY rowid",
            beside,
        ).fetchall()
        if payload is not None and not isinstance(payload[0], bytes):
            raise LogCorrupt(f"the raw result of event {found.sequence} is damaged", sequence=found.sequence)
        made = tuple(Artifact(ArtifactRef(*row[:4]), bytes(memoryview(row[4]))) for row in artifacts)
    return payload[0] if payload else None, made


def _check_kept(connection: sqlite3.Connection, session_id: str | None) -> None:
    """Refuse deleted sessions, where the file can still say which they are."""
    with suppress(sqlite3.DatabaseError):
        refuse_deleted(connection, session_id)


# --- in -----------------------------------------------------------------------------------------------------


def import_bundle(lines: Iterator[bytes], target: Path) -> End:
    """Make a new log file of a bundle. The file has its name when all of it was verified, and not before.

    Raises:
        InvalidInput: the bundle is not as it was exported, or was exported from a damaged log.
        StoreError: the target exists, is in use, has files of an earlier log beside it, or cannot be written.
    """
    ends: list[End] = []
    try:
        lease = Lease(target)
        try:
            draft = lease.path.with_name(lease.path.name + IMPORTING)
            head = place_new(lease.path, draft, lease.acknowledged, lambda: _fill(lines, draft, ends))
            lease.acknowledge(head.high_water)
        finally:
            lease.release()
    except OSError as error:
        raise os_error(error, f"cannot write {str(target)!r}") from error
    return ends[0]


def _fill(lines: Iterator[bytes], draft: Path, ends: list[End]) -> Head:
    connection = schema.open_or_create(draft, known=False)
    store = Store(connection)
    with closing(store):
        connection.execute("PRAGMA synchronous = OFF")  # nobody sees the file before it was synced as a whole
        for item in read_lines(lines):
            match item:
                case Header():
                    arrivals = _Arrivals(store, item)
                case Line():
                    arrivals.take(item)
                case End():
                    arrivals.finish(item)
                    ends.append(item)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Head(Root(), store.root.high_water, chain_text(store.root.digest))


class _Arrivals:
    """Lines on their way in: checked against each other, the rules and the laws, and written in runs."""

    def __init__(self, store: Store, header: Header) -> None:
        self._store = store
        self._only = header.session
        self._laws = LawChecker(Root() if self._only is None else Session(self._only))
        self._chains: dict[str, bytes] = {}
        self._ends: dict[str, SessionEnd] = {}
        self._run: list[Line] = []
        self._run_bytes = 0
        self._last = 0
        self._events = 0

    def take(self, line: Line) -> None:
        """Check one line and write it, at the latest with `finish`."""
        try:
            self._check(line)
        except InvalidInput as error:
            raise InvalidInput(f"event {line.sequence} of the bundle: {error}") from error
        size = len(line.payload or b"") + sum(len(artifact.data) for artifact in line.artifacts)
        full = len(self._run) == limits.BATCH_EVENTS or self._run_bytes + size > limits.BATCH_BYTES
        if self._run and (full or line.sequence != self._last + 1):
            self._write()
        self._run.append(line)
        self._run_bytes += size
        self._last = line.sequence

    def finish(self, end: End) -> None:
        """Write the rest, and hold what came against what the bundle says of itself."""
        self._write()
        if end.damaged:
            raise InvalidInput(f"the bundle was exported from a damaged log: event {end.damaged[0]} does not verify")
        if (end.events, end.sessions) != (self._events, tuple(self._ends.values())):
            raise InvalidInput("the end of the bundle names other sessions or numbers of events than it has")

    def _check(self, line: Line) -> None:
        session_id = line.event.invocation.session_id
        if line.sequence <= self._last:
            raise InvalidInput(f"its sequence does not rise: {self._last} comes before it")
        if self._only not in (None, session_id):
            raise InvalidInput(f"it is of another session than {excerpt(self._only)}")
        body = encode_event(line.event)
        link = chain_next(self._chains.get(session_id, chain_start(Session(session_id))), line.sequence, body)
        if chain_text(link) != line.digest:
            raise InvalidInput("it does not verify against the digest chain of its session")
        for violation in self._laws.push(StoredEvent(line.sequence, line.event)):
            raise InvalidInput(str(violation))
        self._chains[session_id] = link
        before = self._ends.get(session_id)
        self._ends[session_id] = SessionEnd(session_id, before.events + 1 if before else 1, line.sequence, line.digest)
        self._events += 1

    def _write(self) -> None:
        if not self._run:
            return
        first = self._run[0].sequence
        self._store.skip_to(first)
        try:
            written = self._store.append([prepare(line.write()) for line in self._run])
        except (CommitError, InvalidInput) as error:
            raise InvalidInput(f"events {first} to {self._last} of the bundle: {error}") from error
        if written != [line.sequence for line in self._run]:
            raise InvalidInput(f"events {first} to {self._last} of the bundle repeat an event")
        self._run.clear()
        self._run_bytes = 0
