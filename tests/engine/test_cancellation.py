"""What a cancel does to a run: what stops, what is drained, what the log and the next run say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from maka_trio import facts
from maka_trio.errors import Busy, RunCancelled
from maka_trio.testing import Gate
from tests.engine.scene import Scene, registration, scene

CANCELLED = facts.InvocationEnded(facts.Cancelled("runtime_cancellation"))


@attrs.define
class TwoLines:
    """A tool that writes a line, waits, and writes a second one: cut in half, only the first is there."""

    file: Path
    gate: Gate = attrs.field(factory=Gate)
    saw_abort: bool = False

    async def __call__(self, value: Any, call: Any) -> str:
        with self.file.open("a") as file:
            file.write(f"{call.operation_id} first\n")
        await self.gate.pass_through()
        self.saw_abort = call.cancelled.is_set()
        with self.file.open("a") as file:
            file.write(f"{call.operation_id} second\n")
        return "written"

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


async def cancelled_caller(it: Scene, run_input: Any, when: Any) -> None:
    """Run, and cancel the caller as soon as `when` returns; the caller must be free at once."""
    scope = trio.CancelScope()
    free = trio.Event()

    async def caller() -> None:
        with scope:
            await it.engine.run(run_input)
        free.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller)
        await when()
        scope.cancel()
        await free.wait()
    assert scope.cancelled_caught


async def test_a_cancel_never_cuts_a_tool_in_half(tmp_path: Path) -> None:
    """The caller is free at once; both lines appear; the settlement precedes the end; meanwhile `Busy`."""
    async with scene(tmp_path) as it:
        put = TwoLines(tmp_path / "effects")
        it.provider.call_tools(("put", {}, "c1"))
        await cancelled_caller(it, it.input(tools=[registration("put", put)]), put.gate.reached)
        assert len(put.lines()) == 1
        with pytest.raises(Busy):
            await it.engine.run(it.input())
        put.gate.open()
        await it.engine.wait_idle("session")
        assert len(put.lines()) == 2
        assert put.saw_abort
        assert (await it.story()).endswith("tool_dispatched tool_settled invocation_ended")
        settled, ended = (await it.facts())[-2:]
        assert isinstance(settled.outcome, facts.Succeeded)
        assert ended == CANCELLED


async def test_what_a_tool_opens_to_the_abort_stops(tmp_path: Path) -> None:
    """`abort_scope` covers the part that may be interrupted, and the settlement says what the tool made of it."""
    async with scene(tmp_path) as it:
        reached = trio.Event()

        async def patient(value: Any, call: Any) -> str:
            with call.abort_scope() as scope:
                reached.set()
                await trio.sleep_forever()
            assert scope.cancelled_caught
            return "interrupted in time"

        it.provider.call_tools(("patient", {}))
        await cancelled_caller(it, it.input(tools=[registration("patient", patient)]), reached.wait)
        await it.engine.wait_idle("session")
        settled = next(stored for stored in await it.events() if isinstance(stored.event.fact, facts.ToolSettled))
        assert await it.log.resolve_tool_result("session", settled.event.id) == "interrupted in time"


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_siblings_of_a_cancelled_call_have_an_outcome_each(tmp_path: Path, concurrency: int) -> None:
    """Those dispatched finish and settle, the others are rejected; nothing is dispatched after the cancel."""
    async with scene(tmp_path) as it:
        put = TwoLines(tmp_path / "effects")
        it.provider.call_tools(*(("put", {}, f"c{n}") for n in range(5)))
        run_input = it.input(tools=[registration("put", put)], tool_concurrency=concurrency)
        await cancelled_caller(it, run_input, lambda: put.gate.reached(concurrency))
        put.gate.open()
        await it.engine.wait_idle("session")
        found = await it.facts()
        assert sum(isinstance(fact, facts.ToolDispatched) for fact in found) == concurrency
        assert sum(isinstance(fact, facts.ToolSettled) for fact in found) == concurrency
        rejected = [fact for fact in found if isinstance(fact, facts.ToolRejected)]
        assert len(rejected) == 5 - concurrency
        assert {fact.reason for fact in rejected} == {facts.ToolRejection.cancelled()}
        assert len(put.lines()) == 2 * concurrency
        it.provider.say("fine")
        await it.engine.run(it.input("next"))
        answered = [m["tool_call_id"] for m in it.provider.requests[-1].body["messages"] if m["role"] == "tool"]
        assert answered == [f"c{n}" for n in range(5)]


async def test_a_cancel_closes_the_stream_and_interrupts_its_step(tmp_path: Path) -> None:
    """What was streamed stays as evidence, is no history, and the provider sees the connection close."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say("half an ans", gate, "wer")
        await cancelled_caller(it, it.input(), gate.reached)
        await it.engine.wait_idle("session")
        with trio.fail_after(60):
            await it.provider.wait_closed()
        assert await it.story() == "invocation_opened model_requested model_interrupted invocation_ended"
        interrupted, ended = (await it.facts())[-2:]
        assert interrupted.status is facts.InterruptionStatus.CANCELLED
        assert ended == CANCELLED
        it.provider.say("fine")
        await it.engine.run(it.input("again"))
        assert it.provider.requests[-1].body["messages"] == [
            {"role": "user", "content": "question"},
            {"role": "user", "content": "again"},
        ]


async def test_a_deadline_around_run_is_a_cancel(tmp_path: Path) -> None:
    """`move_on_after` covers the whole run, its retries and backoff too."""
    from maka_trio.engine import RetryPolicy

    async with scene(tmp_path, retry=RetryPolicy(base=600, longest=600)) as it:
        it.provider.fail(503)

        async def pass_the_deadline() -> None:
            await it.provider.wait_for_request()
            scope.deadline = trio.current_time()

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(60) as scope:
                nursery.start_soon(pass_the_deadline)
                await it.engine.run(it.input())
        assert scope.cancelled_caught
        await it.engine.wait_idle("session")
        assert len(it.provider.requests) == 1
        assert (await it.facts())[-1] == CANCELLED


async def test_cancelling_the_engine_block_cancels_and_drains_its_runs(tmp_path: Path) -> None:
    """The block ends only after the effects in flight have settled and every end is durable."""
    put = TwoLines(tmp_path / "effects")
    with trio.CancelScope() as outer:
        async with scene(tmp_path) as it:
            it.provider.call_tools(("put", {}))
            running = await it.engine.start(it.input(tools=[registration("put", put)]))
            await put.gate.reached()
            outer.cancel()
            put.gate.open()
            await trio.sleep_forever()
    assert outer.cancelled_caught
    assert running.finished
    assert len(put.lines()) == 2
    async with scene(tmp_path) as it:
        assert (await it.story()).endswith("tool_dispatched tool_settled invocation_ended")
        assert (await it.facts())[-1] == CANCELLED


async def test_an_error_in_the_engine_block_comes_out_bare_after_the_drain(tmp_path: Path) -> None:
    """The block's own exception, not a group; the runs were cancelled and their ends are durable."""
    with pytest.raises(ZeroDivisionError):
        async with scene(tmp_path) as it:
            it.provider.silence()
            running = await it.engine.start(it.input())
            await it.provider.wait_for_request()
            raise ZeroDivisionError
    assert running.finished
    with pytest.raises(RunCancelled):
        await running.wait()


async def test_leaving_the_engine_block_cancels_nothing(tmp_path: Path) -> None:
    """A run that was started goes on to its answer."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("put", {}))
        it.provider.say("done")
        put = TwoLines(tmp_path / "effects")
        put.gate.open()
        running = await it.engine.start(it.input(tools=[registration("put", put)]))
    assert running.finished
    await running.wait()


async def test_waiting_can_be_cancelled_without_cancelling_the_run(tmp_path: Path) -> None:
    """`wait` only waits."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "done")
        running = await it.engine.start(it.input())
        with trio.CancelScope() as scope:
            scope.cancel()
            await running.wait()
        assert not running.finished
        gate.open()
        await running.wait()


async def test_a_run_cancelled_by_its_own_tool_drains_and_ends(tmp_path: Path) -> None:
    """A tool may hold the handle of the run that called it."""
    async with scene(tmp_path) as it:
        handle: list[Any] = []

        async def stop(value: Any, call: Any) -> str:
            handle[0].cancel()
            await call.cancelled.wait()
            return "stopped"

        gate = Gate()
        it.provider.call_tools(("stop", {}))
        it.provider.say(gate, "never reached")
        handle.append(await it.engine.start(it.input(tools=[registration("stop", stop)])))
        with pytest.raises(RunCancelled):
            await handle[0].wait()
        assert (await it.story()).endswith("tool_settled invocation_ended")


async def test_followers_may_leave_early(tmp_path: Path) -> None:
    """Breaking out of `events` or cancelling it touches neither the run nor the log."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say("a", gate, "b")
        running = await it.engine.start(it.input())
        async for _ in running.events():
            break
        with trio.move_on_after(0.01):
            async for _ in running.events():
                pass
        gate.open()
        await running.wait()
