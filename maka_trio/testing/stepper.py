"""The instrument of a run: it counts steps, keeps the trace, names the points, and fires the shots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import trio

from maka_trio.records import frozen
from maka_trio.testing.places import where_called_from, where_it_stands
from maka_trio.testing.scheduling import Task, cancelled_scope_reaching, is_system_task
from maka_trio.testing.trial import Point, Shot, Target, TrialState

CountsTask: TypeAlias = Callable[[Task], bool]
"""Says whether a task's steps are points."""

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
        max_steps: `on_runaway` is called every time so many steps were made.
        name_points: keep `points`; naming one costs more than making a step.
        tell: keep `story`, which costs as much.
    """

    def __init__(
        self,
        state: TrialState,
        shots: tuple[Shot, ...],
        counts: CountsTask,
        max_steps: int,
        name_points: bool,
        tell: bool = False,
    ) -> None:
        self._state = state
        self._shots = list(shots)
        self._counts = counts
        self._max_steps = max_steps
        self._name_points = name_points
        self._tell = tell
        self._ordinals: dict[Task, int] = {}
        self._trace: list[tuple[int, int]] = []
        self._step = 0
        self.main: Task | None = None
        self.watched_all = False
        self.points: list[Point] = []
        self.story: list[Moment] = []
        self.shot_at: list[str] = []
        self.on_runaway: Callable[[], None] = lambda: None
        state.target_opened = self._target_opened

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return tuple(self._trace)

    def tasks(self) -> list[Task]:
        """Every task that has not ended, trio's own apart."""
        main = self.main
        return [
            task
            for task in self._ordinals
            if main is not None and task.coro.cr_frame is not None and not is_system_task(task, main)
        ]

    def task_spawned(self, task: Task) -> None:
        """Called by trio. Tasks are told apart by the order in which they were made, not in which they first ran."""
        self._ordinals[task] = len(self._ordinals)

    def after_run(self) -> None:
        """Called by trio, unless it has disabled this instrument because of an error."""
        self.watched_all = True

    def before_task_step(self, task: Task) -> None:
        """Called by trio. Notes which scope's cancellation is delivered."""
        if self._state.shot:
            scope = cancelled_scope_reaching(task)
            if scope is not None:
                self._state.delivered.append(scope)

    def after_task_step(self, task: Task) -> None:
        """Called by trio."""
        if self.main is None or is_system_task(task, self.main):
            return
        frame = task.coro.cr_frame
        self._trace.append((self._ordinals[task], frame.f_lineno if frame is not None else 0))
        if self._tell:
            self.story.append(Moment(self._name(task), self._stop(task)))
        if len(self._trace) % self._max_steps == 0:
            self.on_runaway()
        if self._state.targets and self._counts(task):
            self._at_point(task)

    def _name(self, task: Task) -> str:
        return "the scenario" if task is self.main else f"{task.name} #{self._ordinals[task]}"

    def _stop(self, task: Task) -> str:
        return "its end" if task.coro.cr_frame is None else where_it_stands(task)

    def _target_opened(self, target: Target) -> None:
        """The moment before the first step inside a target: it may be entered already cancelled."""
        if self._shots:
            self._shoot(target, f"{where_called_from()}, on entry")
        elif self._name_points:
            acts = tuple((target.name, how) for how in target.acts)
            self.points.append(Point(self._step, acts, f"{where_called_from()}, on entry"))

    def _at_point(self, task: Task) -> None:
        self._step += 1
        if self._shots:
            target = self._state.targets.get(self._shots[0].target)
            if target is not None and self._shots[0].step == self._step:
                self._shoot(target, where_it_stands(task))
        elif self._name_points:
            acts = tuple((target.name, how) for target in self._state.targets.values() for how in target.acts)
            self.points.append(Point(self._step, acts, where_it_stands(task)))

    def _shoot(self, target: Target, place: str) -> None:
        shot = self._shots[0]
        if shot.target == target.name and shot.step == self._step and shot.how in target.acts:
            del self._shots[0]
            if self._tell:
                self.story.append(Moment("", f"{shot.how} of {target.name!r}"))
            self.shot_at.append(place)
            self._state.fire(target, shot.how)
