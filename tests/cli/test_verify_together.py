"""A long log is verified by several processes at once, and nobody can tell but by the time it takes."""

from __future__ import annotations

import multiprocessing
import os
import select
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio.cli import verify_together as together
from maka_trio.cli.log_file import LogFile
from maka_trio.cli.main import main
from maka_trio.cli.processors import processors
from maka_trio.cli.verify_together import Sound, Watch, processes_for, verify_together
from maka_trio.log.verification import Verification
from maka_trio.shares import Share
from tests.cli.cli_child import Here
from tests.engine.scene import echo, registration, scene
from tests.forked import PATIENCE, forked, said

SESSIONS = 5


async def _tell(folder: Path) -> None:
    async with scene(folder) as it:
        tools = [registration("echo", echo)]
        for turn in range(2 * SESSIONS):
            it.provider.call_tools(("echo", {"turn": turn}), text="let us see")
            it.provider.say("that ", "is ", "all")
            await it.engine.run(it.input("hello", tools=tools, session=f"session {turn % SESSIONS}"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lawful log of five sessions, two turns each."""
    folder = tmp_path_factory.mktemp("template")
    trio.run(_tell, folder)
    return folder / "log.sqlite"


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(template, tmp_path / "log.sqlite"))


def single(path: Path) -> tuple[list[str], int]:
    file = LogFile(path)
    check = Verification(file.read, file.path)
    return list(map(str, check.violations())), check.events


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
        connection.commit()


# --- in processes -------------------------------------------------------------------------------------------------


def verifying(path: Path, processes: int, told: Connection) -> None:
    """Say what they find, and which processes are left then."""
    file = LogFile(path)
    found = verify_together(file, processes, lambda _: None)
    told.send((found, len(multiprocessing.active_children())))


def failing(path: Path, failure: Callable[[], object], told: Connection) -> None:
    """The same, while the second process fails."""
    look = together._look

    def fail(file: LogFile, share: Share, watch: Watch) -> Sound:
        if share.index == 1:
            failure()
        return look(file, share, watch)

    together._look = fail
    verifying(path, 3, told)


def interrupted(path: Path, told: Connection) -> None:
    """The one who waits for it has enough."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    try:
        verify_together(LogFile(path), 3, interrupt)
    except KeyboardInterrupt:
        told.send(("interrupted", len(multiprocessing.active_children())))


def orphaning(path: Path, told: Connection) -> None:
    """The second process never comes to an end, and says its id; the first does nothing."""

    def look(_: LogFile, share: Share, watch: Watch) -> Sound:
        if share.first:
            signal.pause()
        told.send(os.getpid())
        while True:
            watch(1)  # until the pipe is full, and then nothing

    together._look = look
    verify_together(LogFile(path), 2, lambda _: None)


def answer_of(work: Callable[..., None], *arguments: Any) -> Any:
    with forked(work, *arguments) as (process, reading):
        (answer,) = said(reading)
        process.join(PATIENCE)
        assert process.exitcode == 0
        return answer


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise OSError("the disk is gone")


# --- what they find -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_processes_find_a_sound_log_sound(path: Path, processes: int) -> None:
    """With as many events as a single pass reads, however few sessions there are; and none of them is left."""
    words, events = single(path)
    assert words == []
    assert answer_of(verifying, path, processes) == (Sound(events, 0, events), 0)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET recorded_at = recorded_at + 1 WHERE sequence = 1",
        "UPDATE events SET recorded_at = recorded_at + 1 WHERE sequence = (SELECT max(sequence) FROM events)",
        "UPDATE events SET root_digest = zeroblob(32) WHERE sequence = 40",
        "UPDATE events SET root_digest = 'x' WHERE sequence = 40",
        "DELETE FROM events WHERE sequence = 40",
        "UPDATE events SET session = session % 5 + 1 WHERE sequence = 40",
        "UPDATE heads SET events = events + 1 WHERE session = 2",
        "UPDATE heads SET head = 1 WHERE session = 3",
        "DELETE FROM heads WHERE session = 4",
        "DELETE FROM marks WHERE session = 5",
        "UPDATE invocations SET outcome = 'failed' WHERE id = 7",
        "UPDATE invocations SET session = session % 5 + 1 WHERE id = 7",
        "DELETE FROM payloads WHERE sequence = (SELECT max(sequence) FROM payloads)",
        "INSERT INTO sessions(session_id) VALUES ('made up')",
        "UPDATE sessions SET retired = 'x' WHERE id = 2",
    ],
)
def test_what_a_single_pass_finds_they_leave_to_it(path: Path, sql: str) -> None:
    """Whatever is wrong in whichever session, with an event or beside it: they do not say that the log is sound."""
    change(path, sql)
    if single(path)[0]:
        assert answer_of(verifying, path, 3) == (None, 0)
    else:
        assert "marks" in sql  # short sessions have none


@pytest.mark.parametrize("failure", [die, fail])
def test_a_process_that_dies_or_fails_leaves_it_to_a_single_pass(path: Path, failure: Callable[[], object]) -> None:
    """And none of the others is left."""
    assert answer_of(failing, path, failure) == (None, 0)


def test_an_interrupt_ends_all_of_them(path: Path) -> None:
    """It comes out as it came."""
    assert answer_of(interrupted, path) == ("interrupted", 0)


def test_a_process_whose_parent_was_killed_ends_by_itself(path: Path) -> None:
    """As soon as it says how far it is."""
    with forked(orphaning, path) as (process, reading):
        orphan = os.pidfd_open(next(said(reading)))
        process.kill()
        ended, _, _ = select.select([orphan], [], [], PATIENCE)
        os.close(orphan)
        assert ended


# --- when -----------------------------------------------------------------------------------------------------------


def test_a_log_that_is_short_or_in_use_is_verified_by_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else by all processors, within a bound."""
    end = LogFile(path).head().high_water
    assert processes_for(LogFile(path), end) == 1
    monkeypatch.setattr(together, "LONG", end)
    assert processes_for(LogFile(path), end) == min(processors(), together.MOST)
    assert processes_for(LogFile(path), None) == 1
    path.with_name(path.name + "-wal").touch()
    assert processes_for(LogFile(path), end) == 1


def commanding(path: Path, arguments: list[str], told: Connection) -> None:
    """Run the command as if the log were long and there were three processors, with its output in a file."""
    together.LONG = 1
    together.processors = lambda: 3
    os.dup2(os.open(path.with_name("shown"), os.O_WRONLY | os.O_CREAT), 1)
    told.send(main(["verify", str(path), *arguments]))


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("sql", ["", "UPDATE events SET recorded_at = 1 WHERE sequence IN (30, 60)"])
def test_the_command_says_the_same(path: Path, here: Here, sql: str, as_json: list[str]) -> None:
    """In the same order, and with the same status."""
    if sql:
        change(path, sql)
    shown = here("verify", path, *as_json)
    assert answer_of(commanding, path, as_json) == shown.status == (1 if sql else 0)
    assert path.with_name("shown").read_text() == shown.out
