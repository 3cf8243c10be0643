"""Deleting the bodies of a session: how it begins, goes on in small steps, and ends. Knows tables and statements.

It goes from the session's last event back to its first, so that what is left is at any moment a whole beginning, which
verifies, and stubs. Each step is one transaction and says how far it came, so that a process may die between any two.
A session is deleted for its readers from the first step on.

Nothing of the deleted content stays in the file: it is overwritten in its place, the write-ahead log is then emptied,
and a file that was written without `secure_delete` is also rebuilt, since its pages may hold old copies.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from pathlib import Path
from typing import BinaryIO, Final

from maka_trio import limits
from maka_trio.errors import InvalidInput, LogCorrupt, SessionDeleted
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.decoder import read_fact
from maka_trio.facts.event import Fact
from maka_trio.log.rows import Identities
from maka_trio.log.stub import Place, is_stub, make_stub

_ROW: Final = (
    "SELECT sequence, previous, previous_fact, kind, event_id, recorded_at, operation_id, root_digest, session_digest, "
    "session, invocation, body FROM events WHERE sequence = ?"
)
_NO_DIGEST: Final = "sha256:" + "0" * 64
_EMPTY_PAYLOAD: Final = "UPDATE payloads SET digest = ?, data = zeroblob(length(data)) WHERE sequence = ?"
_EMPTY_ARTIFACTS: Final = "UPDATE artifacts SET digest = ?, data = zeroblob(length(data)) WHERE sequence = ?"
_BESIDE: Final = (
    "SELECT coalesce((SELECT sum(length(data)) FROM payloads WHERE sequence = ?1), 0) "
    "+ coalesce((SELECT sum(length(data)) FROM artifacts WHERE sequence = ?1), 0)"
)
_WITH_EVIDENCE: Final = frozenset({"invocation_opened", "message_steered", "tool_settled"})

# The pages of a table's tree, as SQLite's file format has them.
_INNER: Final = 5
_INNER_HEADER_BYTES: Final = 12
_LEAF_HEADER_BYTES: Final = 8


# --- for readers --------------------------------------------------------------------------------------------


def refuse_deleted(connection: sqlite3.Connection, session_id: str | None) -> None:
    """Refuse what needs the bodies of a session, or of all of them, where one has none, or not all.

    Raises:
        SessionDeleted: they were deleted, or are being deleted.
    """
    found = connection.execute(
        "SELECT session_id, finished FROM deletions JOIN sessions ON sessions.id = deletions.session "
        "WHERE ?1 IS NULL OR session_id = ?1 LIMIT 1",
        (session_id,),
    ).fetchone()
    if found is not None:
        how = "are being deleted" if found[1] is None else "were deleted"
        raise SessionDeleted(f"the bodies of session {excerpt(found[0])} {how}", session_id=found[0])


# --- for the owner ------------------------------------------------------------------------------------------


def begin(connection: sqlite3.Connection, session: int, head: int) -> None:
    """Note that a session is being deleted, unless it is noted already."""
    connection.execute("INSERT OR IGNORE INTO deletions(session, kept) VALUES (?, ?)", (session, head))


def unfinished(connection: sqlite3.Connection) -> list[int]:
    """The sessions, by their rows, whose deletion has begun and not ended."""
    rows = connection.execute("SELECT session FROM deletions WHERE finished IS NULL ORDER BY session")
    return [session for (session,) in rows]


def go_on(connection: sqlite3.Connection, session: int) -> int:
    """Delete the next bodies, from the end, within the bounds of one step; return of how many events.

    Inside the caller's transaction, and at least one event if there is one: its results may be as large as they were
    when they were written.

    Raises:
        LogCorrupt: the chain of the session's events is broken.
    """
    (kept,) = connection.execute("SELECT kept FROM deletions WHERE session = ?", (session,)).fetchone()
    identities = Identities()
    events, left = 0, limits.DELETION_BYTES
    while kept and left > 0 and events < limits.DELETION_EVENTS:
        kept, size = _delete(connection, identities, session, kept)
        left -= size
        events += 1
    connection.execute("UPDATE deletions SET kept = ? WHERE session = ?", (kept, session))
    return events


def _delete(connection: sqlite3.Connection, identities: Identities, session: int, sequence: int) -> tuple[int, int]:
    """Delete one body and what lies beside it; return the session's event before it and the bytes that were there."""
    found = connection.execute(_ROW, (sequence,)).fetchone()
    if found is None or found[9] != session or not 0 <= found[1] < sequence:
        raise LogCorrupt(f"event {sequence} is not where its session says", sequence=sequence)
    invocation, body = found[10:]
    size = len(body)
    if not is_stub(body):
        place = Place._make((*found[:9], identities.of(connection, invocation)[1]))
        stub = make_stub(place, _readable(body, place.kind), size)
        connection.execute("UPDATE events SET body = ? WHERE sequence = ?", (stub, sequence))
    if found[3] in _WITH_EVIDENCE:
        size += int(connection.execute(_BESIDE, (sequence,)).fetchone()[0])
        for empty in (_EMPTY_PAYLOAD, _EMPTY_ARTIFACTS):
            connection.execute(empty, (_NO_DIGEST, sequence))
    return found[1], size


def _readable(body: bytes, kind: str) -> Fact | None:
    """The fact in a body. One that is damaged goes like the others."""
    try:
        return read_fact(body, kind)
    except (InvalidInput, TypeError, ValueError):
        return None


def finish(connection: sqlite3.Connection, session: int) -> None:
    """Note that nothing of a session's bodies is left."""
    now = time.time_ns() // 1_000_000
    connection.execute("UPDATE deletions SET finished = ? WHERE session = ? AND kept = 0", (now, session))


# --- the file's own copies ----------------------------------------------------------------------------------


def sweep(connection: sqlite3.Connection, path: Path) -> bool:
    """Leave nothing of what was overwritten in the file or beside it; whether that was possible now.

    It is not while somebody reads an older state. Outside of a transaction; waits for nobody.

    Raises:
        sqlite3.Error: the disk is full or refuses.
        OSError: the file cannot be read.
    """
    if not _empty_wal(connection):
        return False
    if _has_remains(connection, path):
        connection.execute("VACUUM")
        return _empty_wal(connection)
    return True


def _empty_wal(connection: sqlite3.Connection) -> bool:
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(limits.BUSY_SECONDS * 1000)}")
    return not busy


def _has_remains(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file holds copies of content that no table knows of.

    A table that only ever grows at its end leaves one such copy, if pages are not zeroed when they are cleared: when
    its first page becomes the root of a tree, what was on it has been copied below and stays on it too.
    """
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    roots = connection.execute(
        "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name IN ('events', 'payloads', 'artifacts')"
    ).fetchall()
    with path.open("rb") as file:
        return any(_has_remains_on(_page(file, root, page_size)) for (root,) in roots)


def _page(file: BinaryIO, number: int, size: int) -> bytes:
    file.seek((number - 1) * size)
    return file.read(size)


def _has_remains_on(page: bytes) -> bool:
    """Whether the unused middle of a page of a table, between its cells and the pointers to them, holds anything."""
    header = _INNER_HEADER_BYTES if page[0] == _INNER else _LEAF_HEADER_BYTES
    cells, begin = struct.unpack_from(">HH", page, 3)
    return any(page[header + 2 * cells : begin or 65536])
