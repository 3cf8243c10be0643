"""The instrument of a run: it counts steps, keeps the trace, names the points, and fires the shots."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter  # the real one, also while `time` shows virtual time
from typing import TypeAlias

import trio

from maka_trio.records import frozen
from maka_trio.testing.places import name_of, where_called_from, where_it_stands
from maka_trio.testing.scheduling import Task, cancelled_scope_reaching, has_nothing_to_do
from maka_trio.testing.trial import Point, Shot, Target, TrialState

CountsTask: TypeAlias = Callable[[Task], bool]
"""Says whether a task's steps are points."""

_PATIENCE = 10_000
"""Steps, at most, that a run is given to end after it was told to, before it is told in another way."""

_SHORT_PATIENCE = 1_000
"""The same where time is up."""

Trace: TypeAlias = tuple[tuple[int, int], ...]
"""One entry a step: which task, and at which line of its own function it stopped. Equal traces are equal runs."""


@frozen
class Moment:
    """One entry of a run's story.

    Attributes:
        task: whose step it was; empty for what the laboratory did.
        where: where the task stopped, or what was done.
    """

    task: str
    where: str


class Stepper(trio.abc.Instrument):
    """Watches one run.

    Args:
        state: the run's targets, and what is reported about it.
        shots: what to cancel and when, in order.
        counts: whose steps are points.
        max_steps: `on_runaway` is called after so many steps, and again after every tenth part of them, or `_PATIENCE`.
        name_points: keep `points`; naming one costs more than making a step.
        tell: keep `story`, which costs as much.
        ends: when `on_late` is called, once, by the real `perf_counter`.

    Attributes:
        decided: says how many decisions the order of the run has made so far.
    """

    def __init__(
        self,
        state: TrialState,
        shots: tuple[Shot, ...],
        counts: CountsTask,
        max_steps: int,
        name_points: bool,
        tell: bool = False,
        ends: float = math.inf,
    ) -> None:
        self._state = state
        self._shots = list(shots)
        self._counts = counts
        self._max_steps = max_steps
        self._patience = max(1, min(max_steps // 10, _PATIENCE))
        self._ends = ends
        self._name_points = name_points
        self._tell = tell
        self._ordinals: dict[Task, int] = {}
        self._trace: list[tuple[int, int]] = []
        self._step = 0
        self._idle = False
        self.main: Task | None = None
        self.watched_all = False
        self.points: list[Point] = []
        self.story: list[Moment] = []
        self.shot_at: list[str] = []
        self.on_runaway: Callable[[], None] = lambda: None
        self.on_late: Callable[[], None] = lambda: None
        self.decided: Callable[[], int] = lambda: 0
        state.target_opened = self._target_opened

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return tuple(self._trace)

    @property
    def stated(self) -> tuple[str, ...]:
        """The violations that the run reported so far."""
        return tuple(self._state.violations)

    def tasks(self) -> list[Task]:
        """Every task that has not ended, trio's own apart."""
        return [task for task in self._ordinals if task.coro.cr_frame is not None and not has_nothing_to_do(task)]

    def task_spawned(self, task: Task) -> None:
        """Called by trio. Tasks are told apart by the order in which they were made, not in which they first ran."""
        self._ordinals[task] = len(self._ordinals)

    def after_run(self) -> None:
        """Called by trio, unless it has disabled this instrument because of an error."""
        self.watched_all = True

    def before_task_step(self, task: Task) -> None:
        """Called by trio. Notes which scope's cancellation is delivered."""
        self._idle = has_nothing_to_do(task)
        if self._state.shot:
            scope = cancelled_scope_reaching(task)
            if scope is not None:
                self._state.delivered.append(scope)

    def after_task_step(self, task: Task) -> None:
        """Called by trio."""
        if self.main is None or self._idle:
            return
        frame = task.coro.cr_frame
        self._trace.append((self._ordinals[task], frame.f_lineno if frame is not None else 0))
        if self._tell:
            self.story.append(Moment(self._name(task), self._stop(task)))
        self._look_at_the_bounds()
        if self._state.targets and self._counts(task):
            self._at_point(task)

    def _look_at_the_bounds(self) -> None:
        if len(self._trace) >= self._max_steps:
            self._max_steps += self._patience
            self.on_runaway()
        elif perf_counter() > self._ends:
            self._ends = math.inf
            self._patience = min(self._patience, _SHORT_PATIENCE)
            self._max_steps = len(self._trace) + self._patience
            self.on_late()

    def _name(self, task: Task) -> str:
        return "the scenario" if task is self.main else f"{name_of(task)} #{self._ordinals[task]}"

    def _stop(self, task: Task) -> str:
        return "its end" if task.coro.cr_frame is None else where_it_stands(task)

    def _target_opened(self, target: Target) -> None:
        """The moment before the first step inside a target: it may be entered already cancelled."""
        if self._shots:
            self._shoot(target, f"{where_called_from()}, on entry")
        elif self._name_points:
            acts = tuple((target.name, how) for how in target.acts)
            place = f"{where_called_from()}, on entry"
            self.points.append(Point(self._step, acts, place, self.decided()))

    def _at_point(self, task: Task) -> None:
        self._step += 1
        if self._shots:
            target = self._state.targets.get(self._shots[0].target)
            if target is not None and self._shots[0].step == self._step:
                self._shoot(target, where_it_stands(task))
        elif self._name_points:
            acts = tuple((target.name, how) for target in self._state.targets.values() for how in target.acts)
            self.points.append(Point(self._step, acts, where_it_stands(task), self.decided()))

    def _shoot(self, target: Target, place: str) -> None:
        shot = self._shots[0]
        if shot.target == target.name and shot.step == self._step and shot.how in target.acts:
            del self._shots[0]
            if self._tell:
                self.story.append(Moment("", f"{shot.how} of {target.name!r}"))
            self.shot_at.append(place)
            self._state.fire(target, shot.how)
