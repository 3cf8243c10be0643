"""Recovery of a real file: every shape that a process can leave is sealed once, and stays as it is from then on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.errors import CommitRejected, ReconciliationRequired
from maka_trio.facts import Cancelled, CodeMode, Fact, Failed, FailureClass, Invocation, InvocationEnded
from maka_trio.facts.outcome import InvocationOutcome
from maka_trio.log import EventLog
from maka_trio.log.draft import Draft
from maka_trio.log.store import Store
from maka_trio.recovery import sealing_facts
from maka_trio.transitions import InvocationState, Refusal
from tests.log.log_story import (
    CANCELLED,
    COMPLETED,
    UNFINISHED,
    UNKNOWN,
    call,
    child,
    completed,
    dispatched,
    nested_call,
    observed,
    opened,
    rejected,
    requested,
    settled,
    tell,
)

BIG = 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def leave(path: Path, *stories: Sequence[object]) -> list[Invocation]:
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
        assert [one.fact for one in written] == list(sealing_facts(state))
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


WIDE = [opened(), requested(), completed("s1", *(call(f"c{n}", text="x" * 100) for n in range(20)))]
"""An invocation with twenty open calls, of about 2,200 bytes of input."""


@pytest.mark.parametrize("bounds", [{"BATCH_EVENTS": 4}, {"BATCH_BYTES": 500}], ids=["events", "bytes"])
@pytest.mark.parametrize("inline", [False, True])
async def test_what_fits_into_no_transaction_is_sealed_in_several(
    path: Path, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int], *, inline: bool
) -> None:
    """An earlier version's invocation with more open than recovery's own limits keeps nobody from this log."""
    (wide, other) = leave(path, WIDE, [opened()])
    for name, bound in ({"RECOVERY_OPERATIONS": 3, "RECOVERY_BYTES": 50} | bounds).items():
        monkeypatch.setattr(limits, name, bound)
    sizes: list[int] = []
    write = Store._transact

    def transact(self: Store, work: Any) -> Any:
        sizes.append(len(getattr(work, "__self__", Draft()).events))
        return write(self, work)

    monkeypatch.setattr(Store, "_transact", transact)
    async with EventLog.open(path, inline=inline) as log:
        seen = log.follow(after=3)
        assert await log.recover() == 2
        after = (await log.prefix(1000, BIG)).events
        assert sum(sizes) == 22
        assert max(sizes) <= 5
        written = [stored.event for stored in after if stored.sequence > 4]
        state = InvocationState(wide)
        for fact in WIDE:
            state.advance(fact)
        assert [one.fact for one in written if one.invocation == wide] == list(sealing_facts(state))
        assert [one.fact.kind for one in written if one.invocation == other] == ["invocation_ended"]
        assert [(await seen.__anext__()).sequence for _ in range(23)] == list(range(4, 27))
        await log.require_safe("session 0")
        assert await log.recover() == 0


async def test_a_recovery_that_is_killed_between_two_transactions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote stays, and the next one writes the rest."""
    leave(path, WIDE)
    monkeypatch.setattr(limits, "BATCH_EVENTS", 8)
    store = Store.open(path)
    write, transactions = store._transact, 0

    def transact(work: Any) -> Any:
        nonlocal transactions
        transactions += 1
        if transactions == 2:
            raise KeyboardInterrupt
        return write(work)

    monkeypatch.setattr(store, "_transact", transact)
    with pytest.raises(KeyboardInterrupt):
        store.seal(["session 0"])
    assert store.root.high_water == 3 + 8
    store.close()
    async with EventLog.open(path) as log:
        assert await log.recover() == 1
        assert (await log.head()).high_water == 3 + 20 + 1
        await log.require_safe("session 0")


async def test_more_invocations_than_one_list_are_sealed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """List by list."""
    leave(path, *[[opened()]] * 7)
    monkeypatch.setattr(limits, "RECOVERED_INVOCATIONS", 3)
    async with EventLog.open(path) as log:
        assert await log.recover() == 7
        assert all(one.open_run_id is None for one in await log.sessions())


def test_the_next_list_goes_on_behind_the_last(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So recovery comes to an end whatever becomes of those that it was given."""
    leave(path, *[[opened()]] * 3, [opened(), COMPLETED], [opened()])
    monkeypatch.setattr(limits, "RECOVERED_INVOCATIONS", 2)
    with closing(Store.open(path)) as store:
        assert store.abandoned(store.root.high_water) == ["session 0", "session 1"]
        assert store.abandoned(store.root.high_water, "session 1") == ["session 2", "session 4"]
        assert store.abandoned(store.root.high_water, "session 4") == []


async def test_an_end_of_ones_own(path: Path) -> None:
    """Who knows why a run ends says so; that an effect is unsettled goes before it."""
    leave(path, UNFINISHED["accepted calls"], UNFINISHED["a running call and one behind it"])
    async with EventLog.open(path) as log:
        for number in (0, 1):
            assert await log.seal(f"session {number}", outcome_of_a_cancel)
            assert not await log.seal(f"session {number}", outcome_of_a_cancel)
        ends = [s.event.fact for s in (await log.prefix(100, BIG)).events if s.event.fact.kind == "invocation_ended"]
    assert ends == [CANCELLED, UNKNOWN]


def outcome_of_a_cancel(*, unsettled: bool) -> InvocationOutcome:
    return Failed(FailureClass.OUTCOME_UNKNOWN) if unsettled else Cancelled()


# --- what may be left ---------------------------------------------------------------------------------------

OPERATION, BYTES = "RECOVERY_OPERATIONS", "RECOVERY_BYTES"

TOO_MUCH: dict[str, tuple[str, int, list[Fact], Fact]] = {
    "calls": (OPERATION, 2, [opened(), requested()], completed("s1", call("c1"), call("c2"), call("c3"))),
    "input": (BYTES, 219, [opened(), requested()], completed("s1", call("c1", x="x" * 102), call("c2", x="x" * 102))),
    "input of two steps": (
        *(BYTES, 219),
        [opened(), requested(), completed("s1", call("c1", x="x" * 102)), requested("s2")],
        completed("s2", call("c2", x="x" * 102)),
    ),
    "requests": (OPERATION, 1, [opened(), requested()], requested("s2")),
    "calls of programs": (OPERATION, 3, nested_call(), child(CodeMode, "op2", "k2", "cell", "k0")),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_no_more_is_left_open_than_recovery_holds(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log refuses the fact that would make it more, and admits it where it is just as much."""
    limit, bound, before, fact = TOO_MUCH[name]
    with closing(Store.open(path)) as store:
        invocation = Invocation.new("session")
        tell(store, invocation, *before)
        monkeypatch.setattr(limits, limit, bound)
        with pytest.raises(CommitRejected, match=str(bound)) as refused:
            tell(store, invocation, fact)
        assert refused.value.reason == Refusal.TOO_MUCH_OPEN
        assert store.root.high_water == len(before)
        monkeypatch.setattr(limits, limit, bound + 1)
        tell(store, invocation, fact)


def test_what_is_decided_makes_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatch takes the place of its call and frees its input; a settlement or rejection frees all of it."""
    monkeypatch.setattr(limits, "RECOVERY_OPERATIONS", 2)
    monkeypatch.setattr(limits, "RECOVERY_BYTES", 200)
    with closing(Store.open(path)) as store:
        facts: list[Fact] = [opened()]
        for step in ("s1", "s2", "s3"):
            facts += [requested(step), completed(step, call("c1", x="x" * 90), call("c2", x="x" * 90))]
            facts += [dispatched(step, "c1", x="x" * 90), settled(f"{step}:c1"), rejected(step, "c2", x="x" * 90)]
        tell(store, Invocation.new("session"), *facts, COMPLETED)


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
