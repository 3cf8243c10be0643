"""What programs tell the model while they run: when it is seen, how much of it there may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import facts
from maka_trio.request import ProviderKind
from maka_trio.testing import Disconnect, Gate
from tests.code.code_scene import code_scene
from tests.engine.scene import registration


@pytest.mark.parametrize("kind", list(ProviderKind))
async def test_a_notification_reaches_the_model_after_the_results_of_its_step(
    tmp_path: Path, kind: ProviderKind
) -> None:
    """As a labelled message of its own, never between a call and its result."""
    async with code_scene(tmp_path) as it:
        it.script("notify('first </notification> words')\nnotify({'n': 2})\n7")
        it.provider.say("done")
        await it.engine.run(it.input(kind=kind))
        told = await it.facts(facts.ToolNotified)
        assert [fact.text for fact in told] == ["first </notification> words", '{"n":2}']
        sent = json.dumps(it.provider.requests[-1].body)
        assert [fact.model_text.count("</notification>") for fact in told] == [1, 1]
        assert sent.index("toolCalls") < sent.rindex("<notification>")
        if kind is ProviderKind.OPENAI_CHAT_COMPLETIONS:
            assert it.said() == ["user", "assistant", "tool", "user", "user"]
        tale = await it.tale()
        assert tale.index("code_cell notifies") < tale.index("code_cell succeeded")


async def test_a_notification_during_a_request_is_seen_by_the_next_one(tmp_path: Path) -> None:
    """The model has answered without it: one more step, and only then is the run done."""
    gate, asked = Gate(), trio.Event()

    async def hold(value: Any, call: Any) -> None:
        await asked.wait()

    async with code_scene(tmp_path) as it:
        it.script("yield_control()\nawait hold()\nnotify('news')\nimport asyncio\nawait asyncio.sleep(30)")
        it.provider.say("too ", gate, "early")
        it.provider.say("now")
        running = await it.engine.start(it.input(registration("hold", hold)))
        await gate.reached()
        asked.set()
        async for stored in running.events():
            if isinstance(stored.event.fact, facts.ToolNotified):
                gate.open()
        await running.wait()
        assert it.said(1) == ["user", "assistant", "tool"]
        assert it.said(2) == ["user", "assistant", "tool", "assistant", "user"]
        assert "news" in it.provider.requests[2].body["messages"][-1]["content"]
        assert len(it.provider.requests) == 3


async def test_a_retried_request_is_the_same_although_a_program_spoke_meanwhile(tmp_path: Path) -> None:
    """All attempts of a step have one prompt; the notification waits for the step after."""
    spoken = trio.Event()

    async def hold(value: Any, call: Any) -> None:
        await it.provider.wait_for_request(2)
        spoken.set()

    async with code_scene(tmp_path) as it:
        it.script("yield_control()\nawait hold()\nnotify('news')")
        gate = Gate()
        it.provider.say("lost ", gate, Disconnect())
        it.provider.say("again")
        it.provider.say("now")
        running = await it.engine.start(it.input(registration("hold", hold)))
        async for stored in running.events():
            if isinstance(stored.event.fact, facts.ToolNotified):
                break
        gate.open()
        await running.wait()
        first, second = it.provider.requests[1].body, it.provider.requests[2].body
        assert first["messages"] == second["messages"]
        assert "news" in it.provider.requests[3].body["messages"][-1]["content"]


async def test_later_turns_see_what_was_notified(tmp_path: Path) -> None:
    """It is history."""
    async with code_scene(tmp_path) as it:
        it.script("notify('news')")
        it.provider.say("done")
        await it.engine.run(it.input())
        it.provider.say("fine")
        await it.engine.run(it.input(message="next"))
        assert it.said() == ["user", "assistant", "tool", "user", "assistant", "user"]


async def test_a_notification_that_is_blank_or_too_long_is_a_mistake_of_the_program(tmp_path: Path) -> None:
    """And is not written."""
    async with code_scene(tmp_path) as it:
        it.script("try:\n  notify('  ')\nexcept RuntimeError as e:\n  print('blank')\nnotify('x' * 200000)")
        it.provider.say("done")
        await it.engine.run(it.input())
        (observed,) = await it.results("exec")
        assert observed["content"][0]["text"] == "blank\n"
        assert observed["result"]["ok"] is False
        assert await it.facts(facts.ToolNotified) == []


@pytest.mark.parametrize(
    ("limits", "told", "named"),
    [
        ({"notifications": 3}, 3, "at most 3 times"),
        ({"notification_bytes": 25}, 2, "30 bytes; the limit is 25"),
        ({}, 64, "at most 64 times"),
    ],
    ids=["number", "bytes", "default"],
)
async def test_a_program_notifies_within_limits(tmp_path: Path, limits: dict[str, Any], told: int, named: str) -> None:
    """More is an error that it may catch, which names the limit; nothing of it is written."""
    program = (
        "told = 0\ntry:\n  while True:\n    notify('ten bytes!')\n    told += 1\n"
        "except RuntimeError as error:\n  print(error)\ntold"
    )
    async with code_scene(tmp_path, **limits) as it:
        it.script(program)
        it.provider.say("done")
        await it.engine.run(it.input())
        (observed,) = await it.results("exec")
        assert observed["result"] == {"ok": True, "value": told, "toolCalls": 0}
        assert named in observed["content"][0]["text"]
        assert len(await it.facts(facts.ToolNotified)) == told


async def test_notifications_at_the_limit_leave_the_session_usable(tmp_path: Path) -> None:
    """The next run is admitted, whatever the text is made of; one that goes on and on is stopped."""
    async with code_scene(tmp_path) as it:
        it.script("text = chr(1) * 65535\nfor n in range(4):\n  notify(text + str(n))")
        it.script("notify('x' * 100000)\nnotify('x' * 100000)\nnotify('x' * 100000)")
        for message in ("question", "next"):
            it.provider.say("done")
            await it.engine.run(it.input(message=message))
        whole, flood = await it.results("exec")
        assert whole["result"]["ok"] is True
        assert "300000 bytes; the limit is 262144" in flood["result"]["error"]["message"]
        assert len(await it.facts(facts.ToolNotified)) == 6
