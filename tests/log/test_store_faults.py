"""What goes wrong with the disk: nothing half-written, nothing falsely acknowledged, usable again where it can be."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maka_trio.errors import CommitRejected, CommitUnknown, LogCorrupt, LogFull, MakaError
from maka_trio.facts import Invocation, Root, RuntimeEvent
from maka_trio.log.prefixes import prefix
from maka_trio.log.prepared import prepare
from maka_trio.log.store import Store
from tests.log.log_story import (
    call,
    completed,
    count,
    dispatched,
    event,
    interrupted,
    observed,
    opened,
    put,
    reader,
    requested,
    success,
    tell,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "log.db")
    yield store
    store.close()


@pytest.fixture
def invocation(store: Store) -> Invocation:
    """An open invocation with a running call."""
    invocation = Invocation.new("session")
    tell(store, invocation, opened(), requested(), completed("s1", call()), dispatched())
    return invocation


def allow_pages(store: Store, more: int) -> None:
    """Let the file grow by so many pages and no more."""
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count = {pages + more}")


class Trouble:
    """A connection that fails at one statement as a broken disk would."""

    def __init__(self, connection: sqlite3.Connection, statement: str, name: str, times: int = 1) -> None:
        self._connection = connection
        self._statement, self._name, self.times = statement, name, times

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql.startswith(self._statement) and self.times:
            self.times -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = self._name
            raise error
        return self._connection.execute(sql, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def trouble(store: Store, statement: str, name: str, times: int = 1) -> Trouble:
    made = Trouble(store.connection, statement, name, times)
    store.connection = made  # type: ignore[assignment]
    return made


# --- no space ---------------------------------------------------------------------------------------------


def test_full_disk_writes_nothing_of_the_append(store: Store, invocation: Invocation) -> None:
    """An append that does not fit is LogFull; nothing of it is there, and it fits once there is space."""
    allow_pages(store, 2)
    end = store.root
    write = success(invocation, "x" * 100_000)
    for _ in range(2):
        with pytest.raises(LogFull):
            put(store, write)
    assert (end, 0) == (store.root, count(store.connection, "payloads"))
    allow_pages(store, 1000)
    assert put(store, write) == [5]
    prefix(reader(store), Root(), 10, 10**7)


def test_full_disk_lets_small_appends_through(store: Store, invocation: Invocation) -> None:
    """Of the appends of one transaction, those that fit by themselves are written."""
    others = [Invocation.new(f"other {number}") for number in range(3)]
    tell(store, others[0], opened())
    allow_pages(store, 3)
    tickets = [[prepare(event(who, opened()))] for who in others[1:]]
    tickets.insert(1, [prepare(success(invocation, "x" * 100_000))])
    results = store.write(tickets).results
    assert [type(result).__name__ for result in results] == ["list", "LogFull", "list"]
    assert store.root.high_water == 7


LIMITED = """
import resource, signal, sys
from pathlib import Path
from maka_trio.errors import LogFull
from maka_trio.facts import Invocation
from maka_trio.log.store import Store
from tests.log.log_story import event, observed, opened, put, requested, tell
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
written = 0
try:
    store = Store.open(Path(sys.argv[1]))
    invocation = Invocation.new("session")
    written += len(tell(store, invocation, opened(), requested()))
    while True:
        put(store, event(invocation, observed()))
        written += 1
except LogFull:
    print("full", written)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
if written:
    put(store, event(invocation, observed()))
    print("again", store.root.high_water)
    store.close()
"""


def run_limited(path: Path, limit: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(limit)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_file_that_may_not_grow(tmp_path: Path) -> None:
    """Where the kernel refuses to let the file grow, what was acknowledged stays, and the log works on afterwards."""
    full, written, again, end = run_limited(tmp_path / "log.db", 400_000)
    assert (full, again) == ("full", "again")
    assert 2 < int(written) == int(end) - 1
    store = Store.open(tmp_path / "log.db")
    assert prefix(reader(store), Root(), 10_000, 10**8).high_water == int(end)
    store.close()


def test_log_that_cannot_even_be_created(tmp_path: Path) -> None:
    """Without space for a new log there is LogFull and no file."""
    assert run_limited(tmp_path / "log.db", 8_000) == ["full", "0"]
    assert not (tmp_path / "log.db").exists()


# --- a commit that fails ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SQLITE_IOERR_FSYNC", "SQLITE_IOERR", "SQLITE_IOERR_SHORT_READ", "SQLITE_ERROR"])
def test_commit_whose_outcome_cannot_be_told(store: Store, invocation: Invocation, name: str) -> None:
    """A commit that fails in any way that may have left it whole is unknown, and nothing is appended after it."""
    trouble(store, "COMMIT", name)
    both = [[prepare(event(Invocation.new(session), opened()))] for session in ("a", "b")]
    refused = [prepare(event(invocation, opened()))]
    results = store.write([both[0], refused, both[1]]).results
    assert [type(result) for result in results] == [CommitUnknown, CommitRejected, CommitUnknown]
    with pytest.raises(CommitRejected) as caught:
        put(store, event(invocation, observed()))
    assert caught.value.reason == "log_failed"


@pytest.mark.parametrize(
    ("name", "error"),
    [("SQLITE_FULL", LogFull), ("SQLITE_IOERR_WRITE", LogFull), ("SQLITE_BUSY", CommitRejected)],
)
def test_commit_that_surely_did_not_happen(
    store: Store, invocation: Invocation, name: str, error: type[MakaError]
) -> None:
    """A commit that stopped before its last frame is not in the log; the same append may be tried again."""
    end = store.root
    trouble(store, "COMMIT", name)
    write = success(invocation)
    with pytest.raises(error):
        put(store, write)
    assert (end, 4) == (store.root, count(store.connection, "events"))
    assert put(store, write) == [5]


def test_rollback_that_fails(store: Store, invocation: Invocation) -> None:
    """When not even the rollback works, the append is unknown and the log takes no more."""
    trouble(trouble_store(store), "ROLLBACK", "SQLITE_IOERR")
    with pytest.raises(CommitUnknown):
        put(store, event(invocation, requested("s2")))
    with pytest.raises(CommitRejected):
        put(store, event(invocation, requested("s2")))


def trouble_store(store: Store) -> Store:
    trouble(store, "COMMIT", "SQLITE_FULL")
    return store


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("SQLITE_FULL", LogFull, None),
        ("SQLITE_IOERR_WRITE", LogFull, None),
        ("SQLITE_CORRUPT", LogCorrupt, None),
        ("SQLITE_BUSY", CommitRejected, "locked"),
        ("SQLITE_IOERR_READ", CommitRejected, "log_failed"),
    ],
)
def test_transaction_that_fails_before_its_commit(
    store: Store, invocation: Invocation, name: str, error: type[MakaError], reason: str | None
) -> None:
    """What fails before the commit was not written; each cause has its own error, and the log can be used again."""
    trouble(store, "INSERT INTO events", name)
    one = event(invocation, requested("s2"))
    with pytest.raises(error) as caught:
        put(store, one)
    assert reason == getattr(caught.value, "reason", None)
    assert put(store, one) == [5]


def test_trouble_with_a_shared_transaction(store: Store, invocation: Invocation) -> None:
    """When a shared transaction fails, each of its appends is tried by itself."""
    trouble(store, "BEGIN IMMEDIATE", "SQLITE_IOERR_READ")
    tickets = [[prepare(event(Invocation.new(session), opened()))] for session in ("a", "b", "c")]
    results = store.write(tickets).results
    assert [type(result).__name__ for result in results] == ["list"] * 3
    assert [result for result in results if not isinstance(result, MakaError)] == [[5], [6], [7]]


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


def test_who_is_told_when_something_is_durable_is_told_of_nothing_else(
    store: Store, invocation: Invocation, tmp_path: Path
) -> None:
    """Called once for each transaction, when a reader sees it; never for what was refused, known or not written."""
    seen: list[int] = []

    def look() -> None:
        with closing(sqlite3.connect(tmp_path / "log.db")) as reading:
            seen.append(count(reading, "events"))

    def write(*writes: RuntimeEvent) -> None:
        store.write([[prepare(write)] for write in writes], look)

    one, two = event(invocation, requested("t")), event(invocation, interrupted("t"))
    write(one)
    assert seen == [5]
    write(one)
    write(event(Invocation.new("nobody"), requested()))
    trouble(store, "COMMIT", "SQLITE_FULL")
    write(two)
    assert seen == [5]
    trouble(store, "BEGIN IMMEDIATE", "SQLITE_IOERR_READ")
    write(two, event(Invocation.new("a"), opened()), event(Invocation.new("b"), opened()))
    assert seen == [5, 6, 7, 8]


# --- foreign locks ----------------------------------------------------------------------------------------


def test_reader_does_not_hold_up_the_writer(store: Store, invocation: Invocation, tmp_path: Path) -> None:
    """A reader with an old snapshot sees its moment, and the writer goes on beside it."""
    reading = sqlite3.connect(f"file:{tmp_path / 'log.db'}?mode=ro", uri=True, isolation_level=None)
    reading.execute("BEGIN")
    assert count(reading, "events") == 4
    tell(store, invocation, requested("s2"), observed("s2"))
    assert count(reading, "events") == 4
    reading.execute("ROLLBACK")
    assert count(reading, "events") == 6
    reading.close()


def test_foreign_lock_delays_and_does_not_fail(store: Store, invocation: Invocation, tmp_path: Path) -> None:
    """Somebody who locks the file for a moment, such as a backup, is waited for."""
    holder = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE');"
    )
    holder += "print('held', flush=True); sys.stdin.readline(); c.execute('ROLLBACK')"
    process = subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / "log.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    store.connection.execute("PRAGMA busy_timeout = 1")
    with pytest.raises(CommitRejected) as caught:
        put(store, event(invocation, requested("s2")))
    assert caught.value.reason == "locked"
    store.connection.execute("PRAGMA busy_timeout = 60000")
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()  # it lets go while we wait for the lock, or just before
    assert put(store, event(invocation, requested("s2"))) == [5]
    process.communicate()


# --- damage that shows while working ------------------------------------------------------------------------


def test_damaged_open_invocation_is_named(tmp_path: Path) -> None:
    """An open invocation whose facts cannot be read, or could not have been, stops its session and no other."""
    store = Store.open(tmp_path / "log.db")
    invocation = Invocation.new("session")
    tell(store, invocation, opened(), requested(), completed("s1", call()), dispatched())
    store.connection.execute("UPDATE events SET body = (SELECT body FROM events WHERE sequence = 3) WHERE sequence = 4")
    store.close()
    again = Store.open(tmp_path / "log.db")
    with pytest.raises(LogCorrupt) as caught:
        put(again, event(invocation, requested("s2")))
    assert caught.value.sequence == 4
    tell(again, Invocation.new("other"), opened())
    again.close()
