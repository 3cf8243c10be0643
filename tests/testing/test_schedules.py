"""Every order of a small scenario's tasks is tried, whatever the tasks are and whatever wakes them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Awaitable, Callable

import pytest
import trio

from maka_trio.testing import Decisions, Trial, explore, run_trial
from maka_trio.testing.trial import Scenario

Seen = list[str]
Say = Callable[[str, Seen], Awaitable[None]]


class Speaker:
    """A task that is an object; trio names it by its address."""

    def __init__(self, name: str, seen: Seen) -> None:
        self.name = name
        self.seen = seen

    async def __call__(self) -> None:
        self.seen.append(self.name)

    async def speak(self) -> None:
        self.seen.append(self.name)


async def say(name: str, seen: Seen) -> None:
    seen.append(name)


def start(nursery: trio.Nursery, kind: str, name: str, seen: Seen) -> None:
    """Start a task of one step."""
    match kind:
        case "function":
            nursery.start_soon(say, name, seen)
        case "partial":
            nursery.start_soon(functools.partial(say, name, seen))
        case "object":
            nursery.start_soon(Speaker(name, seen))
        case "partial of an object":
            nursery.start_soon(functools.partial(Speaker(name, seen)))
        case "method":
            nursery.start_soon(Speaker(name, seen).speak)
        case "lambda":
            nursery.start_soon(lambda: say(name, seen))
        case "named like trio's own":
            nursery.start_soon(say, name, seen, name="<init>")
        case _:
            trio.lowlevel.spawn_system_task(say, name, seen)


def orders_of(scenario: Scenario, seen_in: list[Seen], **settings: int) -> set[tuple[str, ...]]:
    """Explore it in all schedules; the orders that were seen, of which each came once."""
    exploration = explore(scenario, schedules=1000, **settings)
    exploration.raise_for_violations()
    assert exploration.complete
    orders = [tuple(seen) for seen in seen_in]
    assert len(orders) == len(set(orders)) == exploration.runs
    return set(orders)


@pytest.mark.parametrize(
    "kind",
    [
        "function",
        "partial",
        "object",
        "partial of an object",
        "method",
        "lambda",
        "named like trio's own",
        "system task",
    ],
)
@pytest.mark.parametrize("count", [2, 3, 4])
def test_tasks_of_every_kind_run_in_every_order(kind: str, count: int) -> None:
    """So many tasks of one step: the factorial of their number, each order once."""
    runs: list[Seen] = []

    async def scenario(trial: Trial) -> None:
        runs.append([])
        async with trio.open_nursery() as nursery:
            for name in "abcd"[:count]:
                start(nursery, kind, name, runs[-1])
            await trio.sleep(1)

    assert orders_of(scenario, runs) == set(itertools.permutations("abcd"[:count]))


async def woken_by_an_event(nursery: trio.Nursery, seen: Seen) -> None:
    event = trio.Event()

    async def wait(name: str) -> None:
        await event.wait()
        seen.append(name)

    for name in "abc":
        nursery.start_soon(wait, name)
    await trio.testing.wait_all_tasks_blocked()
    event.set()


async def woken_by_the_end_of_a_channel(nursery: trio.Nursery, seen: Seen) -> None:
    send, receive = trio.open_memory_channel[int](0)

    async def listen(name: str, channel: trio.MemoryReceiveChannel[int]) -> None:
        async with channel:
            async for _ in channel:
                pass
        seen.append(name)

    with receive:
        for name in "abc":
            nursery.start_soon(listen, name, receive.clone())
    await trio.testing.wait_all_tasks_blocked()
    send.close()


async def woken_by_a_cancel(nursery: trio.Nursery, seen: Seen) -> None:
    async def work(name: str) -> None:
        try:
            await trio.sleep(5)
        finally:
            seen.append(name)

    for name in "abc":
        nursery.start_soon(work, name)
    await trio.testing.wait_all_tasks_blocked()
    nursery.cancel_scope.cancel()


async def woken_by_a_deadline(nursery: trio.Nursery, seen: Seen) -> None:
    async def work(name: str) -> None:
        with trio.move_on_at(2):
            await trio.sleep_forever()
        seen.append(name)

    for name in "abc":
        nursery.start_soon(work, name)
    await trio.testing.wait_all_tasks_blocked()


async def asleep_until_the_same_moment(nursery: trio.Nursery, seen: Seen) -> None:
    async def work(name: str) -> None:
        await trio.sleep_until(2)
        seen.append(name)

    for name in "abc":
        nursery.start_soon(work, name)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    "wake",
    [
        woken_by_an_event,
        woken_by_the_end_of_a_channel,
        woken_by_a_cancel,
        woken_by_a_deadline,
        asleep_until_the_same_moment,
    ],
    ids=lambda wake: wake.__name__,
)
def test_whatever_wakes_tasks_wakes_them_in_every_order(
    wake: Callable[[trio.Nursery, Seen], Awaitable[None]],
) -> None:
    """Six orders of three tasks that are woken together, in every order in which they began to wait."""
    runs: list[Seen] = []

    async def scenario(trial: Trial) -> None:
        runs.append([])
        async with trio.open_nursery() as nursery:
            await wake(nursery, runs[-1])

    exploration = explore(scenario, schedules=1000)
    exploration.raise_for_violations()
    assert exploration.complete
    assert {tuple(seen) for seen in runs} == set(itertools.permutations("abc"))


def test_a_callback_from_outside_takes_part_in_the_order() -> None:
    """What `run_sync_soon` queues may come before or after the task that is ready with it."""
    runs: list[Seen] = []

    async def scenario(trial: Trial) -> None:
        seen: Seen = []
        runs.append(seen)
        trio.lowlevel.current_trio_token().run_sync_soon(seen.append, "callback")
        await trio.lowlevel.checkpoint()
        seen.append("task")
        await trio.sleep(1)

    assert orders_of(scenario, runs) == {("callback", "task"), ("task", "callback")}


async def cleanup_in_order(trial: Trial) -> None:
    """Three tasks that begin one after the other, and whose cleanup a cancel of all of them wakes together."""
    seen: Seen = []

    async def work(name: str, delay: float) -> None:
        try:
            await trio.sleep(delay)
        finally:
            seen.append(name)

    with trial.cancellable():
        async with trio.open_nursery() as nursery:
            for delay, name in enumerate("abc", 1):
                nursery.start_soon(work, name, delay)
                await trio.sleep(0.1)
    trial.check(lambda: seen != ["c", "b", "a"] or "cleaned up backwards")


def test_the_orders_of_what_a_cancel_wakes_are_tried() -> None:
    """Undisturbed there is one schedule; a bug that takes a cancel and then an order is found, with its replay."""
    exploration = explore(cleanup_in_order, schedules=1000)
    smallest = exploration.smallest
    assert smallest is not None
    assert exploration.complete
    decisions = smallest.token.partition("[")[2].partition("]")[0]
    order = Decisions(tuple(map(int, decisions.split(","))))
    assert run_trial(cleanup_in_order, order=order, shots=smallest.shots).violations == (smallest.words,)


def test_the_orders_after_an_expired_deadline_are_tried_too() -> None:
    """As after a cancel."""
    found = explore(cleanup_in_order, schedules=1000, how=["deadline"])
    assert {violation.words for violation in found.violations} == {"cleaned up backwards"}


def test_each_moment_of_each_order_is_tried_once() -> None:
    """Two tasks that are ready together twice: four orders, and no cancel of what they have in common comes twice."""

    async def scenario(trial: Trial) -> None:
        with trial.cancellable():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.lowlevel.cancel_shielded_checkpoint)
                nursery.start_soon(trio.lowlevel.cancel_shielded_checkpoint)

    exploration = explore(scenario, schedules=1000)
    assert exploration.complete
    assert sum(not attempt.replay.shots for attempt in exploration.attempts) == 2**2
    replays = [str(attempt.replay) for attempt in exploration.attempts]
    assert len(set(replays)) == len(replays)
    on_entry = [replay for replay in replays if replay.endswith("/cancel@0:scope")]
    assert len(on_entry) == 2**2  # it is before every choice, and all four orders come after it


def test_schedules_that_were_not_tried_are_not_passed_over() -> None:
    """Too few of them, before or after a cancel: the result is not complete, and says so."""

    async def scenario(trial: Trial) -> None:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(say, name, [])

    assert explore(scenario, schedules=math.factorial(3)).complete
    few = explore(scenario, schedules=5)
    assert few.runs == 5
    assert not few.complete
    assert "there are more schedules than the 5 to try" in str(few)
    assert not explore(cleanup_in_order, schedules=1).complete


def test_processes_share_schedules_and_find_the_same() -> None:
    """The same runs, whoever makes them, and the same end."""
    for limit in (1000, 3):
        alone = explore(cleanup_in_order, schedules=limit)
        shared = explore(cleanup_in_order, schedules=limit, jobs=3)
        assert (shared.runs, shared.traces, shared.points) == (alone.runs, alone.traces, alone.points)
        assert {attempt.replay for attempt in shared.attempts} == {attempt.replay for attempt in alone.attempts}
        assert shared.violations == alone.violations
        assert shared.cuts == alone.cuts


def test_a_second_cancel_is_tried_in_schedules() -> None:
    """After a first one, in the order that led there."""

    async def scenario(trial: Trial) -> None:
        with trial.cancellable("run"):
            try:
                await trio.sleep(1)
            finally:
                with trio.CancelScope(shield=True), trial.cancellable("drain"):
                    await trio.sleep(1)

    found = explore(scenario, schedules=10, pairs=50)
    assert {len(attempt.replay.shots) for attempt in found.attempts} == {0, 1, 2}


def test_places_are_named_the_same_in_every_run() -> None:
    """A task that is an object is named without its address, so that its runs are counted at one place."""

    async def scenario(trial: Trial) -> None:
        with trial.cancellable():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Speaker("a", []))

    places = explore(scenario, seeds=5).points
    assert not any(" at 0x" in place for place in places)
    assert places == explore(scenario, seeds=5).points
