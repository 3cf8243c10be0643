"""`maka-trio export`, `import` and `doctor`, and the progress that `verify` shows, on real files."""

from __future__ import annotations

import errno
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maka_trio.cli import progress
from maka_trio.cli.progress import Progress
from maka_trio.facts.event import InvocationEnded, InvocationOpened, RuntimeEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import MessageInput, MessageOpening
from maka_trio.facts.outcome import Completed
from maka_trio.log import EventLog
from maka_trio.log.health import Finding, Verdict, file_system, file_system_type, sqlite_version, sync_cost
from tests.cli.cli_child import Here


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log of two sessions."""
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        for session in ("shop", "library", "shop"):
            invocation = Invocation.new(session)
            for fact in (InvocationOpened(MessageOpening(MessageInput("How many?"))), InvocationEnded(Completed())):
                await log.commit(RuntimeEvent.new(invocation, fact))
    return path


def call(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own: bundles are bytes on its standard streams."""
    return subprocess.run([sys.executable, "-m", "maka_trio", *map(str, arguments)], capture_output=True, check=False)


# --- moving -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [(), ("--session", "shop")])
async def test_a_log_goes_out_and_comes_in(path: Path, tmp_path: Path, here: Here, session: tuple[str, ...]) -> None:
    """What was imported verifies, and is exported as the same bytes."""
    bundle = call("export", path, *session)
    assert (bundle.returncode, bundle.stderr) == (0, b"")
    (tmp_path / "bundle").write_bytes(bundle.stdout)
    imported = here("import", tmp_path / "bundle", tmp_path / "copy")
    assert imported.status == 0
    assert f"{4 if session else 6} events" in imported.out
    assert here("verify", tmp_path / "copy").status == 0
    assert call("export", tmp_path / "copy", *session).stdout == bundle.stdout


async def test_a_changed_bundle_is_one_line_and_no_log(path: Path, tmp_path: Path, here: Here) -> None:
    """The line says which event; there is nothing at the new path."""
    bundle = call("export", path).stdout
    (tmp_path / "bundle").write_bytes(bundle.replace(b"How many?", b"How much?", 1))
    refused = here("import", tmp_path / "bundle", tmp_path / "copy")
    assert refused.status == 1
    assert refused.err.count("\n") == 1
    assert "event 1" in refused.err
    assert not (tmp_path / "copy").exists()


async def test_export_names_what_is_damaged_and_writes_the_rest(path: Path) -> None:
    """Exit status 1 and one line; the events around the damage are there."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE events SET body = x'7b7d' WHERE sequence = 3")
        connection.commit()
    exported = call("export", path)
    assert exported.returncode == 1
    assert b"event 3" in exported.stderr
    assert exported.stderr.count(b"\n") == 1
    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    assert [line["sequence"] for line in lines[1:-1]] == [1, 2, 4, 5, 6]
    assert lines[-1]["end"]["damaged"] == [3]


async def test_unknown_session_and_missing_files_are_one_line(path: Path, tmp_path: Path, here: Here) -> None:
    """Nothing is created on the way."""
    for arguments in (
        ("export", path, "--session", "nobody"),
        ("export", tmp_path / "none"),
        ("import", tmp_path / "none", tmp_path / "copy"),
    ):
        refused = here(*arguments)
        assert (refused.status, refused.out) == (1, "")
        assert refused.err.count("\n") == 1
    assert not (tmp_path / "copy").exists()


# --- the doctor ---------------------------------------------------------------------------------------------


async def test_the_doctor_looks_at_everything(path: Path, here: Here) -> None:
    """Each subject once, as lines for people and as JSON lines; a sound log on a disk has nothing bad."""
    shown = here("doctor", path)
    lines = [json.loads(line) for line in here("doctor", path, "--json").out.splitlines()]
    subjects = {line["subject"] for line in lines}
    assert subjects == {"sqlite", "python", "file system", "space", "fsync", "permissions", "owner", "log"}
    assert all(line["words"] in shown.out for line in lines if line["subject"] not in ("fsync", "space"))
    assert sqlite3.sqlite_version in shown.out
    bad = [line for line in lines if line["verdict"] == "bad" and line["subject"] in ("log", "permissions", "owner")]
    assert bad == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_the_doctor_waits_for_nothing(make: Callable[[Path], None], here: Here, tmp_path: Path) -> None:
    """What is no file is named, where opening it would wait for somebody to write into it."""
    make(tmp_path / "thing")
    shown = here("doctor", tmp_path / "thing")
    assert shown.status == 1
    assert "not a regular file" in shown.out


@pytest.mark.parametrize("command", ["doctor", "verify", "log", "export"])
async def test_a_log_that_may_not_be_read_is_told_as_such(
    command: str, path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that names it; the doctor, too, comes to its end."""
    opened = Path.open

    def refused(self: Path, *arguments: Any, **settings: Any) -> Any:
        if self == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *arguments, **settings)

    monkeypatch.setattr(Path, "open", refused)
    shown = here(command, path)
    assert shown.status == 1
    said = f"cannot read {str(path)!r}: Permission denied"
    if command == "doctor":
        assert f"log: {said}" in shown.out
        assert shown.err == ""
    else:
        assert (shown.out, shown.err) == ("", f"maka-trio: {said}\n")


async def test_the_doctor_sees_the_owner_without_being_in_its_way(path: Path, here: Here) -> None:
    """While a program has the log open, its process is named."""
    async with EventLog.open(path):
        assert "has it open" in here("doctor", path).out
        assert "nobody" not in here("doctor", path).out
    assert "nobody has it open" in here("doctor", path).out


async def test_the_doctor_says_what_is_wrong_and_what_to_do(path: Path, here: Here) -> None:
    """A log that others may read, one that lost its end, one without its first page."""
    path.chmod(0o644)
    assert "chmod 600" in here("doctor", path).out
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM events WHERE sequence = 6")
        connection.commit()
    lost = here("doctor", path)
    assert lost.status == 1
    assert "were acknowledged" in lost.out
    path.write_bytes(bytes(8192))
    broken = here("doctor", path)
    assert broken.status == 1
    assert "first page" in broken.out


def test_the_doctor_without_a_log_looks_at_the_machine(here: Here, tmp_path: Path) -> None:
    """Versions, and nothing is created; a folder that is not there is named."""
    assert here("doctor").status == 0
    assert here("doctor", tmp_path / "none" / "log").status == 1
    assert list(tmp_path.iterdir()) == []
    assert "opening it creates it" in here("doctor", tmp_path / "log").out
    assert list(tmp_path.iterdir()) == []


def verdict(finding: Finding) -> Verdict:
    return finding.verdict


def test_what_a_log_should_stand_on() -> None:
    """Repaired versions of SQLite, local file systems, and disks that are asked."""
    assert [verdict(sqlite_version(found)) for found in ((3, 40, 1), (3, 51, 2), (3, 51, 3), (3, 53, 0))] == [
        Verdict.NOTE,
        Verdict.NOTE,
        Verdict.GOOD,
        Verdict.GOOD,
    ]
    kinds = ("ext4", "nfs4", "tmpfs", None)
    assert [verdict(file_system(kind)) for kind in kinds] == [Verdict.GOOD, Verdict.BAD, Verdict.BAD, Verdict.NOTE]
    assert file_system_type(Path("/proc")) == "proc"


def test_the_cost_of_a_sync_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    """A folder that may not be written is said not to have been measured."""
    assert "ms" in sync_cost(tmp_path).words
    assert list(tmp_path.iterdir()) == []
    assert "not measured" in sync_cost(tmp_path / "none").words


# --- progress -----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_over_itself_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar with its share, or a bare number where nobody knows the end; nothing is left on the line."""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    terminal = Terminal()
    with Progress("verifying", 200, terminal) as bar:
        bar.at(50)
        bar.at(200)
    assert "25% of 200" in terminal.getvalue()
    assert "100% of 200" in terminal.getvalue()
    assert terminal.getvalue().rsplit("\r", 2)[1].strip() == ""
    assert terminal.getvalue().endswith("\r")
    unknown = Terminal()
    with Progress("verifying", None, unknown) as bar:
        bar.at(7)
    assert "verifying 7" in unknown.getvalue()


def test_progress_is_for_people_and_for_long_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written into a pipe, nor while a job is young."""
    young, pipe = Terminal(), io.StringIO()
    with Progress("verifying", 9, young) as bar:
        bar.at(3)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    with Progress("verifying", 9, pipe) as bar:
        bar.at(3)
    assert (young.getvalue(), pipe.getvalue()) == ("", "")
