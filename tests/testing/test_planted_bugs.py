"""Bugs that were planted: the laboratory finds each of them where it is, and what is weaker does not."""

from __future__ import annotations

import inspect

import pytest
import trio

from maka_trio.testing import Trial, explore, run_trial
from maka_trio.testing.trial import TrialState
from maka_trio.testing.trial_run import findings
from tests.testing.planted import (
    PLANTED,
    Planted,
    cancelled_replaced,
    checkpoint_between_check_and_act,
    cleanup_without_a_bound,
    item_lost_in_handover,
    scenario_of,
    settled_twice,
    swallowed_cancelled,
    waits_for_the_dead,
)

SEEDS = 8


def marked_lines(program: Planted) -> set[int]:
    """The lines of a planted program at which a cancel must break it."""
    lines, first = inspect.getsourcelines(program)
    return {first + number for number, line in enumerate(lines) if "# broken here" in line}


def line_of(place: str) -> int:
    return int(place.split(":")[1].split(" ")[0])


@pytest.mark.parametrize("program", PLANTED, ids=lambda program: program.__name__)
def test_the_right_form_survives_every_cancel(program: Planted) -> None:
    """No violation in the program that does it right: the lab raises no false alarm."""
    exploration = explore(scenario_of(program, planted=False), seeds=SEEDS)
    exploration.raise_for_violations()
    assert exploration.complete


@pytest.mark.parametrize("program", PLANTED, ids=lambda program: program.__name__)
def test_the_planted_bug_is_found(program: Planted) -> None:
    """Every planted bug is reported, with a replay that shows it again."""
    scenario = scenario_of(program, planted=True)
    smallest = explore(scenario, seeds=SEEDS).smallest
    assert smallest is not None
    assert smallest.words in run_trial(scenario, seed=smallest.seed, shots=smallest.shots).violations


RACE = checkpoint_between_check_and_act
"""The one planted bug that needs no cancel: only some orders of its tasks show it."""

BROKEN_BY_ANY_CANCEL = (
    swallowed_cancelled,
    item_lost_in_handover,
    waits_for_the_dead,
    cleanup_without_a_bound,
    settled_twice,
    cancelled_replaced,
)
"""A test that cancels at all finds these; the others pass a test that cancels at a moment of its own choice."""


@pytest.mark.parametrize("program", PLANTED, ids=lambda program: program.__name__)
def test_the_planted_bug_passes_every_ordinary_test(program: Planted) -> None:
    """Run as a test would run it, it passes: undisturbed, in many orders, and most with a cancel at some moment.

    The race passes in some orders and not in others.
    """
    scenario = scenario_of(program, planted=True)
    undisturbed = [run_trial(scenario, seed=seed).violations for seed in range(30)]
    assert () in undisturbed
    assert (set(undisturbed) == {()}) == (program is not RACE)
    cancelled = [attempt for attempt in explore(scenario, seeds=SEEDS).attempts if attempt.replay.shots]
    survives_some = any(not attempt.violations for attempt in cancelled)
    assert survives_some == (program not in (RACE, *BROKEN_BY_ANY_CANCEL))


@pytest.mark.parametrize("program", PLANTED, ids=lambda program: program.__name__)
def test_the_planted_bug_passes_in_the_real_trio(program: Planted) -> None:
    """The same without the laboratory: trio's own scheduler and clock, which a mock clock only makes faster."""
    if program is not RACE:
        state = TrialState()
        trio.run(program, Trial(0, state), True, clock=trio.testing.MockClock(autojump_threshold=0))
        assert list(findings(state)) == []


@pytest.mark.parametrize(
    "program", [program for program in PLANTED if marked_lines(program)], ids=lambda program: program.__name__
)
def test_the_planted_bug_is_found_at_exactly_its_lines(program: Planted) -> None:
    """Every line that breaks is reported, and no line that does not."""
    exploration = explore(scenario_of(program, planted=True), seeds=SEEDS)
    # Cancelled on entry, a block breaks at its first checkpoint, which is a point of its own.
    broken = {place for place in exploration.violating_points() if not place.endswith("on entry")}
    assert {line_of(place) for place in broken} == marked_lines(program)


def test_every_planted_bug_is_found_by_schedules_too() -> None:
    """Cancels at every point of every schedule, a few deviations deep."""
    for program in PLANTED:
        assert explore(scenario_of(program, planted=True), schedules=20, deviations=2).violations, program.__name__
