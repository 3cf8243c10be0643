"""`fault_everywhere`: each commit, each use of a socket and each marked place fails once, and the program goes on."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

import attrs

from maka_trio import errors
from maka_trio.errors import CommitRejected, CommitUnknown, LogFull, MakaError, SessionRetired
from maka_trio.facts.outcome import ToolRejection
from maka_trio.records import frozen
from maka_trio.testing.commit_points import Perform
from maka_trio.testing.disturb import COMMIT, Trials, disturb_everywhere
from maka_trio.testing.exploration import Exploration, Watch
from maka_trio.testing.log_trial import Disturbance, LogScenario, LogTrialResult, run_log_trial
from maka_trio.testing.trial import Scenario, Shot, Trial
from maka_trio.testing.trial_run import MAX_STEPS
from maka_trio.tools.call import ToolCall
from maka_trio.tools.catalog import ToolCatalog, ToolRegistration
from maka_trio.tools.handler import PreparedEffect, is_prepared

# --- commits ------------------------------------------------------------------------------------------------


@frozen
class CommitFault:
    """One commit fails, and the program goes on.

    Args:
        error: makes the exception that the caller is given.
        durable: the commit is in the log all the same.
    """

    error: Callable[[], MakaError]
    durable: bool = False

    async def __call__(self, perform: Perform, stop: Callable[[], Awaitable[None]]) -> list[int]:
        """Fail."""
        if self.durable:
            await perform()
        raise self.error()


COMMIT_FAULTS: Mapping[str, Disturbance] = {
    "rejected": CommitFault(lambda: CommitRejected("an injected fault: the append was rejected")),
    "retired": CommitFault(lambda: SessionRetired("an injected fault: the session accepts no more work")),
    "full": CommitFault(lambda: LogFull("an injected fault: no space")),
    "unknown_lost": CommitFault(lambda: CommitUnknown("an injected fault: not known to be written")),
    "unknown_durable": CommitFault(lambda: CommitUnknown("an injected fault: not known to be written"), durable=True),
}
"""Every way in which a commit fails, by name."""

# --- tools --------------------------------------------------------------------------------------------------


def _public_errors() -> Iterator[Callable[[], BaseException]]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, MakaError) and not kind.__subclasses__():
            make = functools.partial(kind, "an injected fault")
            yield functools.update_wrapper(make, kind, assigned=("__name__",), updated=())


TOOL_FAULTS: tuple[Callable[[], BaseException], ...] = (*_public_errors(), OSError, TimeoutError, AssertionError)
"""What a tool can fail with: every public error, as one that calls the library itself would, and a few of Python's."""


def fallible(trial: Trial, catalog: ToolCatalog) -> ToolCatalog:
    """The same tools, where each return of each is a fault point: its effect has happened, and then it raises."""
    return ToolCatalog([_fallible(trial, registration) for registration in catalog.registrations])


def _fallible(trial: Trial, registration: ToolRegistration) -> ToolRegistration:
    handler: Any = registration.handler

    async def run(value: Any, call: Any) -> object:
        result = await handler(value, call)
        trial.may_fail(*TOOL_FAULTS)
        return result

    return attrs.evolve(registration, handler=_Prepared(trial, handler) if is_prepared(handler) else run)


@frozen
class _Prepared:
    trial: Trial
    handler: Any

    async def prepare(self, arguments: Any, call: ToolCall, /) -> PreparedEffect | ToolRejection:
        prepared: PreparedEffect | ToolRejection = await self.handler.prepare(arguments, call)
        if not isinstance(prepared, PreparedEffect):
            return prepared

        async def run(value: Any) -> object:
            result = await prepared.run(value)
            self.trial.may_fail(*TOOL_FAULTS)
            return result

        return attrs.evolve(prepared, run=run)


# --- everything ---------------------------------------------------------------------------------------------


def fault_everywhere(
    scenario: LogScenario | Scenario,
    follow_up: LogScenario | None = None,
    *,
    without: Collection[str] = (),
    points: Literal["all"] | int = "all",
    seeds: int | Iterable[int] = 1,
    budget: float | None = None,
    max_steps: int = MAX_STEPS,
    jobs: int = 1,
    watch: Watch | None = None,
) -> Exploration:
    """Let everything that can fail in a scenario fail once, in each of its ways, one run a fault.

    What can fail: each commit to the log, in the ways of `COMMIT_FAULTS`; each connect, read and write of a socket,
    in those of `SOCKET_FAULTS`; each place that the scenario marks with `Trial.may_fail`, the returns of `fallible`
    tools among them. The scenario goes on after the fault and handles it; what it raises is a violation.

    Args:
        scenario: an async function of a `Trial` and an empty `EventLog`, or of a trial alone.
        follow_up: the same, given the log reopened.
        without: what is left out, by the name of a kind (`commit`, `connect`, `read`, `write`, `raise`) or of a
            fault. A program that sets no bound to the silence of a peer is explored without `silence`.
        points: every fault, or at most so many of each seed, evenly spread.
        seeds: the schedules to try.
        budget: stop after so many seconds of real time.
        max_steps: a run that makes more steps is ended and is a violation.
        jobs: so many processes share the runs.
        watch: called now and then with the number of runs made and of violations found.
    """
    trials = fault_trials(scenario, follow_up, max_steps=max_steps)
    return disturb_everywhere(
        trials, without=without, points=points, seeds=seeds, budget=budget, jobs=jobs, watch=watch
    )


def fault_trials(
    scenario: LogScenario | Scenario, follow_up: LogScenario | None = None, *, max_steps: int = MAX_STEPS
) -> Trials:
    """The runs of `fault_everywhere`, one at a time."""
    run = functools.partial(run_log_trial, scenario, follow_up, max_steps=max_steps)

    def fault(seed: int, shot: Shot | None, ends: float) -> LogTrialResult:
        if shot is None:
            return run(seed=seed, name_points=True, ends=ends)
        if shot.target != COMMIT:
            return run(seed=seed, fault=shot, ends=ends)
        return run(seed=seed, at=shot.step, disturbance=COMMIT_FAULTS[shot.how], ends=ends)

    return Trials(fault, tuple(COMMIT_FAULTS), _call)


def _call(seed: int, shot: Shot | None) -> str:
    which = "" if shot is None else f", fault={shot!r}"
    if shot is not None and shot.target == COMMIT:
        which = f", at={shot.step}, disturbance=COMMIT_FAULTS[{shot.how!r}]"
    return f"run_log_trial(scenario, follow_up, seed={seed}{which})"
