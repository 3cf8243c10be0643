"""A run goes on where another stopped: what it is told, what it claims, and what the session is like afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import facts
from maka_trio.errors import (
    AdapterError,
    LogClosed,
    MakaError,
    ModelIncomplete,
    ModelTimedOut,
    ProviderFailure,
    RunCancelled,
)
from maka_trio.facts import Lineage, RunBoundary, Session
from maka_trio.facts.codec import encode_event
from maka_trio.facts.message import MediaContent, TextContent, UserMessage
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.request import ProviderKind
from maka_trio.testing import Call, Gate, Thinking
from maka_trio.testing.checks import lawful
from tests.engine.going_on import CHECKERS, ECHO, end_of, go_on, last_run, roles, stopped, texts
from tests.engine.scene import Scene, registration, scene

PNG = b"\x89PNG\r\n\x1a\n"


async def test_a_stopped_run_goes_on_without_a_new_message(tmp_path: Path) -> None:
    """The model is asked with what the run left, answers, and after reopening the log nothing is different."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        it.provider.say("the answer")
        done = await it.engine.run(go_on(it, source))
        assert roles(it) == ["user", "assistant", "tool"]
        assert done == await last_run(it) != source.invocation
        assert (await it.story()).split()[-4:] == [
            "invocation_opened",
            "model_requested",
            "model_completed",
            "invocation_ended",
        ]
        assert await lawful(it.log) == []
        before = await it.log.prefix(1000, 1 << 20)
    async with scene(tmp_path) as it:
        assert await it.log.prefix(1000, 1 << 20) == before
        assert await lawful(it.log) == []
        it.provider.say("you are welcome")
        await it.engine.run(it.input("thanks"))
        assert roles(it) == ["user", "assistant", "tool", "assistant", "user"]
        assert await lawful(it.log) == []


async def test_a_continuation_uses_tools_like_any_run(tmp_path: Path) -> None:
    """Its calls, its steps and its settings are its own."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        it.provider.call_tools(("echo", {"n": 2}, "c1"), ("echo", {"n": 3}, "c2"))
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source, system_prompt="be brief", max_output_tokens=77))
        assert roles(it) == ["system", "user", *["assistant", "tool"], *["assistant", "tool", "tool"]]
        assert it.provider.requests[-1].body["max_tokens"] == 77  # type: ignore[call-overload, index]
        assert await lawful(it.log) == []


# --- ways to stop -----------------------------------------------------------------------------------------


async def cancelled_in_the_answer(it: Scene) -> None:
    it.provider.say("half an ", Gate())
    running = await it.engine.start(it.input())
    async for stored in running.events():
        if isinstance(stored.event.fact, facts.ModelObserved):
            running.cancel()
    with pytest.raises(RunCancelled):
        await running.wait()


async def cancelled_in_a_tool(it: Scene) -> None:
    async def slow(value: Any, call: Any) -> str:
        running.cancel()
        return "done"

    it.provider.call_tools(("slow", {}, "c1"), ("echo", {}, "c2"))
    running = await it.engine.start(it.input(tools=[registration("slow", slow), ECHO]))
    with pytest.raises(RunCancelled):
        await running.wait()


async def cancelled_with_the_answer(it: Scene) -> None:
    """The whole answer is there, and the run stops before it can say that it is done."""
    commit_batch = it.log.commit_batch

    async def cancelling(events: Any) -> list[int]:
        sequences = await commit_batch(events)
        if any("model_completed" in repr(event) or "ModelCompleted" in repr(event) for event in events):
            running.cancel()
        return sequences

    it.log.commit_batch = cancelling  # type: ignore[method-assign]
    it.provider.say("whole but unwanted")
    running = await it.engine.start(it.input(tool_concurrency=2))  # commits at once, so that the cancel finds it
    with pytest.raises(RunCancelled):
        await running.wait()
    it.log.commit_batch = commit_batch  # type: ignore[method-assign]


async def refused_by_the_provider(it: Scene) -> None:
    it.provider.answer(400, {}, {"error": {"type": "invalid", "message": "no"}})
    with pytest.raises(AdapterError):
        await it.engine.run(it.input())


async def failed_after_retries(it: Scene) -> None:
    for _ in range(10):
        it.provider.fail(503)
    with pytest.raises(ProviderFailure):
        await it.engine.run(it.input())


async def silent(it: Scene) -> None:
    it.provider.silence()
    with pytest.raises(ModelTimedOut):
        await it.engine.run(it.input())


async def cut_at_its_output_limit(it: Scene) -> None:
    it.provider.say("a beginning and no", finish="length")
    with pytest.raises(ModelIncomplete):
        await it.engine.run(it.input())


async def cut_in_its_calls(it: Scene) -> None:
    it.provider.call_tools(("echo", {}, "c1"), finish="length")
    with pytest.raises(ModelIncomplete):
        await it.engine.run(it.input(tools=[ECHO]))


STOPS: dict[str, tuple[Callable[[Scene], Awaitable[None]], list[str]]] = {
    "cancelled in the answer": (cancelled_in_the_answer, ["user"]),
    "cancelled in a tool": (cancelled_in_a_tool, ["user", "assistant", "tool", "tool"]),
    "cancelled with the answer": (cancelled_with_the_answer, ["user"]),
    "refused by the provider": (refused_by_the_provider, ["user"]),
    "failed after retries": (failed_after_retries, ["user"]),
    "silent": (silent, ["user"]),
    "cut at its output limit": (cut_at_its_output_limit, ["user"]),
    "cut in its calls": (cut_in_its_calls, ["user", "assistant", "tool"]),
}


async def nothing(value: Any, call: Any) -> None:
    """A tool that is only named."""


@pytest.mark.parametrize(("stop", "expected"), STOPS.values(), ids=STOPS)
async def test_whatever_stopped_a_run_it_goes_on_from_there(
    tmp_path: Path, stop: Callable[[Scene], Awaitable[None]], expected: list[str]
) -> None:
    """What was not accepted is not told again, text of an unfinished turn is left out, and calls keep their answers."""
    async with scene(tmp_path, idle_timeout=0.3) as it:
        await stop(it)
        source = await end_of(it, await last_run(it))
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source, tools=[ECHO, registration("slow", nothing)]))
        assert roles(it) == expected
        assert await lawful(it.log) == []
        it.provider.say("more")
        await it.engine.run(it.input("next"))
        assert roles(it)[-1] == "user"
        assert roles(it)[: len(expected)] == expected
        assert await lawful(it.log) == []


async def test_a_run_whose_process_died_goes_on_in_the_next(tmp_path: Path) -> None:
    """The next engine seals it, and what it had settled is not done again."""
    effects = []

    async def count(value: Any, call: Any) -> str:
        effects.append(call.operation_id)
        return "counted"

    tools = [registration("count", count)]
    async with scene(tmp_path) as it:
        it.provider.call_tools(("count", {}, "c1"))
        it.provider.say(Gate())
        with trio.CancelScope() as world:
            running = await it.engine.start(it.input(tools=tools))
            await it.provider.wait_for_request(2)

            async def dead(*args: Any) -> Any:
                world.cancel()
                raise LogClosed("the process is gone")

            it.log.commit = it.log.commit_batch = it.log.seal = dead  # type: ignore[method-assign]
            running.cancel()
            await running.wait()
    async with scene(tmp_path) as it:
        source = await end_of(it, await last_run(it))
        ended = (await it.facts())[-1]
        assert ended.outcome == facts.Failed(facts.FailureClass.HOST_INTERRUPTED)
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source, tools=tools))
        assert roles(it) == ["user", "assistant", "tool"]
        assert len(effects) == 1
        assert await lawful(it.log) == []


# --- what it is told --------------------------------------------------------------------------------------


async def test_later_turns_of_the_session_are_not_told(tmp_path: Path) -> None:
    """A continuation sees its lineage, a later message the whole session in the order of the log."""
    async with scene(tmp_path) as it:
        it.provider.say("first")
        await it.engine.run(it.input("before"))
        source = await stopped(it)
        it.provider.say("aside")
        await it.engine.run(it.input("sibling"))
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source))
        assert texts(it)[:3] == ["before", "first", "question"]
        assert "sibling" not in texts(it)
        it.provider.say("bye")
        await it.engine.run(it.input("after"))
        told = ["before", "first", "question", None, '{"n":1}', "sibling", "aside", "the answer", "after"]
        assert texts(it) == told
        assert await lawful(it.log) == []


async def test_a_continuation_of_a_continuation_sees_the_whole_chain(tmp_path: Path) -> None:
    """Each link adds what it did; what happened beside the chain stays out, at every link."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        for number in range(2, 5):
            it.provider.say("aside")
            await it.engine.run(it.input(f"sibling {number}"))
            it.provider.call_tools(("echo", {"n": number}, "c1"))
            running = await it.engine.start(go_on(it, source, max_steps=1))
            with pytest.raises(MakaError):
                await running.wait()
            source = await end_of(it, running.invocation)
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source))
        assert roles(it) == ["user", *["assistant", "tool"] * 4]
        assert [text for text in texts(it) if text and "sibling" in text] == []
        assert await lawful(it.log) == []
    async with scene(tmp_path) as it:
        assert await lawful(it.log) == []
        chain = await it.log.prefix(1000, 1 << 20, Lineage("session", (await last_run(it)).run_id))
        assert await lawful(it.log, chain.scope) == []
        assert len({stored.event.invocation.run_id for stored in chain.events}) == 5


async def test_requests_name_their_lineage(tmp_path: Path) -> None:
    """Scope, high water and digest are those of the lineage right before each request, recomputed from the events."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        it.provider.say("aside")
        await it.engine.run(it.input("sibling"))
        it.provider.call_tools(("echo", {}, "c1"))
        it.provider.say("the answer")
        done = await it.engine.run(go_on(it, source))
        scope = Lineage("session", done.run_id)
        chain = await it.log.prefix(1000, 1 << 20, scope)
        links = recomputed(scope, chain.events)
        assert (chain.high_water, chain.digest) == links[-1]
        requests = [
            (number, stored.event.fact)
            for number, stored in enumerate(chain.events)
            if isinstance(stored.event.fact, facts.ModelRequested) and stored.event.invocation == done
        ]
        assert len(requests) == 2
        for number, fact in requests:
            assert fact.source_scope == scope
            assert (fact.source_high_water, fact.source_digest) == links[number]


def recomputed(scope: Lineage, events: tuple[facts.StoredEvent, ...]) -> list[tuple[int, str]]:
    """High water and digest before each event, and after the last."""
    link = chain_start(scope)
    links = [(0, chain_text(link))]
    for stored in events:
        link = chain_next(link, stored.sequence, encode_event(stored.event))
        links.append((stored.sequence, chain_text(link)))
    return links


async def test_a_message_joins_a_continuation(tmp_path: Path) -> None:
    """Steering works as in any run, and is part of what the next continuation is told."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        gate = Gate()
        it.provider.say(gate, "not yet")
        it.provider.say("the answer")
        running = await it.engine.start(go_on(it, source))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.steer, "and quickly")
            await gate.reached()
            gate.open()
        await running.wait()
        assert roles(it) == ["user", "assistant", "tool", "assistant", "user"]
        assert "and quickly" in texts(it)[-1]
        assert await lawful(it.log) == []


async def test_media_of_the_source_are_sent_again(tmp_path: Path) -> None:
    """They lie in the session, whoever asks for them."""
    async with scene(tmp_path) as it:
        picture = UserMessage((TextContent("what is this?"), MediaContent("image/png", data=PNG)))
        source = await stopped(it, picture, supports_vision=True)  # type: ignore[arg-type]
        it.provider.say("a picture")
        await it.engine.run(go_on(it, source, supports_vision=True))
        assert [part["type"] for part in texts(it)[0]] == ["text", "image_url"]


@pytest.mark.parametrize("model", ["test", "another"])
async def test_reasoning_is_retained_on_its_own_route_only(tmp_path: Path, model: str) -> None:
    """On the same route and model it goes back with its signature; elsewhere it is left out."""
    kind = ProviderKind.ANTHROPIC
    async with scene(tmp_path) as it:
        it.provider.say(Thinking("hm", signature="sig"), Call("echo", {"n": 1}, "c1"))
        with pytest.raises(MakaError):
            await it.engine.run(it.input(kind=kind, tools=[ECHO], max_steps=1))
        source = await end_of(it, await last_run(it))
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source, provider=it.provider.config(kind, model)))
        body: Any = it.provider.requests[-1].body
        kinds = [block["type"] for block in body["messages"][1]["content"]]
        assert kinds == (["thinking", "tool_use"] if model == "test" else ["tool_use"])
        assert await lawful(it.log) == []


CUT = {ProviderKind.ANTHROPIC: "max_tokens", ProviderKind.OPENAI_RESPONSES: "max_output_tokens"}


@pytest.mark.parametrize("kind", CHECKERS, ids=lambda kind: kind.value)
async def test_every_protocol_accepts_a_continuation_and_what_follows(tmp_path: Path, kind: ProviderKind) -> None:
    """Unsettled text, tools, a sibling in between, a chain, and then the session in the order of the log."""
    async with scene(tmp_path) as it:
        source = await stopped(it, kind=kind)
        it.provider.say("aside")
        await it.engine.run(it.input("sibling", kind=kind))
        it.provider.call_tools(("echo", {"n": 2}, "c1"), text="now")
        it.provider.say("a beginning and no", finish=CUT.get(kind, "length"))
        running = await it.engine.start(go_on(it, source, kind=kind))
        with pytest.raises(ModelIncomplete):
            await running.wait()
        it.provider.say("the answer")
        await it.engine.run(go_on(it, await end_of(it, running.invocation), kind=kind))
        it.provider.say("bye")
        await it.engine.run(it.input("after", kind=kind))
        for request in it.provider.requests:
            CHECKERS[kind](request.raw)
        assert await lawful(it.log) == []


# --- what it claims ---------------------------------------------------------------------------------------


async def test_the_check_says_what_the_opening_then_claims(tmp_path: Path) -> None:
    """It counts messages and names tools, and nothing is written by it, however often it is asked."""
    async with scene(tmp_path) as it:
        it.provider.say("first")
        await it.engine.run(it.input("before"))
        source = await stopped(it)
        high_water = (await it.log.head()).high_water
        run_input = go_on(it, source)
        found = await it.engine.check_continuation(run_input)
        assert await it.engine.check_continuation(run_input) == found
        assert (found.messages, found.tools) == (5, ("echo",))
        assert found.claim.source == source
        assert (await it.log.head()).high_water == high_water
        it.provider.say("the answer")
        running = await it.engine.start(run_input)
        await running.wait()
        opening = [fact for fact in await it.facts() if isinstance(fact, facts.InvocationOpened)][-1].input
        assert isinstance(opening, facts.ContinuationOpening)
        assert opening.claim == found.claim
        base = await it.log.head(Lineage("session", source.invocation.run_id))
        assert (found.claim.base.high_water, found.claim.base.digest) == (base.high_water, base.digest)


async def test_a_boundary_is_the_end_of_the_run_prefix(tmp_path: Path) -> None:
    """What other runs do afterwards does not move it."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        run = await it.log.run_prefix("session", source.invocation.run_id, 1000, 1 << 20)
        assert run is not None
        assert source == RunBoundary(run.events[0].event.invocation, run.high_water, run.digest)
        assert source.high_water == (await it.log.head(Session("session"))).high_water
        it.provider.say("more")
        await it.engine.run(it.input("next"))
        assert await end_of(it, source.invocation) == source
