"""A process that is killed while it commits loses nothing that it was told is durable."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from maka_trio.facts import Root
from maka_trio.log import EventLog
from maka_trio.log.prefixes import prefix
from maka_trio.log.store import Store
from tests.forked import forked, said
from tests.log.log_kill_child import commit_for_ever
from tests.log.log_story import reader

BIG = 10**9


def run_and_kill(path: Path, events: int) -> dict[int, str]:
    """Let a child commit until it has told of so many events, kill it, and return what it was acknowledged."""
    acknowledged: dict[int, str] = {}
    with forked(commit_for_ever, path) as (child, reading):
        for sequence, event_id in said(reading):
            acknowledged[sequence] = event_id
            if len(acknowledged) == events:
                child.kill()
    return acknowledged


def check(path: Path, acknowledged: dict[int, str]) -> None:
    """Everything acknowledged is in its place, the file is sound, and every event verifies."""
    store = Store.open(path)
    assert store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    whole = prefix(reader(store), Root(), 10**6, BIG)
    found = {stored.sequence: stored.event.id for stored in whole.events}
    assert acknowledged.items() <= found.items()
    store.close()


def kill_rounds(path: Path, part: int, rounds: int) -> None:
    chance = random.Random(part)
    acknowledged: dict[int, str] = {}
    for _ in range(rounds):
        acknowledged |= run_and_kill(path, chance.randrange(1, 400))
        check(path, acknowledged)


def test_killed_while_committing(tmp_path: Path) -> None:
    """Ten kills at moments of chance, on one file: no acknowledged event is lost or moved."""
    kill_rounds(tmp_path / "log.db", 10, 10)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_killed_often(tmp_path: Path, part: int) -> None:
    """The same forty times, in parts that can run beside each other and end with a log that is not too long."""
    kill_rounds(tmp_path / "log.db", part, 20)


async def test_killed_log_goes_on(tmp_path: Path) -> None:
    """The process that comes next seals what the killed one left open, and every session may be run again."""
    path = tmp_path / "log.db"
    run_and_kill(path, 150)
    async with EventLog.open(path) as log:
        assert await log.recover() <= 8
        for one in await log.sessions():
            assert one.open_run_id is None
            await log.require_safe(one.session_id, allow_prior_unknown=True)
        await log.prefix(10**6, BIG)
