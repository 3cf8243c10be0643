"""Schedules that are chosen instead of drawn: each is a list of decisions, and they are tried depth first."""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from typing import Any

from maka_trio.testing.scheduling import has_nothing_to_do


class Decisions:
    """An `Order` that follows a list of decisions, and then lets the oldest task run first.

    Each time several tasks are ready, the next decision says which of them runs first (0 is the oldest), the one
    after it which of the others runs second, and so on.

    Args:
        chosen: the decisions.

    Attributes:
        made: what was decided in the run, and between how many.
    """

    def __init__(self, chosen: tuple[int, ...] = ()) -> None:
        self.chosen = chosen
        self.made: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"Decisions({self.chosen!r})"

    def shuffle(self, batch: MutableSequence[Any], /) -> None:
        """Called by trio's run loop, which takes tasks from the end."""
        idle = [task for task in batch if has_nothing_to_do(task)]  # trio's, which nobody's outcome depends on
        waiting = [task for task in batch if task not in idle]
        first_to_last = idle + [waiting.pop(self._decide(len(waiting))) for _ in range(len(waiting))]
        batch[:] = first_to_last[::-1]

    def _decide(self, among: int) -> int:
        if among == 1:
            return 0
        number = len(self.made)
        # A run that a cancel has turned elsewhere may have fewer tasks ready than the list was made for.
        choice = min(self.chosen[number], among - 1) if number < len(self.chosen) else 0
        self.made.append((choice, among))
        return choice


def depth_first(deviations: int | None = None, after: tuple[int, ...] = ()) -> Iterator[Decisions]:
    """Every schedule of a program, the plain one first. Run the program under each before asking for the next.

    Args:
        deviations: how often a schedule may differ from running the oldest task first; None for any number.
        after: only schedules that begin with these decisions.
    """
    chosen: tuple[int, ...] | None = after
    while chosen is not None:
        order = Decisions(chosen)
        yield order
        chosen = _next(order.made, deviations, len(after))


def _next(made: list[tuple[int, int]], deviations: int | None, fixed: int) -> tuple[int, ...] | None:
    for position in reversed(range(fixed, len(made))):
        choice, among = made[position]
        before = tuple(decision for decision, _ in made[:position])
        if choice + 1 < among and (deviations is None or sum(map(bool, before)) < deviations):
            return (*before, choice + 1)
    return None
