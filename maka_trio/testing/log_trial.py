"""One run of a scenario on a log of its own, disturbed at one commit; then the log as the next process finds it.

The first part runs on a log in memory. The second part gets the log that was left: what had become durable is written
to a file, closed, and opened again. So a crash costs no process, and recovery sees exactly what a disk would hold.
"""

from __future__ import annotations

import inspect
import math
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import trio

from maka_trio.log.event_log import EventLog
from maka_trio.records import frozen
from maka_trio.testing.checks import lawful
from maka_trio.testing.commit_points import CommitPoints, Perform, Write
from maka_trio.testing.fault_points import FaultPoint, FaultPoints
from maka_trio.testing.scheduling import HardStop
from maka_trio.testing.stepper import Stepper
from maka_trio.testing.trial import Scenario, Shot, Trial, TrialState
from maka_trio.testing.trial_run import MAX_STEPS, World, findings

LogScenario: TypeAlias = Callable[[Trial, EventLog], Awaitable[None]]
"""A program that writes to a log it is given."""

Disturbance: TypeAlias = Callable[[Perform, Callable[[], Awaitable[None]]], Awaitable[list[int]]]
"""What happens at the chosen commit: given the way to do it, and the way to stop the world."""

_FOLLOW_UP_SEED = 1_000_003
"""Added to the seed for the second part: a new process makes ids of its own."""


@frozen
class LogTrialResult:
    """What one run showed.

    Attributes:
        commits: the kinds of facts of each commit that was asked for, in order.
        disturbed_at: where the chosen disturbance came; None if there was none, or its moment did not come.
        violations: sentences, of both parts.
        fault_points: what else could have failed in the first part, if `name_points`.
        unfinished: how far the run had come when its time was up; None if it came to an end.
    """

    commits: tuple[str, ...]
    disturbed_at: str | None
    violations: tuple[str, ...]
    fault_points: tuple[FaultPoint, ...] = ()
    unfinished: str | None = None

    @property
    def disturbed(self) -> bool:
        """The chosen commit or fault point came."""
        return self.disturbed_at is not None


def run_log_trial(
    scenario: LogScenario | Scenario,
    follow_up: LogScenario | None = None,
    *,
    seed: int = 0,
    at: int | None = None,
    disturbance: Disturbance | None = None,
    fault: Shot | None = None,
    max_steps: int = MAX_STEPS,
    name_points: bool = False,
    ends: float = math.inf,
) -> LogTrialResult:
    """Run a scenario, disturb its commit number `at`, or one of its fault points, then run the follow-up on the rest.

    Args:
        scenario: the first part, of a trial and a log, or of a trial alone. Unless the world is stopped it runs to
            its own end.
        follow_up: the second part, on the log reopened. It shares the trial and its `world`, and nothing else.
        seed: decides schedule, ids, times and `random` of both parts.
        at: which commit to disturb; None for none.
        disturbance: what happens there.
        fault: which other fault point is to fail, and how.
        max_steps: a part that makes more is ended and reported.
        name_points: fill `fault_points` of the result.
        ends: when the run is stopped, by `time.perf_counter`.
    """
    state = TrialState()
    faults = FaultPoints(fault, state.disturb, tell=name_points)
    state.pass_fault_point = faults.pass_by
    trial = Trial(seed, state)
    world = World(_watching(state, max_steps, ends), faults)
    first = _First(scenario, trial, world, at, disturbance, state.disturb)
    found = first.run(seed)
    state.pass_fault_point = FaultPoints(None, state.disturb).pass_by
    last = first.world
    if follow_up is not None and not last.was_ended:
        last = World(_watching(state, max_steps, ends))
        found += _run_follow_up(follow_up, trial, last, first.durable_writes(), seed)
    if not last.was_ended:  # what a run shows that had to be ended comes from having been ended
        found += findings(state)
    where = first.disturbed_at or faults.failed_at
    return LogTrialResult(first.commits, where, tuple(found), tuple(faults.came), last.late)


def _watching(state: TrialState, max_steps: int, ends: float) -> Stepper:
    return Stepper(state, (), no_points, max_steps, False, ends=ends)


def no_points(task: trio.lowlevel.Task) -> bool:
    """Whose steps are points where nothing is cancelled."""
    return False


def takes_log(scenario: Callable[..., object]) -> bool:
    """Whether a scenario wants a log beside its trial."""
    parameters = inspect.signature(scenario).parameters.values()
    return sum(parameter.default is parameter.empty for parameter in parameters) > 1


class _First:
    """The first part of a trial."""

    def __init__(
        self,
        scenario: LogScenario | Scenario,
        trial: Trial,
        world: World,
        at: int | None,
        disturbance: Disturbance | None,
        on_disturbance: Callable[[], None],
    ) -> None:
        self.world = world
        self.disturbed_at: str | None = None
        self._scenario: Callable[..., Awaitable[None]] = scenario
        self._trial = trial
        self._at = at
        self._disturbance = disturbance
        self._on_disturbance = on_disturbance
        self._stopped = False
        self._points: CommitPoints | None = None

    @property
    def commits(self) -> tuple[str, ...]:
        """The kinds of each commit."""
        return () if self._points is None else tuple(commit.kinds for commit in self._points.commits)

    def durable_writes(self) -> list[Write]:
        """What a disk would hold."""
        return [] if self._points is None else self._points.durable_writes()

    def run(self, seed: int) -> list[str]:
        """Run it; return what it broke."""
        broken: list[str] = []

        async def main() -> None:
            if not takes_log(self._scenario):
                await self._scenario(self._trial)
                return
            async with EventLog.in_memory() as log:
                self._points = CommitPoints(log, self._at_commit)
                await self._scenario(self._trial, log)
                broken.extend(await lawful(log))

        error = self.world.run(main, order=random.Random(seed), seed=seed)
        if self._stopped and isinstance(error, HardStop):
            return []  # what a dead process has open is closed by its system
        return self.world.ending(error) + broken

    async def _at_commit(self, number: int, kinds: str, perform: Perform) -> list[int]:
        if self._stopped:
            await trio.sleep_forever()
        if number != self._at or self._disturbance is None:
            return await perform()
        self.disturbed_at = kinds
        self._on_disturbance()
        return await self._disturbance(perform, self._stop_world)

    async def _stop_world(self) -> None:
        self._stopped = True
        self.world.stop("crashed")
        with trio.CancelScope(shield=True):  # nothing runs any more, so nothing can cancel it either
            await trio.sleep_forever()


def _run_follow_up(follow_up: LogScenario, trial: Trial, world: World, durable: list[Write], seed: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="maka-trio-", dir=_folder()) as folder:
        return follow_up_on(Path(folder) / "log", follow_up, trial, world, seed, durable)


def follow_up_on(
    path: Path, follow_up: LogScenario, trial: Trial, world: World, seed: int, durable: Sequence[Write] = ()
) -> list[str]:
    """Run the second part on a file, to which what was durable is written first. Returns what it broke."""
    broken: list[str] = []

    async def main() -> None:
        if durable:
            async with EventLog.open(path, inline=True) as before:
                await before.commit_batch(durable)
        async with EventLog.open(path, inline=True) as log:
            await follow_up(trial, log)
            broken.extend(await lawful(log))

    seed += _FOLLOW_UP_SEED
    error = world.run(main, order=random.Random(seed), seed=seed)
    return world.ending(error) + broken


def _folder() -> str | None:
    """A folder in memory where there is one: what a disk does with the file is not the question here."""
    shared_memory = Path("/dev/shm")
    return str(shared_memory) if os.access(shared_memory, os.W_OK) else None
