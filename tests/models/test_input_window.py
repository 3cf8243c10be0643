"""The input window: strictly first come, first served, and every byte comes back."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.errors import InvalidInput
from maka_trio.models.window import InputWindow, Reservation


def has_bytes(reservation: Reservation) -> bool:
    """Whether `granted` would return at once."""
    return reservation in reservation._window._owners


def test_bodies_share_the_window_until_it_is_full() -> None:
    """What fits is served at once; what does not fit waits."""
    window = InputWindow(100)
    first, second, third = window.queue(60), window.queue(40), window.queue(1)
    assert [has_bytes(place) for place in (first, second, third)] == [True, True, False]
    assert (window.used, window.waiting) == (100, 1)
    second.release()
    assert has_bytes(third)
    assert (window.used, window.waiting) == (61, 0)


def test_a_larger_body_waits_until_it_is_alone_and_owns_everything() -> None:
    """A body beyond the window is not refused: it gets the whole of it, and nobody else anything."""
    window = InputWindow(100)
    small, huge, next_one = window.queue(1), window.queue(1000), window.queue(1)
    assert not has_bytes(huge)
    small.release()
    assert has_bytes(huge)
    assert window.used == 100
    assert not has_bytes(next_one)
    huge.release()
    assert has_bytes(next_one)


def test_a_small_body_does_not_overtake_the_head_of_the_line() -> None:
    """There is room for the small one, but the one before it came first."""
    window = InputWindow(100)
    window.queue(50)
    big, small = window.queue(60), window.queue(1)
    assert not has_bytes(big)
    assert not has_bytes(small)
    big.release()  # it gives up its place
    assert has_bytes(small)


def test_release_counts_once() -> None:
    """Releasing again returns nothing a second time."""
    window = InputWindow(100)
    first, _second = window.queue(50), window.queue(50)
    for _ in range(3):
        first.release()
    assert window.used == 50


async def test_a_cancelled_wait_keeps_its_place_until_it_is_released() -> None:
    """The place in the line belongs to the reservation, not to whoever waits for it."""
    window = InputWindow(10)
    owner, waiter = window.queue(10), window.queue(10)
    with trio.move_on_after(0) as scope:
        await waiter.granted()
    assert scope.cancelled_caught
    owner.release()
    with trio.testing.assert_checkpoints():
        await waiter.granted()
    waiter.release()
    assert (window.used, window.waiting) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, 10)), max_size=40))
def test_service_follows_the_order_of_arrival(steps: list[tuple[int, int]]) -> None:
    """Whatever is queued and released: never over the capacity, never out of order, nothing lost."""
    window = InputWindow(100)
    places: list[Reservation] = []
    for size, pick in steps:
        places.append(window.queue(size))
        if pick < len(places):
            places.pop(pick).release()
        served = [has_bytes(place) for place in places]
        assert served == sorted(served, reverse=True)
        assert window.used == sum(place.size for place in places if has_bytes(place)) <= 100
        if window.waiting:
            head = next(place for place in places if not has_bytes(place))
            assert window.used + head.size > 100
    for place in places:
        place.release()
    assert (window.used, window.waiting) == (0, 0)


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, "1", None])
def test_a_capacity_is_a_positive_number_of_bytes(capacity: object) -> None:
    """Anything else is refused, by name and value."""
    with pytest.raises(InvalidInput, match="input_window"):
        InputWindow(capacity)  # type: ignore[arg-type]
