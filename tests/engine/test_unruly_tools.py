"""What a tool, or the program around it, may do to others: nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import facts
from maka_trio.errors import AdapterError, CleanupUnconfirmed, InvalidInput
from maka_trio.facts.event import InvocationEnded, ModelInterrupted
from maka_trio.facts.outcome import Completed, Failed, FailureClass, InterruptionStatus
from maka_trio.request import ApiKey
from maka_trio.testing import Gate
from maka_trio.testing.checks import lawful
from maka_trio.tools import ToolCall
from tests.engine.scene import Scene, registration, scene


def of(session: str) -> Any:
    return lambda request: f"from {session}".encode() in request.raw


async def ends(it: Scene, session: str) -> facts.InvocationOutcome:
    last = (await it.facts(session))[-1]
    assert isinstance(last, InvocationEnded)
    return last.outcome


class Innocent:
    """Another session's tool, at work while something happens that must not harm it."""

    def __init__(self) -> None:
        self.begun, self.go_on = trio.Event(), trio.Event()
        self.tool = registration("returns", self._return)

    async def _return(self, value: Any, call: ToolCall) -> str:
        self.begun.set()
        await self.go_on.wait()
        return "unharmed"


async def test_an_exception_that_no_tool_may_raise_seals_its_run_and_leaves_the_others_alone(tmp_path: Path) -> None:
    """The run ends with an unknown outcome and says so to whoever waits; another session's effect is not cancelled."""
    bystander = Innocent()

    async def raises(value: Any, call: ToolCall) -> None:
        await bystander.begun.wait()
        raise asyncio.CancelledError

    async with scene(tmp_path) as it:
        it.provider.call_tools(("raises", {}), when=of("guilty"))
        it.provider.call_tools(("returns", {}), when=of("innocent"))
        it.provider.say("done", when=of("innocent"))
        innocent = await it.engine.start(it.input("from innocent", session="innocent", tools=[bystander.tool]))
        guilty = await it.engine.start(
            it.input("from guilty", session="guilty", tools=[registration("raises", raises)])
        )
        with pytest.raises(CleanupUnconfirmed, match="CancelledError"):
            await guilty.wait()
        bystander.go_on.set()
        await innocent.wait()
        outcome = await ends(it, "guilty")
        assert isinstance(outcome, Failed)
        assert outcome.failure_class is FailureClass.OUTCOME_UNKNOWN
        assert await lawful(it.log) == []


async def test_a_tool_that_ends_the_program_ends_it_with_its_status(tmp_path: Path) -> None:
    """The run is sealed first and says what came, and `sys.exit` leaves the engine's block as it is, not as a group."""

    async def leave(value: Any, call: ToolCall) -> None:
        sys.exit(3)

    with pytest.raises(SystemExit) as caught:
        async with scene(tmp_path) as it:
            it.provider.call_tools(("leave", {}))
            await it.engine.run(it.input(tools=[registration("leave", leave)]))
    assert caught.value.code == 3
    async with scene(tmp_path) as it:
        assert await ends(it, "session") == Failed(FailureClass.OUTCOME_UNKNOWN, "SystemExit: 3")
        assert await lawful(it.log) == []


async def test_a_login_that_lets_out_what_it_may_not_fails_its_run_alone(tmp_path: Path) -> None:
    """Another session goes on, and the run ends with one plain error."""
    bystander = Innocent()

    async def login() -> ApiKey:
        await bystander.begun.wait()
        raise asyncio.CancelledError

    async with scene(tmp_path) as it:
        it.provider.call_tools(("returns", {}))
        it.provider.say("done")
        innocent = await it.engine.start(it.input(session="innocent", tools=[bystander.tool]))
        with pytest.raises(AdapterError, match="CancelledError"):
            await it.engine.run(it.input(session="guilty", provider=it.provider.config(auth=login)))
        bystander.go_on.set()
        await innocent.wait()
        assert isinstance(await ends(it, "innocent"), Completed)
        assert await lawful(it.log) == []


async def test_another_trio_run_is_refused_and_hangs_nowhere(tmp_path: Path) -> None:
    """An engine, its log and its handles belong to the run they were made in; called from another, they say so."""
    async with scene(tmp_path) as it:
        it.provider.say("one")
        run_input = it.input()
        running = await it.engine.start(run_input)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: it.engine.run(it.input(session="other")),
            it.engine.drain,
            lambda: it.engine.wait_idle("session"),
            running.wait,
            it.log.recover,
            it.log.head,
            lambda: it.log.prefix(100, 10_000),
        ]

        async def elsewhere() -> None:
            for call in calls:
                with pytest.raises(InvalidInput, match="another trio run"):
                    await call()

        await trio.to_thread.run_sync(trio.run, elsewhere)
        await running.wait()
        assert await it.story("other") == ""


async def test_a_tool_that_leaves_a_nursery_open_ends_its_run_with_one_plain_error(tmp_path: Path) -> None:
    """No group comes out, the outcome is unknown, and the engine takes the next run."""

    async def leak(value: Any, call: ToolCall) -> int:
        await trio.open_nursery().__aenter__()
        return 1

    async with scene(tmp_path) as it:
        it.provider.call_tools(("leak", {}))
        it.provider.say("next")
        with pytest.raises(CleanupUnconfirmed, match="still open"):
            await it.engine.run(it.input(tools=[registration("leak", leak)]))
        outcome = await ends(it, "session")
        assert isinstance(outcome, Failed)
        assert outcome.failure_class is FailureClass.OUTCOME_UNKNOWN
        await it.engine.run(it.input(session="another"))
        assert await lawful(it.log) == []


async def test_a_run_whose_executor_is_closed_says_so(tmp_path: Path) -> None:
    """The step is interrupted, and the error is the tree's own."""
    gate = Gate()
    async with scene(tmp_path) as it:
        it.provider.say("Hel", gate, "lo")
        running = await it.engine.start(it.input())
        async for stored in running.events():
            if isinstance(stored.event.fact, facts.ModelObserved):
                break
        await it.models.aclose()
        with pytest.raises(AdapterError, match="closed"):
            await running.wait()
        interrupted = (await it.facts())[-2]
        assert isinstance(interrupted, ModelInterrupted)
        assert interrupted.status is InterruptionStatus.FAILED
        assert await lawful(it.log) == []
