"""A run that is really killed: the scenario in a process of its own, in the real world, on a real file.

The process does it to itself, at one commit, with the signal that nobody can catch. What it leaves is a file; the
follow-up opens it in the deterministic world. What `log_trial` models, this shows.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import pickle
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
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

_Dying: TypeAlias = tuple[Literal["dying"], str, dict[str, object], list[str], list[str]]
"""The kinds of the commit, the world, what of it could not be handed on, and the violations reported so far."""

_Ended: TypeAlias = tuple[Literal["ended"], list[str]]
_Late: TypeAlias = tuple[Literal["late"]]


def run_killed_trial(
    scenario: LogScenario,
    follow_up: LogScenario,
    *,
    seed: int = 0,
    at: int = 1,
    how: str = "kill_after",
    ends: float = math.inf,
) -> LogTrialResult:
    """Run a scenario in a child process until its commit number `at`, kill it there, then run the follow-up.

    Args:
        scenario: a function at the top level of a module, since the child imports it. It runs with the real clock,
            real sockets and a real log. `trial.world` must be picklable, and arrives as it was at the kill; what is
            not is a violation that names it. So do the violations that it has reported. Checks that it registers
            die with it: the follow-up's are made.
        follow_up: runs in this process, in the deterministic world, on the file that is left.
        seed: of the follow-up, and of the moment of `kill_during`.
        at: the commit, from 1. A real network cuts a stream as it likes, so that two runs may differ in commits; a
            run that ends before this one is no violation.
        how: one of `KILLS`.
        ends: when the run is stopped, by `time.perf_counter`.

    Raises:
        InvalidInput: the scenario is no importable function, or there is no such kill.
    """
    if how not in KILLS:
        raise InvalidInput(f"how={how!r} must be one of {', '.join(KILLS)}")
    with tempfile.TemporaryDirectory(prefix="maka-trio-") as folder:
        path = Path(folder) / "log"
        answer = _child(scenario, path, seed, at, how, ends)
        if answer[0] == "late":
            return LogTrialResult((), None, (), unfinished="while a process ran to its kill")
        if answer[0] == "ended":
            return LogTrialResult((), None, tuple(answer[1]))
        return _what_follows(follow_up, path, answer, seed, ends)


def _what_follows(follow_up: LogScenario, path: Path, dying: _Dying, seed: int, ends: float) -> LogTrialResult:
    _, kinds, world, lost, stated = dying
    if lost:  # a follow-up in half a world would only show what comes from that
        return LogTrialResult((), kinds, (*lost, *stated))
    state = TrialState(shot=True, violations=stated)
    trial = Trial(seed, state)
    trial.world = SimpleNamespace(**world)
    last = World(Stepper(state, (), no_points, MAX_STEPS, False, ends=ends))
    found = follow_up_on(path, follow_up, trial, last, seed)
    if not last.was_ended:
        found += findings(state)
    return LogTrialResult((), kinds, tuple(found), unfinished=last.late)


# --- the parent's side --------------------------------------------------------------------------------------


def _child(scenario: LogScenario, path: Path, seed: int, at: int, how: str, ends: float) -> _Dying | _Ended | _Late:
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
            return _await_end(process, answers, ends)
        finally:
            process.kill()
            process.join()
            process.close()


def _await_end(
    process: multiprocessing.process.BaseProcess, answers: Connection, ends: float
) -> _Dying | _Ended | _Late:
    left = max(0.0, ends - time.perf_counter())
    if not answers.poll(min(_PATIENCE, left)):
        if left < _PATIENCE:
            return ("late",)
        return "ended", [f"the process neither reached its commit nor ended in {_PATIENCE:g} seconds"]
    try:
        answer: _Dying | _Ended = answers.recv()
    except EOFError:
        return "ended", ["the process died before its commit, and not of the laboratory's signal"]
    except Exception as error:  # whatever an object's own way to come out of a pickle raises
        return "ended", [f"trial.world did not come out of its pickle: {describe(error)}"]
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

    async def live(self, trial: Trial, state: TrialState, answers: Connection) -> None:
        async def at_commit(number: int, kinds: str, perform: Perform) -> list[int]:
            if number == self.at:
                await self._die(perform, functools.partial(_say_goodbye, trial, state, kinds, answers))
            return await perform()

        async with EventLog.open(self.path) as log:
            CommitPoints(log, at_commit)
            await self.scenario(trial, log)

    async def _die(self, perform: Perform, say_goodbye: Callable[[], None]) -> None:
        match self.how:
            case "kill_before":
                say_goodbye()
            case "kill_after":
                await perform()
                say_goodbye()
            case _:
                say_goodbye()
                threading.Thread(target=self._kill_in_a_moment, daemon=True).start()
                await perform()
                time.sleep(_PATIENCE)  # noqa: ASYNC251  # nothing of the process goes on any more
        os.kill(os.getpid(), signal.SIGKILL)

    def _kill_in_a_moment(self) -> None:
        time.sleep(random.Random(f"{self.seed} {self.at}").uniform(0, _LONGEST_WAIT))
        os.kill(os.getpid(), signal.SIGKILL)


def _say_goodbye(trial: Trial, state: TrialState, kinds: str, answers: Connection) -> None:
    kept, lost = _picklable(vars(trial.world))
    answers.send(("dying", kinds, kept, lost, state.violations))


def _picklable(world: dict[str, object]) -> tuple[dict[str, object], list[str]]:
    """What can be handed to another process, and sentences about the rest."""
    kept, lost = {}, []
    for name, value in world.items():
        try:
            pickle.loads(ForkingPickler.dumps(value))
        except Exception as error:  # whatever an object's own way to pickle itself raises
            reason = describe(error)
            lost.append(f"trial.world.{name} does not pickle, so a killed process cannot hand it on: {reason}")
        else:
            kept[name] = value
    return kept, lost


def _live(life: _Life, answers: Connection) -> None:
    state = TrialState()
    raised: list[str] = []
    try:
        trio.run(life.live, Trial(life.seed, state), state, answers)
    except BaseException as error:  # noqa: ASYNC103  # outside every run, and nobody else hears of it
        raised = [f"the scenario raised {describe(error)}"]
    answers.send(("ended", [*raised, *findings(state)]))
