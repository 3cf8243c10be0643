"""A run is continued once, by whom it may be; the same request again is that one continuation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from maka_trio import facts
from maka_trio.errors import Busy, CommitRejected, LogFull, MakaError, RunCancelled
from maka_trio.facts import Invocation, InvocationOpened, RuntimeEvent
from maka_trio.facts.codec import digest
from maka_trio.facts.opening import ContinuationOpening
from maka_trio.testing import Gate
from maka_trio.testing.checks import lawful
from tests.engine.going_on import ECHO, end_of, go_on, last_run, roles, stopped
from tests.engine.scene import Scene, scene
from tests.engine.test_commit_points import counted


async def openings(it: Scene) -> list[ContinuationOpening]:
    """The continuations that were admitted."""
    return [
        fact.input
        for fact in await it.facts()
        if isinstance(fact, InvocationOpened) and isinstance(fact.input, ContinuationOpening)
    ]


# --- once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_run_is_continued_once(tmp_path: Path, reopened: bool) -> None:
    """The second is refused by its reason, at the check as well, also after the log was opened again."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source))
        if not reopened:
            await check_second(it, source)
    async with scene(tmp_path) as it:
        await check_second(it, source)
        assert len(await openings(it)) == 1


async def check_second(it: Scene, source: facts.RunBoundary) -> None:
    high_water = (await it.log.head()).high_water
    for attempt in (it.engine.check_continuation, it.engine.start):
        with pytest.raises(CommitRejected, match="continued once") as caught:
            await attempt(go_on(it, source))
        assert caught.value.reason == "conflict"
    assert (await it.log.head()).high_water == high_water


async def test_another_process_does_not_continue_it_either(tmp_path: Path) -> None:
    """The first process to ask has it, for ever."""
    async with scene(tmp_path) as it:
        await stopped(it)
    assert [await told_to_a_child(tmp_path) for _ in range(2)] == ["continued", "conflict"]
    async with scene(tmp_path) as it:
        assert len(await openings(it)) == 1
        assert await lawful(it.log) == []


async def told_to_a_child(folder: Path) -> str:
    child = [sys.executable, "-m", "tests.engine.continuation_child", str(folder)]
    done = await trio.run_process(child, capture_stdout=True, cwd=Path(__file__).parents[2])
    return done.stdout.decode().strip()


async def test_of_two_that_ask_at_once_one_is_told_to_wait(tmp_path: Path) -> None:
    """And when it has waited, that it came too late."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        gate = Gate()
        it.provider.say(gate, "the answer")
        running = await it.engine.start(go_on(it, source))
        with pytest.raises(Busy):
            await it.engine.start(go_on(it, source))
        gate.open()
        await running.wait()
        await check_second(it, source)


async def test_a_continuation_that_was_never_admitted_claims_nothing(tmp_path: Path) -> None:
    """Cancelled before its opening was durable, it leaves the run to the next."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        with trio.CancelScope() as scope:
            scope.cancel()
            await it.engine.start(go_on(it, source))
        assert scope.cancelled_caught
        await it.engine.wait_idle("session")
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source))
        assert len(await openings(it)) == 1


# --- the same request -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fingerprint", "digest", "invocation"])
@pytest.mark.parametrize("state", ["running", "ended", "reopened"])
async def test_a_repeated_continuation_is_one_run(tmp_path: Path, name: str, state: str) -> None:
    """Asked again by its name or its identity, it is not run again, and its check says what it claimed."""
    names: dict[str, dict[str, Any]] = {
        "fingerprint": {"request_fingerprint": "order 7"},
        "digest": {"request_fingerprint": digest(b"order 7")},
        "invocation": {"invocation": Invocation.new("session")},
    }
    named = names[name]
    async with scene(tmp_path) as it:
        source = await stopped(it)
        gate = Gate()
        it.provider.say(gate, "the answer")
        first = await it.engine.start(go_on(it, source, **named))
        found = (await openings(it))[0].claim
        if state == "running":
            assert await it.engine.start(go_on(it, source, **named)) is first
            assert (await it.engine.check_continuation(go_on(it, source, **named))).claim == found
        gate.open()
        await first.wait()
        if state == "ended":
            await check_repeated(it, source, first.invocation, named)
    if state == "reopened":
        async with scene(tmp_path) as it:
            await check_repeated(it, source, first.invocation, named)


async def check_repeated(it: Scene, source: facts.RunBoundary, done: Invocation, named: dict[str, Any]) -> None:
    assert await it.engine.run(go_on(it, source, **named)) == done
    (opening,) = await openings(it)
    assert (await it.engine.check_continuation(go_on(it, source, **named))).claim == opening.claim


@pytest.mark.parametrize("change", [{"tools": []}, {"system_prompt": "be brief"}, {"max_output_tokens": 7}], ids=repr)
async def test_the_name_of_a_continuation_stands_for_what_it_asked(tmp_path: Path, change: dict[str, Any]) -> None:
    """Asked for something else under it, neither of the two is what is wanted."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source, request_fingerprint="order 7"))
        with pytest.raises(CommitRejected, match="something else") as caught:
            await it.engine.start(go_on(it, source, request_fingerprint="order 7", **change))
        assert caught.value.reason == "conflict"


async def test_messages_and_continuations_share_their_names(tmp_path: Path) -> None:
    """A name stands for one request of a session, of whichever kind, and is found by its own words."""
    async with scene(tmp_path) as it:
        source = await stopped(it, request_fingerprint="a question")
        with pytest.raises(CommitRejected, match="something else"):
            await it.engine.start(go_on(it, source, request_fingerprint="a question"))
        it.provider.say("the answer")
        done = await it.engine.run(go_on(it, source, request_fingerprint="order 7"))
        with pytest.raises(CommitRejected, match="something else"):
            await it.engine.start(it.input(request_fingerprint="order 7"))
        record = await it.log.find_request("session", "order 7")
        assert record is not None
        assert record.invocation == done
        (opening,) = await openings(it)
        assert opening.request_fingerprint == digest(b"order 7")


async def test_the_opening_may_be_committed_again(tmp_path: Path) -> None:
    """An exact retry is answered with its sequence, although its source is claimed by then."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source))
        stored = next(
            stored
            for stored in await it.events()
            if isinstance(stored.event.fact, InvocationOpened)
            and isinstance(stored.event.fact.input, ContinuationOpening)
        )
        assert await it.log.commit(stored.event) == stored.sequence
        other = attrs.evolve(stored.event, id="another")
        with pytest.raises(CommitRejected) as caught:
            await it.log.commit(RuntimeEvent.new(Invocation.new("session"), other.fact))
        assert caught.value.reason == "conflict"


# --- what goes wrong in it --------------------------------------------------------------------------------


async def test_a_continuation_that_loses_an_append_ends_by_what_the_log_holds(tmp_path: Path) -> None:
    """It reads its lineage again, and no more, to know what it may say at its end."""
    async with counted(tmp_path) as (it, commits):
        source = await stopped(it)
        it.provider.say("aside")
        await it.engine.run(it.input("sibling"))
        it.provider.call_tools(("echo", {}, "c2"))
        commits.fails = "tool_dispatched"
        with pytest.raises(LogFull):
            await it.engine.run(go_on(it, source))
        assert [fact.kind for fact in await it.facts()][-2:] == ["model_interrupted", "invocation_ended"]
        source = await end_of(it, await last_run(it))
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source))
        assert roles(it) == ["user", "assistant", "tool"]
        assert await lawful(it.log) == []


async def test_a_cancelled_continuation_is_continued(tmp_path: Path) -> None:
    """It is a run like any other, even if it came to nothing."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        it.provider.say(Gate())
        running = await it.engine.start(go_on(it, source))
        await it.provider.wait_for_request(2)
        running.cancel()
        with pytest.raises(RunCancelled):
            await running.wait()
        it.provider.say("the answer")
        await it.engine.run(go_on(it, await end_of(it, running.invocation), tools=[ECHO]))
        assert roles(it) == ["user", "assistant", "tool"]
        assert await lawful(it.log) == []


async def test_a_continuation_whose_end_could_not_be_written_is_ended_by_the_next_run(tmp_path: Path) -> None:
    """As any run's is."""
    async with counted(tmp_path) as (it, commits):
        source = await stopped(it)
        it.provider.say("the answer")
        commits.fails = "invocation_ended"
        with pytest.raises(MakaError):
            await it.engine.run(go_on(it, source))
        it.provider.say("more")
        await it.engine.run(it.input("next"))
        assert await lawful(it.log) == []
