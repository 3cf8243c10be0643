"""Backup beside a busy writer, retired sessions, a bounded write-ahead log, and bursts that followers survive."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from maka_trio import limits
from maka_trio.errors import InvalidInput, LogClosed, SessionRetired, StoreError
from maka_trio.facts import CodeOpening, Invocation, RuntimeEvent
from maka_trio.log import EventLog
from maka_trio.log.schema import CHECKPOINT_PAGES, WAL_BYTES, open_reader
from tests.log.log_story import COMPLETED, PROGRAM, event, observed, opened, requested


async def tell(log: EventLog, invocation: Invocation, *facts: object) -> list[int]:
    return await log.commit_batch([event(invocation, fact) for fact in facts])  # type: ignore[arg-type]


# --- backup -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [True, False])
async def test_backup_beside_a_busy_writer(tmp_path: Path, *, inline: bool) -> None:
    """Commits go on while the copy is made; the copy is one moment of the log, and a log of its own."""
    async with EventLog.open(tmp_path / "log.db", inline=inline) as log:
        invocation = Invocation.new("session")
        await tell(log, invocation, opened(), requested(), *[observed()] * 2000)
        heads = []

        async def copy() -> None:
            heads.append(await log.backup(tmp_path / "copy.db"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(copy)
            for _ in range(50):
                await tell(log, invocation, observed())
        (head,) = heads
        assert 2002 <= head.high_water <= 2052
        events = (await log.prefix(10_000, 1 << 28)).events[: head.high_water]
    async with EventLog.open(tmp_path / "copy.db") as copied:
        assert (await copied.head()).digest == head.digest
        assert (await copied.prefix(10_000, 1 << 28)).events == events


async def test_cancelled_backup_leaves_nothing(tmp_path: Path) -> None:
    """Neither the file nor the draft of it."""
    async with EventLog.open(tmp_path / "log.db") as log:
        await tell(log, Invocation.new("session"), opened(), requested(), *[observed()] * 4000)
        with trio.CancelScope() as scope:
            scope.cancel()
            await log.backup(tmp_path / "copy.db")
        assert scope.cancelled_caught
    assert not [one for one in tmp_path.iterdir() if one.name.startswith("copy")]


async def test_backup_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    """A file that exists, a folder that does not, a path that is none, a closed log."""
    (tmp_path / "there").write_bytes(b"mine")
    async with EventLog.open(tmp_path / "log.db") as log:
        with pytest.raises(StoreError, match="exists"):
            await log.backup(tmp_path / "there")
        with pytest.raises(StoreError, match="is no folder"):
            await log.backup(tmp_path / "no folder" / "copy.db")
        with pytest.raises(InvalidInput):
            await log.backup(7)  # type: ignore[arg-type]
    with pytest.raises(LogClosed):
        await log.backup(tmp_path / "copy.db")
    assert (tmp_path / "there").read_bytes() == b"mine"


# --- retired sessions -----------------------------------------------------------------------------------------


async def test_retired_session_takes_no_more_runs(tmp_path: Path) -> None:
    """Also not after it was opened again; other sessions go on, and what the session has can be read."""
    path = tmp_path / "log.db"
    async with EventLog.open(path) as log:
        await tell(log, Invocation.new("mine"), opened(PROGRAM), COMPLETED)
        for _ in range(2):
            await log.retire("mine")
        with pytest.raises(SessionRetired):
            await tell(log, Invocation.new("mine"), opened(PROGRAM))
        await tell(log, Invocation.new("other"), opened(PROGRAM), COMPLETED)
    async with EventLog.open(path) as log:
        head = await log.head()
        with pytest.raises(SessionRetired):
            await tell(log, Invocation.new("mine"), opened(PROGRAM))
        assert await log.head() == head
        assert len((await log.read_context("mine")).events) == 2


async def test_run_of_a_retired_session_may_end(tmp_path: Path) -> None:
    """What was admitted before is not cut off: the fence stands at the opening."""
    async with EventLog.open(tmp_path / "log.db") as log:
        invocation = Invocation.new("mine")
        first = RuntimeEvent.new(invocation, opened())
        await log.commit(first)
        await log.retire("mine")
        await tell(log, invocation, requested(), observed())
        assert await log.commit(first) == 1  # an exact retry writes nothing
        assert await log.seal("mine")
        assert not await log.seal("mine")
        with pytest.raises(SessionRetired):
            await tell(log, Invocation.new("mine"), opened())


async def test_unknown_session_cannot_be_retired(tmp_path: Path) -> None:
    """There is nothing to retire, and a typing error should not go unnoticed."""
    async with EventLog.open(tmp_path / "log.db") as log:
        with pytest.raises(InvalidInput, match="nothing of session"):
            await log.retire("nobody")


# --- readers and the write-ahead log --------------------------------------------------------------------------


async def test_own_readers_do_not_let_the_write_ahead_log_grow(tmp_path: Path) -> None:
    """Reads are short, so a log that is followed and read all the time is checkpointed all the same."""
    path = tmp_path / "log.db"
    async with EventLog.open(path) as log:
        invocation = Invocation.new("session")
        await tell(log, invocation, opened(), requested())
        follower = log.follow()
        largest = 0
        for _ in range(60):
            await tell(log, invocation, *[observed()] * 1000)
            for _ in range(100):
                await follower.__anext__()
            largest = max(largest, path.with_name("log.db-wal").stat().st_size)
        assert largest < 3 * CHECKPOINT_PAGES * 4096
    assert not path.with_name("log.db-wal").exists()


async def test_write_ahead_log_shrinks_when_an_old_snapshot_ends(tmp_path: Path) -> None:
    """A foreign reader that holds its moment keeps what came after it, and no longer than it does."""
    path = tmp_path / "log.db"
    wal = path.with_name("log.db-wal")
    async with EventLog.open(path) as log:
        await tell(log, Invocation.new("session"), opened(), COMPLETED)
        with closing(open_reader(path)) as foreign:
            foreign.execute("BEGIN")
            foreign.execute("SELECT count(*) FROM events").fetchone()
            while wal.stat().st_size < 2 * WAL_BYTES:
                await tell(log, Invocation.new("session"), opened(CodeOpening("x" * 900_000)), COMPLETED)
            foreign.execute("ROLLBACK")
        for _ in range(3):
            await tell(log, Invocation.new("session"), opened(CodeOpening("x" * 900_000)), COMPLETED)
        assert wal.stat().st_size <= WAL_BYTES
    assert not wal.exists()


async def test_idle_log_takes_its_write_ahead_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment after the last commit everything is in the file itself, so that the next opening is quick."""
    monkeypatch.setattr(limits, "IDLE_CHECKPOINT_SECONDS", 0.01)
    path = tmp_path / "log.db"
    async with EventLog.open(path) as log:
        done = trio.Event()
        token, checkpoint = trio.lowlevel.current_trio_token(), log._store.checkpoint

        def checkpoint_and_tell() -> None:
            checkpoint()
            token.run_sync_soon(done.set)

        monkeypatch.setattr(log._store, "checkpoint", checkpoint_and_tell)
        await tell(log, Invocation.new("session"), opened(), requested())
        with trio.fail_after(60):
            await done.wait()
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as file:
            assert file.execute("SELECT count(*) FROM events").fetchone() == (2,)


# --- bursts -------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_slow_followers_survive_a_burst(tmp_path: Path) -> None:
    """200,000 events at once: followers of every speed see each of them once, in order, and hold little of it."""
    burst, held = 200_000, []
    async with EventLog.open(tmp_path / "log.db") as log:
        invocation = Invocation.new("session")
        await tell(log, invocation, opened(), requested())

        async def follow(pause_every: int) -> None:
            last = 0
            async with log.follow() as follower:
                async for stored in follower:
                    assert stored.sequence == last + 1
                    last = stored.sequence
                    held.append(len(follower._held))
                    if last % pause_every == 0:
                        await trio.lowlevel.checkpoint()
                    if last == burst + 2:
                        return

        async with trio.open_nursery() as nursery:
            for pause in (1, 100, 100_000):
                nursery.start_soon(follow, pause)
            for _ in range(burst // 2000):
                await tell(log, invocation, *[observed()] * 2000)
    assert max(held) <= 1024
