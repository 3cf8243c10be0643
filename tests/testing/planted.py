"""Small programs with one cancellation bug each, beside their right form. What the explorer must find.

Each scenario takes the trial and whether the bug is planted. A line marked `# broken here` is where a cancel breaks
the planted form; scenarios without such lines break at several places or without any.
"""

# flake8: noqa: ASYNC102, ASYNC104, ASYNC112, ASYNC124
# The linter knows some of these bugs as well, and objects to a few of the right forms.

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import trio

from maka_trio.testing import Trial
from maka_trio.testing.checks import Effects, channels_closed
from maka_trio.testing.trial import Scenario

Planted = Callable[[Trial, bool], Awaitable[None]]


async def unshielded_settle(trial: Trial, planted: bool) -> None:
    """An effect is made and its settlement can be cancelled."""
    journal: list[str] = []

    async def commit(fact: str) -> None:
        await trio.lowlevel.checkpoint()  # broken here
        journal.append(fact)

    with trial.cancellable():
        await commit("dispatched")
        with trio.CancelScope(shield=not planted):
            await trio.sleep(1)  # broken here
            await commit("settled")
    trial.check(lambda: journal in ([], ["dispatched", "settled"]) or f"the journal ends with {journal}")


async def swallowed_cancelled(trial: Trial, planted: bool) -> None:
    """A retry loop takes Cancelled for a failure of the attempt."""
    caught = BaseException if planted else OSError
    with trial.cancellable(), suppress(caught):
        await trio.sleep(1)  # broken here


async def channel_left_open(trial: Trial, planted: bool) -> None:
    """A producer forgets its end when it is cancelled."""
    send, receive = trio.open_memory_channel[int](0)
    trial.check(lambda: channels_closed(send))

    async def produce() -> None:
        if planted:
            await send.send(1)
            send.close()
        else:
            with send:
                await send.send(1)

    with trial.cancellable(), receive:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await receive.receive()  # broken here: the producer has not started yet


async def admission_released_early(trial: Trial, planted: bool) -> None:
    """The slot is free before the effect of a cancelled holder has drained."""
    slot = trio.Lock()
    draining = False

    async def effect() -> None:
        nonlocal draining
        draining = True
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        draining = False

    async def run(nursery: trio.Nursery) -> None:
        async with slot:
            if planted:
                nursery.start_soon(effect)
                await trio.sleep(10)
            else:
                await effect()

    async def next_run() -> None:
        async with slot:
            if draining:
                trial.violation("the next run was admitted while an effect was alive")

    async with trio.open_nursery() as owner:
        with trial.cancellable():
            await run(owner)
        await next_run()


async def dispatched_after_abort(trial: Trial, planted: bool) -> None:
    """A shielded batch goes on with its next call though the caller is gone."""
    aborted = trio.Event()
    dispatched: list[int] = []

    async def batch() -> None:
        with trio.CancelScope(shield=True):
            for call in range(3):
                if aborted.is_set() and not planted:
                    return
                if aborted.is_set():
                    trial.violation(f"call {call} was dispatched after the abort")
                dispatched.append(call)
                await trio.sleep(1)

    with trial.target("abort", cancel=aborted.set):
        await batch()


async def ended_before_settled(trial: Trial, planted: bool) -> None:
    """The end is written by the cancelled task while its effect is still draining elsewhere."""
    journal: list[str] = []

    async def effect() -> None:
        with trio.CancelScope(shield=True):
            journal.append("dispatched")
            await trio.sleep(1)
            journal.append("settled")

    async def end() -> None:
        journal.append("ended")

    async def run() -> None:
        if not planted:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(effect)
            finally:
                await end()
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(effect)
            try:
                await trio.sleep(2)
            finally:
                await end()

    with trial.cancellable():
        await run()

    @trial.check
    def ends_last() -> str | None:
        return None if not journal or journal[-1] == "ended" else f"the journal ends with {journal}"


async def item_lost_in_handover(trial: Trial, planted: bool) -> None:
    """A queue's `get` takes the item and then waits once more."""
    items = [1]
    handled: list[int] = []

    async def get() -> int:
        if planted:
            item = items.pop()
            await trio.lowlevel.checkpoint()  # broken here
            return item
        await trio.lowlevel.checkpoint()
        return items.pop()

    with trial.cancellable():
        handled.append(await get())
    trial.check(lambda: len(items) + len(handled) == 1 or "the item is nowhere")


async def token_leaked(trial: Trial, planted: bool) -> None:
    """A limiter's token is taken outside the block that gives it back."""
    limiter = trio.CapacityLimiter(1)
    with trial.cancellable():
        await limiter.acquire()  # broken here
        if planted:
            await trio.sleep(1)  # broken here
        try:
            await trio.sleep(1)
        finally:
            limiter.release()
    trial.check(lambda: limiter.borrowed_tokens == 0 or "a token is gone for good")


async def waits_for_the_dead(trial: Trial, planted: bool) -> None:
    """Whoever waits for a cancelled worker's event waits for ever."""
    done = trio.Event()

    async def work() -> None:
        with trial.cancellable():
            try:
                await trio.sleep(1)  # broken here
            finally:
                if not planted:
                    done.set()
            done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await done.wait()


async def cleanup_without_a_bound(trial: Trial, planted: bool) -> None:
    """A shielded cleanup asks a peer that never answers."""
    never = trio.Event()
    with trial.cancellable():
        try:
            await trio.sleep(1)
        except BaseException:
            with trio.move_on_after(trio.current_time() + 5 if not planted else float("inf"), shield=True):
                await never.wait()
            raise


async def settled_twice(trial: Trial, planted: bool) -> None:
    """An effect is repeated because its acknowledgement was cancelled."""
    effects = Effects()
    trial.check(effects.check)
    acknowledged = False

    async def pay() -> None:
        nonlocal acknowledged
        with effects("pay"):
            pass
        await trio.sleep(1)  # broken here
        acknowledged = True

    with trial.cancellable():
        await pay()
    if not acknowledged and planted:
        await pay()


async def half_an_effect(trial: Trial, planted: bool) -> None:
    """Two halves of a transfer with a checkpoint between."""
    accounts = {"a": 10, "b": 0}
    effects = Effects()
    trial.check(effects.check)
    with trial.cancellable():
        await trio.sleep(1)
        with effects("transfer"):
            accounts["a"] -= 5
            if planted:
                await trio.sleep(1)  # broken here
            accounts["b"] += 5


async def cancelled_replaced(trial: Trial, planted: bool) -> None:
    """Cleanup under cancellation raises an error of its own."""
    with trial.cancellable():
        opened = False
        try:
            await trio.sleep(1)  # broken here
            opened = True
        finally:
            if planted and not opened:
                raise RuntimeError("close() of something never opened")


async def group_missed(trial: Trial, planted: bool) -> None:
    """`except Cancelled` does not see the group that a nursery raises when one of its tasks fails to stop in order."""
    settled = False

    async def stop_badly() -> None:
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            raise OSError("the socket broke as it was closed") from None

    async def work() -> None:
        nonlocal settled
        caught = trio.Cancelled if planted else BaseException
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop_badly)
                await trio.sleep(1)
        except caught:
            settled = True
            raise
        settled = True

    trial.check(lambda: settled or "left unsettled")
    try:
        with trial.cancellable():
            await work()
    except* OSError:
        pass


async def lock_held_by_a_dead_task(trial: Trial, planted: bool) -> None:
    """A lock is taken by hand and not released on the way out."""
    lock = trio.Lock()
    async with AsyncExitStack() as stack:
        with trial.cancellable():
            if planted:
                await lock.acquire()  # broken here
                await trio.sleep(1)  # broken here
                lock.release()
            else:
                await stack.enter_async_context(lock)
                await trio.sleep(1)
    trial.check(lambda: not lock.locked() or "the lock is held by nobody")


async def checkpoint_between_check_and_act(trial: Trial, planted: bool) -> None:
    """Two tasks both find the seat free: a race that only some schedules show, without any cancel."""
    taken: list[str] = []

    async def take(name: str, delay: int) -> None:
        for _ in range(delay):
            await trio.lowlevel.checkpoint()
        if not taken:
            if planted:
                await trio.lowlevel.checkpoint()
            taken.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, "a", 0)
        nursery.start_soon(take, "b", 1)
    trial.check(lambda: len(taken) == 1 or f"one seat for {taken}")


PLANTED: tuple[Planted, ...] = (
    unshielded_settle,
    swallowed_cancelled,
    channel_left_open,
    admission_released_early,
    dispatched_after_abort,
    ended_before_settled,
    item_lost_in_handover,
    token_leaked,
    waits_for_the_dead,
    cleanup_without_a_bound,
    settled_twice,
    half_an_effect,
    cancelled_replaced,
    group_missed,
    lock_held_by_a_dead_task,
    checkpoint_between_check_and_act,
)


def scenario_of(program: Planted, planted: bool) -> Scenario:
    """A program as a scenario, with its bug or without."""

    async def scenario(trial: Trial) -> None:
        await program(trial, planted)

    return scenario
