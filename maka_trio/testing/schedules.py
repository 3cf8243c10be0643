"""Explores a scenario in every order of its tasks: before a cancel, and among those that the cancel wakes.

An undisturbed run is a list of decisions about batches of ready tasks. A cancel turns the run elsewhere: from its
moment on there are other batches, and so a list of decisions of its own, for which the decisions until that moment are
given. Two undisturbed schedules that agree until then have that moment in common, and it is tried once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from maka_trio.testing.exploration import Cut
from maka_trio.testing.orders import Decisions, depth_first
from maka_trio.testing.plan import Plan, Run, Shots
from maka_trio.testing.stepper import Trace
from maka_trio.testing.trial import Shot

_SEED = 0

_Moment: TypeAlias = tuple[tuple[int, ...], Shot]
"""A shot, and what had been decided before it."""


class Schedules:
    """The runs of one share, one schedule after the other.

    Every share makes the undisturbed runs, so that all of them know the same moments. The runs with a shot are dealt
    out by the shot, so that how many schedules were tried after it is known to one share alone.

    Args:
        plan: how runs are made.
        limit: schedules to try, of the undisturbed scenario and of each shot.
        deviations: how often a schedule may differ from the plain one.
    """

    def __init__(self, plan: Plan, limit: int, deviations: int | None) -> None:
        self._plan = plan
        self._limit = limit
        self._deviations = deviations
        self._tried: Counter[Shots] = Counter()
        self._seen: set[_Moment] = set()
        self._numbers: dict[Shot, int] = {}
        self._traces: set[Trace] = set()
        self._cut = False

    def runs(self) -> Iterator[Run | Cut]:
        """All of them."""
        for calm in self._continuations((), ()):
            if self._plan.share.first or calm.result.unfinished:
                yield calm
            if calm.result.trace not in self._traces:
                self._traces.add(calm.result.trace)
                yield from self._disturbed(calm)
        if self._cut:
            yield Cut(f"there are more schedules than the {self._limit} to try")

    def _disturbed(self, calm: Run) -> Iterator[Run]:
        firsts = []
        for decided, shot in self._new_moments(calm):
            for run in self._continuations(decided, (shot,)):
                yield run
                firsts.append(run)
        for shots, decided in self._plan.pairs_after(firsts):
            yield self._plan.run(_SEED, shots, Decisions(decided))

    def _new_moments(self, calm: Run) -> Iterator[_Moment]:
        for shot, point in self._plan.shots_at(calm.result.points):
            moment = calm.decided_before(point), shot
            number = self._numbers.setdefault(shot, len(self._numbers))
            if moment not in self._seen:
                self._seen.add(moment)
                if self._plan.share.has(number):
                    yield moment

    def _continuations(self, decided: tuple[int, ...], shots: Shots) -> Iterator[Run]:
        """Every schedule after these decisions, with these shots."""
        for order in depth_first(self._deviations, decided):
            if self._tried[shots] == self._limit:
                self._cut = True
                return
            self._tried[shots] += 1
            yield self._plan.run(_SEED, shots, order)
