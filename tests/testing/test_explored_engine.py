"""Our own engine in the laboratory: cancelled at every step, crashed and failed at every commit."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

from maka_trio.engine import MessageWork, RetryPolicy, RunInput
from maka_trio.errors import MakaError, RunCancelled
from maka_trio.facts import ModelObserved, PartDelta, RuntimeEvent, ToolDefinition
from maka_trio.facts.codec import encode_fact, encode_invocation
from maka_trio.facts.identity import Invocation
from maka_trio.facts.message import Message
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.request import ModelRequest
from maka_trio.testing import (
    COMMIT_FAULTS,
    TOOL_FAULTS,
    Exploration,
    ScriptedProvider,
    Trial,
    crash_everywhere,
    explore,
    fault_everywhere,
    run_trial,
)
from maka_trio.testing.trial import How, Scenario, TrialState
from maka_trio.tools import ToolCall, ToolCatalog, ToolRegistration
from tests.testing.agent_scenes import Workshop, agent, workshop

RETRY = RetryPolicy(base=1, longest=2)


def script(it: Workshop, **settings: Any) -> None:
    """A provider that is down first, then two steps with three tools."""
    it.provider.fail(503, when=lambda request: request.number == 1)
    it.script_turns(1, **settings)


async def cancelled_caller(trial: Trial, **settings: Any) -> None:
    """Who awaits the run, and then the drain, is cancelled: in requests, in backoff, in tools, and in the drain."""
    async with workshop(trial) as it:
        script(it, **settings)
        async with it.engine(retry=RETRY) as agent:
            with trial.cancellable("caller"):
                await agent.turn()
                await agent.running.drain()
        await it.goes_on()


async def cancelled_run(trial: Trial, **settings: Any) -> None:
    """The run is cancelled through its handle, with its tools two at a time."""
    async with workshop(trial) as it:
        script(it, **settings)
        async with it.engine(retry=RETRY) as agent:
            running = await agent.running.start(it.input(tool_concurrency=2))
            with trial.target("run", cancel=running.cancel):
                await _ignore_failure(trial, running.wait)
                await agent.running.drain()
        await it.goes_on()


async def cancelled_engine(trial: Trial, **settings: Any) -> None:
    """The engine's own block is cancelled; it drains, and the next engine goes on from the log."""
    async with workshop(trial) as it:
        script(it, **settings)
        with trial.cancellable("engine"):
            async with it.engine(retry=RETRY) as agent:
                await agent.turn()
        await it.goes_on()


async def cancelled_turn_after_turn(trial: Trial) -> None:
    """The same engine takes the next turn, with all its tools, after one was cancelled."""
    async with agent(trial) as it:
        it.script_turns(2)
        with trial.cancellable("caller"):
            await it.turn()
        await it.next_turn_is_accepted()
        await it.judge()


async def cancelled_stream(trial: Trial) -> None:
    """One answer of a model, read without an engine; the executor answers the next one, on what it has left."""
    async with ScriptedProvider() as provider, ModelExecutor(30) as models:
        provider.say("a", "b", "c", when=lambda request: b"first" in request.raw)
        provider.say("well", when=lambda request: b"second" in request.raw)
        with trial.cancellable("stream"):
            await _answer(models, ModelRequest(provider.config(), [Message.user("first")]))
        answer = await _answer(models, ModelRequest(provider.config(), [Message.user("second")]))
        trial.check(lambda: answer == "well" or f"answered {answer!r}")


async def _answer(models: ModelExecutor, request: ModelRequest) -> str:
    text = ""
    async with models.stream(request) as stream:
        async for event in stream:
            if isinstance(event, PartDelta):
                text += event.text
    return text


async def _ignore_failure(trial: Trial, wait: object) -> None:
    try:
        await wait()  # type: ignore[operator]
    except MakaError:
        if not trial.shot:
            raise


SCENARIOS = [cancelled_caller, cancelled_run, cancelled_engine, cancelled_turn_after_turn, cancelled_stream]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_cancelled_at_many_steps_the_engine_keeps_the_laws(scenario: object) -> None:
    """Two steps, three tools: at each point a lawful log, no effect twice or in half, the next turn accepted."""
    exploration = explore(scenario, points=50)  # type: ignore[arg-type]
    exploration.raise_for_violations()
    assert 25 < exploration.points.total() <= 50


JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
"""Processes of one exploration. Where tests themselves run side by side, more would only stand in their way."""


def name_of(kind: object) -> str:
    """A scenario's name, with or without settings."""
    return getattr(getattr(kind, "func", kind), "__name__", str(kind))


KINDS: list[tuple[Scenario, How, int]] = [
    (partial(cancelled_caller, chunk="packed"), "cancel", 50),
    (partial(cancelled_run, chunk="packed"), "cancel", 50),
    (partial(cancelled_engine, chunk="packed"), "cancel", 50),
    (cancelled_stream, "cancel", 50),
    # A deadline that passes after a step is a cancel at the end of the round in which the step was, so that most of
    # these runs are among those of the caller.
    (partial(cancelled_caller, chunk="packed"), "deadline", 10),
]
"""The ways to end work, each with its number of seeds. An engine is given each answer in one piece; what a stream does
piece by piece is its own."""

SEEDS_OF_A_PART = 10

PARTS = [
    pytest.param(scenario, how, range(first, first + SEEDS_OF_A_PART), id=f"{name_of(scenario)}-{how}-{first}")
    for scenario, how, seeds in KINDS
    for first in range(1, seeds + 1, SEEDS_OF_A_PART)
]
"""In parts, which may run side by side."""


def of_the_program(task: trio.lowlevel.Task) -> bool:
    """Whether a task is no part of the scripted provider, between whose steps nothing of the program changes."""
    return not task.name.endswith(("_run_handler", "_serve_one_listener", ".watch"))


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "how", "seeds"), PARTS)
def test_ended_at_every_step_of_many_schedules(scenario: Scenario, how: How, seeds: range) -> None:
    """Every step of the program in fifty orders of the same tasks (ten for deadlines), in each way to end its work."""
    exploration = explore(scenario, seeds=seeds, how=[how], tasks=of_the_program, jobs=JOBS)
    exploration.raise_for_violations()
    assert exploration.complete
    assert exploration.points.total() > 15 * len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [cancelled_turn_after_turn, cancelled_stream], ids=name_of)
def test_cancelled_at_every_step_of_anybody_in_one_of_many_schedules(scenario: Scenario) -> None:
    """The provider's steps are moments too, and its answers come in pieces."""
    exploration = explore(scenario, seeds=[1], jobs=JOBS)
    exploration.raise_for_violations()
    assert exploration.complete


@pytest.mark.slow
def test_second_cancels() -> None:
    """A second cancel after a first."""
    explore(twice_cancelled, pairs=300).raise_for_violations()


async def twice_cancelled(trial: Trial) -> None:
    """The caller is cancelled, and then the engine that drains."""
    async with workshop(trial) as it:
        script(it)
        with trial.cancellable("engine"):
            async with it.engine(retry=RETRY) as agent:
                with trial.cancellable("caller"):
                    await agent.turn()
        await it.goes_on()


def test_a_whole_agent_is_a_function_of_its_seed() -> None:
    """Engine, log, HTTP client and server: thirty runs, one trace."""
    assert len({run_trial(cancelled_caller, seed=3, name_points=False).trace for _ in range(30)}) == 1


async def one_turn(trial: Trial, log: EventLog) -> None:
    """A retry, two steps and three tools, and a drain; a failure is looked at by nobody."""
    async with agent(trial, log, retry=RETRY) as it:
        it.provider.fail(503, when=lambda request: request.number == 1)
        it.script_turns(3)
        await it.turn()
        await it.running.drain()


async def another_turn(trial: Trial, log: EventLog) -> None:
    """The next process goes on with the session, whatever it finds."""
    async with workshop(trial, log) as it:
        await it.goes_on(allow_prior_unknown=True)


def dispatches(exploration: Exploration) -> int:
    """Disturbances of commits with a dispatch in them."""
    return sum(count for kinds, count in exploration.points.items() if "tool_dispatched" in kinds)


def test_crashed_at_every_commit_the_next_process_goes_on() -> None:
    """Nothing runs twice, the log is lawful before and after recovery, the next turn is accepted."""
    exploration = crash_everywhere(one_turn, another_turn)
    exploration.raise_for_violations()
    assert dispatches(exploration) == 2 * 3


def test_a_process_killed_at_a_commit_leaves_what_the_model_says() -> None:
    """A few kills, always: a real process, a real file, a real signal."""
    exploration = crash_everywhere(one_turn, another_turn, kill=True, points=3)
    exploration.raise_for_violations()
    assert exploration.points.total() == 3


@pytest.mark.slow
def test_killed_at_every_commit_the_next_process_goes_on() -> None:
    """Before, during and after each of them."""
    exploration = crash_everywhere(one_turn, another_turn, kill=True, jobs=JOBS)
    exploration.raise_for_violations()
    assert dispatches(exploration) == 3 * 3


def test_failed_at_every_commit_the_log_stays_lawful() -> None:
    """Each commit fails once in each way; what the run could not write, recovery does."""
    exploration = fault_everywhere(one_turn, another_turn, without=("connect", "read", "write", "raise"))
    exploration.raise_for_violations()
    assert dispatches(exploration) == len(COMMIT_FAULTS) * 3


def test_whatever_a_tool_raises_the_log_stays_lawful() -> None:
    """Each of the tools that return fails once with each public error, after its effect."""
    exploration = fault_everywhere(one_turn, another_turn, without=("connect", "read", "write", "commit"))
    exploration.raise_for_violations()
    assert exploration.points.total() == len(TOOL_FAULTS) * 2


def test_whatever_a_socket_does_the_log_stays_lawful() -> None:
    """Connects, reads and writes of client and server fail in each way, thinned: retried or told, never lost."""
    exploration = fault_everywhere(one_turn, another_turn, without=("commit", "raise"), points=40)
    exploration.raise_for_violations()
    assert exploration.points.total() == 40


@pytest.mark.slow
def test_whatever_fails_in_some_schedules_the_log_stays_lawful() -> None:
    """All fault points, in two orders of the same tasks."""
    exploration = fault_everywhere(one_turn, another_turn, seeds=range(1, 3), jobs=JOBS)
    exploration.raise_for_violations()
    assert exploration.complete


# --- the real world ---------------------------------------------------------------------------------------------


async def a_turn_with_tools(trial: Trial) -> list[RuntimeEvent]:
    """Two steps and three tools."""
    async with agent(trial) as it:
        it.script_turns(1)
        await it.turn()
        return await events_of(it.log)


async def a_turn_that_is_cancelled(trial: Trial) -> list[RuntimeEvent]:
    """The first of two calls cancels its own run: it is drained and settled, and the second never starts."""
    handed_over = trio.Event()

    async def stop(_: Any, call: ToolCall) -> Any:
        await handed_over.wait()
        running.cancel()
        return {"stopped": True}

    tools = ToolCatalog([ToolRegistration(ToolDefinition("stop", "stop", {"type": "object"}), stop)])
    async with agent(trial) as it:
        it.provider.call_tools(("stop", {}), ("stop", {}))
        work = RunInput(Invocation.new("session"), it.provider.config(), MessageWork("go", tools))
        running = await it.running.start(work)
        handed_over.set()
        with suppress(RunCancelled):
            await running.wait()
        return await events_of(it.log)


async def events_of(log: EventLog) -> list[RuntimeEvent]:
    """Everything in the log but observations."""
    prefix = await log.prefix(10_000, 1 << 24)
    return [stored.event for stored in prefix.events if not isinstance(stored.event.fact, ModelObserved)]


_OF_ITS_WORLD = re.compile(r"[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|127\.0\.0\.1:\d+")


def normalised(events: list[RuntimeEvent]) -> list[str]:
    """The facts with whose they are, each id, digest and address as the number of its first appearance."""
    numbers: dict[str, str] = {}
    texts = [f"{encode_invocation(event.invocation)!r} {encode_fact(event.fact)!r}" for event in events]
    return [_OF_ITS_WORLD.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), text) for text in texts]


@pytest.mark.parametrize("story", [a_turn_with_tools, a_turn_that_is_cancelled], ids=name_of)
def test_the_model_of_the_world_is_faithful(story: Callable[[Trial], Awaitable[list[RuntimeEvent]]]) -> None:
    """The same scenario in the real world, with real sockets and the real clock, leaves the same facts.

    Ids are compared by which are equal, and times and ports not at all. Only how many reads bring an answer, and so
    how many observations it makes, is the network's own affair.
    """
    stories = []

    async def told(trial: Trial) -> None:
        stories.append(normalised(await story(trial)))

    async def in_the_real_world() -> None:
        with trio.fail_after(60):
            await told(Trial(0, TrialState()))

    trio.run(in_the_real_world)
    assert run_trial(told).violations == ()
    assert len(stories[0]) > 4
    assert stories[0] == stories[1]
