"""Who is told that the bodies of a session were deleted, and that its ids stay taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from maka_trio.cli.log_file import LogFile
from maka_trio.engine import ContinuationWork
from maka_trio.errors import (
    CommitRejected,
    ReconciliationRequired,
    SessionDeleted,
    SessionRetired,
)
from maka_trio.facts import (
    BodyDeleted,
    Fact,
    Invocation,
    Lineage,
    RuntimeEvent,
    Session,
    StoredEvent,
)
from maka_trio.history import History
from maka_trio.log import EventLog
from maka_trio.log.reader import Reader
from maka_trio.log.store import Store
from maka_trio.log.transfer import Export
from maka_trio.log.verification import Verification
from tests.engine.scene import scene
from tests.log.continuation_story import claim_on, opening, stopped
from tests.log.deletion_story import (
    GONE,
    STAYS,
    envelope,
    run_turn,
    violations,
    whole,
    write_log,
)
from tests.log.log_story import CANCELLED, call, completed, dispatched, event, opened, rejected, requested, tell

ROOT = Path(__file__).parents[2]
BIG = 10**9


@pytest.fixture
def path(two_sessions: Path) -> Path:
    return two_sessions


# --- who is told --------------------------------------------------------------------------------------------


Question = Callable[[EventLog, StoredEvent], Any]

QUESTIONS: dict[str, Question] = {
    "its history": lambda log, end: log.read_context(GONE),
    "its prefix": lambda log, end: log.prefix(10_000, BIG, Session(GONE)),
    "a lineage": lambda log, end: log.prefix(10_000, BIG, Lineage(GONE, end.event.invocation.run_id)),
    "the head of a lineage": lambda log, end: log.head(Lineage(GONE, end.event.invocation.run_id)),
    "a run": lambda log, end: log.run_prefix(GONE, end.event.invocation.run_id, 10_000, BIG),
    "the end of a run": lambda log, end: log.boundary(GONE, end.event.invocation.run_id),
    "the history of a run": lambda log, end: log.read_context(GONE, run_id=end.event.invocation.run_id),
    "a result": lambda log, end: log.resolve_tool_result(GONE, end.event.id),
    "a picture": lambda log, end: log.read_artifact(GONE, "any"),
    "an invocation": lambda log, end: log.find_invocation(end.event.invocation.invocation_id),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
async def test_what_needs_the_bodies_is_refused(path: Path, question: Question) -> None:
    """With one error that names the session, never with half an answer; the same for the other session is answered."""
    async with EventLog.open(path) as log:
        events = (await whole(log)).events
        end = next(one for one in reversed(events) if one.event.invocation.session_id == GONE)
        await log.delete_bodies(GONE)
        with pytest.raises(SessionDeleted, match=f"'{GONE}' were deleted") as caught:
            await question(log, end)
        assert caught.value.session_id == GONE
        await log.prefix(10_000, BIG, Session(STAYS))
        await log.read_context(STAYS)


async def test_nobody_projects_a_run_without_its_bodies(path: Path) -> None:
    """A prefix of the whole log holds stubs, and what they do not say is not made up; other runs are projected."""
    async with EventLog.open(path) as log:
        await log.delete_bodies(GONE)
        prefix = await whole(log)
    for session in (GONE, STAYS):
        invocation = next(one.event.invocation for one in prefix.events if one.event.invocation.session_id == session)
        if session == STAYS:
            assert prefix.project_invocation(invocation.invocation_id).terminal is not None
            continue
        with pytest.raises(SessionDeleted, match="bodies were deleted") as caught:
            prefix.project_invocation(invocation.invocation_id)
        assert caught.value.session_id == GONE
        history = History()
        with pytest.raises(ReconciliationRequired, match="body_deleted"):
            history.push(prefix.events[0].event)


async def test_a_bundle_needs_all_bodies(path: Path) -> None:
    """Neither the session nor the whole log goes out; the other session does."""
    async with EventLog.open(path) as log:
        await log.delete_bodies(GONE)
    log_file = LogFile(path)
    for session in (GONE, None):
        with pytest.raises(SessionDeleted, match=GONE):
            next(Export(log_file.read, log_file.path, session).lines())
    assert len(list(Export(log_file.read, log_file.path, STAYS).lines())) > 20


async def test_an_engine_runs_nothing_there(path: Path) -> None:
    """A new run is refused and nothing is written, and so is the repetition of an old one."""
    async with scene(path.parent) as it:
        events = (await whole(it.log)).events
        old = next(one.event.invocation for one in events if one.event.invocation.session_id == GONE)
        boundary = await it.log.boundary(GONE, old.run_id)
        await it.log.delete_bodies(GONE)
        end = await it.log.head()
        going_on = attrs.evolve(it.input(session=GONE), work=ContinuationWork(boundary))
        with pytest.raises((SessionRetired, SessionDeleted)):
            await it.engine.run(going_on)
        for invocation in (Invocation.new(GONE), old):
            with pytest.raises((SessionRetired, SessionDeleted)):
                await it.engine.run(it.input("hello", invocation=invocation))
        assert await it.log.head() == end
        await run_turn(it, STAYS)
    assert violations(path) == []


@pytest.mark.parametrize("session", ["stays on", None])
async def test_followers_are_handed_stubs(path: Path, session: str | None) -> None:
    """All events in order, those without bodies too; of the session itself as well."""
    name = GONE if session else None
    async with EventLog.open(path) as log:
        before = [envelope(one) for one in (await whole(log)).events]
        await log.delete_bodies(GONE)
        got = []
        wanted = [one for one in before if name is None or one[3].session_id == GONE]  # type: ignore[attr-defined]
        async with log.follow(session_id=name) as follower:
            async for stored in follower:
                got.append(stored)
                if len(got) == len(wanted):
                    break
    assert [envelope(one) for one in got] == wanted
    assert {type(one.event.fact) is BodyDeleted for one in got if one.event.invocation.session_id == GONE} == {True}


def test_a_verification_that_a_deletion_overtakes_finds_nothing_wrong(tmp_path: Path) -> None:
    """What a continuation claims of earlier events is proven by reading these again, and by then they may be stubs."""
    store = Store.open(tmp_path / "log.db")
    source = stopped(store, GONE)
    tell(store, Invocation.new(GONE), opening(claim_on(store, source)), CANCELLED)
    store.retire(GONE)
    log, deleted = LogFile(tmp_path / "log.db"), []

    def ask(question: Callable[[Reader], Any]) -> Any:
        answer = log.read(question)
        if isinstance(answer, tuple) and not deleted:  # the first page
            store.begin_deletion(GONE)
            deleted.append(store.delete_some(GONE))
        return answer

    before = violations(log.path)  # of the made up digests of the requests
    assert [one.words for one in before if "lineage" in one.words or "claimed" in one.words] == []
    verification = Verification(ask, log.path)
    assert list(verification.violations()) == before
    assert (deleted, verification.deleted) == ([verification.events], 0)
    store.close()


# --- ids stay taken -----------------------------------------------------------------------------------------


async def refused(log: EventLog, *facts: Fact, session: str = "new", event_id: str | None = None) -> CommitRejected:
    invocation = Invocation.new(session)
    *before, last = facts
    if before:
        await log.commit_batch([event(invocation, fact) for fact in before])
    with pytest.raises(CommitRejected) as caught:
        await log.commit(RuntimeEvent.new(invocation, last, event_id=event_id))
    return caught.value


async def test_ids_of_a_deleted_session_stay_taken(tmp_path: Path) -> None:
    """An effect is never dispatched again, and no id of an event, an invocation or a message stands for another."""
    path = tmp_path / "log.db"
    write_log(path, 1)
    async with EventLog.open(path) as log:
        told = (await whole(log)).events
        await log.delete_bodies(GONE)
        step = f"{GONE}-0"
        steps = (opened(), requested(step), completed(step, call("c1", x="y")))
        for index, again in enumerate((dispatched(step, "c1", x="y"), rejected(step, "c1", x="y"))):
            error = await refused(log, *steps, again, session=f"new {index}")
            assert error.reason in ("operation_reused", "conflict")
        assert (await refused(log, opened(), event_id=told[0].event.id)).reason == "deleted"
        with pytest.raises(CommitRejected) as caught:
            await log.commit(told[0].event)
        assert caught.value.reason == "deleted"
        with pytest.raises(CommitRejected) as caught:
            await log.commit(RuntimeEvent.new(told[0].event.invocation, opened()))
        assert caught.value.reason == "sealed"
        with pytest.raises(SessionRetired):
            await log.commit(event(Invocation.new(GONE), opened()))
