"""A run that is cut by the budget invents nothing; a check may be as broken as it likes and is told as what it is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator
from typing import Any, NoReturn

import pytest
import trio

from maka_trio.log import EventLog
from maka_trio.testing import Exploration, Trial, crash_everywhere, explore, fault_everywhere, run_trial

# --- budgets ------------------------------------------------------------------------------------------------


async def without_end(trial: Trial) -> None:
    """A child that takes its cancel for a failure, for ever; what it reports first is true whatever comes."""
    trial.violation("reported in time")
    trial.check(lambda: "never asked, since the run does not end")

    async def child() -> None:
        while True:  # noqa: ASYNC913
            try:
                await trio.sleep(5)
            except BaseException:  # noqa: ASYNC103
                continue  # noqa: ASYNC104

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()


async def without_end_on_a_log(trial: Trial, log: EventLog) -> None:
    await without_end(trial)


@pytest.mark.parametrize(
    "exploring",
    [
        lambda: explore(without_end, budget=0.2, max_steps=10**12),
        lambda: explore(without_end, budget=0.2, max_steps=10**12, schedules=5),
        lambda: explore(without_end, budget=0.2, max_steps=10**12, jobs=2),
        lambda: fault_everywhere(without_end, budget=0.2, max_steps=10**12),
        lambda: crash_everywhere(without_end_on_a_log, budget=0.2, max_steps=10**12),
    ],
    ids=["seeds", "schedules", "processes", "faults", "crashes"],
)
def test_a_budget_ends_a_run_that_does_not_end(exploring: Callable[[], Exploration]) -> None:
    """It is no run that was made, and no violation is invented: there is at most what it reported by itself."""
    found = exploring()
    assert found.runs == 0
    assert not found.complete
    assert {violation.words for violation in found.violations} <= {"reported in time"}
    assert all("stopped by its budget after" in why for why in found.cuts)
    assert "stopped by its budget after" in str(found)


def test_a_run_whose_time_is_up_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps, where its tasks stood, and what it had reported until then. Then it is made to end, soon."""
    seconds = itertools.count()
    monkeypatch.setattr("maka_trio.testing.stepper.perf_counter", lambda: next(seconds))
    result = run_trial(without_end, ends=50)
    assert result.unfinished is not None
    assert result.unfinished.startswith("after 52 steps of a run: ")
    assert "without_end.<locals>.child" in result.unfinished
    assert result.violations == ("reported in time",)
    assert len(result.trace) < 10_000


def test_a_run_that_ends_in_time_is_as_any_other() -> None:
    """A budget that is not used up changes nothing."""

    async def scenario(trial: Trial) -> None:
        await trio.sleep(1)
        trial.check(lambda: "asked")

    result = run_trial(scenario, ends=math.inf)
    assert result == run_trial(scenario)
    assert (result.unfinished, result.violations) == (None, ("asked",))


def test_without_a_budget_a_run_without_end_is_a_violation() -> None:
    """After its steps, with what it reported; it is then given a tenth of them at a time to end."""
    result = run_trial(without_end, max_steps=1_000)
    assert "made 1000 steps and does not end" in result.violations[0]
    assert result.violations[1:] == ("reported in time",)
    assert len(result.trace) < 1_500


# --- checks -------------------------------------------------------------------------------------------------


class NoBool:
    """An answer such as an array gives."""


def found_by(check: Any) -> tuple[str, ...]:
    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        trial.check(check)

    return run_trial(scenario).violations


async def a_coroutine() -> str:
    await trio.lowlevel.checkpoint()
    return "never said"


@pytest.mark.parametrize("answer", [1, 0, 1.5, b"bytes", NoBool(), [1], ["fine", None], {"a": 1}.items()])
def test_an_answer_that_is_none_is_an_error_of_its_check(answer: object) -> None:
    """One sentence, that names the check and the type."""

    def asked() -> object:
        return answer

    (words,) = found_by(asked)
    assert "asked returned a value of type" in words
    assert type(answer).__name__ in words


def test_a_lambda_is_named_by_its_line() -> None:
    """There may be many."""
    (words,) = found_by(lambda: 1)
    assert "<lambda> (" in words
    assert "test_ended_and_checked.py:" in words


def test_a_check_that_returns_a_coroutine_is_told_and_nothing_is_left_unawaited() -> None:
    """Warnings are errors here."""
    (words,) = found_by(lambda: a_coroutine())
    assert "returned a value of type coroutine" in words


@pytest.mark.parametrize("check", [a_coroutine, 1, None], ids=["async", "a number", "None"])
def test_a_check_that_is_async_or_no_function_is_refused_where_it_is_made(check: object) -> None:
    """In the scenario, so that its line is in the traceback."""
    (words,) = found_by(check)
    assert "InvalidInput" in words
    assert "is no plain function" in words


def fails_like_pytest() -> NoReturn:
    pytest.fail("as tests fail")


def fails_by_assertion() -> NoReturn:
    raise AssertionError("as tests fail")


def fails_halfway() -> Generator[str, None, None]:
    yield "the first sentence"
    raise AssertionError("as tests fail")


def fails_as_a_group() -> NoReturn:
    raise BaseExceptionGroup("as tests fail", [GeneratorExit()])


@pytest.mark.parametrize("check", [fails_like_pytest, fails_by_assertion, fails_halfway, fails_as_a_group])
def test_whatever_a_check_raises_is_a_violation_of_its_run(check: Callable[[], object]) -> None:
    """Of that run only, with a replay; the exploration goes on."""

    async def scenario(trial: Trial) -> None:
        with trial.cancellable():
            await trio.sleep(1)
        if trial.shot:
            trial.check(check)  # type: ignore[arg-type]

    for jobs in (1, 2):
        found = explore(scenario, jobs=jobs)
        assert found.complete
        assert len(found.violations) == found.runs - 1
        assert found.smallest is not None
        assert found.smallest.words.startswith(f"the check {check.__name__} raised")
        assert run_trial(scenario, shots=found.smallest.shots).violations == (found.smallest.words,)


@pytest.mark.parametrize("leave", [KeyboardInterrupt, SystemExit])
def test_who_leaves_the_process_leaves_it_from_a_check_too(leave: type[BaseException]) -> None:
    """Ctrl-C is no finding."""

    def check() -> NoReturn:
        raise leave

    with pytest.raises(leave):
        found_by(check)


@pytest.mark.parametrize("words", [(), ("one", "two"), {"one"}])
def test_several_sentences_may_come_in_any_collection(words: Any) -> None:
    """Each is a violation."""
    assert sorted(found_by(lambda: words)) == sorted(words)
