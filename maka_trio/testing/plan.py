"""What the runs of one exploration have in common: the scenario, its bounds, and which shots a run leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

from maka_trio.records import frozen
from maka_trio.shares import Share
from maka_trio.testing.orders import Decisions
from maka_trio.testing.replay import Replay
from maka_trio.testing.stepper import CountsTask
from maka_trio.testing.trial import Point, Scenario, Shot
from maka_trio.testing.trial_run import TrialResult, run_trial

T = TypeVar("T")

Shots: TypeAlias = tuple[Shot, ...]


@frozen
class Run:
    """One run that was made: how, and what it showed."""

    seed: int
    shots: Shots
    result: TrialResult
    order: Decisions | None = None

    def replay(self) -> Replay:
        """What makes it again."""
        return Replay(self.seed, self.shots, None if self.order is None else without_plain_end(self.order.chosen))

    def decided_before(self, point: Point) -> tuple[int, ...]:
        """What had been decided about the order of tasks when a point of it came."""
        made = () if self.order is None else self.order.made[: point.decided]
        return tuple(choice for choice, _ in made)


def without_plain_end(chosen: tuple[int, ...]) -> tuple[int, ...]:
    """The same decisions, as short as can be: after the last of them the oldest task runs first anyway."""
    length = max((number for number, choice in enumerate(chosen, 1) if choice), default=0)
    return chosen[:length]


@frozen
class Plan:
    """How runs are made, and what is tried after one."""

    scenario: Scenario
    points: Literal["all"] | int
    how: frozenset[str]
    pairs: int
    counts: CountsTask
    max_steps: int
    share: Share
    ends: float

    def run(self, seed: int, shots: Shots = (), order: Decisions | None = None) -> Run:
        """Make one."""
        # Naming a point costs more than making a step, so it is done only where more shots will be planned from it.
        planning = not shots or (self.pairs > 0 and len(shots) == 1)
        result = run_trial(
            self.scenario,
            seed=seed,
            shots=shots,
            order=order,
            counts=self.counts,
            max_steps=self.max_steps,
            name_points=planning,
            ends=self.ends,
        )
        return Run(seed, shots, result, order)

    def shots(self, points: tuple[Point, ...]) -> list[Shot]:
        """The shots to try at these points, thinned as was asked for."""
        return [shot for shot, _ in self.shots_at(points)]

    def shots_at(self, points: tuple[Point, ...]) -> list[tuple[Shot, Point]]:
        """The same, each with its point."""
        every = [
            (Shot(point.step, name, how), point) for point in points for name, how in point.targets if how in self.how
        ]
        return every if self.points == "all" else spread(every, self.points)

    def pairs_after(self, firsts: Sequence[Run]) -> list[tuple[Shots, tuple[int, ...]]]:
        """The second shots to try after these first ones, and what was decided before them."""
        if not self.pairs:
            return []
        plans = [
            ((*run.shots, shot), run.decided_before(point))
            for run in firsts
            for shot, point in self.shots_at(run.result.points)
        ]
        return spread(plans, -(-self.pairs // self.share.of))


def spread(items: list[T], count: int) -> list[T]:
    """At most so many of the items, evenly spread."""
    if len(items) <= count:
        return items
    return [items[index * len(items) // count] for index in range(count)]
