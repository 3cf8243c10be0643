"""The file format: tables, version, and how a file is created, recognised and opened.

`events` is append-only in the order of its key, and nothing that grows with the log is touched by an append: events
of a session are chained by `previous` (every event) and `previous_fact` (all but observations) instead of an index,
and `marks` names every 256th event of a session so that the chain can also be walked forwards. Observations, by far
the most rows, stand in no index at all. `events_by_operation` asks first whether there is an operation: for its IN
SQLite fills a table anew with each row that gets that far.

`body` is the canonical fact alone; an event's canonical bytes are put together from it, the row and the identity in
`invocations`. Digests cover those whole bytes. `body` is the last column, so that a large one is read only when asked
for.

`deletions` names the sessions whose bodies are being deleted, or were: those of events up to `kept` are still there,
and since `finished` nothing of the others is left in the file. Rows of `events`, `payloads` and `artifacts` never go
and never change their size, and what frees space in a page zeroes it: so the file holds no copies that nobody knows of.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from maka_trio import limits
from maka_trio.errors import LogCorrupt, LogTooNew, LogUnsupported, StoreError
from maka_trio.log.connection import LogConnection
from maka_trio.log.faults import os_error, translated
from maka_trio.log.migrations import MIGRATIONS, migrate, stand_in

APPLICATION_ID: Final = 0x4D414B41
"""`MAKA`, in the header of every log."""

FORMAT: Final = 3
"""The version this code writes, in `user_version`."""

MARK_EVERY: Final = 256
"""Events of a session between two marks."""

CHECKPOINT_PAGES: Final = 4000
"""Pages in the write-ahead log after which a commit also checkpoints."""

WAL_BYTES: Final = 32 * limits.MIB
"""What of the write-ahead log's file is kept for use again, after a reader with an old snapshot has let it grow."""


TABLES: Final = """
CREATE TABLE sessions(
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    retired INTEGER
);
CREATE TABLE heads(
    session INTEGER PRIMARY KEY,
    head INTEGER NOT NULL,
    head_fact INTEGER NOT NULL,
    events INTEGER NOT NULL
);
CREATE TABLE marks(
    session INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (session, sequence)
) WITHOUT ROWID;
CREATE TABLE invocations(
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    turn_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    invocation_id TEXT NOT NULL UNIQUE,
    opened INTEGER NOT NULL,
    ended INTEGER,
    outcome TEXT,
    residue TEXT,
    fingerprint TEXT,
    continues INTEGER
);
CREATE INDEX invocations_by_run ON invocations(session, run_id);
CREATE INDEX invocations_by_request ON invocations(session, fingerprint) WHERE fingerprint IS NOT NULL;
CREATE UNIQUE INDEX invocations_by_source ON invocations(continues) WHERE continues IS NOT NULL;
CREATE INDEX invocations_open ON invocations(session) WHERE ended IS NULL;
CREATE INDEX invocations_unsafe ON invocations(session) WHERE residue IS NOT NULL;
CREATE TABLE events(
    sequence INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    invocation INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    previous_fact INTEGER NOT NULL,
    kind TEXT NOT NULL,
    event_id TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    operation_id TEXT,
    root_digest BLOB NOT NULL,
    session_digest BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX events_by_id ON events(event_id) WHERE kind <> 'model_observed';
CREATE UNIQUE INDEX events_by_operation ON events(operation_id, kind = 'tool_settled')
    WHERE operation_id IS NOT NULL AND kind IN ('tool_dispatched', 'tool_rejected', 'tool_settled');
CREATE TABLE payloads(
    sequence INTEGER PRIMARY KEY,
    digest TEXT NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE artifacts(
    session INTEGER NOT NULL,
    artifact_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    digest TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (session, artifact_id)
);
CREATE INDEX artifacts_by_event ON artifacts(sequence);
CREATE TABLE messages(
    session INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (session, message_id)
) WITHOUT ROWID;
CREATE TABLE deletions(
    session INTEGER PRIMARY KEY,
    kept INTEGER NOT NULL,
    finished INTEGER
);
"""

REMAINS: Final = ("-wal", "-journal", "-shm")
"""What SQLite keeps beside a file, under its name with this added. The last is memory, and empty when it is opened."""

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100


# --- files ------------------------------------------------------------------------------------------------


def open_or_create(path: Path, *, known: bool) -> sqlite3.Connection:
    """The one read-write connection to a log, created if there is none.

    Args:
        path: the real path; the caller holds its lease.
        known: a log has been at this path before, so that an empty or foreign file is damage.

    Raises:
        LogUnsupported: the file is no log of ours.
        LogTooNew: a newer version wrote it; it is left as it is.
        LogCorrupt: it is damaged.
        LogFull: there is no space to create it.
        StoreError: the file system refused.
    """
    try:
        if not path.exists() or (path.stat().st_size == 0 and not known):
            _create(path)
        recognise(path, known=known)
    except OSError as error:
        raise os_error(error, f"cannot open {str(path)!r}") from error
    with translated(f"opening {str(path)!r}"):
        connection = _connect(path, "rw")
        try:
            _configure_writer(connection)
            migrate(connection, FORMAT, MIGRATIONS)
        except BaseException:
            connection.close()
            raise
    return connection


def open_in_memory() -> sqlite3.Connection:
    """A log without a file, for one connection."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _build(connection)
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection; it blocks nobody and nobody blocks it. An older format is read as it is.

    Raises:
        StoreError: see `migrations.stand_in`.
    """
    return _read_as_current(_connect(path, "ro"), path)


def open_immutable(path: Path) -> sqlite3.Connection:
    """A connection to a log that nobody has open and that has no write-ahead log. It leaves no file beside it.

    Raises:
        StoreError: see `migrations.stand_in`.
    """
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro&immutable=1",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        factory=LogConnection,
    )
    return _read_as_current(connection, path)


def _read_as_current(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    try:
        with translated(f"reading {str(path)!r}"):
            stand_in(connection, FORMAT, MIGRATIONS)
    except LogCorrupt:
        return connection  # who asks it something is told, and may still find what can be read
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,  # transactions are written out; the module starts none by itself
        check_same_thread=False,  # a connection moves between threads, one at a time
        timeout=limits.BUSY_SECONDS,
        cached_statements=256,
        factory=LogConnection,
    )


def _configure_writer(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"the file system does not allow a write-ahead log (journal mode is {mode!r})")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA secure_delete = ON")


def _build(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; {TABLES} COMMIT;"
    )


def _create(path: Path) -> None:
    """Build the file under another name, then give it its own: a log is there whole or not at all."""
    draft = path.with_name(path.name + ".creating")
    for suffix in ("", *REMAINS):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with translated(f"creating {str(path)!r}"), contextlib.closing(_connect(draft, "rw")) as connection:
            _build(connection)
            connection.execute("PRAGMA journal_mode = WAL")
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remains(path: Path) -> Path | None:
    """What is left of a log that is not there, and would be taken for that of a new one in its place."""
    files = (path.with_name(path.name + suffix) for suffix in REMAINS if suffix != "-shm")
    return next((file for file in files if file.exists()), None)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def recognise(path: Path, *, known: bool = False) -> None:
    """Judge a file by its header, without SQLite, which would recover or checkpoint what is not ours to touch."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError as error:
        raise os_error(error, f"cannot read {str(path)!r}") from error
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        if known:
            raise LogCorrupt(f"{str(path)!r} was a log; its first page is damaged or gone", sequence=1)
        raise LogUnsupported(f"{str(path)!r} is not a log of maka_trio")
    version = int.from_bytes(header[60:64], "big")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise LogUnsupported(f"{str(path)!r} is another program's database")
    if version > FORMAT:
        raise LogTooNew(f"{str(path)!r} has format {version}; this version reads up to {FORMAT}")
