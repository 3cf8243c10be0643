"""`explore`: cancel a scenario at every checkpoint, one run a point, and find the smallest failure.

Generic: any trio program can be a scenario, as long as it needs no thread and no subprocess; its sockets are made in
memory. Which runs there are is decided here, one schedule at a time; how one is run, in `trial_run`, and what other
schedules there are, in `schedules`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.shares import Share
from maka_trio.testing.exploration import Cut, Entry, Exploration, Runs, Watch, cut_run, entry
from maka_trio.testing.plan import Plan, Run
from maka_trio.testing.replay import Replay
from maka_trio.testing.schedules import Schedules
from maka_trio.testing.scheduling import Task, require_supported_trio
from maka_trio.testing.stepper import CountsTask
from maka_trio.testing.trial import How, Scenario
from maka_trio.testing.trial_run import MAX_STEPS
from maka_trio.testing.workers import explore_shares

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
        schedules: in place of seeds, try every order of the ready tasks, one after the other, the plain one first: up
            to so many of the undisturbed scenario, and of each cancel in it up to so many of what it leads to. Where
            that is not all, the result is not `complete`. Schedules that make the same run are tried once.
        deviations: tries only schedules that differ from running the oldest ready task first at most so often;
            `complete` then means all of these.
        how: `cancel` the target, or let its `deadline` pass. Targets without a deadline are only cancelled.
        pairs: at most so many runs per seed, or undisturbed schedule, with a second cancel, of another target, after
            a first. They are spread over all there are, and make each one order of tasks.
        budget: stop after so many seconds of real time, also within a run, which then shows only what it reported.
        max_steps: a run that makes more steps is ended and is a violation.
        jobs: so many processes share the runs. They are forked from this one.
        watch: called now and then with the number of runs made and of violations found.

    Raises:
        UnsupportedTrio: this trio cannot be scheduled.
        InvalidInput: an argument is out of range.
    """
    require_supported_trio()
    check_points(points)
    which = chosen_seeds(seeds)
    counts = _counter(tasks)

    def runs(share: Share, ends: float) -> Runs:
        plan = Plan(scenario, points, frozenset[str](how), pairs, counts, max_steps, share, ends)
        return map(_entry, Schedules(plan, schedules, deviations).runs() if schedules else _seeded(plan, which))

    return explore_shares(runs, jobs=jobs, budget=budget, watch=watch)


def check_points(points: Literal["all"] | int) -> None:
    """Raise InvalidInput unless it is all, or a number of them."""
    if points != "all" and not (type(points) is int and points > 0):
        raise InvalidInput(f"points={points!r} must be 'all' or a positive integer")


def chosen_seeds(seeds: int | Iterable[int]) -> Sequence[int]:
    """A number of seeds, or which.

    Raises:
        InvalidInput: none at all would prove nothing.
    """
    chosen = range(seeds) if isinstance(seeds, int) else seeds
    which = list(chosen) if isinstance(chosen, Iterable) else []
    if not which or not all(type(seed) is int for seed in which):
        raise InvalidInput(f"seeds={excerpt(seeds)} must be a positive number of seeds, or which")
    return which


def _counter(tasks: Tasks) -> CountsTask:
    if tasks is None:
        return lambda task: True
    if callable(tasks):
        return tasks
    endings = tuple(f".{name}" for name in tasks)
    return lambda task: f".{task.name}".endswith(endings)


def _seeded(plan: Plan, seeds: Sequence[int]) -> Iterator[Run]:
    for seed in seeds:
        yield from _of_one_seed(plan, seed)


def _of_one_seed(plan: Plan, seed: int) -> Iterator[Run]:
    """The share's runs of one seed, undisturbed first."""
    calm = plan.run(seed)
    if plan.share.first or calm.result.unfinished:
        yield calm
    after_first = []
    for shot in plan.share.mine(plan.shots(calm.result.points)):
        run = plan.run(seed, (shot,))
        yield run
        after_first.append(run)
    for shots, _ in plan.pairs_after(after_first):
        yield plan.run(seed, shots)


def _entry(run: Run | Cut) -> Entry | Cut:
    if isinstance(run, Cut):
        return run
    result, words = run.result, list(run.result.violations)
    if len(result.shot_at) < len(run.shots) and result.unfinished is None:
        words.append("the run is not a function of its seed: a point that was there is not there again")
    replay = run.replay()
    made = entry(hash(result.trace), replay, _call(replay), words, result.shot_at)
    return made if result.unfinished is None else cut_run(result.unfinished, made)


def _call(replay: Replay) -> str:
    """The call that makes a run again."""
    made = "".join(f"Shot({shot.step}, {shot.target!r}, {shot.how!r}), " for shot in replay.shots)
    order = "" if replay.decisions is None else f", order={replay.order()!r}"
    return f"run_trial(scenario, seed={replay.seed}{order}, shots=({made.rstrip(' ')}))"
