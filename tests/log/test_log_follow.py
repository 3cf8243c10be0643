"""Following a log: live, from the past, slow, many, to the end."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from maka_trio import limits
from maka_trio.errors import CommitRejected
from maka_trio.facts import Invocation, RuntimeEvent, StoredEvent
from maka_trio.log import EventLog, Follower
from maka_trio.log.follow import Hub
from tests.log.log_story import COMPLETED, event, observed, opened, requested


@pytest.fixture(params=["thread", "memory"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    async with EventLog.in_memory() if request.param == "memory" else EventLog.open(tmp_path / "log.db") as log:
        yield log


async def tell(log: EventLog, invocation: Invocation, *facts: object) -> list[RuntimeEvent]:
    told = [event(invocation, fact) for fact in facts]  # type: ignore[arg-type]
    await log.commit_batch(told)
    return told


async def take(follower: Follower, count: int) -> list[int]:
    """The next sequences."""
    with trio.fail_after(60):
        return [(await follower.__anext__()).sequence for _ in range(count)]


async def until_seen(seen: list[StoredEvent], count: int) -> None:
    with trio.fail_after(60):
        while len(seen) < count:  # noqa: ASYNC110 - the follower under test is what would wake us
            await trio.sleep(0.001)


async def collect(follower: Follower, into: list[StoredEvent]) -> None:
    async for stored in follower:
        into.append(stored)


async def test_events_of_the_past_and_of_the_future(log: EventLog) -> None:
    """A follower hands on what is there, then what comes, each once, exactly as it was committed."""
    invocation = Invocation.new("session")
    told = await tell(log, invocation, opened(), requested())
    seen: list[StoredEvent] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, log.follow(), seen)
        await trio.testing.wait_all_tasks_blocked(0.05)
        told += await tell(log, invocation, *[observed()] * 3)
        told += await tell(log, invocation, observed())
        await until_seen(seen, 6)
        nursery.cancel_scope.cancel()
    assert [stored.event for stored in seen] == told
    assert [stored.sequence for stored in seen] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("after", [0, 1, 3, 6])
async def test_following_from_a_sequence(log: EventLog, after: int) -> None:
    """A follower begins right after its sequence, which may lie in the past or be the end."""
    invocation = Invocation.new("session")
    await tell(log, invocation, opened(), requested(), *[observed()] * 4)
    follower = log.follow(after)
    await tell(log, invocation, observed(), observed())
    assert await take(follower, 8 - after) == list(range(after + 1, 9))


async def test_following_from_the_future(log: EventLog) -> None:
    """A sequence that is not reached yet is waited for."""
    invocation = Invocation.new("session")
    follower = log.follow(after=4)
    await tell(log, invocation, opened(), requested(), *[observed()] * 4)
    assert await take(follower, 2) == [5, 6]


async def test_following_one_session(log: EventLog) -> None:
    """A follower of a session sees nothing of the others, in the past and live."""
    mine, other = Invocation.new("mine"), Invocation.new("other")
    await tell(log, other, opened(), requested("o"))
    await tell(log, mine, opened())
    follower = log.follow(session_id="mine")
    assert await take(follower, 1) == [3]
    await tell(log, other, *[observed("o")] * 3)
    await tell(log, mine, requested(), observed())
    assert await take(follower, 2) == [7, 8]


async def test_following_a_session_that_is_not_there_yet(log: EventLog) -> None:
    """A session may be followed before it begins."""
    follower = log.follow(session_id="later")
    async with trio.open_nursery() as nursery:
        seen: list[StoredEvent] = []
        nursery.start_soon(collect, follower, seen)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await tell(log, Invocation.new("later"), opened(), COMPLETED)
        await until_seen(seen, 2)
        nursery.cancel_scope.cancel()


async def test_slow_follower_holds_a_bounded_amount(log: EventLog) -> None:
    """A follower that does not keep up holds no more than its bound, holds up nobody, and misses nothing."""
    invocation = Invocation.new("session")
    await tell(log, invocation, opened(), requested())
    followers = [log.follow(), log.follow(session_id="session")]
    for follower in followers:
        assert await take(follower, 1) == [1]
    for _ in range(6):
        await tell(log, invocation, *[observed()] * 700)
        assert all(len(follower._held) <= limits.FOLLOW_EVENTS for follower in followers)
    for follower in followers:
        assert await take(follower, 4201) == list(range(2, 4203))
        await tell(log, invocation, observed())
    assert await take(followers[0], 2) == [4203, 4204]
    assert await take(followers[1], 2) == [4203, 4204]


async def test_follower_is_bounded_in_bytes(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large events are held one at a time if need be, and none is lost."""
    monkeypatch.setattr(limits, "FOLLOW_BYTES", 1000)
    invocation = Invocation.new("session")
    await tell(log, invocation, opened())
    follower = log.follow()
    assert await take(follower, 1) == [1]
    await tell(log, invocation, requested(), *[observed()] * 50)
    assert len(follower._held) < 20
    assert await take(follower, 51) == list(range(2, 53))


async def test_events_that_come_while_a_follower_catches_up(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of the file and the first live event nothing is lost and nothing comes twice."""
    invocation = Invocation.new("session")
    await tell(log, invocation, opened(), requested(), *[observed()] * 20)
    for more in (0, 3, limits.FOLLOW_EVENTS + 5):
        follower = log.follow()
        read = follower._read

        async def read_and_be_overtaken(session_id: str | None, after: int, *, more: int = more, read=read):  # type: ignore[no-untyped-def]
            answer = await read(session_id, after)
            if more and after == 0:
                await tell(log, invocation, *[observed()] * more)
            return answer

        follower._read = read_and_be_overtaken
        end = (await log.head()).high_water + more
        assert await take(follower, end) == list(range(1, end + 1))


async def test_refused_and_repeated_commits_wake_nobody(log: EventLog) -> None:
    """A follower hears of what became durable, and of nothing else."""
    invocation = Invocation.new("session")
    (first,) = await tell(log, invocation, opened())
    seen: list[StoredEvent] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, log.follow(), seen)
        await until_seen(seen, 1)
        assert await log.commit(first) == 1
        with pytest.raises(CommitRejected):
            await log.commit(event(invocation, observed()))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(seen) == 1
        nursery.cancel_scope.cancel()


async def test_what_was_read_already_is_not_handed_over_again() -> None:
    """The file knows of a commit a moment before those who follow are told of it."""
    events = [StoredEvent(number, event(Invocation.new("session"), observed())) for number in (1, 2, 3)]

    async def read(session_id: str | None, after: int) -> tuple[list[StoredEvent], bool]:
        await trio.lowlevel.checkpoint()
        return events, False

    hub = Hub()
    follower = Follower(hub, read, 0, None)
    seen = [await follower.__anext__()]
    for one in events:
        follower.offer(one, 1)
    hub.close()
    seen += [one async for one in follower]
    assert seen == events


async def test_many_followers(log: EventLog) -> None:
    """Each of many followers, of everything or of a session, sees all that is its own."""
    names = [f"session {number}" for number in range(10)]
    everything: list[list[StoredEvent]] = [[] for _ in range(10)]
    single: dict[str, list[StoredEvent]] = {name: [] for name in names}
    async with trio.open_nursery() as nursery:
        for into in everything:
            nursery.start_soon(collect, log.follow(), into)
        for name in names:
            nursery.start_soon(collect, log.follow(session_id=name), single[name])
        for name in names:
            await tell(log, Invocation.new(name), opened(), requested(name), *[observed(name)] * 5)
        await log.aclose()
    assert [[stored.sequence for stored in seen] for seen in everything] == [list(range(1, 71))] * 10
    for number, name in enumerate(names):
        assert [stored.sequence for stored in single[name]] == list(range(number * 7 + 1, number * 7 + 8))


# --- ends -------------------------------------------------------------------------------------------------


async def test_follower_ends_with_the_log(log: EventLog) -> None:
    """When the log closes, a follower hands on what it holds and ends, and stays ended."""
    invocation = Invocation.new("session")
    follower = log.follow()
    await tell(log, invocation, opened())
    assert await take(follower, 1) == [1]
    await tell(log, invocation, requested(), observed())
    await log.aclose()
    assert [stored.sequence async for stored in follower] == [2, 3]
    with pytest.raises(StopAsyncIteration):
        await follower.__anext__()


async def test_follower_that_never_began_ends_with_the_log(log: EventLog) -> None:
    """A follower that has read nothing when the log closes has nothing to read from."""
    await tell(log, Invocation.new("session"), opened())
    follower = log.follow()
    await log.aclose()
    assert [stored async for stored in follower] == []


async def test_follower_that_is_behind_ends_for_good(tmp_path: Path) -> None:
    """A follower that cannot read on because the log closes ends there: what is still written would leave a gap."""
    invocation = Invocation.new("session")
    async with EventLog.open(tmp_path / "log.db") as log:
        await tell(log, invocation, opened(), requested())
        follower = log.follow()
        go_on = threading.Event()
        write = log._store.write
        log._store.write = lambda *asked: (go_on.wait(60), write(*asked))[1]  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell, log, invocation, observed())
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(log.aclose)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(StopAsyncIteration):
                await follower.__anext__()
            go_on.set()
        with pytest.raises(StopAsyncIteration):
            await follower.__anext__()


async def test_closing_a_follower_keeps_the_error_of_its_block(log: EventLog) -> None:
    """An error that ends the block comes out of it, also in a cancelled scope."""
    with trio.CancelScope() as scope, pytest.raises(KeyError):
        async with log.follow():
            scope.cancel()
            raise KeyError("mine")


async def test_waiting_follower_is_told_of_the_end(log: EventLog) -> None:
    """A follower that waits when the log closes ends there."""
    seen: list[StoredEvent] = []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, log.follow(), seen)
            nursery.start_soon(collect, log.follow(session_id="session"), seen)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await log.aclose()
    assert seen == []


async def test_cancelled_wait_loses_nothing(log: EventLog) -> None:
    """A follower whose wait was cancelled, live or while it read, goes on where it was."""
    invocation = Invocation.new("session")
    await tell(log, invocation, opened())
    follower = log.follow()
    with trio.CancelScope() as scope:
        scope.cancel()
        await follower.__anext__()
    assert await take(follower, 1) == [1]
    with trio.move_on_after(0.01):
        await follower.__anext__()
    await tell(log, invocation, requested(), observed())
    assert await take(follower, 2) == [2, 3]


async def test_cancel_while_catching_up_loses_nothing(log: EventLog) -> None:
    """A follower that is cancelled anywhere between the file and the live events misses none."""
    invocation = Invocation.new("session")
    await tell(log, invocation, opened(), requested())
    follower, seen = log.follow(), []
    for delay in range(40):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def take_some() -> None:
                    while True:
                        seen.append((await follower.__anext__()).sequence)

                nursery.start_soon(take_some)
                await tell(log, invocation, *[observed()] * 20)
                for _ in range(delay):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
    seen += await take(follower, (await log.head()).high_water - len(seen))
    assert seen == list(range(1, 803))


async def test_closed_follower(log: EventLog) -> None:
    """A closed follower says so, also to whoever waits for it, and is handed nothing more."""
    invocation = Invocation.new("session")
    await tell(log, invocation, opened())
    async with log.follow() as follower:
        assert await take(follower, 1) == [1]
        async with trio.open_nursery() as nursery:

            async def wait_for_the_end() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await follower.__anext__()

            nursery.start_soon(wait_for_the_end)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await follower.aclose()
        await tell(log, invocation, requested())
        assert len(follower._held) == 0
        with pytest.raises(trio.ClosedResourceError):
            await follower.__anext__()
        with trio.testing.assert_checkpoints():
            await follower.aclose()


async def test_one_task_iterates(log: EventLog) -> None:
    """Two tasks on one follower collide, and the second is told."""
    follower = log.follow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect, follower, [])
        await trio.testing.wait_all_tasks_blocked(0.05)
        with pytest.raises(trio.BusyResourceError):
            await follower.__anext__()
        nursery.cancel_scope.cancel()


async def test_dropped_follower_costs_nothing(log: EventLog) -> None:
    """A follower that is just left is forgotten."""
    invocation = Invocation.new("session")
    await tell(log, invocation, opened())
    async for stored in log.follow(session_id="session"):
        assert stored.sequence == 1
        break
    del stored
    gc.collect()
    await tell(log, invocation, requested())
    assert log._hub._followers == {}


async def test_iterating_checkpoints(log: EventLog) -> None:
    """Each event that a follower hands on lets others run, also when it holds many."""
    await tell(log, Invocation.new("session"), opened(), requested(), *[observed()] * 5)
    follower = log.follow()
    for _ in range(7):
        with trio.testing.assert_checkpoints():
            await follower.__anext__()
