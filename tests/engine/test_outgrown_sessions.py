"""What fills a session: one result or one program at its limits does not, and who has outgrown it is told in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.errors import PrefixTooLarge
from maka_trio.facts import InvocationEnded, Root, Succeeded, ToolSettled
from maka_trio.laws import check
from maka_trio.limits import MIB
from maka_trio.request import ProviderKind
from tests.engine.limit_child import code_engine, work
from tests.engine.scene import Scene, registration, scene


async def lawful(it: Scene) -> None:
    events = (await it.log.prefix(100_000, 1 << 30, Root())).events
    assert list(check(events)) == []


async def outcomes(it: Scene) -> list[str]:
    return [fact.outcome.kind for fact in await it.facts() if isinstance(fact, InvocationEnded)]


def giving(value: Any) -> Any:
    """A tool that gives this."""

    async def give(given: Any, call: Any) -> Any:
        return value

    return registration("give", give)


def bound_context(monkeypatch: pytest.MonkeyPatch, events: int) -> None:
    """Let runs read no more facts than this."""
    monkeypatch.setattr(limits, "CONTEXT_EVENTS", events)


# --- at the limits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (ProviderKind.OPENAI_CHAT_COMPLETIONS, limits.PROJECTION_BYTES - 2),
        (ProviderKind.ANTHROPIC, limits.TOOL_RESULT_BYTES - 2),
        (ProviderKind.OPENAI_CHAT_COMPLETIONS, limits.TOOL_RESULT_BYTES),
    ],
    ids=["all shown", "whole", "larger"],
)
async def test_one_result_at_the_limit_leaves_the_session_usable(tmp_path: Path, kind: ProviderKind, size: int) -> None:
    """It is settled, the model is shown what it may be, and the next run of the session is admitted."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("give", {}))
        for message in ("question", "next", "and next"):
            it.provider.say("done")
            await it.engine.run(it.input(message, tools=[giving("x" * size)], kind=kind))
        (settled,) = [fact for fact in await it.facts() if isinstance(fact, ToolSettled)]
        assert isinstance(settled.outcome, Succeeded) is (size < limits.TOOL_RESULT_BYTES)
        assert len(it.provider.requests[-1].raw) < MIB
        await lawful(it)


FULL_PROGRAM = """\
import asyncio
text = 'x' * 1048500
for n in range(4):
  await asyncio.gather(*[give(text=text, n=8 * n + i) for i in range(8)])
print('y' * 1048570)
'z' * 1048500
"""


async def test_a_program_at_all_its_limits_leaves_the_session_usable(tmp_path: Path) -> None:
    """32 calls with 1 MiB of arguments each, 1 MiB of output, a value of 1 MiB: the next run is admitted."""
    async with code_engine(tmp_path) as it:
        it.provider.call_tools(("exec", {"code": FULL_PROGRAM, "max_output_tokens": 32_768}))
        for message in ("question", "next", "and next"):
            it.provider.say("done")
            await it.engine.run(work(it, [giving(1)], code=True, message=message))
        facts = await it.facts()
        assert sum(fact.kind == "tool_settled" for fact in facts) == 34
        assert await outcomes(it) == ["completed"] * 3
        shown = it.provider.requests[-1].body["messages"][2]["content"]
        assert '"ok":true' in shown
        assert len(it.provider.requests[-1].raw) < MIB
        context = await it.log.read_context("session")
        assert sum(stored.event.fact.kind == "tool_dispatched" for stored in context.events) == 1
        await lawful(it)


async def test_what_programs_do_for_long_leaves_the_session_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many calls they make: only what the model is told counts."""
    program = "import asyncio\nfor n in range(4):\n  await asyncio.gather(*[give(n=8 * n + i) for i in range(8)])"
    async with code_engine(tmp_path) as it:
        for _ in range(3):
            it.provider.call_tools(("exec", {"code": program}))
        bound_context(monkeypatch, 80)
        for message in ("question", "next"):
            it.provider.say("done")
            await it.engine.run(work(it, [giving(1)], code=True, message=message))
        assert len(await it.facts()) > 200
        assert await outcomes(it) == ["completed"] * 2
        await lawful(it)


# --- beyond -------------------------------------------------------------------------------------------------


async def test_a_session_that_has_outgrown_its_bound_is_refused_in_time(tmp_path: Path) -> None:
    """The run in which it does so completes. The next is refused before anything is written, and told what to do."""
    async with scene(tmp_path) as it:
        for _ in range(36):
            it.provider.call_tools(("give", {}))
        it.provider.say("done")
        tools = [giving("x" * 250_000)]
        await it.engine.run(it.input(tools=tools))
        assert await outcomes(it) == ["completed"]
        before = await it.log.head()
        words = rf"session 'session' has outgrown .* \d+ bytes of JSON, more than max_bytes={8 * MIB}\. Go on in a new"
        for _ in range(2):
            with pytest.raises(PrefixTooLarge, match=words):
                await it.engine.run(it.input("next", tools=tools))
        assert await it.log.head() == before
        assert it.engine.statistics().active == ()
        it.provider.say("hello")
        await it.engine.run(it.input("next", tools=tools, session="a new one"))
        await lawful(it)


async def test_a_session_of_too_many_facts_is_refused_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, by their number."""
    async with scene(tmp_path) as it:
        for _ in range(5):
            it.provider.say("done")
            await it.engine.run(it.input())
        bound_context(monkeypatch, 19)
        with pytest.raises(PrefixTooLarge, match=r"session 'session' has outgrown .* more than max_events=19 facts"):
            await it.engine.run(it.input())
        bound_context(monkeypatch, 20)
        it.provider.say("done")
        await it.engine.run(it.input())
        await lawful(it)
