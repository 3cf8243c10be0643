"""Dying at every commit, failing at every commit: a careful program survives all of it, and each bug is found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from maka_trio import facts
from maka_trio.errors import CommitError, CommitUnknown, InvalidInput, LogFull
from maka_trio.facts import Invocation, RuntimeEvent
from maka_trio.history import History
from maka_trio.log import EventLog
from maka_trio.testing import (
    COMMIT_FAULTS,
    CRASHES,
    KILLS,
    Effects,
    Trial,
    crash_everywhere,
    fault_everywhere,
    lawful,
    run_killed_trial,
    run_log_trial,
)

CALL = facts.ModelToolCall("call", "pay", {})
ROUTE = "sha256:" + "0" * 64


class Job:
    """A tiny program with a journal: it opens a run, is told by a model to pay, pays once, and ends."""

    def __init__(self, trial: Trial, log: EventLog) -> None:
        self.log = log
        self.run = Invocation.new("session")
        self.history = History()
        if not hasattr(trial.world, "effects"):
            trial.world.effects = Effects()
        self.effects: Effects = trial.world.effects

    async def record(self, *facts_: facts.Fact) -> None:
        events = [RuntimeEvent.new(self.run, fact) for fact in facts_]
        with trio.CancelScope(shield=True):
            await self.log.commit_batch(events)
        for event in events:
            self.history.push(event)

    async def step(self) -> None:
        head = await self.log.head(facts.Session("session"))
        asked = self.history.input_digest(route_identity=ROUTE, model_id="m")
        digests = (head.high_water, head.digest, asked, ROUTE)
        await self.record(facts.ModelRequested("step", "m", facts.Session("session"), *digests))
        reason = facts.FinishReason.TOOL_CALLS
        await self.record(facts.ModelCompleted("step", facts.ModelStep((facts.ToolCallPart(CALL),), reason)))

    async def pay(self) -> None:
        identity = facts.ToolCallIdentity.provider("step", "call")
        await self.record(facts.ToolDispatched("step:call", identity, "pay", {}))
        await self.effect()
        await self.record(facts.ToolSettled("step:call", facts.EffectFailed("paid")))

    async def effect(self) -> None:
        with trio.CancelScope(shield=True), self.effects("pay"):
            await trio.sleep(1)

    async def open(self) -> None:
        await self.record(facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("pay"))))

    async def end(self, outcome: facts.InvocationOutcome | None = None) -> None:
        await self.record(facts.InvocationEnded(outcome or facts.Completed()))


async def careful(trial: Trial, log: EventLog) -> None:
    job = Job(trial, log)
    try:
        await job.open()
        await job.step()
        await job.pay()
        await job.end()
    except (CommitError, LogFull):
        trial.world.failed = True


async def recovered(trial: Trial, log: EventLog) -> None:
    """What the next process does: it seals what is open, and looks at what the log says before it pays again."""
    await log.recover()
    trial.check(lambda: trial.world.effects.begun("pay") <= 1 or "paid twice")
    dispatched = await kinds(log, facts.ToolDispatched)
    if trial.world.effects.begun("pay") and not dispatched:
        trial.violation("paid without a dispatch in the log")


async def kinds(log: EventLog, kind: type[facts.Fact]) -> list[facts.Fact]:
    prefix = await log.prefix(1000, 1 << 20)
    return [stored.event.fact for stored in prefix.events if isinstance(stored.event.fact, kind)]


def test_a_careful_program_survives_every_crash() -> None:
    """Six commits, two moments each: what is left is always lawful, and the effect never happens unrecorded."""
    exploration = crash_everywhere(careful, recovered, seeds=2)
    exploration.raise_for_violations()
    assert exploration.runs == 2 * (1 + 6 * len(CRASHES))
    assert exploration.points["tool_dispatched"] == 2 * len(CRASHES)


def test_a_careful_program_survives_every_fault() -> None:
    """It is told of each failed commit, and recovery finishes what it could not."""
    exploration = fault_everywhere(careful, recovered)
    exploration.raise_for_violations()
    assert exploration.runs == 1 + 6 * len(COMMIT_FAULTS)


async def pays_before_it_says_so(trial: Trial, log: EventLog) -> None:
    job = Job(trial, log)
    await job.open()
    await job.step()
    await job.effect()
    await job.record(
        facts.ToolDispatched("step:call", facts.ToolCallIdentity.provider("step", "call"), "pay", {}),
        facts.ToolSettled("step:call", facts.EffectFailed("paid")),
    )
    await job.end()


async def pays_again_after_a_crash(trial: Trial, log: EventLog) -> None:
    """Its next process takes an open run for one that has done nothing yet."""
    trial.check(trial.world.effects.check)
    open_runs = len(await kinds(log, facts.InvocationOpened)) - len(await kinds(log, facts.InvocationEnded))
    await log.recover()
    if open_runs:
        await Job(trial, log).effect()


async def ends_before_it_is_settled(trial: Trial, log: EventLog) -> None:
    job = Job(trial, log)
    await job.open()
    await job.step()
    await job.record(facts.ToolDispatched("step:call", facts.ToolCallIdentity.provider("step", "call"), "pay", {}))
    await job.end(facts.Cancelled())


async def takes_unknown_for_success(trial: Trial, log: EventLog) -> None:
    job = Job(trial, log)
    await job.open()
    await job.step()
    identity = facts.ToolCallIdentity.provider("step", "call")
    with suppress(CommitUnknown):
        await job.record(facts.ToolDispatched("step:call", identity, "pay", {}))
    await job.effect()
    trial.world.failed = True


async def forgets_a_failed_commit(trial: Trial, log: EventLog) -> None:
    job = Job(trial, log)
    for act in (job.open, job.step, job.pay, job.end):
        try:
            await act()
        except (CommitError, LogFull):
            continue


LogProgram = Callable[[Trial, EventLog], Awaitable[None]]


@pytest.mark.parametrize(
    ("program", "follow_up", "found_at"),
    [
        (pays_before_it_says_so, recovered, {("crash_before", "tool_dispatched, tool_settled")}),
        (
            careful,
            pays_again_after_a_crash,
            {
                ("crash_before", "tool_settled"),
                ("crash_after", "tool_settled"),
                ("crash_before", "invocation_ended"),
            },
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_crash_bug_is_found_at_exactly_its_commits(
    program: LogProgram, follow_up: LogProgram, found_at: set[tuple[str, str]]
) -> None:
    """A dispatch that comes after its effect, and an effect that is replayed: found where they break, nowhere else."""
    violations = crash_everywhere(program, follow_up).violations
    assert {(violation.shots[0].how, violation.shot_at[0]) for violation in violations} == found_at


def test_an_unlawful_log_is_found_without_any_disturbance() -> None:
    """Law 3 in the first part; nothing has to crash for that."""
    smallest = crash_everywhere(ends_before_it_is_settled, recovered).smallest
    assert smallest is not None
    assert smallest.shots == ()
    assert smallest.words.startswith("law 3")


def test_an_unknown_commit_taken_for_success_is_found() -> None:
    """The effect runs without a durable dispatch, and only that fault shows it."""
    violations = fault_everywhere(takes_unknown_for_success, recovered).violations
    assert {violation.shots[0].how for violation in violations if "without a dispatch" in violation.words} == {
        "unknown_lost"
    }


def test_a_fault_that_is_ignored_is_found() -> None:
    """Going on after a failed commit: the end is written though the call was never decided."""
    violations = fault_everywhere(forgets_a_failed_commit, recovered).violations
    at_the_dispatch = {violation.words[:5] for violation in violations if violation.shot_at == ("tool_dispatched",)}
    assert at_the_dispatch & {"law 3", "law 6"}


def test_nothing_goes_on_after_a_crash() -> None:
    """Neither cleanup nor shielded work of the dead process runs."""
    ran_on = []

    async def scenario(trial: Trial, log: EventLog) -> None:
        job = Job(trial, log)
        try:
            await job.open()
        finally:
            ran_on.append("cleanup")

    async def nothing(trial: Trial, log: EventLog) -> None:
        await trio.lowlevel.checkpoint()

    for disturbance in CRASHES.values():
        ran_on.clear()
        result = run_log_trial(scenario, nothing, at=1, disturbance=disturbance)
        assert result.disturbed
        assert result.violations == ()
        assert ran_on == []


def test_the_follow_up_finds_exactly_what_was_durable() -> None:
    """A commit that was not done is not there; one that was done unacknowledged is."""
    found: dict[str, int] = {}

    async def count(trial: Trial, log: EventLog) -> None:
        found[trial.world.name] = (await log.head()).high_water

    for name, disturbance in CRASHES.items():

        async def scenario(trial: Trial, log: EventLog, name: str = name) -> None:
            trial.world.name = name
            await careful(trial, log)

        run_log_trial(scenario, count, at=3, disturbance=disturbance)
    assert found == {"crash_before": 2, "crash_after": 3}


@pytest.mark.parametrize(("name", "fault"), COMMIT_FAULTS.items())
def test_a_fault_is_what_it_says(name: str, fault: object) -> None:
    """The caller gets an exception of the public tree, and the log holds the commit or does not."""
    high_water = []

    async def scenario(trial: Trial, log: EventLog) -> None:
        job = Job(trial, log)
        with pytest.raises((CommitError, LogFull), match="injected"):
            await job.open()
        high_water.append((await log.head()).high_water)

    assert run_log_trial(scenario, at=1, disturbance=fault).violations == ()  # type: ignore[arg-type]
    assert high_water == [1 if name == "unknown_durable" else 0]


async def looked_at(trial: Trial, log: EventLog) -> None:
    """What is left: how many commits, and what the world saw."""
    trial.violation(f"{(await log.head()).high_water} events, {trial.world.effects.done('pay')} effects")


@pytest.mark.parametrize(
    ("at", "how", "left"),
    [
        (1, "kill_before", {"0 events, 0 effects"}),
        (5, "kill_before", {"4 events, 1 effects"}),
        (5, "kill_during", {"4 events, 1 effects", "5 events, 1 effects"}),
        (4, "kill_after", {"4 events, 0 effects"}),
    ],
)
def test_a_killed_process_leaves_its_file_and_what_the_world_saw(at: int, how: str, left: set[str]) -> None:
    """The child dies of the signal, at the commit; the parent finds the durable events and the effects."""
    result = run_killed_trial(careful, looked_at, at=at, how=how)
    assert result.disturbed
    assert set(result.violations) <= left
    assert len(result.violations) == 1


def test_a_process_that_ends_before_its_kill_broke_nothing() -> None:
    """Its end is no violation, and nothing is followed up."""
    result = run_killed_trial(careful, looked_at, at=99)
    assert not result.disturbed
    assert result.violations == ()


async def raises_at_once(trial: Trial, log: EventLog) -> None:
    raise LookupError("broken from the start")


def test_what_a_child_raises_is_told() -> None:
    """An exception in the other process is a violation here."""
    (words,) = run_killed_trial(raises_at_once, looked_at).violations
    assert words == "the scenario raised LookupError: broken from the start"


def test_a_kill_finds_what_a_crash_finds() -> None:
    """An effect before its dispatch, killed as the dispatch is asked for."""
    (words,) = run_killed_trial(pays_before_it_says_so, recovered, at=4, how="kill_before").violations
    assert words == "paid without a dispatch in the log"


def test_kills_are_explored_as_crashes_are() -> None:
    """The same interface; each violation says which kill shows it again."""
    exploration = crash_everywhere(careful, looked_at, kill=True, points=2)
    assert exploration.runs == 1 + 2
    killed = [violation for violation in exploration.violations if violation.shots]
    assert [violation.shots[0].how in KILLS for violation in killed] == [True, True]
    assert all(violation.replay.startswith("run_killed_trial(") for violation in killed)


def test_a_scenario_that_no_child_can_import_is_refused() -> None:
    """Before any process is started."""

    async def local(trial: Trial, log: EventLog) -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(InvalidInput, match="cannot be run in a process of its own"):
        run_killed_trial(local, looked_at)
    with pytest.raises(InvalidInput, match="must be one of kill_before"):
        run_killed_trial(careful, looked_at, how="gently")


def test_a_hang_is_reported_and_has_no_follow_up() -> None:
    """A program that waits for ever after a fault is a violation by itself."""

    async def scenario(trial: Trial, log: EventLog) -> None:
        try:
            await Job(trial, log).open()
        except CommitError:
            await trio.sleep_forever()

    async def never(trial: Trial, log: EventLog) -> None:
        await trio.lowlevel.checkpoint()
        raise AssertionError("there is nothing to follow up")

    (violation,) = run_log_trial(scenario, never, at=1, disturbance=COMMIT_FAULTS["rejected"]).violations
    assert "waits for ever" in violation


async def test_lawful_reads_a_log_and_one_session_of_it() -> None:
    """The check that a test makes at its end."""
    async with EventLog.in_memory() as log:
        trial = type("Outside", (), {"world": type("World", (), {})()})
        job = Job(trial, log)  # type: ignore[arg-type]
        await job.open()
        assert await lawful(log) == []
        assert await lawful(log, facts.Session("session")) == []
