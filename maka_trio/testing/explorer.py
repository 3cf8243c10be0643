"""`explore`: cancel a scenario at every checkpoint, one run a point, and find the smallest failure.

Generic: any trio program can be a scenario, as long as it needs no thread and no subprocess; its sockets are made in
memory. Which run comes next is decided here; how one is run, in `trial_run`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Literal, TypeAlias, TypeVar

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.records import frozen
from maka_trio.testing.exploration import Entry, Exploration, Watch, entry
from maka_trio.testing.orders import Decisions, depth_first
from maka_trio.testing.replay import Replay
from maka_trio.testing.scheduling import Task, require_supported_trio
from maka_trio.testing.stepper import CountsTask, Trace
from maka_trio.testing.trial import How, Point, Scenario, Shot
from maka_trio.testing.trial_run import MAX_STEPS, TrialResult, run_trial
from maka_trio.testing.workers import Share, explore_shares

T = TypeVar("T")

_CANCEL: tuple[How, ...] = ("cancel",)

Tasks: TypeAlias = Collection[str] | Callable[[Task], bool] | None


def explore(
    scenario: Scenario,
    *,
    points: Literal["all"] | int = "all",
    seeds: int | Iterable[int] = 1,
    tasks: Tasks = None,
    schedules: int = 0,
    deviations: int | None = None,
    how: Collection[How] = _CANCEL,
    pairs: int = 0,
    budget: float | None = None,
    max_steps: int = MAX_STEPS,
    jobs: int = 1,
    watch: Watch | None = None,
) -> Exploration:
    """Run a scenario once for each point at which it can be cancelled, for each seed.

        async def scenario(trial):
            queue = MyQueue()
            with trial.cancellable():
                await queue.put(1)
            trial.check(lambda: queue.consistent() or "the queue is broken")

        explore(scenario, seeds=20).raise_for_violations()

    For each seed the scenario first runs undisturbed; then, for each moment at which a target was open, once more
    with a cancel at that moment. A run is a function of the scenario, the seed and the shots, so each violation can
    be made again with `run_trial`.

    Args:
        scenario: an async function of a `Trial`. It must not keep state between runs.
        points: every point, or at most so many of each seed, evenly spread.
        seeds: the schedules to try: a number of them, or which.
        tasks: whose steps are points: names of their functions, or a predicate of the task; by default all.
        schedules: in place of seeds, try up to so many schedules one after the other, the plain one first. For small
            scenarios this covers every order of their tasks. Schedules that make the same run are tried once.
        deviations: how often such a schedule may differ from running the oldest ready task first.
        how: `cancel` the target, or let its `deadline` pass. Targets without a deadline are only cancelled.
        pairs: at most so many runs per seed with a second cancel, of another target, after a first.
        budget: stop after so many seconds of real time.
        max_steps: a run that makes more steps is ended and is a violation.
        jobs: so many processes share the runs. They are forked from this one.
        watch: called now and then with the number of runs made and of violations found.

    Raises:
        UnsupportedTrio: this trio cannot be scheduled.
        InvalidInput: an argument is out of range.
    """
    require_supported_trio()
    check_points(points)
    counts = _counter(tasks)

    def runs(share: Share) -> Iterator[Entry]:
        plan = _Plan(scenario, points, frozenset[str](how), pairs, counts, max_steps, share)
        chosen = _depth_first(schedules, deviations) if schedules else map(_Schedule, chosen_seeds(seeds))
        return (_entry(*run) for schedule in chosen for run in plan.runs(schedule))

    return explore_shares(runs, jobs=jobs, budget=budget, watch=watch)


def check_points(points: Literal["all"] | int) -> None:
    """Raise InvalidInput unless it is all, or a number of them."""
    if points != "all" and not (type(points) is int and points > 0):
        raise InvalidInput(f"points={points!r} must be 'all' or a positive integer")


def chosen_seeds(seeds: int | Iterable[int]) -> Iterable[int]:
    """A number of seeds, or which."""
    return range(seeds) if isinstance(seeds, int) else seeds


def _counter(tasks: Tasks) -> CountsTask:
    if tasks is None:
        return lambda task: True
    if callable(tasks):
        return tasks
    endings = tuple(f".{name}" for name in tasks)
    return lambda task: f".{task.name}".endswith(endings)


@frozen
class _Schedule:
    """What decides the order of a run's tasks: the seed, or a list of decisions beside it."""

    seed: int
    decisions: Decisions | None = None

    def order(self) -> Decisions | None:
        """A fresh order for one more run of this schedule; the plain run's own one comes first."""
        if self.decisions is None or not self.decisions.made:
            return self.decisions
        return Decisions(self.decisions.chosen)

    def replay(self, shots: tuple[Shot, ...]) -> Replay:
        """What makes a run of it again."""
        return Replay(self.seed, shots, None if self.decisions is None else self.decisions.chosen)


def _call(replay: Replay) -> str:
    """The call that makes a run again."""
    made = "".join(f"Shot({shot.step}, {shot.target!r}, {shot.how!r}), " for shot in replay.shots)
    order = "" if replay.decisions is None else f", order={replay.order()!r}"
    return f"run_trial(scenario, seed={replay.seed}{order}, shots=({made.rstrip(' ')}))"


def _depth_first(count: int, deviations: int | None) -> Iterator[_Schedule]:
    return (_Schedule(0, decisions) for decisions in itertools.islice(depth_first(deviations), count))


_Run: TypeAlias = tuple[_Schedule, tuple[Shot, ...], TrialResult]


@frozen
class _Plan:
    scenario: Scenario
    points: Literal["all"] | int
    how: frozenset[str]
    pairs: int
    counts: CountsTask
    max_steps: int
    share: Share
    calm_traces: set[Trace] = attrs.field(factory=set)

    def runs(self, schedule: _Schedule) -> Iterator[_Run]:
        """The share's runs of one schedule, undisturbed first."""
        calm = self._run(schedule, ())
        if self.share.first:
            yield calm
        if schedule.decisions is not None and calm[2].trace in self.calm_traces:
            return  # another list of decisions led to the same run
        self.calm_traces.add(calm[2].trace)
        after_first: list[_Run] = []
        for shot in self.share.mine(self._shots(calm[2].points)):
            run = self._run(schedule, (shot,))
            yield run
            after_first.append(run)
        yield from self._second_shots(schedule, after_first)

    def _second_shots(self, schedule: _Schedule, firsts: list[_Run]) -> Iterator[_Run]:
        if not self.pairs:
            return
        plans = [(*shots, second) for _, shots, result in firsts for second in self._shots(result.points)]
        for shots in spread(plans, -(-self.pairs // self.share.of)):
            yield self._run(schedule, shots)

    def _shots(self, points: tuple[Point, ...]) -> list[Shot]:
        shots = [Shot(point.step, name, how) for point in points for name, how in point.targets if how in self.how]
        return shots if self.points == "all" else spread(shots, self.points)

    def _run(self, schedule: _Schedule, shots: tuple[Shot, ...]) -> _Run:
        # Naming a point costs more than making a step, so it is done only where more shots will be planned from it.
        planning = not shots or (self.pairs > 0 and len(shots) == 1)
        result = run_trial(
            self.scenario,
            seed=schedule.seed,
            shots=shots,
            order=schedule.order(),
            counts=self.counts,
            max_steps=self.max_steps,
            name_points=planning,
        )
        return schedule, shots, result


def spread(items: list[T], count: int) -> list[T]:
    """At most so many of the items, evenly spread."""
    if len(items) <= count:
        return items
    return [items[index * len(items) // count] for index in range(count)]


def _entry(schedule: _Schedule, shots: tuple[Shot, ...], result: TrialResult) -> Entry:
    words = list(result.violations)
    if len(result.shot_at) < len(shots):
        words.append("the run is not a function of its seed: a point that was there is not there again")
    replay = schedule.replay(shots)
    return entry(hash(result.trace), replay, _call(replay), words, result.shot_at)
