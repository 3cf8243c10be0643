"""A cancelled run: what is cut, what is drained, what is written first."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing

from maka_trio import facts
from maka_trio.errors import CleanupUnconfirmed, CommitUnknown, ToolFailed
from maka_trio.facts.event import Fact
from maka_trio.tools import PreparedEffect, ToolCall, ToolImage
from maka_trio.tools.effect import ABORTED_TEXT, NOT_STARTED_TEXT
from tests.tools.scene import ListLog, Prepares, Scene, cancel_everywhere

T1_T2 = ["tool_dispatched", "tool_settled"]
GRACE = 5
"""What an abort cuts short: long enough to be seen, and no test hangs where a cut does not come."""


@attrs.define
class TwoLines:
    """A tool that writes a line, waits, and writes another: cut in half, only the first is there."""

    lines: list[str] = attrs.field(factory=list)
    entered: trio.Event = attrs.field(factory=trio.Event)
    release: trio.Event = attrs.field(factory=trio.Event)
    saw_abort: bool | None = None

    async def __call__(self, value: Any, call: ToolCall) -> str:
        self.lines.append("first")
        self.entered.set()
        await self.release.wait()
        self.saw_abort = call.cancelled.is_set()
        self.lines.append("second")
        return "written"


# --- the effect -------------------------------------------------------------------------------------------


async def test_a_cancelled_run_waits_for_its_effect_and_settles_it_before_it_leaves() -> None:
    """Both lines are written, the tool is told, T2 is a success, and only then does the cancel go on."""
    scene, tool = Scene(), TwoLines()
    with trio.CancelScope() as run:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.call, tool)
            await tool.entered.wait()
            run.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
                assert scene.log.kinds == ["tool_dispatched"]
                tool.release.set()
    assert run.cancelled_caught
    assert tool.lines == ["first", "second"]
    assert tool.saw_abort
    assert scene.log.kinds == T1_T2
    assert isinstance(scene.log.facts[1].outcome, facts.Succeeded)


async def test_a_deadline_of_the_run_is_told_like_any_cancel(autojump_clock: object) -> None:
    """However the scope came to be cancelled."""
    scene = Scene()
    told_at = []

    async def handler(value: Any, call: ToolCall) -> None:
        await call.cancelled.wait()
        told_at.append(trio.current_time())
        await trio.sleep(50)

    start = trio.current_time()
    with trio.move_on_after(10) as run:
        await scene.call(handler)
    assert run.cancelled_caught
    assert [told - start for told in told_at] == [10]
    assert trio.current_time() - start == 60
    assert scene.log.kinds == T1_T2


async def test_waiting_for_an_abort_that_came_before_returns_at_once() -> None:
    """The signal is a state, not a moment."""
    scene = Scene()
    waits = []

    async def handler(value: Any, call: ToolCall) -> None:
        for _ in range(2):
            await call.cancelled.wait()
            waits.append(call.cancelled.is_set())

    with trio.CancelScope() as run:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.call, handler)
            await trio.testing.wait_all_tasks_blocked()
            run.cancel()
    assert waits == [True, True]


async def test_an_effect_with_a_nursery_of_its_own_is_drained_whole() -> None:
    """Its tasks are under the shield as well."""
    scene = Scene()
    done = []

    async def part(name: str, call: ToolCall) -> None:
        await call.cancelled.wait()
        await trio.lowlevel.checkpoint()
        done.append(name)

    async def handler(value: Any, call: ToolCall) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(part, "a", call)
            nursery.start_soon(part, "b", call)

    with trio.CancelScope() as run:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.call, handler)
            await trio.testing.wait_all_tasks_blocked()
            run.cancel()
    assert sorted(done) == ["a", "b"]
    assert scene.log.kinds == T1_T2


async def test_calls_that_run_at_once_are_all_drained() -> None:
    """Each hears of the abort, each has its settlement."""
    scene, first, second = Scene(), TwoLines(), TwoLines()
    with trio.CancelScope() as run:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.call, first)
            nursery.start_soon(lambda: scene.call(second, call_id="c2"))
            await trio.testing.wait_all_tasks_blocked()
            run.cancel()
            first.release.set()
            second.release.set()
    assert first.lines == second.lines == ["first", "second"]
    assert sorted(scene.log.kinds) == sorted(T1_T2 * 2)


# --- abort scopes -----------------------------------------------------------------------------------------


async def aborted(handler: Any) -> facts.ToolOutcome:
    """Run a handler whose run is cancelled while it is blocked, and return how it was settled."""
    scene = Scene()
    with trio.CancelScope() as run:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.call, handler)
            await trio.testing.wait_all_tasks_blocked()
            run.cancel()
    assert run.cancelled_caught
    assert scene.log.kinds == T1_T2
    outcome: facts.ToolOutcome = scene.log.facts[1].outcome
    return outcome


async def test_an_abort_scope_may_be_left_and_the_handler_says_so() -> None:
    """What it covers is cut, what follows it is not, and the result tells."""

    async def handler(value: Any, call: ToolCall) -> Any:
        with call.abort_scope() as scope:
            await trio.sleep(GRACE)
        await trio.lowlevel.checkpoint()
        return {"stopped": scope.cancelled_caught}

    outcome = await aborted(handler)
    assert isinstance(outcome, facts.Succeeded)
    assert outcome.model_projection == facts.JsonOutput({"stopped": True})


async def test_a_handler_may_call_its_interrupted_work_failed() -> None:
    """By raising, in its own words."""

    async def handler(value: Any, call: ToolCall) -> Any:
        with call.abort_scope() as scope:
            await trio.sleep(GRACE)
        if scope.cancelled_caught:
            raise ToolFailed("stopped after 3 of 5 files")

    assert await aborted(handler) == facts.EffectFailed("stopped after 3 of 5 files")


async def test_an_interrupted_effect_that_says_nothing_is_settled_as_aborted() -> None:
    """Never as a success without a result."""

    async def handler(value: Any, call: ToolCall) -> None:
        with call.abort_scope():
            await trio.sleep(GRACE)

    assert await aborted(handler) == facts.EffectFailed(ABORTED_TEXT)


async def test_an_abort_scope_that_was_not_left_changes_nothing() -> None:
    """Its part had come to its end before the abort."""

    async def handler(value: Any, call: ToolCall) -> None:
        with call.abort_scope():
            await trio.lowlevel.checkpoint()
        await call.cancelled.wait()

    assert isinstance(await aborted(handler), facts.Succeeded)


async def test_an_abort_scope_that_is_opened_after_the_abort_is_cancelled_at_once() -> None:
    """There is nothing left to wait for."""

    async def handler(value: Any, call: ToolCall) -> Any:
        await call.cancelled.wait()
        with call.abort_scope() as scope:
            await trio.sleep(GRACE)
        return scope.cancelled_caught

    outcome = await aborted(handler)
    assert isinstance(outcome, facts.Succeeded)
    assert outcome.model_projection == facts.JsonOutput(True)


async def test_abort_scopes_may_be_nested_and_stand_beside_each_other() -> None:
    """The abort ends each; an outer one catches what an inner one lets through."""

    async def handler(value: Any, call: ToolCall) -> Any:
        caught: list[bool] = []

        async def beside() -> None:
            with call.abort_scope() as scope:
                await trio.sleep(GRACE)
            caught.append(scope.cancelled_caught)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(beside)
            with call.abort_scope() as outer:
                with call.abort_scope() as inner:
                    await trio.sleep(GRACE)
                await trio.sleep(GRACE)
            caught += [inner.cancelled_caught, outer.cancelled_caught]
        return sorted(caught)

    outcome = await aborted(handler)
    assert isinstance(outcome, facts.Succeeded)
    # trio gives a cancellation to the outermost cancelled scope, so the inner one lets it through.
    assert outcome.model_projection == facts.JsonOutput([False, True, True])


async def test_a_scope_that_the_handler_cancels_itself_is_its_own_affair() -> None:
    """Returning None after it is a success: nobody aborted the run."""
    scene = Scene()

    async def handler(value: Any, call: ToolCall) -> None:
        with call.abort_scope() as scope:
            scope.cancel()
            await trio.sleep(GRACE)

    settled = await scene.call(handler)
    assert isinstance(settled.outcome, facts.Succeeded)


async def test_an_abort_scope_does_not_swallow_an_error() -> None:
    """An exception that came with the cancellation is what the effect ended with."""

    async def handler(value: Any, call: ToolCall) -> None:
        with call.abort_scope():
            try:
                await trio.sleep(GRACE)
            finally:
                raise ValueError("half a line was written")

    assert await aborted(handler) == facts.EffectFailed("ValueError: half a line was written")


# --- around the effect ------------------------------------------------------------------------------------


async def test_cancelled_before_the_dispatch_nothing_is_written_and_nothing_runs() -> None:
    """The call is the caller's to reject."""
    scene, tool = Scene(), TwoLines()
    tool.release.set()
    with trio.CancelScope() as run:
        run.cancel()
        await scene.call(tool)
    assert run.cancelled_caught
    assert scene.log.writes == []
    assert tool.lines == []


async def test_a_cancel_that_arrives_with_the_dispatch_settles_the_call_as_not_started() -> None:
    """T1 is durable, so T2 must follow; it is a failure and no rejection."""
    tool = TwoLines()
    tool.release.set()
    with trio.CancelScope() as run:
        scene = Scene(ListLog(after=lambda fact: run.cancel()))
        await scene.call(tool)
    assert run.cancelled_caught
    assert tool.lines == []
    assert scene.log.kinds == T1_T2
    assert scene.log.facts[1].outcome == facts.EffectFailed(NOT_STARTED_TEXT)


async def test_a_cancel_during_a_commit_does_not_take_it_back() -> None:
    """What was handed to the log is waited for."""
    scene = Scene()
    with trio.CancelScope() as run:

        async def cancel(fact: Fact) -> None:
            if isinstance(fact, facts.ToolSettled):
                run.cancel()
            await trio.lowlevel.checkpoint()

        async def handler(value: Any, call: ToolCall) -> str:
            return "done"

        scene.log.before = cancel
        await scene.call(handler)
        await trio.lowlevel.checkpoint()
    assert run.cancelled_caught
    assert scene.log.kinds == T1_T2


async def test_a_cancelled_preparation_writes_nothing() -> None:
    """It is left at once, whatever it waits for."""
    scene = Scene()

    async def preparation(value: Any, call: ToolCall) -> Any:
        await trio.sleep_forever()

    with trio.CancelScope() as run:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.call, Prepares(preparation))
            await trio.testing.wait_all_tasks_blocked()
            run.cancel()
    assert run.cancelled_caught
    assert scene.log.writes == []


async def test_a_cancelled_preparation_that_fails_on_its_way_out_is_cancelled_and_no_more() -> None:
    """Its error concerns a call that the cancel has decided already."""
    scene = Scene()

    async def fail_at_cancel() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("could not tidy up")

    async def preparation(value: Any, call: ToolCall) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_at_cancel)
            nursery.start_soon(trio.sleep_forever)

    with trio.CancelScope() as run:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.call, Prepares(preparation))
            await trio.testing.wait_all_tasks_blocked()
            run.cancel()
    assert run.cancelled_caught
    assert scene.log.writes == []


@pytest.mark.parametrize("error", [CommitUnknown("disk"), CleanupUnconfirmed("child")])
async def test_an_error_that_forbids_a_settlement_takes_the_place_of_the_cancel(error: Exception) -> None:
    """A cancelled run must learn that its log or its tool failed."""
    scene = Scene()

    async def refuse(fact: Fact) -> None:
        if isinstance(fact, facts.ToolSettled):
            raise error

    async def handler(value: Any, call: ToolCall) -> None:
        run.cancel()
        await call.cancelled.wait()
        if isinstance(error, CleanupUnconfirmed):
            raise error

    scene.log.before = refuse
    caught = None
    with trio.CancelScope() as run:
        try:
            await scene.call(handler)
        except type(error) as raised:
            caught = raised
    assert caught is error
    assert scene.log.kinds == ["tool_dispatched"]


# --- cancelled at every checkpoint ------------------------------------------------------------------------


async def immediate(value: Any, call: ToolCall) -> Any:
    value["touched"] = True
    await trio.lowlevel.checkpoint()
    return ToolImage(b"GIF89a")


async def with_nursery(value: Any, call: ToolCall) -> Any:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
        with call.abort_scope():
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
    return "done"


async def failing(value: Any, call: ToolCall) -> Any:
    await trio.lowlevel.checkpoint()
    raise ValueError("no")


async def prepared(value: Any, call: ToolCall) -> PreparedEffect:
    await trio.lowlevel.checkpoint()
    return PreparedEffect(lambda given: immediate(given, call))


@attrs.define
class Counted:
    """Counts the beginnings and the ends of a handler's runs."""

    handler: Any
    started: int = 0
    ended: int = 0

    async def __call__(self, value: Any, call: ToolCall) -> Any:
        self.started += 1
        try:
            return await self.handler(value, call)
        finally:
            self.ended += 1


@pytest.mark.parametrize("handler", [immediate, with_nursery, failing])
async def test_wherever_a_call_is_cancelled_it_is_whole_or_it_never_was(handler: Any) -> None:
    """No fact, or T1 and T2; and the effect ran once and to its end exactly when T2 says so."""
    runs: list[tuple[Scene, Counted]] = []

    async def scenario() -> None:
        runs.append((Scene(), Counted(handler)))
        scene, counted = runs[-1]
        await trio.lowlevel.checkpoint()
        await scene.call(counted, {})

    def check() -> None:
        scene, counted = runs[-1]
        assert scene.log.kinds in ([], T1_T2)
        assert counted.started == counted.ended
        not_started = bool(scene.log.facts) and scene.log.facts[1].outcome == facts.EffectFailed(NOT_STARTED_TEXT)
        assert counted.started == (1 if scene.log.facts and not not_started else 0)

    await cancel_everywhere(scenario, check)
    assert len(runs) >= 8
    messages = [getattr(scene.log.facts[1].outcome, "message", "") for scene, _ in runs if scene.log.facts]
    assert NOT_STARTED_TEXT in messages
    assert not runs[0][0].log.writes
    assert runs[-1][1].ended == 1


async def test_wherever_a_prepared_call_is_cancelled_it_is_whole_or_it_never_was() -> None:
    """Before T1 the cancel leaves no trace."""
    scenes: list[Scene] = []

    async def scenario() -> None:
        scenes.append(Scene())
        await scenes[-1].call(Prepares(prepared), {})

    def check() -> None:
        assert scenes[-1].log.kinds in ([], T1_T2)

    await cancel_everywhere(scenario, check)
    assert len(scenes) >= 8
    assert [] in [scene.log.kinds for scene in scenes]
    assert scenes[-1].log.kinds == T1_T2


async def test_wherever_a_refusal_is_cancelled_it_is_written_once_or_not() -> None:
    """A rejection is one fact."""
    scenes: list[Scene] = []

    async def scenario() -> None:
        scenes.append(Scene())
        await scenes[-1].call(immediate, 5, schema={"type": "object"})

    def check() -> None:
        assert scenes[-1].log.kinds in ([], ["tool_rejected"])

    await cancel_everywhere(scenario, check)
    assert scenes[-1].log.kinds == ["tool_rejected"]
