"""A session whose bodies are deleted: what goes, what stays, and when it may begin."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.errors import (
    Busy,
    InvalidInput,
)
from maka_trio.facts import (
    BodyDeleted,
    Invocation,
    ModelCompleted,
    Session,
    ToolDispatched,
    ToolSettled,
)
from maka_trio.laws import check
from maka_trio.log import EventLog, schema
from maka_trio.log.store import Store
from tests.log.deletion_story import (
    GONE,
    SECRET,
    STAYS,
    TURN_EVENTS,
    TURNS,
    USAGE,
    envelope,
    length_of,
    stubs,
    traces,
    turn,
    violations,
    whole,
    write_log,
)
from tests.log.log_story import COMPLETED, event, opened

ROOT = Path(__file__).parents[2]
BIG = 10**9


@pytest.fixture
def path(two_sessions: Path) -> Path:
    return two_sessions


# --- what goes ----------------------------------------------------------------------------------------------


async def test_nothing_that_was_said_or_done_is_left_in_the_files(path: Path) -> None:
    """Messages, streamed text, tool inputs, results, errors, media, prompts: no byte of them, when the call returns."""
    assert traces(path) > 40
    assert traces(path, "sparrow") > 30
    kept = traces(path, "sparrow")
    async with EventLog.open(path) as log:
        assert await log.delete_bodies(GONE) > 40
        assert traces(path) == 0
    assert (traces(path), traces(path, "sparrow")) == (0, kept)


async def test_a_file_that_was_written_without_care_is_cleared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where deleted content was not zeroed, pages hold copies that no table knows of; they go as well."""
    path = tmp_path / "log.db"

    def careless(connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        def connected(*args: Any) -> sqlite3.Connection:
            connection = connect(*args)
            connection.execute("PRAGMA secure_delete = OFF")
            return connection

        return connected

    with monkeypatch.context() as patch:
        patch.setattr(schema, "_configure_writer", careless(lambda connection: connection))
        patch.setattr(schema, "_connect", careless(schema._connect))
        write_log(path, 6, result=3000)
    with closing(sqlite3.connect(path)) as connection:
        cells = connection.execute(
            "SELECT body FROM events UNION ALL SELECT data FROM payloads UNION ALL SELECT data FROM artifacts"
        )
        stored = sum(cell.count(SECRET.encode()) for (cell,) in cells)
    assert traces(path) > stored, "the file has no copies, and this tests nothing"
    async with EventLog.open(path) as log:
        await log.delete_bodies(GONE)
        assert traces(path) == 0
        assert len((await whole(log)).events) == 12 * TURN_EVENTS


async def test_results_of_any_size_go_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than one step may hold goes alone."""
    monkeypatch.setattr(limits, "DELETION_BYTES", 1000)
    path = tmp_path / "log.db"
    write_log(path, 2, result=200_000)
    store = Store.open(path)
    store.begin_deletion(GONE)
    steps = []
    while some := store.delete_some(GONE):
        steps.append(some)
    assert store.finish_deletion(GONE)
    assert sum(steps) == 2 * TURN_EVENTS
    assert max(steps) < TURN_EVENTS
    assert store.connection.execute("SELECT sum(length(data)) FROM payloads").fetchone()[0] > 800_000
    store.close()
    assert traces(path) == 0


# --- what stays ---------------------------------------------------------------------------------------------


async def test_what_stays_of_each_event(path: Path) -> None:
    """Its place, id, time, identity, kind, size and digests, and the same again after reopen."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT sequence, length(body), root_digest, session_digest FROM events WHERE session = 1"
        ).fetchall()
    async with EventLog.open(path) as log:
        before = await whole(log)
        await log.delete_bodies(GONE)
        after = await whole(log)
    async with EventLog.open(path) as log:
        assert await whole(log) == after
    assert (after.digest, after.high_water) == (before.digest, before.high_water)
    assert [envelope(one) for one in after.events] == [envelope(one) for one in before.events]
    left = {one.sequence: one.event.fact for one in after.events if isinstance(one.event.fact, BodyDeleted)}
    assert [
        (number, fact.size, fact.root_digest, fact.session_digest)
        for number, fact in left.items()
        if isinstance(fact, BodyDeleted)
    ] == [(number, size, f"sha256:{log_.hex()}", f"sha256:{own.hex()}") for number, size, log_, own in rows]
    others = [one for one in before.events if one.event.invocation.session_id == STAYS]
    assert [one for one in after.events if one.event.invocation.session_id == STAYS] == others


async def test_what_was_spent_and_done_can_still_be_answered(path: Path) -> None:
    """Usage and model of each step, name and outcome of each call, how each run ended."""
    async with EventLog.open(path) as log:
        before = [one.event.fact for one in (await whole(log)).events if one.event.invocation.session_id == GONE]
        await log.delete_bodies(GONE)
        left = stubs((await whole(log)).events)
    steps = [fact for fact in before if isinstance(fact, ModelCompleted)]
    assert [(one.usage, one.operation_id) for one in left if one.of_kind == "model_completed"] == [
        (step.output.usage, step.step_id) for step in steps
    ]
    assert {one.model_id for one in left if one.of_kind == "model_requested"} == {"test"}
    calls = [fact for fact in before if isinstance(fact, ToolDispatched)]
    assert [(one.name, one.operation_id) for one in left if one.of_kind == "tool_dispatched"] == [
        (fact.name, fact.operation_id) for fact in calls
    ]
    outcomes = Counter(fact.outcome.kind for fact in before if isinstance(fact, ToolSettled))
    assert Counter(one.outcome for one in left if one.of_kind == "tool_settled") == outcomes
    assert Counter((one.name, one.outcome) for one in left if one.of_kind == "tool_rejected") == {
        ("nothing", "unavailable"): TURNS
    }
    ends = [one.outcome for one in left if one.of_kind == "invocation_ended"]
    assert ends == ["completed"] * TURNS + ["failed:model_adapter"]


async def test_the_summary_says_it(path: Path) -> None:
    """Of a session that was retired, of one that was deleted, and of the other one."""
    async with EventLog.open(path) as log:
        before = {one.session_id: one for one in await log.sessions()}
        assert [(before[name].retired, before[name].bodies) for name in (GONE, STAYS)] == [
            (True, "kept"),
            (False, "kept"),
        ]
        await log.delete_bodies(GONE)
        after = {one.session_id: one for one in await log.sessions()}
    assert (after[GONE].bodies, after[STAYS]) == ("deleted", before[STAYS])
    assert (after[GONE].events, after[GONE].invocations) == (before[GONE].events, TURNS + 1)


async def test_the_log_goes_on_with_the_same_digests(path: Path, tmp_path: Path) -> None:
    """What is appended afterwards has the digests that it would have had, and the next opening agrees."""
    whole_copy = tmp_path / "copy.sqlite"
    shutil.copy(path, whole_copy)
    invocation = Invocation.new(STAYS)
    told = [event(invocation, opened()), event(invocation, COMPLETED)]
    heads = []
    for file, deleted in ((path, True), (whole_copy, False)):
        async with EventLog.open(file) as log:
            if deleted:
                await log.delete_bodies(GONE)
            await log.commit_batch(told)
            heads += [(await log.head()).digest, (await log.head(Session(GONE))).digest]
            heads.append((await log.head(Session(STAYS))).digest)
        async with EventLog.open(file) as log:
            assert (await whole(log)).digest == heads[-3]
    assert heads[:3] == heads[3:]


async def test_a_root_prefix_with_stubs_is_lawful(path: Path) -> None:
    """Whoever has it can check what can be checked, from the events alone, its digest included."""
    async with EventLog.open(path) as log:
        await log.delete_bodies(GONE)
        prefix = await whole(log)
    assert list(check(prefix.events, digest=prefix.digest)) == []
    assert violations(path) == []
    assert violations(path, STAYS) == []
    assert violations(path, GONE) == []


# --- when it may begin --------------------------------------------------------------------------------------


async def test_a_session_that_takes_runs_keeps_its_bodies(path: Path) -> None:
    """It is retired first; nothing was changed."""
    async with EventLog.open(path) as log:
        before = await whole(log)
        for session, error in ((STAYS, "retire it"), ("nobody", "nothing of session 'nobody'")):
            with pytest.raises(InvalidInput, match=error):
                await log.delete_bodies(session)
        assert await whole(log) == before


async def test_a_session_with_an_open_run_keeps_its_bodies(path: Path) -> None:
    """The error names the run; after its end they go."""
    async with EventLog.open(path) as log:
        invocation = Invocation.new(STAYS)
        await log.commit(event(invocation, opened()))
        await log.retire(STAYS)
        with pytest.raises(Busy, match=invocation.run_id) as caught:
            await log.delete_bodies(STAYS)
        assert (caught.value.session_id, caught.value.run_id) == (STAYS, invocation.run_id)
        assert stubs((await whole(log)).events) == []
        await log.commit(event(invocation, COMPLETED))
        assert await log.delete_bodies(STAYS) == await length_of(log, STAYS)


async def test_deleting_again_changes_nothing(path: Path) -> None:
    """Also after reopen, and also of a session that is deleted beside another one."""
    async with EventLog.open(path) as log:
        assert await log.delete_bodies(GONE) == await length_of(log, GONE)
        assert await log.delete_bodies(GONE) == 0
        await log.retire(GONE)
        await log.retire(STAYS)
    before = path.read_bytes()
    async with EventLog.open(path) as log:
        assert await log.delete_bodies(GONE) == 0
        assert await log.delete_bodies(STAYS) == await length_of(log, STAYS)
        assert len(stubs((await whole(log)).events)) == (await log.head()).high_water
    assert path.read_bytes() != before
    assert violations(path) == []
    assert traces(path, "sparrow") == 0


async def test_a_log_without_a_file_forgets_too() -> None:
    """The same rules; there is only no file to clear."""
    async with EventLog.in_memory() as log:
        turn(log._store, GONE, 0)
        turn(log._store, STAYS, 0)
        await log.retire(GONE)
        assert await log.delete_bodies(GONE) == TURN_EVENTS
        left = stubs((await whole(log)).events)
    assert len(left) == TURN_EVENTS
    assert [one.usage for one in left if one.usage] == [USAGE]
