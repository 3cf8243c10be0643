"""A run that is really killed: the scenario in a process of its own, in the real world, on a real file.

The process does it to itself, at one commit, with the signal that nobody can catch. What it leaves is a file; the
follow-up opens it in the deterministic world. What `log_trial` models, this shows.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Final, Literal, TypeAlias

import trio

from maka_trio.errors import InvalidInput
from maka_trio.log.event_log import EventLog
from maka_trio.records import frozen
from maka_trio.testing.commit_points import CommitPoints, Perform
from maka_trio.testing.log_trial import LogScenario, LogTrialResult, follow_up_on, no_points
from maka_trio.testing.stepper import Stepper
from maka_trio.testing.trial import Trial, TrialState
from maka_trio.testing.trial_run import MAX_STEPS, World, describe, findings

KILLS: Final[Mapping[str, str]] = {
    "kill_before": "before the commit is asked for",
    "kill_during": "while the writer has it",
    "kill_after": "after it is durable, before anyone is told",
}
"""The moments around a commit at which a process is killed."""

_PATIENCE = 60.0
"""Seconds after which a process that was to die at a commit is taken for one that hangs."""

_LONGEST_WAIT = 0.002
"""Seconds, at most, between the submission of a commit and the kill during it."""

_Dying: TypeAlias = tuple[Literal["dying"], str, dict[str, object]]
_Ended: TypeAlias = tuple[Literal["ended"], list[str]]


def run_killed_trial(
    scenario: LogScenario, follow_up: LogScenario, *, seed: int = 0, at: int = 1, how: str = "kill_after"
) -> LogTrialResult:
    """Run a scenario in a child process until its commit number `at`, kill it there, then run the follow-up.

    Args:
        scenario: a function at the top level of a module, since the child imports it. It runs with the real clock,
            real sockets and a real log; `trial.world` must be picklable, and arrives as it was at the kill. Checks
            that it registers die with it: the follow-up's are made.
        follow_up: runs in this process, in the deterministic world, on the file that is left.
        seed: of the follow-up, and of the moment of `kill_during`.
        at: the commit, from 1. A real network cuts a stream as it likes, so that two runs may differ in commits; a
            run that ends before this one is no violation.
        how: one of `KILLS`.

    Raises:
        InvalidInput: the scenario is no importable function, or there is no such kill.
    """
    if how not in KILLS:
        raise InvalidInput(f"how={how!r} must be one of {', '.join(KILLS)}")
    with tempfile.TemporaryDirectory(prefix="maka-trio-") as folder:
        path = Path(folder) / "log"
        answer = _child(scenario, path, seed, at, how)
        if answer[0] == "ended":
            return LogTrialResult((), None, tuple(answer[1]))
        _, kinds, world = answer
        return LogTrialResult((), kinds, tuple(_what_follows(follow_up, path, world, seed)))


def _what_follows(follow_up: LogScenario, path: Path, world: dict[str, object], seed: int) -> list[str]:
    state = TrialState(shot=True)
    trial = Trial(seed, state)
    trial.world = SimpleNamespace(**world)
    last = World(Stepper(state, (), no_points, MAX_STEPS, False))
    found = follow_up_on(path, follow_up, trial, last, seed)
    return found if last.endless is not None else [*found, *findings(state)]


# --- the parent's side --------------------------------------------------------------------------------------


def _child(scenario: LogScenario, path: Path, seed: int, at: int, how: str) -> _Dying | _Ended:
    context = multiprocessing.get_context("spawn")
    answers, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_live, args=(_Life(scenario, path, seed, at, how), theirs))
    with answers:
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidInput(f"{scenario!r} cannot be run in a process of its own: {error}") from None
        finally:
            theirs.close()
        try:
            return _await_end(process, answers)
        finally:
            process.kill()
            process.join()
            process.close()


def _await_end(process: multiprocessing.process.BaseProcess, answers: Connection) -> _Dying | _Ended:
    if not answers.poll(_PATIENCE):
        return "ended", [f"the process neither reached its commit nor ended in {_PATIENCE:g} seconds"]
    try:
        answer: _Dying | _Ended = answers.recv()
    except EOFError:
        return "ended", ["the process died before its commit, and not of the laboratory's signal"]
    process.join(_PATIENCE)
    if answer[0] == "dying" and process.exitcode != -signal.SIGKILL:
        return "ended", [f"the process was to be killed and ended with {process.exitcode}"]
    return answer


# --- the child's side ---------------------------------------------------------------------------------------


@frozen
class _Life:
    """What a child is to do."""

    scenario: LogScenario
    path: Path
    seed: int
    at: int
    how: str

    async def live(self, trial: Trial, answers: Connection) -> None:
        async def at_commit(number: int, kinds: str, perform: Perform) -> list[int]:
            if number == self.at:
                await self._die(trial, kinds, perform, answers)
            return await perform()

        async with EventLog.open(self.path) as log:
            CommitPoints(log, at_commit)
            await self.scenario(trial, log)

    async def _die(self, trial: Trial, kinds: str, perform: Perform, answers: Connection) -> None:
        match self.how:
            case "kill_before":
                self._say_goodbye(trial, kinds, answers)
            case "kill_after":
                await perform()
                self._say_goodbye(trial, kinds, answers)
            case _:
                self._say_goodbye(trial, kinds, answers)
                threading.Thread(target=self._kill_in_a_moment, daemon=True).start()
                await perform()
                time.sleep(_PATIENCE)  # noqa: ASYNC251  # nothing of the process goes on any more
        os.kill(os.getpid(), signal.SIGKILL)

    def _say_goodbye(self, trial: Trial, kinds: str, answers: Connection) -> None:
        answers.send(("dying", kinds, vars(trial.world)))

    def _kill_in_a_moment(self) -> None:
        time.sleep(random.Random(f"{self.seed} {self.at}").uniform(0, _LONGEST_WAIT))
        os.kill(os.getpid(), signal.SIGKILL)


def _live(life: _Life, answers: Connection) -> None:
    state = TrialState()
    try:
        trio.run(life.live, Trial(life.seed, state), answers)
    except Exception as error:
        answers.send(("ended", [f"the scenario raised {describe(error)}"]))
    else:
        answers.send(("ended", list(findings(state))))
