"""The explorer finds what is planted, where it is planted, and nothing else; its runs are functions of their seed."""

from __future__ import annotations

import itertools
import math
import os
import random
import secrets
import time
import uuid
from contextlib import suppress
from uuid import uuid4

import pytest
import trio

from maka_trio.errors import InvalidInput
from maka_trio.testing import Decisions, Shot, Trial, UnsupportedTrio, explore, run_trial
from maka_trio.testing import scheduling as adapter
from tests.testing.planted import scenario_of, unshielded_settle, waits_for_the_dead


def test_the_smallest_violation_is_reported_first() -> None:
    """Fewest cancels, then smallest seed, then earliest moment."""
    exploration = explore(scenario_of(unshielded_settle, planted=True), seeds=[5, 2, 9])
    assert exploration.smallest == min(exploration.violations)
    assert exploration.smallest.seed == 2
    assert len(exploration.violations) == 2 * 3
    with pytest.raises(AssertionError, match="the journal ends with"):
        exploration.raise_for_violations()


@pytest.mark.parametrize("seed", [0, 7])
def test_thirty_replays_make_one_trace(seed: int) -> None:
    """A run is a function of the scenario, the seed and the shots."""
    traces = {run_trial(many_tasks, seed=seed, shots=(Shot(9, "scope"),)).trace for _ in range(30)}
    assert len(traces) == 1


def test_different_seeds_make_different_schedules() -> None:
    """Seeds are worth trying: most of them order the tasks differently."""
    assert len({run_trial(many_tasks, seed=seed).trace for seed in range(30)}) > 20


async def many_tasks(trial: Trial) -> None:
    async def worker(steps: int) -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()

    with trial.cancellable():
        async with trio.open_nursery() as nursery:
            for steps in range(5):
                nursery.start_soon(worker, steps)


async def two_tasks_of_three_steps(trial: Trial) -> None:
    async def worker() -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker)
        nursery.start_soon(worker)


def test_schedules_are_tried_exhaustively_when_they_are_few() -> None:
    """Two tasks that are ready four times together: sixteen orders, each once, and then it is complete."""
    exploration = explore(two_tasks_of_three_steps, schedules=1000)
    assert exploration.complete
    assert exploration.runs == 2**4
    assert exploration.traces == 2**4


def test_deviations_bound_the_schedules() -> None:
    """The plain order, and those that differ from it once."""
    assert explore(two_tasks_of_three_steps, schedules=1000, deviations=1).runs == 1 + 4
    assert explore(two_tasks_of_three_steps, schedules=3).runs == 3


def test_a_race_is_found_by_schedules_and_its_replay_names_the_decisions() -> None:
    """No seed is needed; the decisions are in the report and make the run again."""

    async def scenario(trial: Trial) -> None:
        seen: list[str] = []

        async def say(word: str) -> None:
            await trio.lowlevel.checkpoint()
            seen.append(word)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(say, "a")
            nursery.start_soon(say, "b")
        trial.check(lambda: seen == ["a", "b"])

    smallest = explore(scenario, schedules=100).smallest
    assert smallest is not None
    assert "order=Decisions((0, 1))" in smallest.replay
    assert run_trial(scenario, order=Decisions((0, 1))).violations
    assert not run_trial(scenario, order=Decisions()).violations


def test_every_step_is_a_point_and_the_entry_too() -> None:
    """Three checkpoints in the block: cancelled before the first step, or after any of the three."""

    async def scenario(trial: Trial) -> None:
        with trial.cancellable():
            for _ in range(3):
                await trio.lowlevel.checkpoint()

    exploration = explore(scenario)
    assert exploration.runs == 1 + 4
    assert exploration.points.total() == 4
    assert 1 < exploration.traces <= exploration.runs


def test_points_can_be_limited_to_named_tasks() -> None:
    """Only the steps of the chosen tasks are counted, by name or by predicate."""

    async def scenario(trial: Trial) -> None:
        async def worker() -> None:
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()

        with trial.cancellable():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker)
                await trio.sleep(1)

    of_worker = explore(scenario, tasks=["worker"]).points
    assert all("worker" in place or "on entry" in place for place in of_worker)
    assert of_worker == explore(scenario, tasks=lambda task: task.name.endswith("worker")).points
    assert explore(scenario).points.total() > of_worker.total()


def test_points_can_be_thinned_and_a_budget_ends_it() -> None:
    """At most so many points a seed; an exploration that was cut short says so."""
    assert explore(many_tasks, points=3, seeds=2).runs == 2 * (1 + 3)
    cut = explore(many_tasks, seeds=1_000_000, budget=0.05)
    assert not cut.complete
    assert "stopped by its budget" in str(cut)


def test_processes_share_an_exploration_and_find_the_same() -> None:
    """Runs, points, traces and violations do not depend on how many take part; a budget ends all of them."""
    scenario = scenario_of(unshielded_settle, planted=True)
    alone, together = explore(scenario, seeds=4), explore(scenario, seeds=4, jobs=3)
    assert (alone.runs, alone.points, alone.traces) == (together.runs, together.points, together.traces)
    assert alone.violations == together.violations
    assert set(alone.attempts) == set(together.attempts)
    assert not explore(many_tasks, seeds=1_000_000, budget=0.2, jobs=2).complete


def test_a_process_that_fails_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exploration that lost a share is none."""

    def no_runs(*_: object) -> None:
        raise LookupError("no such seed")

    monkeypatch.setattr("maka_trio.testing.explorer._of_one_seed", no_runs)
    with pytest.raises(RuntimeError, match="LookupError: no such seed"):
        explore(many_tasks, jobs=2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_is_told_with_the_final_counts(jobs: int) -> None:
    """Whoever watches sees where it ended."""
    seen: list[tuple[int, int]] = []

    def watch(runs: int, violations: int) -> None:
        seen.append((runs, violations))

    found = explore(scenario_of(unshielded_settle, planted=True), seeds=3, jobs=jobs, watch=watch)
    assert seen[-1] == (found.runs, len(found.violations))


def test_a_long_exploration_is_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in which nothing broke are remembered up to a bound; those that broke something, all of them."""
    scenario = scenario_of(unshielded_settle, planted=True)
    kept = explore(scenario, seeds=5)
    monkeypatch.setattr("maka_trio.testing.exploration.KEPT_ATTEMPTS", 3)
    counted = explore(scenario, seeds=5)
    assert (counted.runs, counted.points) == (kept.runs, kept.points)
    assert sum(not attempt.violations for attempt in counted.attempts) <= 3
    assert {a for a in counted.attempts if a.violations} == {a for a in kept.attempts if a.violations}


def test_a_deadline_is_another_way_to_be_cancelled() -> None:
    """`how` chooses; a target that has no deadline is only cancelled."""

    async def scenario(trial: Trial) -> None:
        with trial.cancellable() as scope:
            await trio.sleep(1)
        if trial.shot and scope.cancelled_caught and scope.deadline == math.inf:
            trial.violation("cancelled, not expired")

    assert explore(scenario, how=["deadline"]).violations == ()
    assert explore(scenario, how=["cancel"]).violations != ()
    assert explore(scenario, how=["cancel", "deadline"]).runs == 1 + 2 * explore(scenario).points.total()


def test_pairs_cancel_a_second_target_after_the_first() -> None:
    """A bug that takes two cancels is found by pairs, and by nothing less."""

    async def scenario(trial: Trial) -> None:
        journal = []
        with trial.cancellable("run"):
            try:
                await trio.sleep(1)
            finally:
                with trio.CancelScope(shield=True), trial.cancellable("drain"):
                    await trio.sleep(1)
                    journal.append("settled")
        trial.check(lambda: journal == ["settled"] or not trial.shot or "unsettled")

    def found_by(count: int, **settings: int) -> bool:
        return any(violation.shot_count == count for violation in explore(scenario, **settings).violations)

    assert found_by(2, pairs=50)
    assert not found_by(2)


def test_a_hang_is_reported_with_the_places_where_it_waits() -> None:
    """A run that waits for ever is a violation, and does not hang the explorer."""
    smallest = explore(scenario_of(waits_for_the_dead, planted=True)).smallest
    assert smallest is not None
    assert "waits for ever" in smallest.words
    assert "waits_for_the_dead" in smallest.words


def test_a_hang_under_a_shield_is_ended_too() -> None:
    """Cancelling the whole run does not reach it; the explorer takes its shield away."""

    async def scenario(trial: Trial) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    (violation,) = run_trial(scenario).violations
    assert "waits for ever" in violation


def test_a_run_that_refuses_every_cancel_is_abandoned() -> None:
    """Neither cancels nor the loss of its shields end it; the explorer goes on without it."""

    async def scenario(trial: Trial) -> None:
        while True:  # noqa: ASYNC913  # that it swallows every cancel is the point
            with suppress(trio.Cancelled):
                await trio.sleep_forever()

    (violation,) = run_trial(scenario, max_steps=1_000).violations
    assert "waits for ever" in violation
    assert run_trial(many_tasks).violations == ()


def test_a_run_without_end_is_stopped_after_its_steps() -> None:
    """A loop that always has something to do is ended by the step limit."""

    async def scenario(trial: Trial) -> None:
        for _ in itertools.count():
            await trio.lowlevel.checkpoint()

    (violation,) = run_trial(scenario, max_steps=1_000).violations
    assert "1000 steps" in violation


def test_time_is_virtual_and_waits_for_the_last_task() -> None:
    """Hours pass in no time, and only while every task waits."""

    async def scenario(trial: Trial) -> None:
        began = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == began
        with trio.move_on_after(3600) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        assert trio.current_time() == began + 3600

    assert run_trial(scenario).violations == ()


def test_a_callback_from_outside_is_not_overtaken_by_the_clock() -> None:
    """What is queued with `run_sync_soon` happens before time moves."""

    async def scenario(trial: Trial) -> None:
        event = trio.Event()
        trio.lowlevel.current_trio_token().run_sync_soon(event.set)
        with trio.fail_after(1):
            await event.wait()
        assert trio.current_time() == 0

    assert run_trial(scenario).violations == ()


def test_ids_times_and_chance_follow_from_the_seed() -> None:
    """The same seed gives the same world, and the real one is back afterwards."""
    worlds = []

    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        worlds.append((uuid.uuid4(), time.time_ns(), time.time(), random.random()))

    for seed in (1, 1, 2):
        run_trial(scenario, seed=seed)
    assert worlds[0] == worlds[1]
    assert worlds[0][0] != worlds[2][0]
    assert abs(time.time() - time.time_ns() / 1e9) < 1
    assert uuid.uuid4() != uuid.uuid4()


def test_every_clock_shows_virtual_time() -> None:
    """A rate limiter on `time.monotonic` waits as long as it says, and in no time; every reading is a new one."""

    async def scenario(trial: Trial) -> None:
        clocks = (time.monotonic, time.perf_counter, time.time)
        began = [clock() for clock in clocks]
        began_ns = [time.monotonic_ns(), time.perf_counter_ns(), time.time_ns()]
        while (wait := began[0] + 3600 - time.monotonic()) > 0:  # noqa: ASYNC110  # as such limiters are written
            await trio.sleep(wait)
        for clock, then in zip(clocks, began, strict=True):
            assert 3600 <= clock() - then < 3600.01
        assert time.monotonic_ns() - began_ns[0] >= 3600 * 10**9
        assert trio.current_time() == pytest.approx(3600, abs=0.01)
        readings = [time.monotonic_ns() for _ in range(10)]
        assert readings == sorted(set(readings))

    assert run_trial(scenario).violations == ()
    assert abs(time.monotonic() - time.monotonic_ns() / 1e9) < 60


def test_whatever_draws_chance_draws_it_from_the_seed() -> None:
    """Under the name it was imported by, and through `secrets`."""
    drawn = []

    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        drawn.append((uuid4(), secrets.token_hex(8), os.urandom(8), random.random()))

    for seed in (1, 1, 2):
        run_trial(scenario, seed=seed)
    assert drawn[0] == drawn[1]
    assert all(one != other for one, other in zip(drawn[0], drawn[2], strict=True))
    assert os.urandom(16) != os.urandom(16)


def test_checks_may_return_raise_or_say_no() -> None:
    """None and True are well; a sentence, several, False or an exception are violations."""

    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        trial.check(lambda: None)
        trial.check(lambda: True)
        trial.check(lambda: "one")
        trial.check(lambda: ["two", "three"])

        @trial.check
        def broken() -> bool:
            return False

        @trial.check
        def raising() -> None:
            raise LookupError("four")

    found = run_trial(scenario).violations
    assert found[:3] == ("one", "two", "three")
    assert "broken" in found[3]
    assert "does not hold" in found[3]
    assert "LookupError: four" in found[4]


def test_an_exception_of_the_scenario_is_a_violation() -> None:
    """Groups are shown with what is in them."""

    async def scenario(trial: Trial) -> None:
        async with trio.open_nursery():
            raise KeyError("k")

    (violation,) = run_trial(scenario).violations
    assert "ExceptionGroup(KeyError: 'k')" in violation


def test_a_scenario_that_keeps_state_between_runs_is_found_out() -> None:
    """A run that is no function of its seed is reported, instead of silently covering less."""
    runs = 0

    async def scenario(trial: Trial) -> None:
        nonlocal runs
        runs += 1
        with trial.cancellable():
            for _ in range(5 if runs == 1 else 1):
                await trio.lowlevel.checkpoint()

    assert "not a function of its seed" in str(explore(scenario))


def test_two_targets_of_one_name_are_refused() -> None:
    """A shot must know what it is meant for."""

    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        with trial.cancellable("x"), trial.cancellable("x"):
            pass

    assert "two targets are named 'x'" in run_trial(scenario).violations[0]


def test_an_explored_program_gets_this_network_and_no_other() -> None:
    """In a trial every socket is in memory, names are not looked up, and what stays open is reported."""

    async def scenario(trial: Trial) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        await listener.aclose()
        with pytest.raises(OSError, match="knows localhost only"):
            await trio.open_tcp_stream("example.invalid", 80)

    (violation,) = run_trial(scenario).violations
    assert "MemorySocket" in violation
    assert "left open" in violation


@pytest.mark.parametrize("points", [0, -1, "some", 1.5, True])
def test_a_wrong_number_of_points_is_refused(points: object) -> None:
    """One clear error before anything runs."""
    with pytest.raises(InvalidInput, match="points="):
        explore(many_tasks, points=points)  # type: ignore[arg-type]


@pytest.mark.parametrize("seeds", [0, -1, "x", [], [1.5], None])
def test_no_seeds_at_all_are_refused(seeds: object) -> None:
    """An exploration without a run would pass, and prove nothing."""
    with pytest.raises(InvalidInput, match="seeds="):
        explore(many_tasks, seeds=seeds)  # type: ignore[arg-type]


def test_a_trio_without_the_private_names_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that breaks the adapter says which name it lacks."""
    monkeypatch.setattr(adapter, "_PRIVATE_NAMES", ("_r", "_gone_for_good"))
    with pytest.raises(UnsupportedTrio, match="_gone_for_good"):
        explore(many_tasks)


async def test_exploring_inside_a_run_is_refused() -> None:
    """An explored run needs the trio of the whole process for itself."""
    await trio.lowlevel.checkpoint()
    with pytest.raises(InvalidInput, match="where no trio runs"):
        explore(many_tasks)


def test_trio_is_left_as_it_was() -> None:
    """The scheduler's order and flag come back after a run, and after one that failed."""
    before = adapter._run._ALLOW_DETERMINISTIC_SCHEDULING, adapter._run._r

    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError

    run_trial(scenario)
    assert (adapter._run._ALLOW_DETERMINISTIC_SCHEDULING, adapter._run._r) == before
