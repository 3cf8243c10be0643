"""The same request twice is one run: while it runs, after its end, in the next process; never with other content."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from maka_trio.engine import Engine
from maka_trio.errors import (
    Busy,
    CommitRejected,
    LogFull,
    MakaError,
    ModelIncomplete,
    ModelRefused,
    ProviderFailure,
    ReconciliationRequired,
    RunCancelled,
    RunError,
    StepLimit,
    ToolOutcomeUnknown,
)
from maka_trio.facts import InvocationOpened
from maka_trio.facts.event import InvocationEnded, RuntimeEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.message import MediaContent, Message, TextContent, UserMessage
from maka_trio.facts.opening import MessageInput, MessageOpening
from maka_trio.facts.outcome import Cancelled, Completed, Failed, FailureClass
from maka_trio.log import EventLog
from maka_trio.testing import Gate
from tests.engine.scene import Scene, echo, registration, scene

PNG = b"\x89PNG\r\n\x1a\n"


async def openings(it: Scene) -> int:
    return sum(isinstance(fact, InvocationOpened) for fact in await it.facts())


@pytest.mark.parametrize("name", ["fingerprint", "invocation"])
async def test_a_repeated_request_gets_the_running_handle(tmp_path: Path, name: str) -> None:
    """While the run is under way, whoever asks again is given it, under the identity of the first."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "hello")
        first = await it.engine.start(it.input(**named(name)))
        again = await it.engine.start(it.input(**named(name)))
        assert again is first
        assert not again.finished
        gate.open()
        await again.wait()
        assert await openings(it) == 1


ONE = Invocation.new("session")


def named(name: str) -> dict[str, Any]:
    return {"request_fingerprint": "order 7"} if name == "fingerprint" else {"invocation": ONE}


@pytest.mark.parametrize("name", ["fingerprint", "invocation"])
async def test_a_repeated_request_after_the_end_is_not_run_again(tmp_path: Path, name: str) -> None:
    """The handle is finished, its events are those of the first run, and nothing is written."""
    async with scene(tmp_path) as it:
        it.provider.say("hello")
        done = await it.engine.run(it.input(**named(name)))
        before = await it.events()
        again = await it.engine.start(it.input(**named(name)))
        assert again.invocation == done
        await again.wait()
        assert again.finished
        assert [stored async for stored in again.events()] == before
        assert await it.engine.run(it.input(**named(name))) == done
        assert await it.events() == before
        with pytest.raises(RunError, match="over"):
            await again.steer("one more")


async def test_a_repeated_request_is_known_to_the_next_process(tmp_path: Path) -> None:
    """What ran before the log was closed is not run after it was opened again."""
    async with scene(tmp_path) as it:
        it.provider.say("hello")
        done = await it.engine.run(it.input(request_fingerprint="order 7"))
    async with scene(tmp_path) as it:
        assert await it.engine.run(it.input(request_fingerprint="order 7")) == done
        assert await openings(it) == 1


async def test_a_fingerprint_counts_in_its_own_session(tmp_path: Path) -> None:
    """Two sessions may use the same name for what is theirs."""
    async with scene(tmp_path) as it:
        for session in ("a", "b"):
            it.provider.say("hello")
            done = await it.engine.run(it.input(session=session, request_fingerprint="1"))
            assert done.session_id == session


async def test_requests_without_a_name_are_runs_of_their_own(tmp_path: Path) -> None:
    """The same words twice are two turns, unless the application says that they are one request."""
    async with scene(tmp_path) as it:
        it.provider.say("one")
        it.provider.say("two")
        first, second = [await it.engine.run(it.input("again")) for _ in range(2)]
        assert first != second
        assert await openings(it) == 2


CHANGES: dict[str, dict[str, Any]] = {
    "the words": {"message": "another question"},
    "the tools": {"tools": [registration("echo", echo)]},
    "the options": {"max_output_tokens": 7},
    "the configuration": {"system_prompt": "be brief"},
    "the tolerance": {"allow_prior_unknown": True},
}


@pytest.mark.parametrize("running", [True, False], ids=["running", "ended"])
@pytest.mark.parametrize("name", ["fingerprint", "invocation"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_name_that_was_used_for_something_else_is_a_conflict(
    tmp_path: Path, change: str, name: str, *, running: bool
) -> None:
    """Neither the first run's result nor a second run is what was asked for, so it is refused by its reason."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "hello")
        first = await it.engine.start(it.input(**named(name)))
        if not running:
            gate.open()
            await first.wait()
        high_water = (await it.log.head()).high_water
        with pytest.raises(CommitRejected, match="something else") as caught:
            await it.engine.start(it.input(**named(name), **CHANGES[change]))
        assert caught.value.reason == "conflict"
        if not running:
            assert (await it.log.head()).high_water == high_water
        gate.open()
        await first.wait()
        assert await openings(it) == 1


@pytest.mark.parametrize("field", ["session_id", "turn_id", "run_id"])
async def test_an_invocation_id_with_another_identity_is_a_conflict(tmp_path: Path, field: str) -> None:
    """The four ids of an invocation belong together."""
    async with scene(tmp_path) as it:
        it.provider.say("hello")
        done = await it.engine.run(it.input())
        ids = {name: getattr(done, name) for name in ("session_id", "turn_id", "run_id", "invocation_id")}
        with pytest.raises(CommitRejected) as caught:
            await it.engine.start(it.input(invocation=Invocation(**{**ids, field: "other"})))
        assert caught.value.reason == "conflict"


async def test_media_are_compared_by_content(tmp_path: Path) -> None:
    """A picture is given a fresh id each time it is submitted; the same bytes are the same request, others are not."""

    def question(data: bytes) -> UserMessage:
        return UserMessage((TextContent("what is this?"), MediaContent("image/png", data)))

    async with scene(tmp_path) as it:
        it.provider.say("a picture")
        done = await it.engine.run(it.input(question(PNG), request_fingerprint="p"))
        assert await it.engine.run(it.input(question(PNG), request_fingerprint="p")) == done
        with pytest.raises(CommitRejected, match="something else"):
            await it.engine.run(it.input(question(PNG + b"other"), request_fingerprint="p"))
        assert await openings(it) == 1


ENDS: dict[str, tuple[Any, type[MakaError] | None]] = {
    "completed": (Completed(), None),
    "cancelled": (Cancelled(), RunCancelled),
    "step limit": (Failed(FailureClass.STEP_LIMIT, "made 3"), StepLimit),
    "incomplete": (Failed(FailureClass.MODEL_INCOMPLETE, "cut"), ModelIncomplete),
    "refused": (Failed(FailureClass.MODEL_REFUSED, "no"), ModelRefused),
    "provider": (Failed(FailureClass.MODEL_PROVIDER, "503"), ProviderFailure),
    "store": (Failed(FailureClass.EVENT_STORE, "full"), MakaError),
    "unknown outcome": (Failed(FailureClass.OUTCOME_UNKNOWN), ToolOutcomeUnknown),
    "killed": (Failed(FailureClass.HOST_INTERRUPTED), RunError),
    "internal": (Failed(FailureClass.RUNTIME_INTERNAL, "bug"), RunError),
}


@pytest.mark.parametrize("name", ENDS)
async def test_the_finished_handle_raises_what_the_run_ended_with(tmp_path: Path, name: str) -> None:
    """The class of the error is read back from the recorded end, with its message."""
    outcome, error = ENDS[name]
    async with scene(tmp_path) as it:
        request = it.input(request_fingerprint="r")
        fact = InvocationOpened(
            MessageOpening(MessageInput("question"), request_fingerprint="r", surface=request.surface(())),
            request.configuration,
        )
        await it.log.commit_batch(
            [RuntimeEvent.new(request.invocation, fact) for fact in (fact, InvocationEnded(outcome))]
        )
        again = await it.engine.start(it.input(request_fingerprint="r"))
        if error is None:
            await again.wait()
            return
        for _ in range(2):
            with pytest.raises(error) as caught:
                await again.wait()
            assert (getattr(outcome, "message", None) or "") in str(caught.value)
            assert str(caught.value)


async def test_fifty_callers_of_one_request_share_one_run(tmp_path: Path) -> None:
    """Nobody is refused, nobody starts a second run."""
    async with scene(tmp_path) as it:
        it.provider.say("hello")
        found: list[Invocation] = []

        async def ask() -> None:
            found.append(await it.engine.run(it.input(request_fingerprint="one")))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(ask)
        assert len(found) == 50
        assert len({invocation.run_id for invocation in found}) == 1
        assert await openings(it) == 1


async def test_who_joined_a_run_does_not_cancel_it(tmp_path: Path) -> None:
    """The run belongs to who had it admitted; a second caller that leaves takes nothing with it."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "hello")
        first = await it.engine.start(it.input(request_fingerprint="one"))
        with trio.move_on_after(0.05) as scope:
            await it.engine.run(it.input(request_fingerprint="one"))
        assert scope.cancelled_caught
        gate.open()
        await first.wait()


async def test_who_joined_an_admission_that_was_given_up_is_admitted_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first caller leaves before its opening was written; the second then asks for itself."""
    async with scene(tmp_path) as it:
        it.provider.say("hello")
        looking, go = trio.Event(), trio.Event()
        look = it.log.admission
        calls = itertools.count()

        async def slow_look(*asked: Any, **how: Any) -> Any:
            if next(calls) == 0:
                looking.set()
                await go.wait()
            return await look(*asked, **how)

        monkeypatch.setattr(it.log, "admission", slow_look)
        done: list[Invocation] = []

        async def second() -> None:
            done.append(await it.engine.run(it.input(request_fingerprint="one")))

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as first:
                nursery.start_soon(cancel_when, looking, first, second, nursery)  # noqa: ASYNC111 - a scope outlives its block
                await it.engine.run(it.input(request_fingerprint="one"))
        assert first.cancelled_caught
        assert len(done) == 1
        assert await it.story() == "invocation_opened model_requested model_completed invocation_ended"


async def cancel_when(event: trio.Event, scope: trio.CancelScope, second: Any, nursery: trio.Nursery) -> None:
    await event.wait()
    nursery.start_soon(second)
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_another_request_of_the_session_is_busy_as_ever(tmp_path: Path) -> None:
    """Only the same request joins."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "hello")
        first = await it.engine.start(it.input(request_fingerprint="one"))
        with pytest.raises(Busy):
            await it.engine.start(it.input(request_fingerprint="two"))
        gate.open()
        await first.wait()


async def test_an_open_run_that_nobody_drives_is_no_answer(tmp_path: Path) -> None:
    """An opening without end and without a task is what it is: a session to be recovered."""
    async with scene(tmp_path) as it:
        request = it.input(request_fingerprint="r")
        fact = InvocationOpened(
            MessageOpening(MessageInput("question"), request_fingerprint="r", surface=request.surface(())),
            request.configuration,
        )
        await it.log.commit(RuntimeEvent.new(request.invocation, fact))
        with pytest.raises(ReconciliationRequired):
            await it.engine.start(it.input(request_fingerprint="r"))
    async with scene(tmp_path) as it:
        with pytest.raises(RunError, match="host_interrupted"):
            await it.engine.run(it.input(request_fingerprint="r"))
        assert await openings(it) == 1


async def test_a_refused_admission_keeps_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose opening was not written may be made again."""
    async with scene(tmp_path) as it:
        commit = it.log.commit

        async def full(event: Any) -> int:
            raise LogFull("no space")

        monkeypatch.setattr(it.log, "commit", full)
        with pytest.raises(LogFull):
            await it.engine.run(it.input(request_fingerprint="r"))
        monkeypatch.setattr(it.log, "commit", commit)
        it.provider.say("hello")
        await it.engine.run(it.input(request_fingerprint="r"))
        assert await openings(it) == 1


async def test_two_engines_in_turn_share_what_they_ran(tmp_path: Path) -> None:
    """What is remembered is in the log, not in the engine."""
    async with scene(tmp_path) as it:
        it.provider.say("hello")
        done = await it.engine.run(it.input(Message.user("hi"), request_fingerprint="r"))
        request = it.input(Message.user("hi"), request_fingerprint="r")
    async with EventLog.open(tmp_path / "log.sqlite") as log, Engine(log, it.models) as other:
        assert await other.run(request) == done
