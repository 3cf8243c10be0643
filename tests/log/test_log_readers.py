"""Reading beside the writer: a few at a time, stopped when nobody waits any more, waited for at the close."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from maka_trio import limits
from maka_trio.facts import Invocation
from maka_trio.log import queries
from maka_trio.log.reader import Reader
from maka_trio.log.readers import ReaderThreads
from maka_trio.log.store import Store
from tests.log.log_story import count, observed, opened, requested, tell

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    store = Store.open(tmp_path / "log.db")
    tell(store, Invocation.new("session"), opened(), requested(), *[observed()] * 20)
    yield tmp_path / "log.db"
    store.close()


async def test_cancel_stops_a_long_statement(path: Path) -> None:
    """A read whose asker has gone is interrupted inside SQLite, and its connection can be used again."""
    readers = ReaderThreads(path)
    begun = threading.Event()

    def ask_for_ever(reader: Reader) -> Any:
        begun.set()
        with reader.snapshot() as connection:
            return connection.execute(ENDLESS).fetchone()

    with trio.fail_after(60):
        for _ in range(limits.READERS + 2):
            begun.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(readers.ask, ask_for_ever)
                await trio.to_thread.run_sync(begun.wait)
                nursery.cancel_scope.cancel()
        assert await readers.ask(lambda reader: count(reader.connection, "events")) == 22
        await readers.aclose()


async def test_cancel_stops_between_rows(path: Path) -> None:
    """A read that is busy with rows notices within a few of them that nobody waits."""
    readers = ReaderThreads(path)
    begun, stopped = threading.Event(), threading.Event()

    def check_for_ever(reader: Reader) -> None:
        begun.set()
        try:
            while True:
                reader.check()
        finally:
            stopped.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(readers.ask, check_for_ever)
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(stopped.wait, 60)
    await readers.aclose()


async def test_cancel_does_not_hit_the_next_user(path: Path) -> None:
    """A cancel that comes as a read ends leaves the connection's next user alone."""
    readers = ReaderThreads(path)
    for delay in range(30):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(readers.ask, queries.sessions)
                for _ in range(delay):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        (summary,) = await readers.ask(queries.sessions)
        assert summary.events == 22
    await readers.aclose()


async def test_readers_are_few(path: Path) -> None:
    """No more than the limit read at once, however many ask; all are answered, through as many connections."""
    readers = ReaderThreads(path)
    lock, most, now = threading.Lock(), 0, 0
    connections: set[int] = set()

    def look(reader: Reader) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
            connections.add(id(reader.connection))
        assert count(reader.connection, "events") == 22
        with lock:
            now -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(readers.ask, look)
    assert 1 <= most <= limits.READERS
    assert len(connections) <= limits.READERS
    await readers.aclose()


async def test_close_waits_for_reads(path: Path) -> None:
    """Closing waits for a read that is under way, which gets its answer."""
    readers = ReaderThreads(path)
    begun, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def read_slowly(reader: Reader) -> int:
        begun.set()
        assert go_on.wait(60)
        return count(reader.connection, "events")

    async def ask() -> None:
        assert await readers.ask(read_slowly) == 22
        order.append("read")

    async def close() -> None:
        await readers.aclose()
        order.append("closed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.to_thread.run_sync(begun.wait)
        nursery.start_soon(close)
        await trio.testing.wait_all_tasks_blocked()
        assert order == []
        go_on.set()
    assert sorted(order) == ["closed", "read"]


async def test_close_waits_for_reads_that_have_not_begun(path: Path) -> None:
    """More were asked for than may be read at once; all get their answers."""
    readers = ReaderThreads(path)
    begun, go_on = threading.Semaphore(0), threading.Event()
    before = 0
    answers: list[int] = []

    def read_slowly(reader: Reader) -> int:
        nonlocal before
        before += not go_on.is_set()
        begun.release()
        assert go_on.wait(60)
        return count(reader.connection, "events")

    async def ask() -> None:
        answers.append(await readers.ask(read_slowly))

    async with trio.open_nursery() as nursery:
        for _ in range(3 * limits.READERS):
            nursery.start_soon(ask)
        for _ in range(limits.READERS):
            assert await trio.to_thread.run_sync(begun.acquire, True, 60)
        nursery.start_soon(readers.aclose)
        await trio.testing.wait_all_tasks_blocked(0.05)
        go_on.set()
    assert answers == [22] * 3 * limits.READERS
    assert before == limits.READERS


async def test_a_read_that_failed_stops_no_other(path: Path) -> None:
    """Its error is for who asked; the thread goes on with what the others ask."""
    readers = ReaderThreads(path)
    answers: list[int] = []

    def fail(reader: Reader) -> None:
        raise LookupError(str(count(reader.connection, "events")))

    async def ask_in_vain() -> None:
        with pytest.raises(LookupError, match="22"):
            await readers.ask(fail)

    async def ask() -> None:
        answers.append(await readers.ask(lambda reader: count(reader.connection, "events")))

    async with trio.open_nursery() as nursery:
        for _ in range(2 * limits.READERS):
            nursery.start_soon(ask_in_vain)
            nursery.start_soon(ask)
    assert answers == [22] * 2 * limits.READERS
    await readers.aclose()


async def test_a_read_without_a_thread_fails_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses one; later reads have theirs, and closing waits for none that never was."""
    readers = ReaderThreads(path)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(trio.lowlevel, "start_thread_soon", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await readers.ask(queries.sessions)
    (summary,) = await readers.ask(queries.sessions)
    assert summary.events == 22
    with trio.fail_after(60):
        await readers.aclose()


async def test_readers_cannot_write(path: Path) -> None:
    """A reader's connection is read-only."""
    readers = ReaderThreads(path)
    with pytest.raises(Exception, match="readonly"):
        await readers.ask(lambda reader: reader.connection.execute("DELETE FROM events"))
    await readers.aclose()
