"""What is between the task that brings an answer and the one that reads it: order, bound, both kinds of end."""

from __future__ import annotations

import pytest
import trio
from trio.testing import assert_checkpoints, assert_no_checkpoints, wait_all_tasks_blocked

from maka_trio.facts.model import PartDelta
from maka_trio.models.exchange import Lot
from maka_trio.models.lots import Lots


def lot(number: int) -> Lot:
    return (PartDelta("text", str(number)),)


async def test_lots_come_in_order_and_then_the_end() -> None:
    """The end is told again and again."""
    lots = Lots(3)
    for number in range(3):
        with assert_no_checkpoints():
            await lots.give(lot(number))
    lots.end()
    for number in range(3):
        with assert_checkpoints():
            assert await lots.take() == lot(number)
    for _ in range(2):
        with pytest.raises(trio.EndOfChannel), assert_checkpoints():
            await lots.take()


async def test_whoever_waits_is_given_what_comes(nursery: trio.Nursery) -> None:
    """And the end as well."""
    lots, taken = Lots(1), []

    async def take() -> None:
        with pytest.raises(trio.EndOfChannel):
            while True:
                taken.append(await lots.take())

    nursery.start_soon(take)
    for number in range(3):
        await wait_all_tasks_blocked()
        await lots.give(lot(number))
    await wait_all_tasks_blocked()
    assert taken == [lot(number) for number in range(3)]
    lots.end()
    await wait_all_tasks_blocked()


async def test_too_many_lots_wait_for_room(nursery: trio.Nursery) -> None:
    """One taken lets one in; all taken together let the rest in, up to the bound."""
    lots = Lots(2)

    async def give() -> None:
        for number in range(6):
            await lots.give(lot(number))
        lots.end()

    nursery.start_soon(give)
    await wait_all_tasks_blocked()
    assert len(lots) == 2
    assert lots.holds_up
    assert await lots.take() == lot(0)
    await wait_all_tasks_blocked()
    assert lots.take_waiting() == [lot(1), lot(2)]
    await wait_all_tasks_blocked()
    assert lots.take_waiting() == [lot(3), lot(4)]
    assert [await lots.take()] == [lot(5)]
    assert lots.take_waiting() == []


async def test_a_patient_giver_waits_until_it_is_asked(nursery: trio.Nursery) -> None:
    """That its lots were taken is not enough."""
    lots, asked = Lots(2), trio.Event()

    async def give() -> None:
        await lots.give(lot(0))
        await lots.wait_until_asked()
        asked.set()
        await lots.give(lot(1))
        await lots.give(lot(2))
        await lots.give(lot(3))  # waits for room again, which is all that it wants

    nursery.start_soon(give)
    await wait_all_tasks_blocked()
    assert await lots.take() == lot(0)
    assert lots.take_waiting() == []
    await wait_all_tasks_blocked()
    assert not asked.is_set()
    lots.ask()
    await wait_all_tasks_blocked()
    assert asked.is_set()
    assert [await lots.take() for _ in range(3)] == [lot(1), lot(2), lot(3)]


async def test_a_cancelled_taker_has_taken_nothing() -> None:
    """Neither before it waits nor while."""
    lots = Lots(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await lots.give(lot(0))
        await lots.take()
    with trio.move_on_after(0):
        await lots.take()
    assert await lots.take() == lot(0)
    with trio.move_on_after(0.01) as waited:
        await lots.take()
    assert waited.cancelled_caught
    await lots.give(lot(1))
    assert await lots.take() == lot(1)


async def test_a_cancelled_giver_has_given_nothing() -> None:
    """And nobody waits for it."""
    lots = Lots(1)
    await lots.give(lot(0))
    for waiting in (lambda: lots.give(lot(1)), lots.wait_until_asked):
        with trio.move_on_after(0.01) as waited:
            await waiting()
        assert waited.cancelled_caught
        assert not lots.holds_up
    assert lots.take_waiting() == [lot(0)]


@pytest.mark.parametrize("patient", [False, True])
async def test_closing_sends_the_giver_away(nursery: trio.Nursery, patient: bool) -> None:
    """Now, and whenever it comes again; what waited is gone."""
    lots, gone = Lots(1), trio.Event()

    async def give() -> None:
        await lots.give(lot(0))
        if patient:
            await lots.wait_until_asked()
        with pytest.raises(trio.BrokenResourceError):
            await lots.give(lot(1))
        gone.set()

    nursery.start_soon(give)
    await wait_all_tasks_blocked()
    lots.close()
    lots.close()
    await wait_all_tasks_blocked()
    assert gone.is_set()
    assert len(lots) == 0
    await lots.wait_until_asked()


async def test_closing_sends_the_taker_away(nursery: trio.Nursery) -> None:
    """The one that waits, and any that comes."""
    lots, gone = Lots(1), trio.Event()

    async def take() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await lots.take()
        gone.set()

    nursery.start_soon(take)
    await wait_all_tasks_blocked()
    lots.close()
    await wait_all_tasks_blocked()
    assert gone.is_set()
    with pytest.raises(trio.ClosedResourceError):
        await lots.take()
