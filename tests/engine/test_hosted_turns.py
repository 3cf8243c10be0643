"""Tools that run at the provider, and turns that the provider pauses: nothing of them is ours to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maka_trio import facts, limits
from maka_trio.errors import ModelIncomplete, ProviderFailure
from maka_trio.request import ProviderKind
from maka_trio.tools import ToolCall
from tests.engine.scene import Scene, registration, scene
from tests.protocol import anthropic_events as anthropic
from tests.protocol import responses_events as responses
from tests.protocol.wire_rules import check_messages, check_responses
from tests.protocol.wire_streams import named

FOUND = [{"type": "web_search_result", "url": "https://a.test", "title": "A", "encrypted_content": "Enc+/=="}]
SEARCH = {"anthropic": {"hosted_tools": [{"id": "anthropic.web_search_20250305", "args": {"max_uses": 3}}]}}
RESPONSES_SEARCH = {"openai": {"hosted_tools": [{"id": "openai.web_search"}]}}


def search(index: int, call_id: str) -> bytes:
    """A hosted call of the Messages API."""
    begin = anthropic.block(index, type="server_tool_use", id=call_id, name="web_search", input={})
    return begin + anthropic.delta(index, "input_json_delta", partial_json='{"query": "x"}') + anthropic.stop(index)


def found(index: int, call_id: str) -> bytes:
    """Its result."""
    block = anthropic.block(index, type="web_search_tool_result", tool_use_id=call_id, content=FOUND)
    return block + anthropic.stop(index)


def paused(*blocks: bytes, reason: str = "pause_turn") -> bytes:
    return b"".join((anthropic.start(), *blocks, anthropic.end(reason)))


def ended(text: str) -> bytes:
    return anthropic.start() + anthropic.text(0, text) + anthropic.end("end_turn")


class Local:
    """A tool of ours with the name of a hosted one. It must not run for a hosted call."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []

    async def __call__(self, value: Any, call: ToolCall) -> str:
        self.inputs.append(value)
        return "local"


def asking(it: Scene, *tools: Any, kind: ProviderKind = ProviderKind.ANTHROPIC, **more: Any) -> Any:
    options = SEARCH if kind is ProviderKind.ANTHROPIC else RESPONSES_SEARCH
    return it.input(kind=kind, tools=list(tools), provider_options=options, **more)


async def tool_facts(it: Scene) -> list[Any]:
    kinds = (facts.ToolDispatched, facts.ToolSettled, facts.ToolRejected)
    return [fact for fact in await it.facts() if isinstance(fact, kinds)]


def messages_of(it: Scene, number: int) -> Any:
    request = it.provider.requests[number]
    check_messages(request.raw)
    assert isinstance(request.body, dict)
    return request.body["messages"]


async def test_a_hosted_call_is_never_dispatched(tmp_path: Path) -> None:
    """Also if a tool of ours has its name by then: the call is the provider's, and so is the result."""
    local = Local()
    async with scene(tmp_path) as it:
        it.provider.raw_sse(
            anthropic.start(), search(0, "s1"), found(1, "s1"), anthropic.text(2, "Found."), anthropic.end("end_turn")
        )
        it.provider.raw_sse(ended("Again."))
        await it.engine.run(asking(it, registration("search", local)))
        await it.engine.run(it.input(kind=ProviderKind.ANTHROPIC, tools=[registration("web_search", local)]))
        assert await tool_facts(it) == []
        spoken = messages_of(it, 1)[1]["content"]
    assert local.inputs == []
    assert [block["type"] for block in spoken] == ["server_tool_use", "web_search_tool_result", "text"]
    assert spoken[1]["content"] == FOUND


async def test_hosted_and_local_calls_of_one_step(tmp_path: Path) -> None:
    """Ours is dispatched and answered, theirs goes back as it came."""
    local = Local()
    async with scene(tmp_path) as it:
        mine = anthropic.tool_use(2, "c1", "put", '{"n": 1}')
        it.provider.raw_sse(anthropic.start(), search(0, "s1"), found(1, "s1"), mine, anthropic.end("tool_use"))
        it.provider.raw_sse(ended("Done."))
        await it.engine.run(asking(it, registration("put", local)))
        assert [fact.kind for fact in await tool_facts(it)] == ["tool_dispatched", "tool_settled"]
        _, said, answered = messages_of(it, 1)
    assert local.inputs == [{"n": 1}]
    assert [block["type"] for block in said["content"]] == ["server_tool_use", "web_search_tool_result", "tool_use"]
    assert [block["tool_use_id"] for block in answered["content"]] == ["c1"]


@pytest.mark.parametrize("reason", ["pause_turn", "compaction"])
async def test_a_paused_turn_goes_on_with_its_own_content(tmp_path: Path, reason: str) -> None:
    """The paused content is the last message of the next request, and nobody else speaks in between."""
    async with scene(tmp_path) as it:
        it.provider.raw_sse(paused(anthropic.text(0, "Looking."), search(1, "s1"), found(2, "s1"), reason=reason))
        it.provider.raw_sse(ended("Here."))
        await it.engine.run(asking(it))
        first, second = messages_of(it, 0), messages_of(it, 1)
        assert await it.story() == (
            "invocation_opened model_requested model_completed model_requested model_completed invocation_ended"
        )
    assert second[:-1] == first
    assert second[-1]["role"] == "assistant"
    assert [block["type"] for block in second[-1]["content"]] == ["text", "server_tool_use", "web_search_tool_result"]


async def test_a_call_that_a_pause_left_open_is_answered_in_the_step_after(tmp_path: Path) -> None:
    """The wire has one call and one result, in the answers that they came in."""
    async with scene(tmp_path) as it:
        it.provider.raw_sse(paused(search(0, "s1")))
        it.provider.raw_sse(anthropic.start(), found(0, "s1"), anthropic.text(1, "Here."), anthropic.end("end_turn"))
        it.provider.raw_sse(ended("Later."))
        await it.engine.run(asking(it))
        await it.engine.run(asking(it))
        assert await tool_facts(it) == []
        said = [
            block for message in messages_of(it, 2) if message["role"] == "assistant" for block in message["content"]
        ]
    assert [block["type"] for block in said] == ["server_tool_use", "web_search_tool_result", "text"]


async def test_pauses_are_bounded(tmp_path: Path) -> None:
    """A provider that pauses for ever does not keep a run for ever; what it said stays."""
    async with scene(tmp_path) as it:
        for number in range(limits.PAUSED_TURNS + 1):
            it.provider.raw_sse(paused(anthropic.text(0, f"part {number}")))
        with pytest.raises(ModelIncomplete, match=f"{limits.PAUSED_TURNS} times"):
            await it.engine.run(asking(it))
        assert len(it.provider.requests) == limits.PAUSED_TURNS + 1
        it.provider.raw_sse(ended("Later."))
        await it.engine.run(asking(it))
        messages_of(it, -1)


async def test_a_pause_counts_as_a_step(tmp_path: Path) -> None:
    """`max_steps` bounds it, too."""
    async with scene(tmp_path) as it:
        it.provider.raw_sse(paused(anthropic.text(0, "so far")))
        with pytest.raises(Exception, match="max_steps is 1"):
            await it.engine.run(asking(it, max_steps=1))


async def test_a_failure_after_a_hosted_call_is_not_repeated(tmp_path: Path) -> None:
    """The provider may have done something already."""
    async with scene(tmp_path) as it:
        error = {"error": {"type": "overloaded_error", "message": "busy"}}
        it.provider.raw_sse(anthropic.start(), search(0, "s1"), named("error", **error))
        with pytest.raises(ProviderFailure) as caught:
            await it.engine.run(asking(it))
        assert len(it.provider.requests) == 1
        interrupted = (await it.facts())[2]
    assert not caught.value.replay_safe
    assert interrupted.status is facts.InterruptionStatus.FAILED


async def test_a_hosted_item_of_the_other_protocol(tmp_path: Path) -> None:
    """A search by the provider beside a function of ours, on the Responses wire."""
    local = Local()
    async with scene(tmp_path) as it:
        it.provider.raw_sse(
            responses.created(),
            responses.added(0, "web_search_call", status="in_progress"),
            responses.done(0, "web_search_call", status="completed", action={"type": "search", "query": "x"}),
            responses.called(1, "c1", "put", '{"n":1}'),
            responses.ended(),
        )
        it.provider.say("Done.")
        await it.engine.run(asking(it, registration("put", local), kind=ProviderKind.OPENAI_RESPONSES))
        assert [fact.kind for fact in await tool_facts(it)] == ["tool_dispatched", "tool_settled"]
        request = it.provider.requests[1]
        check_responses(request.raw)
        body: Any = request.body
    assert local.inputs == [{"n": 1}]
    kinds = [item.get("type", item.get("role")) for item in body["input"]]
    assert kinds == ["user", "web_search_call", "function_call", "function_call_output"]
    assert {"type": "web_search"} in body["tools"]
