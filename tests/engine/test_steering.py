"""User messages that join a running turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import facts, limits
from maka_trio.errors import InvalidInput, RunCancelled, RunError
from maka_trio.testing import Gate
from tests.engine.scene import registration, scene


async def test_a_message_joins_at_the_next_step_boundary(tmp_path: Path) -> None:
    """Never between a call and its result; the model reads it in an envelope after the results."""
    async with scene(tmp_path) as it:
        gate = Gate()

        async def slow(value: Any, call: Any) -> str:
            await gate.pass_through()
            return "done"

        it.provider.call_tools(("slow", {}, "c1"), ("slow", {}, "c2"))
        it.provider.say("as you wish")
        running = await it.engine.start(it.input(tools=[registration("slow", slow)]))
        await gate.reached()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.steer, "be quick")
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert "message_steered" not in await it.story()
            gate.open()
        await running.wait()
        assert "tool_settled tool_dispatched tool_settled message_steered model_requested" in await it.story()
        roles = [message["role"] for message in it.provider.requests[1].body["messages"]]
        assert roles == ["user", "assistant", "tool", "tool", "user"]
        assert "<user_query>\nbe quick\n</user_query>" in it.provider.requests[1].body["messages"][-1]["content"]


async def test_more_messages_than_one_append_takes_join_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which they came, before the next request."""
    monkeypatch.setattr(limits, "BATCH_EVENTS", 20)
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say("so ", gate, "far")
        it.provider.say("I see")
        running = await it.engine.start(it.input())
        await gate.reached()
        ids: list[str] = []

        async def steer(number: int, started: Any) -> None:
            started.started()
            ids.append(await running.steer(f"message {number}"))

        async with trio.open_nursery() as nursery:
            for number in range(45):
                await nursery.start(lambda task_status, number=number: steer(number, task_status))
                await trio.testing.wait_all_tasks_blocked()
            gate.open()
        await running.wait()
        found = [fact for fact in await it.facts() if isinstance(fact, facts.MessageSteered)]
        assert [fact.message.text for fact in found] == [f"message {number}" for number in range(45)]
        assert {fact.message_id for fact in found} == set(ids)
        assert len(it.provider.requests) == 2


async def test_a_message_during_the_last_answer_makes_another_step(tmp_path: Path) -> None:
    """What the user said is answered, not dropped."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say("so ", gate, "far")
        it.provider.say("I see")
        running = await it.engine.start(it.input())
        await gate.reached()
        ids: list[str] = []

        async def steer() -> None:
            ids.append(await running.steer("one more thing"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(steer)
            await trio.testing.wait_all_tasks_blocked(0.01)
            gate.open()
        await running.wait()
        steered = next(fact for fact in await it.facts() if isinstance(fact, facts.MessageSteered))
        assert ids == [steered.message_id]
        assert len(it.provider.requests) == 2


async def test_a_message_to_a_run_that_is_over_is_refused(tmp_path: Path) -> None:
    """Nothing is written, and whoever sent it knows."""
    async with scene(tmp_path) as it:
        it.provider.say("done")
        running = await it.engine.start(it.input())
        await running.wait()
        with pytest.raises(RunError, match="over"):
            await running.steer("too late")
        with pytest.raises(InvalidInput, match="blank"):
            await running.steer("  ")


async def test_a_message_that_a_cancelled_run_never_took_comes_back(tmp_path: Path) -> None:
    """The submitter is woken with an error when the run ends without it."""
    async with scene(tmp_path) as it:
        it.provider.silence()
        running = await it.engine.start(it.input())
        await it.provider.wait_for_request()
        refused: list[RunError] = []

        async def steer() -> None:
            try:
                await running.steer("hello?")
            except RunError as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(steer)
            await trio.testing.wait_all_tasks_blocked(0.01)
            running.cancel()
        assert len(refused) == 1
        with pytest.raises(RunCancelled):
            await running.wait()
        assert "message_steered" not in await it.story()


async def test_a_withdrawn_message_never_reaches_the_model(tmp_path: Path) -> None:
    """Cancelling `steer` before the boundary takes the message back."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "done")
        running = await it.engine.start(it.input())
        await gate.reached()
        with trio.move_on_after(0.01):
            await running.steer("never mind")
        gate.open()
        await running.wait()
        assert len(it.provider.requests) == 1


@pytest.mark.parametrize(
    "media",
    [
        facts.MediaContent("image/png", artifact="nowhere"),
        facts.MediaContent("image/gif", artifact="{the picture of the question}"),
    ],
)
async def test_a_message_that_names_media_that_are_not_there_is_refused(
    tmp_path: Path, media: facts.MediaContent
) -> None:
    """To who sends it, before the run has anything of it: the log would refuse it, and the run would end for that."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say("so ", gate, "far")
        picture = facts.MediaContent("image/png", b"\x89PNG\r\n\x1a\n1")
        running = await it.engine.start(it.input(facts.UserMessage((facts.TextContent("see"), picture))))
        await gate.reached()
        (stored,) = (await it.log.find_invocation(running.invocation.invocation_id)).artifacts  # type: ignore[union-attr]
        if media.media_type == "image/gif":
            media = facts.MediaContent("image/gif", artifact=stored.id)
        with pytest.raises(InvalidInput):
            await running.steer(facts.UserMessage((facts.TextContent("and this"), media)))
        gate.open()
        await running.wait()
        assert "message_steered" not in await it.story()
