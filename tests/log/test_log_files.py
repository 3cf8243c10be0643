"""The file of a log: who owns it, what it may be, which version wrote it, who may read it."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maka_trio.errors import LogCorrupt, LogInUse, LogTooNew, LogUnsupported, StoreError
from maka_trio.facts import Invocation
from maka_trio.log import schema
from maka_trio.log.lease import LOCK_SUFFIX
from maka_trio.log.migrations import Migration
from maka_trio.log.store import Store
from tests.log.log_story import completed, count, event, observed, opened, put, requested, tell

OPENER = """
import sys
from pathlib import Path
from maka_trio.errors import LogInUse
from maka_trio.log.store import Store
try:
    store = Store.open(Path(sys.argv[1]))
except LogInUse:
    print("in use")
else:
    print("open", flush=True)
    sys.stdin.read()
    store.close()
"""


FORKER = """
import os, signal, sys
from pathlib import Path
from maka_trio.log.store import Store
store = Store.open(Path(sys.argv[1]))
if os.fork() == 0:
    print(os.getpid(), flush=True)
    signal.alarm(300)
signal.pause()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def open_elsewhere(path: Path) -> subprocess.Popen[str]:
    """Open the log in another process, which holds it until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", OPENER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def lock_of(path: Path) -> Path:
    return path.with_name(path.name + LOCK_SUFFIX)


def write_something(path: Path) -> None:
    store = Store.open(path)
    tell(store, Invocation.new("session"), opened(), requested(), *[observed()] * 20, completed())
    store.close()


# --- one owner --------------------------------------------------------------------------------------------


def test_second_owner_in_this_process(path: Path) -> None:
    """A log that is open here cannot be opened here again; closed, it can."""
    store = Store.open(path)
    with pytest.raises(LogInUse, match=r"log\.db"):
        Store.open(path)
    store.close()
    Store.open(path).close()


def test_second_owner_in_another_process(path: Path) -> None:
    """Another process is refused at once, and so are we while it owns the log; its death frees it."""
    store = Store.open(path)
    refused = open_elsewhere(path)
    assert first_line(refused) == "in use"
    refused.communicate()
    store.close()
    owner = open_elsewhere(path)
    assert first_line(owner) == "open"
    with pytest.raises(LogInUse):
        Store.open(path)
    owner.kill()
    owner.communicate()
    Store.open(path).close()


def test_a_forked_child_does_not_own_what_its_parent_owns(path: Path) -> None:
    """While the parent lives the log has an owner; killed, it has none, though workers that it forked live on."""
    parent = subprocess.Popen([sys.executable, "-c", FORKER, str(path)], stdout=subprocess.PIPE, text=True)
    child = int(first_line(parent))
    try:
        with pytest.raises(LogInUse):
            Store.open(path)
        parent.kill()
        parent.wait()
        Store.open(path).close()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate()


def test_many_openers_of_a_new_log(path: Path) -> None:
    """Of many processes that open a log which is not there yet, one owns it and nobody sees half a file."""
    openers = [open_elsewhere(path) for _ in range(6)]
    answers = [first_line(one) for one in openers]
    for one in openers:
        one.communicate()
    assert answers.count("open") >= 1
    assert set(answers) <= {"open", "in use"}
    assert {one.returncode for one in openers} == {0}


def test_symbolic_link_shares_the_lease(tmp_path: Path, path: Path) -> None:
    """Every name that leads to the file leads to the same lock, whether a link to it or to its folder."""
    folder, alias = tmp_path / "elsewhere", tmp_path / "alias.db"
    folder.symlink_to(tmp_path)
    store = Store.open(path)
    alias.symlink_to(path)
    for name in (alias, folder / "log.db", tmp_path / "." / "log.db"):
        with pytest.raises(LogInUse):
            Store.open(name)
    store.close()
    through_link = Store.open(alias)
    assert through_link.path == path
    through_link.close()
    assert not lock_of(alias).exists()


def test_hard_link_is_refused(tmp_path: Path, path: Path) -> None:
    """A file with a second name is refused under both, since they would not share a lock."""
    write_something(path)
    os.link(path, tmp_path / "other.db")
    for name in (path, tmp_path / "other.db"):
        with pytest.raises(LogUnsupported, match="2 hard links"):
            Store.open(name)


def test_dangling_link_is_refused(tmp_path: Path, path: Path) -> None:
    """A link that leads nowhere creates nothing."""
    path.symlink_to(tmp_path / "missing" / "log.db")
    with pytest.raises(LogUnsupported, match="leads nowhere"):
        Store.open(path)
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: os.mkfifo(path)], ids=["folder", "pipe"])
def test_what_is_no_file_is_refused(path: Path, make: Callable[[Path], None]) -> None:
    """A log is a regular file."""
    make(path)
    with pytest.raises(LogUnsupported, match="regular file"):
        Store.open(path)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    """The folder of a log is not made up."""
    with pytest.raises(LogUnsupported, match="missing"):
        Store.open(tmp_path / "missing" / "log.db")


def test_lock_that_cannot_be_opened(path: Path) -> None:
    """A lock file that is a link is not followed."""
    lock_of(path).symlink_to("/dev/null")
    with pytest.raises(StoreError, match="cannot open"):
        Store.open(path)


def test_name_that_the_file_system_refuses(tmp_path: Path) -> None:
    """What the operating system says is said in an error of ours."""
    with pytest.raises(StoreError, match="too long"):
        Store.open(tmp_path / ("x" * 300))


def test_failed_opening_keeps_no_lease(path: Path) -> None:
    """After a refusal the next owner is not locked out."""
    path.write_bytes(b"x" * 200)
    with pytest.raises(LogUnsupported):
        Store.open(path)
    path.unlink()
    Store.open(path).close()


# --- permissions and leftovers ----------------------------------------------------------------------------


def test_files_are_private(path: Path) -> None:
    """Log, write-ahead log, shared memory and lock are readable by their owner only, whatever the umask."""
    before = os.umask(0)
    try:
        store = Store.open(path)
        put(store, event(Invocation.new("session"), opened()))
    finally:
        os.umask(before)
    files = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    assert files == dict.fromkeys(["log.db", "log.db-wal", "log.db-shm", "log.db.writer.lock"], 0o600)
    store.close()


def test_closing_leaves_one_file_and_its_lock(path: Path) -> None:
    """A closed log has no write-ahead log, so it can be copied as it is; the lock stays for the next owner."""
    write_something(path)
    assert {path, lock_of(path)} == set(path.parent.iterdir())


def test_unfinished_creation_is_begun_afresh(path: Path) -> None:
    """What a process left that died while it created the log is in nobody's way."""
    path.with_name("log.db.creating").write_bytes(b"half a file")
    path.with_name("log.db.creating-journal").write_bytes(b"half a journal")
    write_something(path)
    assert {path, lock_of(path)} == set(path.parent.iterdir())


def test_odd_characters_in_the_path(tmp_path: Path) -> None:
    """A path is a path, not a URI."""
    path = tmp_path / "a?mode=ro#b%20c é.db"
    write_something(path)
    assert path.exists()
    schema.open_reader(path).close()


# --- whose file -------------------------------------------------------------------------------------------


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE events(x)")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "make",
    [other_database, lambda path: path.write_bytes(b"some text"), lambda path: path.write_bytes(b"x" * 9000)],
    ids=["another database", "a short text", "a long text"],
)
def test_foreign_file_is_left_alone(path: Path, make: Callable[[Path], None]) -> None:
    """A file that is no log of ours is refused, byte for byte untouched."""
    make(path)
    before = path.read_bytes()
    with pytest.raises(LogUnsupported):
        Store.open(path)
    assert before == path.read_bytes()
    assert {path, lock_of(path)} == set(path.parent.iterdir())


def test_empty_file_becomes_a_log(path: Path) -> None:
    """A file that was made to hold the log may hold it."""
    path.touch()
    write_something(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_newer_format_is_left_alone(path: Path) -> None:
    """A log of a newer version is refused by its number, byte for byte untouched."""
    write_something(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LogTooNew, match=f"format {schema.FORMAT + 1}"):
        Store.open(path)
    assert before == path.read_bytes()
    assert {path, lock_of(path)} == set(path.parent.iterdir())


def test_failed_migration_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration happens whole or not at all."""
    write_something(path)
    broken = Migration(("DROP TABLE payloads", "DROP TABLE nothing"))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "FORMAT", schema.FORMAT + 1)
        patch.setattr(schema, "MIGRATIONS", {schema.FORMAT - 1: broken})
        with pytest.raises(StoreError, match="nothing"):
            Store.open(path)
    store = Store.open(path)
    assert count(store.connection, "payloads") == 0
    store.close()


def test_older_format_without_a_way_forward(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that nobody can bring forward is refused, not guessed at."""
    write_something(path)
    monkeypatch.setattr(schema, "FORMAT", schema.FORMAT + 1)
    with pytest.raises(LogUnsupported, match=f"format {schema.FORMAT - 1}"):
        Store.open(path)


# --- damage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"\x00" * 4096, b"SQLite format 3\x00"], ids=["emptied", "zeroed", "cut"])
def test_damaged_beginning(path: Path, damage: bytes) -> None:
    """Where a log has been before, a file without its beginning is damage, never a new log."""
    write_something(path)
    path.write_bytes(damage)
    with pytest.raises(LogCorrupt, match="first page"):
        Store.open(path)
    assert damage == path.read_bytes()


def test_cut_file(path: Path) -> None:
    """A file that lost its end is damage."""
    write_something(path)
    size = path.stat().st_size
    os.truncate(path, size // 2)
    with pytest.raises(LogCorrupt):
        Store.open(path)
    assert path.stat().st_size == size // 2
