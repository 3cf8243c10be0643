"""Who reads a log without owning it leaves nothing there, also of one that was left as a killed owner leaves it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from maka_trio.cli import log_file
from maka_trio.cli.log_file import LogFile
from maka_trio.cli.main import main
from maka_trio.facts import Invocation
from maka_trio.log import unowned
from maka_trio.log.health import Verdict, examine
from maka_trio.log.lease import lock_path
from maka_trio.log.schema import open_immutable
from maka_trio.log.store import Store
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
Files = dict[str, tuple[bytes, int]]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A log in a folder of its own, with a write-ahead log of ten events and without shared memory."""
    path = tmp_path / "folder" / "log.db"
    path.parent.mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    path.with_name("log.db-shm").unlink()
    return path


def files(path: Path) -> Files:
    return {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in path.parent.iterdir()}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("command", ["verify", "export", "log", "doctor"])
def test_a_killed_log_is_read_without_a_trace(
    killed: Path, temporary: Path, command: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Everything that its owner wrote is seen; no file comes to be, none is changed, and no copy is left."""
    before = files(killed)
    if command == "doctor":
        (finding,) = [one for one in examine(killed) if one.subject == "log"]
        assert (finding.verdict, "ends at event 10" in finding.words) == (Verdict.GOOD, True)
    else:
        assert main([command, str(killed)]) == 0
        assert {"verify": b"10 events", "export": b'"events":10', "log": b"killed"}[
            command
        ] in capsysbinary.readouterr().out
    assert files(killed) == before
    assert list(temporary.iterdir()) == []


def test_a_copy_is_nobody_elses(killed: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is made only its maker may enter its folder; once it is open it has no name."""
    modes: list[int] = []
    copyfile = unowned.shutil.copyfile

    def watched(source: Path, target: Path) -> object:
        modes.append(target.parent.stat().st_mode & 0o777)
        return copyfile(source, target)

    monkeypatch.setattr(unowned.shutil, "copyfile", watched)
    log = LogFile(killed)
    assert [log.head().high_water, len(list(log.events()))] == [10, 10]
    assert modes == [0o700, 0o700]
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("temporary")
def test_a_log_that_is_taken_up_again_is_followed(killed: Path) -> None:
    """What was copied is what it was; as soon as there is an owner, its files are read again."""
    log = LogFile(killed)
    assert log.head().high_water == 10
    store = Store.open(killed)
    tell(store, Invocation.new("next"), opened(PROGRAM), COMPLETED)
    assert log.head().high_water == 12
    store.close()
    assert log.head().high_water == 12


def test_a_log_that_nobody_has_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as it stays as it is; what an owner did in between is read."""
    opens: list[Path] = []
    monkeypatch.setattr(log_file, "open_immutable", lambda path: opens.append(path) or open_immutable(path))
    path = tmp_path / "log.db"
    Store.open(path).close()
    os.utime(path, ns=(1, 1))  # whatever the clock of the file system is, the next change shows
    log = LogFile(path)
    assert (log.head().high_water, len(list(log.events())), opens) == (0, 0, [path])
    store = Store.open(path)
    tell(store, Invocation.new("next"), opened(PROGRAM), COMPLETED)
    assert (log.head().high_water, opens) == (2, [path])
    store.close()
    assert (log.head().high_water, len(list(log.events())), opens) == (2, 2, [path, path])


@pytest.mark.usefixtures("temporary")
def test_a_log_that_changes_while_it_is_copied_is_copied_again(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is made of two states of it."""
    copied: Callable[[Path], object] = unowned._copied
    states = []

    def disturbed(path: Path) -> object:
        made = copied(path)
        if not states:
            os.utime(path, ns=(1, 1))
        states.append(unowned.state_of(path))
        return made

    monkeypatch.setattr(unowned, "_copied", disturbed)
    assert LogFile(killed).head().high_water == 10
    assert len(states) == 2


@pytest.mark.usefixtures("temporary")
def test_a_folder_that_may_not_be_written_is_read(killed: Path) -> None:
    """With shared memory there that may not be written either, and without."""
    for made in (False, True):
        if made:
            killed.with_name("log.db-shm").write_bytes(bytes(32768))
            killed.with_name("log.db-shm").chmod(0o444)
        killed.parent.chmod(0o555)
        try:
            assert LogFile(killed).head().high_water == 10
            assert main(["verify", str(killed)]) == 0
        finally:
            killed.parent.chmod(0o755)


def test_a_log_in_use_is_read_as_its_owner_has_it(tmp_path: Path, temporary: Path) -> None:
    """Nothing is copied: its shared memory is there."""
    path = tmp_path / "log.db"
    store = Store.open(path)
    tell(store, Invocation.new("session"), opened(PROGRAM), COMPLETED)
    temporary.rmdir()
    assert LogFile(path).head().high_water == 2
    store.close()
    assert lock_path(path).exists()
