"""How often a run goes to the disk: facts between which no effect lies are written together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from maka_trio import facts
from maka_trio.engine import Engine
from maka_trio.errors import LogFull
from maka_trio.facts.event import EventWrite, RuntimeEvent
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.testing import ScriptedProvider
from maka_trio.testing.checks import lawful
from maka_trio.tools import ToolCall, tool
from maka_trio.tools.handler import PreparedEffect
from tests.engine.scene import QUICK, Scene, echo, registration

Write = RuntimeEvent | EventWrite


class Commits:
    """The kinds of facts of each append to a log; one append may fail as if the disk were full."""

    def __init__(self, log: EventLog) -> None:
        self.kinds: list[list[str]] = []
        self.fails: str | None = None
        self._commit_batch = log.commit_batch
        log.commit = self._one  # type: ignore[method-assign]
        log.commit_batch = self._many  # type: ignore[method-assign]

    async def _one(self, event: Write) -> int:
        return (await self._many([event]))[0]

    async def _many(self, events: Sequence[Write]) -> list[int]:
        kinds = [(event.event if isinstance(event, EventWrite) else event).fact.kind for event in events]
        self.kinds.append([kind for kind in kinds if kind != "model_observed"])
        if self.fails in kinds:
            self.fails = None
            raise LogFull("no space")
        return await self._commit_batch(events)


@asynccontextmanager
async def counted(path: Path) -> AsyncGenerator[tuple[Scene, Commits], None]:
    async with (
        ScriptedProvider() as provider,
        EventLog.open(path / "log.db") as log,
        ModelExecutor(30) as models,
        Engine(log, models, retry=QUICK) as engine,
    ):
        yield Scene(provider, log, models, engine), Commits(log)


async def test_a_step_with_a_tool_goes_to_the_disk_twice(tmp_path: Path) -> None:
    """With the answer goes the dispatch, with the settlement the next request, with the last answer the end."""
    async with counted(tmp_path) as (scene, commits):
        for number in range(2):
            scene.provider.call_tools(("echo", {}, f"c{number}"))
        scene.provider.say("done")
        await scene.engine.run(scene.input(tools=[registration("echo", echo)]))
        step = [["model_completed", "tool_dispatched"], ["tool_settled", "model_requested"]]
        assert [kinds for kinds in commits.kinds if kinds] == [
            ["invocation_opened"],
            ["model_requested"],
            *step,
            *step,
            ["model_completed", "invocation_ended"],
        ]
        assert await lawful(scene.log) == []


async def test_a_typed_function_goes_to_the_disk_no_more_often(tmp_path: Path) -> None:
    """It prepares without waiting for anything."""

    @tool
    async def add(one: int, two: int) -> int:
        """Add."""
        return one + two

    async with counted(tmp_path) as (scene, commits):
        scene.provider.call_tools(("add", {"one": 1, "two": 2}, "c1"))
        scene.provider.say("done")
        await scene.engine.run(scene.input(tools=[add]))
        assert [kinds for kinds in commits.kinds if kinds][2:4] == [
            ["model_completed", "tool_dispatched"],
            ["tool_settled", "model_requested"],
        ]


async def test_calls_of_one_step_share_their_commits(tmp_path: Path) -> None:
    """What one call came to and the dispatch of the next are one append."""
    async with counted(tmp_path) as (scene, commits):
        scene.provider.call_tools(("echo", {}, "c1"), ("echo", {}, "c2"))
        scene.provider.say("done")
        await scene.engine.run(scene.input(tools=[registration("echo", echo)]))
        assert [kinds for kinds in commits.kinds if kinds][2:5] == [
            ["model_completed", "tool_dispatched"],
            ["tool_settled", "tool_dispatched"],
            ["tool_settled", "model_requested"],
        ]


async def test_an_effect_and_a_question_find_all_before_them_durable(tmp_path: Path) -> None:
    """A handler that runs sees its dispatch in the log, one that prepares sees what came before it."""
    seen: dict[str, list[str]] = {}

    async def durable() -> list[str]:
        prefix = await scene.log.prefix(1000, 1 << 20)
        return [stored.event.fact.kind for stored in prefix.events if stored.event.fact.kind != "model_observed"]

    async def look(value: Any, call: ToolCall) -> str:
        seen["effect"] = await durable()
        return "looked"

    class Asks:
        async def prepare(self, arguments: Any, call: ToolCall) -> PreparedEffect:
            seen["question"] = await durable()
            return PreparedEffect(self._run)

        async def _run(self, value: Any) -> str:
            return "asked"

    async with counted(tmp_path) as (scene, _):
        scene.provider.call_tools(("look", {}, "c1"), ("ask", {}, "c2"))
        scene.provider.say("done")
        tools = [registration("look", look), registration("ask", Asks())]  # type: ignore[arg-type]
        await scene.engine.run(scene.input(tools=tools))
    assert seen["effect"] == ["invocation_opened", "model_requested", "model_completed", "tool_dispatched"]
    assert seen["question"] == [*seen["effect"], "tool_settled"]


@pytest.mark.parametrize(
    ("fails", "ends_with"),
    [
        # The answer could not be written: no step, no call, nothing happened.
        ("tool_dispatched", ["model_interrupted", "invocation_ended"]),
        # The effect is in the log and its settlement is not: nobody may say that it is known.
        ("tool_settled", ["tool_dispatched", "invocation_ended"]),
    ],
)
async def test_a_run_that_loses_an_append_ends_by_what_the_log_holds(
    tmp_path: Path, fails: str, ends_with: list[str]
) -> None:
    """However much of the run's history was in the lost append."""
    async with counted(tmp_path) as (scene, commits):
        scene.provider.call_tools(("echo", {}, "c1"))
        commits.fails = fails
        with pytest.raises(LogFull):
            await scene.engine.run(scene.input(tools=[registration("echo", echo)]))
        found = await scene.facts()
        assert [fact.kind for fact in found][-2:] == ends_with
        expected = "event_store" if fails == "tool_dispatched" else "outcome_unknown"
        assert isinstance(found[-1].outcome, facts.Failed)
        assert found[-1].outcome.failure_class == expected
        assert await lawful(scene.log) == []
