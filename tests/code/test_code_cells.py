"""Programs that outlive the call that began them: yielding, waiting, and what stops them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from maka_trio import facts
from maka_trio.errors import AdapterError, CleanupUnconfirmed, CommitUnknown, ReconciliationRequired, StepLimit
from maka_trio.testing import Gate
from tests.code.cell import workers
from tests.code.code_scene import code_scene
from tests.engine.scene import echo, registration


async def test_a_program_that_yields_goes_on_while_the_model_thinks(tmp_path: Path) -> None:
    """Exec settles first, the nested calls later, and `wait` shows what is new, once."""
    gate = Gate()

    async def hold(value: Any, call: Any) -> str:
        await gate.pass_through()
        return "held"

    async with code_scene(tmp_path) as it:
        it.script("print('one')\nyield_control()\nprint('two')\nx = await hold()\nprint('three')\nx")
        it.wait()
        it.provider.say("done")
        running = await it.engine.start(it.input(registration("hold", hold)))
        await it.provider.wait_for_request(2)
        gate.open()
        await running.wait()
        tale = await it.tale()
        assert tale.index("exec succeeded") < tale.index("hold succeeded") < tale.index("code_cell succeeded")
        assert tale.index("code_cell succeeded") < tale.index("wait succeeded")
        (first,), (second,) = await it.results("exec"), await it.results("wait")
        assert first["state"] == "running"
        assert "result" not in first
        assert second["state"] == "completed"
        assert second["result"] == {"ok": True, "value": "held", "toolCalls": 1}
        shown = "".join(part["text"] for observed in (first, second) for part in observed["content"])
        assert shown == "one\ntwo\nthree\n"


async def test_a_program_that_takes_long_is_left_running(tmp_path: Path) -> None:
    """After the time that the call allows."""
    gate = Gate()

    async def hold(value: Any, call: Any) -> str:
        await gate.pass_through()
        return "held"

    async with code_scene(tmp_path) as it:
        it.script("await hold()", yield_time_ms=20)
        it.wait(yield_time_ms=20)
        it.wait()
        it.provider.say("done")
        running = await it.engine.start(it.input(registration("hold", hold)))
        await it.provider.wait_for_request(3)
        gate.open()
        await running.wait()
        assert [observed["state"] for observed in await it.results("wait")] == ["running", "completed"]


async def test_a_program_can_be_terminated(tmp_path: Path) -> None:
    """It is stopped in its loop; the calls it began are drained first; then nobody can wait for it again."""
    gate = Gate()

    async def hold(value: Any, call: Any) -> str:
        with call.abort_scope():
            await gate.pass_through()
        return f"aborted {call.cancelled.is_set()}"

    program = (
        "import asyncio\nasync def spin():\n  yield_control()\n  while True: pass\nawait asyncio.gather(hold(), spin())"
    )
    async with code_scene(tmp_path, execution_seconds=600) as it:
        it.script(program)
        it.wait(terminate=True)
        it.wait()
        it.provider.say("done")
        with trio.fail_after(60):
            await it.engine.run(it.input(registration("hold", hold)))
        assert workers() == []
        tale = await it.tale()
        assert tale[-8:] == [
            "wait begins",
            "hold succeeded",
            "code_cell failed",
            "wait succeeded",
            "step",
            "wait rejected",
            "step",
            "end completed",
        ]
        assert await it.results("hold") == ["aborted True"]
        assert (await it.results("wait"))[0]["state"] == "terminated"
        (rejected,) = await it.facts(facts.ToolRejected)
        assert rejected.reason.kind is facts.RejectionKind.INVALID_INPUT


async def test_four_programs_may_be_left_and_a_fifth_is_refused(tmp_path: Path) -> None:
    """Before it begins; looking at the end of one makes room."""

    async def hold(value: Any, call: Any) -> None:
        with call.abort_scope():
            await trio.sleep_forever()

    async with code_scene(tmp_path) as it:
        for _ in range(5):
            it.script("await hold()", yield_time_ms=0)
        it.wait(terminate=True)
        it.script("5")
        it.provider.say("done")
        await it.engine.run(it.input(registration("hold", hold)))
        (rejected,) = await it.facts(facts.ToolRejected)
        assert rejected.reason.kind is facts.RejectionKind.PREPARATION_FAILED
        assert (await it.results("exec"))[-1]["result"]["value"] == 5
        assert [fact.name for fact in await it.facts(facts.ToolDispatched)].count("exec") == 5


async def test_the_end_of_the_run_stops_the_programs_that_are_left(tmp_path: Path) -> None:
    """The model answered without waiting: they are stopped, drained and settled before the end is written."""
    settled, held = [], Gate()

    async def hold(value: Any, call: Any) -> None:
        held.open()
        with call.abort_scope():
            await trio.sleep_forever()
        settled.append(call.operation_id)

    async with code_scene(tmp_path, execution_seconds=600) as it:
        it.script("await hold()", yield_time_ms=0)
        it.script("yield_control()\nwhile True: pass")
        it.provider.say(held, "done")
        await it.engine.run(it.input(registration("hold", hold)))
        assert len(settled) == 1
        assert workers() == []
        tale = await it.tale()
        assert tale.count("code_cell failed") == 2
        assert tale[-1] == "end completed"
        assert it.executor.statistics().live == 0
        assert it.executor.statistics().stopped == 2


async def test_a_step_limit_and_a_failed_step_stop_programs_too(tmp_path: Path) -> None:
    """Whatever ends the run."""
    async with code_scene(tmp_path) as it:
        it.script("import asyncio\nwhile True: await asyncio.sleep(0.01)", yield_time_ms=100)
        with pytest.raises(StepLimit):
            await it.engine.run(it.input(max_steps=1))
        assert (await it.tale())[-1] == "end failed"
        it.script("import asyncio\nwhile True: await asyncio.sleep(0.01)", yield_time_ms=100)
        it.provider.fail(400, "invalid_request_error")
        with pytest.raises(AdapterError, match="scripted failure"):
            await it.engine.run(it.input())
        assert (await it.tale()).count("code_cell failed") == 2
        assert workers() == []


# --- beside other things ------------------------------------------------------------------------------------


async def test_a_message_joins_when_no_program_is_in_flight(tmp_path: Path) -> None:
    """A program that is left running keeps it back, until the model has answered; then the program is stopped."""
    gate = Gate()
    async with code_scene(tmp_path) as it:
        it.script("import asyncio\nawait asyncio.sleep(50)", yield_time_ms=0)
        it.provider.say("first ", gate, "answer")
        it.provider.say("second")
        running = await it.engine.start(it.input())
        await gate.reached()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.steer, "and this")
            await trio.testing.wait_all_tasks_blocked()
            gate.open()
        await running.wait()
        assert (await it.tale())[-4:] == ["step", "code_cell failed", "step", "end completed"]
        assert "and this" in it.provider.requests[-1].body["messages"][-1]["content"]


async def test_runs_share_the_capacity_of_their_executor(tmp_path: Path) -> None:
    """More programs than may live are refused; programs that wait for tools leave room to run."""
    from maka_trio.code.cell_limits import CellLimits
    from maka_trio.code.executor import CodeExecutor

    executor = CodeExecutor(CellLimits(execution_seconds=5), concurrency=1, live_cells=2)
    gate = Gate()

    async def hold(value: Any, call: Any) -> str:
        await gate.pass_through()
        return "held"

    async with code_scene(tmp_path, executor=executor) as it:
        for _ in range(2):
            it.script("await hold()")
        async with trio.open_nursery() as nursery:
            for session in ("a", "b"):
                nursery.start_soon(it.engine.run, it.input(registration("hold", hold), session=session))
            await gate.reached(2)
            assert executor.statistics().live == 2
            assert executor.statistics().running == 0
            it.script("3")
            it.provider.say("refused")
            await it.engine.run(it.input(session="c"))
            (rejected,) = await it.facts(facts.ToolRejected, session="c")
            assert rejected.reason.kind is facts.RejectionKind.PREPARATION_FAILED
            for _ in range(2):
                it.provider.say("done")
            gate.open()
        statistics = executor.statistics()
        assert (statistics.live, statistics.started, statistics.ended, statistics.tool_calls) == (0, 2, 2, 2)


async def test_runs_that_are_cancelled_at_random_moments_leave_lawful_sessions(tmp_path: Path) -> None:
    """With the real interpreter, in threads: no worker is left, and each session takes its next turn."""
    draw = random.Random(11)

    async def nap(value: Any, call: Any) -> int:
        await trio.sleep(0.003)
        return int(value["n"])

    program = (
        "import asyncio\nyield_control()\nfor i in range(4):\n"
        "  notify(i)\n  await asyncio.gather(nap(n=i), nap(n=i))\n  sum(range(20000))"
    )
    async with code_scene(tmp_path) as it:
        for _ in range(25):
            it.script(program, when=lambda request: request.body["messages"][-1].get("content") == "go")
        for _ in range(200):  # a notification makes the model say one thing more
            it.provider.say("done", when=lambda request: request.body["messages"][-1].get("content") != "go")
        for number in range(25):
            session = f"s{number % 5}"
            with trio.move_on_after(draw.uniform(0, 0.25)):
                await it.engine.run(it.input(registration("nap", nap), message="go", session=session))
            await it.engine.wait_idle(session)
        assert workers() == []
        assert it.executor.statistics().live == 0
        for number in range(5):
            await it.engine.run(it.input(message="next", session=f"s{number}"))


# --- what is no answer --------------------------------------------------------------------------------------

CATCHING = "try:\n  await bad()\nexcept BaseException:\n  pass\nprint('caught')\n5"


@pytest.mark.parametrize("error", [CommitUnknown("lost"), CleanupUnconfirmed("still there")])
async def test_a_fault_of_a_nested_call_ends_the_run_although_the_program_catches_it(
    tmp_path: Path, error: Exception
) -> None:
    """Neither the call nor the cell nor exec is settled; the run says so, and only a warned run may follow."""

    async def bad(value: Any, call: Any) -> None:
        raise error

    async with code_scene(tmp_path) as it:
        it.script(CATCHING)
        with pytest.raises(type(error)):
            await it.engine.run(it.input(registration("bad", bad)))
        assert (await it.tale())[-4:] == ["exec begins", "code_cell begins", "bad begins", "end failed"]
        ended = (await it.facts(facts.InvocationEnded))[0]
        assert ended.outcome.failure_class is facts.FailureClass.OUTCOME_UNKNOWN
        with pytest.raises(ReconciliationRequired):
            await it.engine.run(it.input())
        it.provider.say("careful")
        await it.engine.run(it.input(allow_prior_unknown=True))
        system = it.provider.requests[-1].body["messages"][0]
        assert system["role"] == "system"
        assert all(f"- {name} (" in system["content"] for name in ("exec", "code_cell", "bad"))


async def test_a_fault_in_a_program_that_was_left_running_ends_the_run_at_once(tmp_path: Path) -> None:
    """Also while the model is being asked; exec is settled, the cell is not."""
    asked = trio.Event()

    async def bad(value: Any, call: Any) -> None:
        await asked.wait()
        raise CommitUnknown("lost")

    async with code_scene(tmp_path) as it:
        it.script("yield_control()\n" + CATCHING)
        it.provider.silence()
        running = await it.engine.start(it.input(registration("bad", bad)))
        await it.provider.wait_for_request(2)
        asked.set()
        with trio.fail_after(60), pytest.raises(CommitUnknown):
            await running.wait()
        tale = await it.tale()
        assert "exec succeeded" in tale
        assert "code_cell failed" not in tale
        assert "code_cell succeeded" not in tale
        assert tale[-1] == "end failed"
        assert workers() == []


async def test_an_unknown_outcome_of_a_nested_call_is_settled_as_such(tmp_path: Path) -> None:
    """The program sees an exception, the log the truth."""
    from maka_trio.errors import ToolOutcomeUnknown

    async def lost(value: Any, call: Any) -> None:
        raise ToolOutcomeUnknown("the worker is gone")

    async with code_scene(tmp_path) as it:
        it.script("await lost()")
        it.provider.say("done")
        await it.engine.run(it.input(registration("lost", lost)))
        assert "lost unknown" in await it.tale()
        assert (await it.results("exec"))[0]["result"]["error"]["kind"] == "tool_failure"


async def test_an_interpreter_that_dies_is_a_failed_program(tmp_path: Path) -> None:
    """Not a failed run."""
    import os
    import signal

    async def kill(value: Any, call: Any) -> None:
        for pid in workers():
            os.kill(pid, signal.SIGKILL)

    async with code_scene(tmp_path) as it:
        it.script("await kill()\n5")
        it.script("6")
        it.provider.say("done")
        await it.engine.run(it.input(registration("kill", kill), registration("echo", echo)))
        first, second = await it.results("exec")
        assert first["result"]["error"]["kind"] == "execution_error"
        assert second["result"]["value"] == 6
