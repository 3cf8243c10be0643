"""Makes one run again from its word, whatever kind of exploration it comes from, and tells it step by step."""

from __future__ import annotations

import math
from typing import Any

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.log.event_log import EventLog
from maka_trio.records import frozen
from maka_trio.testing.checks import lawful
from maka_trio.testing.crash import CRASHES, crash_trials, only_recover
from maka_trio.testing.disturb import COMMIT
from maka_trio.testing.exploration import TrialViolation
from maka_trio.testing.faults import fault_trials
from maka_trio.testing.kill import KILLS
from maka_trio.testing.log_trial import LogScenario, run_log_trial, takes_log
from maka_trio.testing.replay import Replay
from maka_trio.testing.stepper import Moment
from maka_trio.testing.trial import Scenario, Shot, Trial
from maka_trio.testing.trial_run import run_trial

_CANCELS = ("cancel", "deadline")


@frozen
class Again:
    """A run that was made again.

    Attributes:
        violations: what it breaks.
        moments: its steps; none for crashes and faults, which are told by commits.
    """

    violations: tuple[str, ...]
    moments: tuple[Moment, ...] = ()

    @property
    def story(self) -> str:
        """The steps, one a line."""
        lines = (f"{moment.task}: {moment.where}" if moment.task else f"*** {moment.where}" for moment in self.moments)
        return "\n".join(lines)


def story_of(scenario: Scenario | LogScenario, violation: TrialViolation) -> tuple[Moment, ...]:
    """The steps of a run that broke something, where it has steps and makes them again."""
    if any(shot.how not in _CANCELS for shot in violation.shots):
        return ()
    try:
        return replay(scenario, violation.token).moments
    except InvalidInput:  # the run is no function of its seed; that it broke something is known without its story
        return ()


def replay(scenario: Scenario | LogScenario, word: str, follow_up: LogScenario | None = None) -> Again:
    """Make a run again.

    Raises:
        InvalidInput: the word is no replay; or its point does not come in this scenario, and nothing broke.
    """
    run = Replay.parse(word)
    shot = run.shots[0] if run.shots else None
    if shot is not None and shot.how not in _CANCELS:
        return _disturbed(scenario, follow_up, word, run.seed, shot)
    result = run_trial(
        cancel_scenario(scenario), seed=run.seed, shots=run.shots, order=run.order(), name_points=False, tell=True
    )
    broken = _what_broke(word, len(result.shot_at) == len(run.shots), result.violations)
    if shot is None:
        broken += _undisturbed(scenario, follow_up, run.seed, broken)
    return Again(broken, result.story)


def _disturbed(
    scenario: Scenario | LogScenario, follow_up: LogScenario | None, word: str, seed: int, shot: Shot
) -> Again:
    any_scenario: Any = scenario
    if shot.how in KILLS or shot.how in CRASHES:
        trials = crash_trials(any_scenario, follow_up or only_recover, kill=shot.how in KILLS)
    else:
        trials = fault_trials(scenario, follow_up)
    if shot.target == COMMIT and shot.how not in trials.at_commits:
        raise InvalidInput(f"{bounds.excerpt(shot.how)} is nothing that happens to a commit")
    outcome = trials.run(seed, shot, math.inf)
    return Again(_what_broke(word, outcome.disturbed, outcome.violations))


def _undisturbed(
    scenario: Scenario | LogScenario, follow_up: LogScenario | None, seed: int, known: tuple[str, ...]
) -> tuple[str, ...]:
    """What the next process finds of an undisturbed run: crashes and faults look at that as well."""
    if follow_up is None and not takes_log(scenario):
        return ()
    found = run_log_trial(scenario, follow_up or only_recover, seed=seed).violations
    return tuple(words for words in found if words not in known)


def _what_broke(word: str, came: bool, violations: tuple[str, ...]) -> tuple[str, ...]:
    if came:
        return violations
    missing = f"{bounds.excerpt(word)}: that point does not come in this scenario"
    if not violations:
        raise InvalidInput(missing)
    return *violations, missing


def cancel_scenario(scenario: Scenario | LogScenario) -> Scenario:
    """The scenario for `explore`; one that wants a log is given one in memory, which must be lawful at its end."""
    anyhow: Any = scenario
    if not takes_log(scenario):
        alone: Scenario = anyhow
        return alone

    async def with_log(trial: Trial) -> None:
        async with EventLog.in_memory() as log:
            await anyhow(trial, log)
            for words in await lawful(log):
                trial.violation(words)

    return with_log
