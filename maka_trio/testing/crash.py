"""`crash_everywhere`: a process dies around each of its commits, and the next process has to make do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal

from maka_trio.log.event_log import EventLog
from maka_trio.testing.commit_points import Perform
from maka_trio.testing.disturb import Trials, disturb_everywhere
from maka_trio.testing.exploration import Exploration, Watch
from maka_trio.testing.kill import KILLS, run_killed_trial
from maka_trio.testing.log_trial import Disturbance, LogScenario, LogTrialResult, run_log_trial
from maka_trio.testing.trial import Shot, Trial
from maka_trio.testing.trial_run import MAX_STEPS


async def crash_before(perform: Perform, stop: Callable[[], Awaitable[None]]) -> list[int]:
    """The process dies and the commit is not in the log."""
    await stop()
    raise AssertionError("the world goes on after its end")


async def crash_after(perform: Perform, stop: Callable[[], Awaitable[None]]) -> list[int]:
    """The process dies; the commit is in the log, and nobody was told."""
    await perform()
    return await crash_before(perform, stop)


CRASHES: Mapping[str, Disturbance] = {"crash_before": crash_before, "crash_after": crash_after}
"""The two moments at which a process can die around a commit. A batch is all or none, so a torn one is the first."""


async def only_recover(trial: Trial, log: EventLog) -> None:
    """The follow-up of those who have none: seal what the process left open."""
    await log.recover()


def crash_everywhere(
    scenario: LogScenario,
    follow_up: LogScenario = only_recover,
    *,
    kill: bool = False,
    points: Literal["all"] | int = "all",
    seeds: int | Iterable[int] = 1,
    budget: float | None = None,
    max_steps: int = MAX_STEPS,
    jobs: int = 1,
    watch: Watch | None = None,
) -> Exploration:
    """Let the process die before and after every commit of a scenario, and see what the next process makes of it.

    For each seed the scenario first runs undisturbed. Then, for each commit and each of `CRASHES`, it runs again
    and stops there for good: nothing of it goes on, neither its cleanup nor its shields. What was durable is
    reopened and handed to the follow-up. Both logs must be lawful, and every check of the trial must hold.

    Args:
        scenario: an async function of a `Trial` and an empty `EventLog`.
        follow_up: the same, given what is left; it typically recovers and runs once more. `trial.world` carries over
            what the outside world keeps: effects, provider scripts.
        kill: for truth instead of speed: each run is a process of its own in the real world, with a real file, that
            really dies of SIGKILL, at each of `KILLS`. `run_killed_trial` says what that asks of the scenario.
        points: every crash, or at most so many of each seed, evenly spread.
        seeds: the schedules to try.
        budget: stop after so many seconds of real time.
        max_steps: a run that makes more steps is ended and is a violation.
        jobs: so many processes share the runs.
        watch: called now and then with the number of runs made and of violations found.
    """
    trials = crash_trials(scenario, follow_up, kill=kill, max_steps=max_steps)
    return disturb_everywhere(trials, points=points, seeds=seeds, budget=budget, jobs=jobs, watch=watch)


def crash_trials(
    scenario: LogScenario, follow_up: LogScenario = only_recover, *, kill: bool = False, max_steps: int = MAX_STEPS
) -> Trials:
    """The runs of `crash_everywhere`, one at a time."""

    def crash(seed: int, shot: Shot | None, ends: float) -> LogTrialResult:
        if shot is None:
            return run_log_trial(scenario, follow_up, seed=seed, max_steps=max_steps, ends=ends)
        if kill:
            return run_killed_trial(scenario, follow_up, seed=seed, at=shot.step, how=shot.how, ends=ends)
        chosen = CRASHES[shot.how]
        return run_log_trial(
            scenario, follow_up, seed=seed, at=shot.step, disturbance=chosen, max_steps=max_steps, ends=ends
        )

    return Trials(crash, tuple(KILLS if kill else CRASHES), _call_killed if kill else _call, certain=not kill)


def _call(seed: int, shot: Shot | None) -> str:
    crash = "" if shot is None else f", at={shot.step}, disturbance=CRASHES[{shot.how!r}]"
    return f"run_log_trial(scenario, follow_up, seed={seed}{crash})"


def _call_killed(seed: int, shot: Shot | None) -> str:
    if shot is None:
        return _call(seed, None)
    return f"run_killed_trial(scenario, follow_up, seed={seed}, at={shot.step}, how={shot.how!r})"
