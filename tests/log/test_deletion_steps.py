"""A deletion in its middle: cancelled, killed, out of space, beside writers and readers."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import limits
from maka_trio.cli.log_file import LogFile
from maka_trio.errors import (
    SessionDeleted,
    StoreError,
)
from maka_trio.facts import (
    Invocation,
    InvocationOpened,
    MessageInput,
    MessageOpening,
)
from maka_trio.laws import check
from maka_trio.log import EventLog, deletion, schema
from maka_trio.log.health import examine
from maka_trio.log.queries import sessions
from maka_trio.log.store import Store
from tests.forked import exit_code_of
from tests.log.deletion_story import (
    GONE,
    SECRET,
    STAYS,
    bodies,
    length_of,
    stubs,
    traces,
    violations,
    whole,
)
from tests.log.interrupted import delete_and_die
from tests.log.log_story import COMPLETED, event, opened

ROOT = Path(__file__).parents[2]
BIG = 10**9


@pytest.fixture
def path(two_sessions: Path) -> Path:
    return two_sessions


def small_steps(monkeypatch: pytest.MonkeyPatch, events: int = 3) -> None:
    monkeypatch.setattr(limits, "DELETION_EVENTS", events)


# --- in the middle ------------------------------------------------------------------------------------------


async def test_a_cancelled_deletion_says_so_and_is_gone_on_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are refused from the beginning on; the events that still have their bodies verify with the stubs."""
    small_steps(monkeypatch)
    async with EventLog.open(path) as log:
        length = await length_of(log, GONE)
        done = 0

        async def cut_off(steps: int) -> None:
            nonlocal done
            for _ in range(steps):
                log._store.begin_deletion(GONE)
                done += log._store.delete_some(GONE)
                await trio.lowlevel.checkpoint()

        await cut_off(4)
        assert {one.session_id: one.bodies for one in await log.sessions()} == {GONE: "deleting", STAYS: "kept"}
        with pytest.raises(SessionDeleted, match="are being deleted"):
            await log.read_context(GONE)
        prefix = await whole(log)
        assert list(check(prefix.events, digest=prefix.digest)) == []
        assert len(stubs(prefix.events)) == done == 12
        assert violations(path) == []
        with trio.CancelScope() as scope:
            scope.cancel()
            await log.delete_bodies(GONE)
        assert scope.cancelled_caught
        assert await log.delete_bodies(GONE) == length - done
    assert traces(path) == 0
    assert violations(path) == []


def cancel_at(log: EventLog, number: int, scope: trio.CancelScope) -> None:
    """Cancel a scope right before the writer is asked for the so-manieth time."""
    ask, asked = log._call, 0

    async def counted(work: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == number:
            scope.cancel()
        return await ask(work)

    log._call = counted  # type: ignore[method-assign]


async def test_a_deletion_is_cut_off_between_any_two_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a cancel comes, what is there is lawful, and the next opening finishes it."""
    small_steps(monkeypatch, 9)
    for number in range(1, 12):
        copy = path.with_name(f"log {number}")
        shutil.copy(path, copy)
        async with EventLog.open(copy) as log:
            with trio.CancelScope() as scope:
                cancel_at(log, number, scope)
                await log.delete_bodies(GONE)
            state = await bodies(log)
            assert state == ("deleted" if not scope.cancelled_caught else "kept" if number == 1 else "deleting")
        assert violations(copy) == []
        async with EventLog.open(copy) as log:
            state = await bodies(log)
            assert state == ("kept" if number == 1 else "deleted")
        assert violations(copy) == []
        assert (traces(copy) == 0) is (number > 1)


async def test_others_write_and_follow_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends come in between the steps, and each follower gets every event once and in order."""
    small_steps(monkeypatch, 1)
    got: dict[str | None, list[int]] = {None: [], GONE: [], STAYS: []}
    async with EventLog.open(path) as log:
        start = (await log.head()).high_water
        length = await length_of(log, GONE)
        moments: list[int] = []

        async def follow(session: str | None) -> None:
            async with log.follow(session_id=session) as follower:
                async for stored in follower:
                    got[session].append(stored.sequence)

        async def write() -> None:
            for _ in range(30):
                invocation = Invocation.new("busy")
                for fact in (InvocationOpened(MessageOpening(MessageInput("x"))), COMPLETED):
                    moments.append(await log.commit(event(invocation, fact)))

        async with trio.open_nursery() as nursery:
            for session in got:
                nursery.start_soon(follow, session)
            nursery.start_soon(write)
            assert await log.delete_bodies(GONE) == length
            written = len(moments)
            while len(got[None]) < start + 60 or len(got[GONE]) < length:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert written > 0
        sequences = [one.sequence for one in (await whole(log)).events]
    assert got[None] == sequences == list(range(1, start + 61))
    assert len(got[GONE]) == length
    assert violations(path) == []


async def test_a_reader_of_an_older_state_keeps_it_from_ending(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write-ahead log holds what the reader sees; the session is not called deleted before that is gone."""
    monkeypatch.setattr(limits, "BUSY_SECONDS", 0.2)
    async with EventLog.open(path) as log:
        await log.commit(event(Invocation.new("other"), opened()))
        with closing(schema.open_reader(path)) as foreign:
            foreign.execute("BEGIN")
            foreign.execute("SELECT count(*) FROM events").fetchone()
            with pytest.raises(StoreError, match="older state"):
                await log.delete_bodies(GONE)
            assert await bodies(log) == "deleting"
            (still,) = foreign.execute(
                "SELECT count(*) FROM events WHERE instr(body, ?)", (SECRET.encode(),)
            ).fetchone()
            assert still > 0
            foreign.execute("ROLLBACK")
        assert await log.delete_bodies(GONE) == 0
        assert await bodies(log) == "deleted"
        assert traces(path) == 0


def test_a_kill_leaves_a_session_that_says_so(path: Path) -> None:
    """By a process that is gone at any statement: what is there is lawful, and the next opening finishes the rest."""
    states = []
    for number in [0, 2, 3, 5, 11, 24, 60, 130, 190, 214, 217, 219, 221, 400]:
        copy = path.with_name(f"log {number}")
        shutil.copy(path, copy)
        assert exit_code_of(delete_and_die, copy, number) == (0 if number > 300 else -signal.SIGKILL)
        states.append(state_of(copy))
        assert violations(copy) == []
        Store.open(copy).close()
        assert state_of(copy) == ("kept" if states[-1] == "kept" else "deleted")
        assert violations(copy) == []
        assert (traces(copy) == 0) is (states[-1] != "kept")
    assert Counter(states).keys() == {"kept", "deleting", "deleted"}
    assert states == sorted(states, key=("kept", "deleting", "deleted").index)


def state_of(path: Path) -> str:
    summaries = LogFile(path).read(sessions)
    return next(one.bodies for one in summaries if one.session_id == GONE)


FULL = """
import resource, signal, sys
from pathlib import Path
from maka_trio import limits
from maka_trio.errors import LogFull
from maka_trio.facts import Invocation
from maka_trio.log.store import Store
from tests.log.deletion_story import GONE
from tests.log.log_story import event, opened, put
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limits.DELETION_EVENTS = 9
store = Store.open(Path(sys.argv[1]))
store.begin_deletion(GONE)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
deleted = 0
try:
    while some := store.delete_some(GONE):
        deleted += some
except LogFull:
    print("full", deleted)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
put(store, event(Invocation.new("other"), opened()))
while some := store.delete_some(GONE):
    deleted += some
print(store.finish_deletion(GONE), deleted)
store.close()
"""


def test_a_full_disk_in_the_middle(path: Path) -> None:
    """There is LogFull, the log takes appends again once there is space, and the deletion goes on where it was."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    full, before, finished, deleted = done.stdout.split()
    assert (full, finished) == ("full", "True")
    with closing(sqlite3.connect(path)) as connection:
        (length,) = connection.execute("SELECT events FROM heads WHERE session = 1").fetchone()
    assert 0 < int(before) < int(deleted) == length
    assert (traces(path), violations(path)) == (0, [])


def test_a_full_disk_does_not_keep_a_log_from_being_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier owner began then waits for the next."""
    small_steps(monkeypatch)
    store = Store.open(path)
    store.begin_deletion(GONE)
    store.delete_some(GONE)
    store.close()

    def full(*_: object) -> int:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(deletion, "go_on", full)
        Store.open(path).close()
    assert state_of(path) == "deleting"
    assert "the bodies of 1 sessions are being deleted" in [one.words for one in examine(path)]
    Store.open(path).close()
    assert state_of(path) == "deleted"


async def test_opening_goes_on_for_a_bounded_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can cancel it there; who asks again deletes the rest."""
    monkeypatch.setattr(limits, "DELETION_EVENTS", 1)
    monkeypatch.setattr(limits, "DELETION_STEPS_AT_OPENING", 2)
    store = Store.open(path)
    store.begin_deletion(GONE)
    store.close()
    async with EventLog.open(path) as log:
        assert await bodies(log) == "deleting"
        assert len(stubs((await whole(log)).events)) == 2
        assert await log.delete_bodies(GONE) > 0
        assert await bodies(log) == "deleted"
    assert (traces(path), violations(path)) == (0, [])


async def test_a_backup_of_it_holds_stubs_too(path: Path, tmp_path: Path) -> None:
    """And no more than the log itself."""
    async with EventLog.open(path) as log:
        await log.delete_bodies(GONE)
        await log.backup(tmp_path / "copy")
    assert traces(tmp_path / "copy") == 0
    assert violations(tmp_path / "copy") == []
