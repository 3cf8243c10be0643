"""Streamed text, which most events are: planned by a shorter way, with the same outcome as by the long one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maka_trio.errors import CommitRejected, LogFull, MakaError
from maka_trio.facts import Invocation, RuntimeEvent
from maka_trio.log.commit import Ticket
from maka_trio.log.prepared import prepare
from maka_trio.log.store import Store
from tests.log.log_story import COMPLETED, completed, event, observed, opened, put, requested, steered
from tests.log.test_store_faults import trouble


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "log.db")
    yield store
    store.close()


def story(*sessions: str) -> list[RuntimeEvent]:
    """An open request in each session."""
    return [event(who, fact) for who in map(Invocation.new, sessions) for fact in (opened(), requested())]


def texts(told: list[RuntimeEvent], count: int) -> list[RuntimeEvent]:
    """Text for each of them in turn."""
    return [event(one.invocation, observed()) for _ in range(count) for one in told[::2]]


def alone(events: list[RuntimeEvent]) -> list[Ticket]:
    """Each event by itself."""
    return [[prepare(one)] for one in events]


def rows(store: Store) -> list[list[object]]:
    """All that tells where the log and its sessions stand."""
    tables = ("events", "heads", "marks")
    return [store.connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]


def test_each_by_itself_and_all_together(store: Store, tmp_path: Path) -> None:
    """Text that comes alone, in one transaction, or as one batch leaves the same log, digests and marks included."""
    told = story("one", "two", "three")
    text = texts(told, 300)
    put(store, *told)
    for ticket in alone(text[:30]):
        store.append(ticket)
    store.write(alone(text[30:]))
    other = Store.open(tmp_path / "other.db")
    put(other, *told)
    put(other, *text)
    assert (store.root, rows(store)) == (other.root, rows(other))
    other.close()


def test_transaction_that_fails_leaves_no_text(store: Store, tmp_path: Path) -> None:
    """Where the disk fails, text is taken back with all else, and the same text fits in the same place afterwards."""
    told = story("one", "two")
    put(store, *told)
    text = texts(told, 3)
    before = (store.root, rows(store))
    tickets = [*alone(text), [prepare(event(Invocation.new("three"), opened()))]]
    trouble(store, "INSERT INTO events", "SQLITE_IOERR_WRITE", times=1 + len(tickets))
    results = store.write(tickets).results
    assert [type(result) for result in results] == [LogFull] * len(tickets)
    assert (store.root, rows(store)) == before
    assert store.write(tickets).results == [[number] for number in range(5, 12)]
    other = Store.open(tmp_path / "other.db")
    put(other, *told)
    other.write(tickets)
    assert (store.root, rows(store)) == (other.root, rows(other))
    other.close()


def test_text_is_refused_by_the_same_rules(store: Store) -> None:
    """Text beside others in a transaction is refused as it would be alone, and leaves no gap."""
    one, two = Invocation.new("one"), Invocation.new("two")
    put(store, event(one, opened()), event(one, steered("m1")), event(one, requested()))
    put(store, event(two, opened()), event(two, requested()), event(two, completed()))
    again = event(one, observed())
    bad = [
        event(one, observed("unknown")),
        event(two, observed()),
        event(Invocation.new("one"), observed()),
        RuntimeEvent("m1", 1, one, observed()),
        RuntimeEvent(again.id, again.recorded_at + 1, one, observed()),
    ]
    results = store.write(alone([again, *bad, again])).results
    assert [result.reason if isinstance(result, CommitRejected) else result for result in results] == [
        [7],
        "step_unknown",
        "step_closed",
        "not_open",
        "message_reused",
        "conflict",
        [7],
    ]
    assert put(store, event(one, observed())) == [8]


def test_text_after_the_end(store: Store) -> None:
    """Text of an invocation that ended in the same transaction is refused."""
    told = story("one")
    put(store, *told)
    who = told[0].invocation
    results = store.write(alone([event(who, completed()), event(who, COMPLETED), event(who, observed())])).results
    assert [isinstance(result, MakaError) for result in results] == [False, False, True]
