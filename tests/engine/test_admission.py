"""Admission: what is refused before anything is written, and who holds a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from maka_trio import facts
from maka_trio.engine import Engine, MessageWork, RunInput
from maka_trio.errors import Busy, EngineClosed, InvalidInput, LogInUse, MakaError, ReconciliationRequired, RunCancelled
from maka_trio.facts.event import RuntimeEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.message import Message
from maka_trio.facts.opening import InvocationConfiguration, ToolMode
from maka_trio.models import ModelExecutor
from maka_trio.request import ProviderKind
from maka_trio.testing import Gate
from tests.engine.scene import Scene, echo, registration, scene


async def high_water(it: Scene) -> int:
    return (await it.log.head()).high_water


async def test_start_returns_once_the_opening_is_durable(tmp_path: Path) -> None:
    """The opening is in the log when `start` returns, and carries what was asked for."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "hello")
        running = await it.engine.start(it.input("hi", request_fingerprint="mine"))
        (opening, *_) = await it.events()
        assert opening.event.invocation == running.invocation
        assert isinstance(opening.event.fact, facts.InvocationOpened)
        assert opening.event.fact.input.content.text == "hi"
        assert opening.event.fact.input.request_fingerprint == "mine"
        gate.open()
        await running.wait()
        assert running.finished


UNSENDABLE: list[tuple[ProviderKind, dict[str, Any], dict[str, Any]]] = [
    (ProviderKind.ANTHROPIC, {}, {"anthropic": {"hosted_tools": [{"id": "anthropic.nope"}]}}),
    (ProviderKind.OPENAI_RESPONSES, {}, {"openai": {"hosted_tools": [{"id": "openai.nope"}]}}),
    (ProviderKind.ANTHROPIC, {}, {"anthropic": {"zzz": 1}}),
    (ProviderKind.OPENAI_CHAT_COMPLETIONS, {}, {"openai": {"temperature": "hot"}}),
    (ProviderKind.OPENAI_CHAT_COMPLETIONS, {"headers": {"Content-Type": "x"}}, {}),
    (ProviderKind.OPENAI_CHAT_COMPLETIONS, {"headers": {"x-a": "b\r\nc: d"}}, {}),
    (ProviderKind.OPENAI_CHAT_COMPLETIONS, {"body_overlay": {"model": "x"}}, {}),
]


@pytest.mark.parametrize(("kind", "settings", "options"), UNSENDABLE)
async def test_a_run_whose_requests_cannot_be_sent_is_not_admitted(
    kind: ProviderKind, settings: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    """What is wrong with every request of a run is told before its opening, and nothing is written."""
    async with scene(tmp_path) as it:
        provider = it.provider.config(kind, **settings)
        with pytest.raises(InvalidInput):
            await it.engine.start(it.input(provider=provider, provider_options=options))
        assert await high_water(it) == 0
        assert it.engine.statistics().active == ()


async def test_a_closed_executor_admits_no_run(tmp_path: Path) -> None:
    """The error names it, and nothing is written."""
    async with scene(tmp_path) as it:
        await it.models.aclose()
        with pytest.raises(InvalidInput, match="ModelExecutor is closed"):
            await it.engine.run(it.input())
        assert await high_water(it) == 0


async def test_one_of_fifty_simultaneous_starts_is_admitted(tmp_path: Path) -> None:
    """The check and the claim are one step: 49 are told who holds the session, and leave no trace."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "hello")
        admitted: list[Any] = []
        refused: list[Busy] = []

        async def start() -> None:
            try:
                admitted.append(await it.engine.start(it.input()))
            except Busy as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(start)
        assert len(admitted) == 1
        assert len(refused) == 49
        assert {error.run_id for error in refused} == {admitted[0].invocation.run_id}
        openings = [fact for fact in await it.facts() if isinstance(fact, facts.InvocationOpened)]
        assert len(openings) == 1
        gate.open()
        await admitted[0].wait()


async def test_busy_names_the_run_and_the_operation_that_hold_the_session(tmp_path: Path) -> None:
    """A caller can tell what it would wait for."""
    async with scene(tmp_path) as it:
        gate = Gate()

        async def slow(value: Any, call: Any) -> str:
            await gate.pass_through()
            return "done"

        it.provider.call_tools(("slow", {}, "c1"))
        it.provider.say("done")
        running = await it.engine.start(it.input(tools=[registration("slow", slow)]))
        await gate.reached()
        before = await high_water(it)
        with pytest.raises(Busy, match="held by run") as caught:
            await it.engine.run(it.input())
        assert caught.value.run_id == running.invocation.run_id
        assert caught.value.session_id == "session"
        (operation,) = caught.value.operation_ids
        assert operation.endswith(":c1")
        assert it.engine.statistics().active[0].operation_ids == (operation,)
        assert await high_water(it) == before
        gate.open()
        await running.wait()
        assert it.engine.statistics().active == ()


async def test_sessions_are_independent(tmp_path: Path) -> None:
    """A held session says nothing about another one."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "one")
        held = await it.engine.start(it.input(session="first"))
        await gate.reached()
        it.provider.say("two")
        await it.engine.run(it.input(session="second"))
        gate.open()
        await held.wait()


async def test_waiting_for_a_session_ends_when_its_run_has(tmp_path: Path) -> None:
    """`wait_idle` lets a caller take its turn."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "one")
        it.provider.say("two")
        await it.engine.start(it.input())
        idle = trio.Event()

        async def take_turn() -> None:
            await it.engine.wait_idle("session")
            idle.set()
            await it.engine.run(it.input())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_turn)
            await gate.reached()
            assert not idle.is_set()
            gate.open()
        assert (await it.story()).count("invocation_ended") == 2


BAD_INPUTS = [
    pytest.param(lambda it: "run", "RunInput", id="not-a-run-input"),
    pytest.param(lambda it: it.input(""), "blank", id="blank-message"),
    pytest.param(lambda it: it.input("x" * (64 * 1024 + 1)), "65537", id="long-message"),
    pytest.param(lambda it: it.input(42), "message", id="message-of-another-type"),
    pytest.param(lambda it: it.input(cwd="relative/path"), "cwd", id="relative-cwd"),
    pytest.param(lambda it: it.input(cwd="/" + "x" * 4096), "cwd", id="long-cwd"),
    pytest.param(lambda it: it.input(system_prompt="  "), "system_prompt", id="blank-system-prompt"),
    pytest.param(lambda it: it.input(tool_concurrency=0), "tool_concurrency", id="no-concurrency"),
    pytest.param(lambda it: it.input(max_steps=0), "max_steps", id="no-steps"),
    pytest.param(lambda it: it.input(max_output_tokens=0), "max_output_tokens", id="no-output"),
    pytest.param(lambda it: it.input(max_output_tokens=10**10 + 1), "max_output_tokens", id="too-much-output"),
    pytest.param(lambda it: it.input(provider_options={"a": float("nan")}), "provider_options", id="nan-option"),
    pytest.param(lambda it: it.input(invocation=Invocation("", "t", "r", "i")), "session_id", id="empty-session"),
    pytest.param(
        lambda it: it.input(invocation=Invocation("s" * 4097, "t", "r", "i")), "session_id", id="long-session"
    ),
    pytest.param(lambda it: it.input(message=Message.user([])), "part", id="message-without-parts"),
    pytest.param(
        lambda it: attrs.evolve(it.input(), configuration=InvocationConfiguration(tool_mode=ToolMode.CODE)),
        "CODE",
        id="code-mode",
    ),
]


@pytest.mark.parametrize(("make", "names"), BAD_INPUTS)
async def test_bad_input_is_refused_before_anything_is_written(tmp_path: Path, make: Any, names: str) -> None:
    """One clear error that names the value; the session stays free and the log empty."""
    async with scene(tmp_path) as it:
        with pytest.raises(InvalidInput, match=names):
            await it.engine.run(make(it))
        assert await high_water(it) == 0
        it.provider.say("fine")
        await it.engine.run(it.input())


async def test_bad_parts_of_an_engine_are_refused() -> None:
    """An engine takes a log and a model executor, and says so."""
    with pytest.raises(InvalidInput, match="log must be EventLog"):
        Engine("log", ModelExecutor())  # type: ignore[arg-type]


async def test_an_engine_admits_nothing_outside_its_block(tmp_path: Path) -> None:
    """Before it is entered, while it drains, and after it was left."""
    async with scene(tmp_path) as it:
        engine = Engine(it.log, it.models)
        with pytest.raises(EngineClosed):
            await engine.run(it.input())
        await it.engine.drain()
        with pytest.raises(EngineClosed):
            await it.engine.run(it.input())
        assert await high_water(it) == 0


async def test_a_log_serves_one_engine_at_a_time(tmp_path: Path) -> None:
    """A second engine would take the first one's live runs for wreckage and seal them."""
    async with scene(tmp_path) as it:
        with pytest.raises(LogInUse):
            async with Engine(it.log, it.models):
                pytest.fail("the second engine was entered")


async def test_an_unsafe_session_is_refused_with_nothing_written(tmp_path: Path) -> None:
    """An invocation that somebody else left open in the session requires reconciliation."""
    async with scene(tmp_path) as it:
        stranger = Invocation.new("session")
        opening = facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("left open")))
        await it.log.commit(RuntimeEvent.new(stranger, opening))
        before = await high_water(it)
        with pytest.raises(ReconciliationRequired):
            await it.engine.run(it.input())
        assert await high_water(it) == before
        it.provider.say("fine")
        await it.engine.run(it.input(session="other"))


async def test_an_admission_that_is_cancelled_leaves_no_slot_taken(tmp_path: Path) -> None:
    """Cancelled before it began: nothing is written, and the session is free."""
    async with scene(tmp_path) as it:
        with trio.CancelScope() as scope:
            scope.cancel()
            await it.engine.start(it.input())
        assert scope.cancelled_caught
        await it.engine.wait_idle("session")
        story = await it.story()
        assert story in ("", "invocation_opened invocation_ended")
        it.provider.say("fine")
        await it.engine.run(it.input())


async def test_a_run_is_not_owned_by_who_started_it(tmp_path: Path) -> None:
    """Losing the handle changes nothing; leaving the engine waits for the run."""
    async with scene(tmp_path) as it:
        it.provider.say("fine")
        await it.engine.start(it.input())
        await it.engine.drain()
        assert (await it.story()).endswith("invocation_ended")


async def test_public_errors_are_plain(tmp_path: Path) -> None:
    """What a caller sees is one exception of the tree, never a group around it."""
    async with scene(tmp_path) as it:
        it.provider.answer(400, {}, {"error": {"message": "no such model", "code": "model_not_found"}})
        with pytest.raises(MakaError) as caught:
            await it.engine.run(it.input(tools=[registration("echo", echo)]))
        assert not isinstance(caught.value, BaseExceptionGroup)


async def test_cancelling_a_run_by_its_handle(tmp_path: Path) -> None:
    """`cancel` returns at once; each waiter gets an exception of its own."""
    async with scene(tmp_path) as it:
        it.provider.silence()
        running = await it.engine.start(it.input())
        await it.provider.wait_for_request()
        running.cancel()
        caught = []
        for _ in range(2):
            with pytest.raises(RunCancelled) as info:
                await running.wait()
            caught.append(info.value)
        assert caught[0] is not caught[1]
        assert (await it.facts())[-1] == facts.InvocationEnded(facts.Cancelled("runtime_cancellation"))


async def test_what_a_waiter_is_told_leads_to_where_it_was_raised(tmp_path: Path) -> None:
    """Each has the traceback of the run's task below its own, and none has that of another waiter."""
    async with scene(tmp_path) as it:
        it.provider.answer(400, {}, {"error": {"message": "no such model", "code": "model_not_found"}})
        running = await it.engine.start(it.input())
        places = []
        for _ in range(2):
            with pytest.raises(MakaError) as info:
                await running.wait()
            places.append([frame.name for frame in info.traceback])
        assert "execute" in places[0]
        assert places[0] == places[1]


def test_work_and_input_check_their_types() -> None:
    """Wrong types fail where the value is made."""
    with pytest.raises(InvalidInput, match="tools"):
        MessageWork("x", tools=[])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="invocation"):
        RunInput("session", None, None)  # type: ignore[arg-type]
