"""Makes one run again from its word, whatever kind of exploration it comes from, and tells it step by step."""

from __future__ import annotations

from typing import Any

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.log.event_log import EventLog
from maka_trio.records import frozen
from maka_trio.testing.checks import lawful
from maka_trio.testing.crash import CRASHES, crash_trials, only_recover
from maka_trio.testing.disturb import COMMIT
from maka_trio.testing.faults import fault_trials
from maka_trio.testing.kill import KILLS
from maka_trio.testing.log_trial import LogScenario, takes_log
from maka_trio.testing.replay import Replay
from maka_trio.testing.stepper import Moment
from maka_trio.testing.trial import Scenario, Trial
from maka_trio.testing.trial_run import run_trial


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


def replay(scenario: Scenario | LogScenario, word: str, follow_up: LogScenario | None = None) -> Again:
    """Make a run again.

    Raises:
        InvalidInput: the word is no replay, or its point does not come in this scenario.
    """
    run = Replay.parse(word)
    shot = run.shots[0] if run.shots else None
    if shot is None or shot.how in ("cancel", "deadline"):
        result = run_trial(
            cancel_scenario(scenario), seed=run.seed, shots=run.shots, order=run.order(), name_points=False, tell=True
        )
        _require(len(result.shot_at) == len(run.shots), word)
        return Again(result.violations, result.story)
    any_scenario: Any = scenario
    if shot.how in KILLS or shot.how in CRASHES:
        trials = crash_trials(any_scenario, follow_up or only_recover, kill=shot.how in KILLS)
    else:
        trials = fault_trials(scenario, follow_up)
    if shot.target == COMMIT and shot.how not in trials.at_commits:
        raise InvalidInput(f"{bounds.excerpt(shot.how)} is nothing that happens to a commit")
    outcome = trials.run(run.seed, shot)
    _require(outcome.disturbed, word)
    return Again(outcome.violations)


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


def _require(came: bool, word: str) -> None:
    if not came:
        raise InvalidInput(f"{bounds.excerpt(word)}: that point does not come in this scenario")
