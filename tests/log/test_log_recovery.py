"""Recovery of a real file: every shape that a process can leave is sealed once, and stays as it is from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from maka_trio import limits
from maka_trio.errors import PrefixTooLarge, ReconciliationRequired
from maka_trio.facts import Failed, FailureClass, Invocation, InvocationEnded
from maka_trio.log import EventLog
from maka_trio.log.store import Store
from maka_trio.recovery import sealing_facts
from maka_trio.transitions import InvocationState
from tests.log.log_story import (
    COMPLETED,
    UNFINISHED,
    call,
    completed,
    observed,
    opened,
    requested,
    tell,
)

BIG = 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def leave(path: Path, *stories: list[object]) -> list[Invocation]:
    """What a process leaves that wrote these stories, each in a session of its own, and died."""
    store = Store.open(path)
    invocations = [Invocation.new(f"session {number}") for number, _ in enumerate(stories)]
    for invocation, story in zip(invocations, stories, strict=True):
        tell(store, invocation, *story)  # type: ignore[arg-type]
    store.close()
    return invocations


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("name", UNFINISHED)
async def test_unfinished_invocation_is_sealed(path: Path, name: str, *, inline: bool) -> None:
    """The next process writes exactly what seals the invocation; a second run, and the one after, write nothing."""
    story = UNFINISHED[name]
    (invocation,) = leave(path, [*story, *[observed()] * 300] if name == "a step in flight" else story)
    state = InvocationState(invocation)
    for fact in story:
        state.advance(fact)
    async with EventLog.open(path, inline=inline) as log:
        before = await log.prefix(1000, BIG)
        assert await log.recover() == 1
        after = await log.prefix(1000, BIG)
        written = [stored.event for stored in after.events[len(before.events) :]]
        assert [one.fact for one in written] == sealing_facts(state)
        assert {one.invocation for one in written} == {invocation}
        assert await log.recover() == 0
    async with EventLog.open(path, inline=inline) as log:
        assert await log.recover() == 0
        assert await log.prefix(1000, BIG) == after


@pytest.mark.parametrize("name", UNFINISHED)
async def test_sealed_session_may_go_on_or_says_why(path: Path, name: str) -> None:
    """After recovery a session is safe, or unsafe for what nobody can know; a new opening is always possible."""
    leave(path, UNFINISHED[name])
    async with EventLog.open(path) as log:
        await log.recover()
        end = (await log.prefix(1000, BIG)).events[-1].event.fact
        assert isinstance(end, InvocationEnded)
        assert isinstance(end.outcome, Failed)
        unknown = end.outcome.failure_class is FailureClass.OUTCOME_UNKNOWN
        if unknown or name == "a remote call in flight":
            with pytest.raises(ReconciliationRequired):
                await log.require_safe("session 0")
        else:
            await log.require_safe("session 0")
    store = Store.open(path)
    tell(store, Invocation.new("session 0"), opened(), COMPLETED)
    store.close()


async def test_many_sessions_are_sealed(path: Path) -> None:
    """All that is open is sealed, and nothing else is touched."""
    stories: list[list[object]] = [[opened()], [opened(), requested(), observed()], [opened(), requested()]] * 50
    leave(path, *stories, [opened(), COMPLETED])
    async with EventLog.open(path) as log:
        assert await log.recover() == len(stories)
        assert await log.recover() == 0
        assert all(one.open_run_id is None for one in await log.sessions())
        assert (await log.sessions())[-1].events == 2
        await log.prefix(10_000, BIG)


async def test_too_much_is_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More open invocations, calls or input than the limits is an error, and nothing is written."""
    leave(path, [opened()], [opened(), requested(), completed("s1", call("c1", text="x" * 100), call("c2"))])
    async with EventLog.open(path) as log:
        for name, bound in (("RECOVERED_INVOCATIONS", 1), ("RECOVERY_OPERATIONS", 1), ("RECOVERY_BYTES", 100)):
            with monkeypatch.context() as patch:
                patch.setattr(limits, name, bound)
                with pytest.raises(PrefixTooLarge, match=str(bound)):
                    await log.recover()
        assert (await log.head()).high_water == 4
        assert await log.recover() == 2


async def test_rejection_that_cannot_be_written(path: Path) -> None:
    """Two runs that used one step id for open calls are both sealed; the second keeps its call unanswered."""
    story: list[object] = [opened(), requested(), completed("s1", call())]
    leave(path, story, story)
    async with EventLog.open(path) as log:
        assert await log.recover() == 2
        assert [one.open_run_id for one in await log.sessions()] == [None, None]
        await log.require_safe("session 0")
        with pytest.raises(ReconciliationRequired, match="1 tool calls neither dispatched nor rejected"):
            await log.require_safe("session 1")


async def test_streamed_text_does_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open step with more streamed text than recovery's bounds is sealed like any other."""
    leave(path, [opened(), requested(), *[observed()] * 500])
    monkeypatch.setattr(limits, "RECOVERY_OPERATIONS", 10)
    monkeypatch.setattr(limits, "RECOVERY_BYTES", 10)
    async with EventLog.open(path) as log:
        assert await log.recover() == 1
