"""A step, and a run's programs, as large as the limits admit, and larger: every run ends, every session goes on."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import limits
from maka_trio.engine import Engine
from maka_trio.errors import (
    AdapterError,
    CleanupUnconfirmed,
    CommitRejected,
    InvalidInput,
    LogFull,
    ModelIncomplete,
    ReconciliationRequired,
    RunCancelled,
)
from maka_trio.facts import (
    Failed,
    FailureClass,
    InvocationEnded,
    ModelInterrupted,
    Root,
    ToolDispatched,
    ToolRejected,
)
from maka_trio.laws import check
from maka_trio.limits import MIB
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.testing import ScriptedProvider
from maka_trio.testing.commit_points import CommitPoints
from tests.engine.limit_child import NESTED, code_engine, inputs
from tests.engine.scene import Scene, echo, registration, scene
from tests.engine.test_full_disk import FullDisk

SAVE = [registration("save", echo)]


async def goes_on(it: Scene, **settings: Any) -> None:
    """The next run of the session, and one of another, are admitted and complete; the log is lawful."""
    for session in ("session", "another"):
        it.provider.say("done")
        await it.engine.run(it.input("next", session=session, tools=SAVE, **settings))
    events = (await it.log.prefix(100_000, 1 << 30, Root())).events
    assert list(check(events)) == []


async def end(it: Scene) -> Any:
    (found,) = [fact.outcome for fact in await it.facts() if isinstance(fact, InvocationEnded)]
    return found


# --- larger -------------------------------------------------------------------------------------------------

TOO_LARGE: dict[str, tuple[list[tuple[str, Any]], str]] = {
    "calls": ([("save", {})] * (limits.STEP_CALLS + 1), "more than 1024 tool calls"),
    "input": ([("save", {"text": "x" * (3 * MIB)})] * 2, r"2 tool calls have \d+ bytes; the limit is 6291456"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
@pytest.mark.parametrize("finish", ["tool_calls", "length"])
async def test_a_larger_step_is_no_step(tmp_path: Path, name: str, finish: str) -> None:
    """The answer is refused as others that pass a limit are: once, with value and limit, and no tool runs."""
    calls, words = TOO_LARGE[name]
    async with scene(tmp_path) as it:
        it.provider.call_tools(*calls, finish=finish)
        with pytest.raises(AdapterError, match=words):
            await it.engine.run(it.input(tools=SAVE))
        assert len(it.provider.requests) == 1
        assert await it.story() == "invocation_opened model_requested model_interrupted invocation_ended"
        (interrupted,) = [fact for fact in await it.facts() if isinstance(fact, ModelInterrupted)]
        ended = await end(it)
        assert ended.failure_class is FailureClass.MODEL_ADAPTER
        assert ended.message == interrupted.diagnostic
        await goes_on(it)


# --- as large as they may be --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["many", "large"])
async def test_the_largest_step_is_run_up_to_where_it_is_cancelled(tmp_path: Path, kind: str) -> None:
    """Its first call is drained and all others are rejected, whoever follows is told, and the session goes on."""

    async def wait(value: Any, call: Any) -> str:
        with call.abort_scope():
            await trio.sleep_forever()
        return "cancelled"

    async with scene(tmp_path) as it:
        it.provider.call_tools(*inputs(kind))
        running = await it.engine.start(it.input(tools=[registration("save", wait)]))
        async for stored in running.events():
            if isinstance(stored.event.fact, ToolDispatched):
                running.cancel()
        with pytest.raises(RunCancelled):
            await running.wait()
        rejected = sum(isinstance(fact, ToolRejected) for fact in await it.facts())
        assert rejected == len(inputs(kind)) - 1
        assert (await end(it)).kind == "cancelled"
        await goes_on(it)
        assert await it.log.recover() == 0


async def test_the_largest_step_is_run_to_its_end(tmp_path: Path) -> None:
    """Its inputs count once."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(*inputs("large"))
        it.provider.say("done")
        await it.engine.run(it.input(tools=[registration("save", short)]))
        await goes_on(it)


async def short(value: Any, call: Any) -> int:
    """Return little."""
    return len(value["text"])


@pytest.mark.parametrize("kind", ["many", "large"])
async def test_the_largest_step_is_cut_by_the_output_limit(tmp_path: Path, kind: str) -> None:
    """The step and the rejections of all its calls are one commit."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(*inputs(kind), finish="length")
        with pytest.raises(ModelIncomplete):
            await it.engine.run(it.input(tools=SAVE))
        story = (await it.story()).split()
        assert story.count("tool_rejected") == len(inputs(kind))
        assert story[2] == "model_completed"
        assert (await end(it)).failure_class is FailureClass.MODEL_INCOMPLETE
        await goes_on(it)


# --- a process that dies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["many", "large", "programs"])
async def test_a_process_that_dies_in_the_largest_step_locks_nobody_out(tmp_path: Path, kind: str) -> None:
    """The next one seals the run and admits every session; its own, once somebody has taken note of the effects."""
    command = [sys.executable, "-m", "tests.engine.limit_child", str(tmp_path), kind]
    died = await trio.run_process(command, cwd=Path(__file__).parents[2], check=False)
    assert died.returncode == -signal.SIGKILL
    async with code_engine(tmp_path) as it:
        assert await end(it) == Failed(FailureClass.OUTCOME_UNKNOWN)
        facts = await it.facts()
        nested = sum(isinstance(fact, ToolDispatched) and fact.name == "save" for fact in facts)
        assert nested == (NESTED if kind == "programs" else 1)
        with pytest.raises(ReconciliationRequired):
            await it.engine.run(it.input("next"))
        await goes_on(it, allow_prior_unknown=True)


# --- an end that cannot be written as the run would have it -------------------------------------------------


def refuse_the_end(it: Scene, error: Exception) -> None:
    """Let the log refuse whatever brings an end, as long as it comes as an append."""

    async def at_commit(number: int, kinds: str, perform: Any) -> list[int]:
        if "invocation_ended" in kinds:
            raise error
        sequences: list[int] = await perform()
        return sequences

    CommitPoints(it.log, at_commit)


REFUSALS = [InvalidInput("no such batch"), CommitRejected("no", reason="conflict"), ReconciliationRequired("unpaired")]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
async def test_a_run_whose_end_is_refused_has_one_all_the_same(tmp_path: Path, error: Exception) -> None:
    """The log ends it by what it has itself. Its waiters are told, its followers come to an end."""
    async with scene(tmp_path) as it:
        refuse_the_end(it, error)
        it.provider.say("done")
        running = await it.engine.start(it.input())
        with trio.fail_after(30):
            kinds = [stored.event.fact.kind async for stored in running.events()]
        with pytest.raises(type(error), match=str(error)):
            await running.wait()
        assert kinds[-1] == "invocation_ended"
        ended = await end(it)
        assert (ended.kind, ended.message) == ("failed", str(error))
        assert it.engine.statistics().active == ()
    async with scene(tmp_path) as it:
        await goes_on(it)


async def test_what_a_cancelled_run_has_open_is_answered_by_the_log(tmp_path: Path) -> None:
    """The end that is refused would have rejected its calls; the run stays cancelled."""

    async def stop(value: Any, call: Any) -> str:
        running.cancel()
        return "stopped"

    async with scene(tmp_path) as it:
        refuse_the_end(it, InvalidInput("no such batch"))
        it.provider.call_tools(("save", {}), ("save", {"n": 1}))
        running = await it.engine.start(it.input(tools=[registration("save", stop)]))
        with pytest.raises(RunCancelled):
            await running.wait()
        rejected = [fact for fact in await it.facts() if isinstance(fact, ToolRejected)]
        assert [fact.input for fact in rejected] == [{"n": 1}]
        assert (await end(it)).kind == "cancelled"
    async with scene(tmp_path) as it:
        await goes_on(it)


async def test_an_unsettled_effect_is_told_by_the_log(tmp_path: Path) -> None:
    """Whatever else the run failed with."""

    async def hang(value: Any, call: Any) -> str:
        raise CleanupUnconfirmed("it may still run")

    async with scene(tmp_path) as it:
        refuse_the_end(it, InvalidInput("no such batch"))
        it.provider.call_tools(("save", {}))
        with pytest.raises(CleanupUnconfirmed):
            await it.engine.run(it.input(tools=[registration("save", hang)]))
        assert await end(it) == Failed(FailureClass.OUTCOME_UNKNOWN, "it may still run")
    async with scene(tmp_path) as it:
        await goes_on(it, allow_prior_unknown=True)


async def test_an_end_that_found_no_space_is_written_when_the_engine_is_left(tmp_path: Path) -> None:
    """If there is space by then. No later run of the session has to ask for it."""
    async with (
        EventLog.open(tmp_path / "log.sqlite") as log,
        ScriptedProvider() as provider,
        ModelExecutor(10) as models,
    ):
        async with Engine(log, models) as engine:
            it = Scene(provider, log, models, engine)
            disk = FullDisk(it, "model_completed")
            provider.say("done")
            with pytest.raises(LogFull):
                await engine.run(it.input())
            disk.make_space()
        assert await end(it) == Failed(FailureClass.HOST_INTERRUPTED)
        assert await log.recover() == 0
