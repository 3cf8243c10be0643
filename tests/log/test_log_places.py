"""Where a copy may be put: nothing of another log is left there that it could be mixed with."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from maka_trio.cli.log_file import LogFile
from maka_trio.errors import LogCorrupt, LogInUse, LogUnsupported, StoreError
from maka_trio.facts import Invocation
from maka_trio.log.backup import backup
from maka_trio.log.lease import COPYING, IMPORTING, Lease, lock_path
from maka_trio.log.mark import read_mark
from maka_trio.log.reader import Reader
from maka_trio.log.schema import open_reader
from maka_trio.log.store import Store
from maka_trio.log.transfer import Export, import_bundle
from maka_trio.log.verification import Verification
from tests.log.log_story import COMPLETED, PROGRAM, opened, tell

KILLED = """
import os, signal, sys
from pathlib import Path
from maka_trio.facts import Invocation
from maka_trio.log.store import Store
from tests.log.log_story import COMPLETED, PROGRAM, opened, tell
store = Store.open(Path(sys.argv[1]))
for _ in range(5):
    tell(store, Invocation.new("killed"), opened(PROGRAM), COMPLETED)
os.kill(os.getpid(), signal.SIGKILL)
"""

Copier = Callable[[Path], int]


def write(path: Path, turns: int) -> None:
    store = Store.open(path)
    for _ in range(turns):
        tell(store, Invocation.new("session"), opened(PROGRAM), COMPLETED)
    store.close()


def killed(path: Path) -> None:
    """A log whose owner was killed: its ten events are in its write-ahead log."""
    subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=Path(__file__).parents[2], check=False)
    assert path.with_name(path.name + "-wal").stat().st_size > 0


def events(path: Path) -> int:
    log = LogFile(path)
    found = Verification(log.read, log.path)
    assert list(found.violations()) == []
    return found.events


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A log of thirty events."""
    write(tmp_path / "source", 15)
    return tmp_path / "source"


@pytest.fixture(params=["backup", "import"])
def copy(request: pytest.FixtureRequest, source: Path) -> Copier:
    """Makes a copy of it, either way, and says where it ends."""

    def by_backup(target: Path) -> int:
        with closing(open_reader(source)) as connection:
            return backup(Reader(connection), target).high_water

    def by_import(target: Path) -> int:
        log = LogFile(source)
        return import_bundle(Export(log.read, log.path).lines(), target).sessions[0].high_water

    return by_backup if request.param == "backup" else by_import


def listing(folder: Path) -> dict[str, bytes]:
    """What is in a folder; a lock file, which may come to be, apart."""
    return {one.name: one.read_bytes() for one in folder.iterdir() if not one.name.endswith(".writer.lock")}


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
@pytest.mark.parametrize("lock", [True, False])
def test_a_copy_is_not_put_beside_what_another_log_left(copy: Copier, tmp_path: Path, suffix: str, lock: bool) -> None:
    """SQLite would take it for the copy's own, and read the other log. The file is named, and everything stays."""
    target = tmp_path / "there" / "log.db"
    target.parent.mkdir()
    killed(target)
    target.unlink()
    if not lock:
        lock_path(target).unlink()
    if suffix == "-journal":
        target.with_name("log.db-wal").rename(target.with_name("log.db-journal"))
    before = listing(target.parent)
    with pytest.raises(StoreError, match=f"log.db{suffix}' is left .* move the file away"):
        copy(target)
    assert listing(target.parent) == before
    target.with_name(f"log.db{suffix}").unlink()
    lock_path(target).unlink(missing_ok=True)
    assert copy(target) == 30
    assert events(target) == 30
    write(target, 1)
    assert events(target) == 32


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_new_log_is_not_put_there_either(tmp_path: Path, suffix: str) -> None:
    """The same rule as for copies."""
    path = tmp_path / "log.db"
    path.with_name(f"log.db{suffix}").write_bytes(b"something")
    with pytest.raises(LogCorrupt, match=f"log.db{suffix}'"):
        Store.open(path)
    assert not path.exists()


def test_shared_memory_alone_is_in_nobodys_way(copy: Copier, tmp_path: Path) -> None:
    """It holds nothing, and SQLite empties it."""
    target = tmp_path / "log.db"
    killed(target)
    for name in (target, target.with_name("log.db-wal"), lock_path(target)):
        name.unlink()
    assert target.with_name("log.db-shm").exists()
    assert copy(target) == 30
    assert events(target) == 30
    write(target, 1)
    assert events(target) == 32


def test_a_copy_does_not_pass_for_a_log_that_had_more(copy: Copier, tmp_path: Path) -> None:
    """What was acknowledged at a place is not forgotten for a copy that could not be opened, or would hide it."""
    target = tmp_path / "log.db"
    write(target, 20)
    target.unlink()
    with pytest.raises(StoreError, match=r"ends at event 30, and events up to 40 were acknowledged.*writer\.lock"):
        copy(target)
    assert not target.exists()
    assert read_mark(lock_path(target)) == 40
    lock_path(target).unlink()
    assert copy(target) == 30
    write(target, 1)


def test_a_copy_takes_the_place_of_a_log_that_had_no_more(copy: Copier, tmp_path: Path) -> None:
    """A copy of all of it is as good."""
    target = tmp_path / "log.db"
    write(target, 15)
    target.unlink()
    assert copy(target) == 30
    assert read_mark(lock_path(target)) == 30
    write(target, 1)
    assert events(target) == 32


def test_nobody_else_has_the_place_meanwhile(copy: Copier, tmp_path: Path) -> None:
    """A copy holds the lease of its name, and is refused where somebody has it."""
    lease = Lease(tmp_path / "log.db")
    with pytest.raises(LogInUse):
        copy(tmp_path / "log.db")
    lease.release()
    assert copy(tmp_path / "log.db") == 30


def test_a_backup_that_fails_leaves_no_lock_file(source: Path, tmp_path: Path) -> None:
    """And one that does not, none either; whoever opens the copy makes its own."""
    target = tmp_path / "there" / "log.db"
    target.parent.mkdir()
    with closing(open_reader(source)) as connection:
        reader = Reader(connection)

        def stop() -> None:
            raise StoreError("no more")

        reader.check = stop
        with pytest.raises(StoreError, match="no more"):
            backup(reader, target)
        assert list(target.parent.iterdir()) == []
        reader.check = lambda: None
        backup(reader, target)
    assert [one.name for one in target.parent.iterdir()] == ["log.db"]


def test_a_lock_file_that_was_unlinked_is_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who locks one that its holder has just taken away looks again, and has the one with the name."""
    path, flock = tmp_path / "log.db", fcntl.flock
    lock_path(path).touch()
    seen: list[int] = []

    def too_late(descriptor: int, how: int) -> None:
        if not seen:
            lock_path(path).unlink()
        seen.append(os.fstat(descriptor).st_ino)
        flock(descriptor, how)

    monkeypatch.setattr("maka_trio.log.lease.fcntl.flock", too_late)
    lease = Lease(path)
    assert len(seen) == 2
    assert lock_path(path).stat().st_ino == seen[1]
    assert not lease.renewed
    with pytest.raises(LogInUse):
        Lease(path)
    lease.release()


@pytest.mark.parametrize("suffix", [COPYING, IMPORTING])
def test_a_copy_whose_maker_died_as_it_got_its_name_is_a_log(tmp_path: Path, suffix: str) -> None:
    """It is whole then, and has its first name as well, which goes. Any other second name is refused."""
    path, draft = tmp_path / "log.db", tmp_path / f"log.db{suffix}"
    write(path, 1)
    os.link(path, draft)
    write(path, 1)
    assert not draft.exists()
    os.link(path, draft)
    os.link(path, tmp_path / "other")
    with pytest.raises(LogUnsupported, match="3 hard links"):
        Lease(path)
    assert draft.exists()


def test_what_a_killed_copy_left_is_cleared_away(copy: Copier, tmp_path: Path) -> None:
    """Also its write-ahead log, which would be read into the next draft."""
    target = tmp_path / "log.db"
    for draft in ("log.db.copying", "log.db.importing"):
        killed(tmp_path / draft)
        lock_path(tmp_path / draft).unlink()
    assert copy(target) == 30
    assert events(target) == 30
