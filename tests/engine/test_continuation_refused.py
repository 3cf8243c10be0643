"""What a continuation is refused for: the check and the start say the same, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from maka_trio import facts
from maka_trio.engine import ContinuationWork, RunInput
from maka_trio.errors import (
    Busy,
    CommitRejected,
    EngineClosed,
    InvalidInput,
    MakaError,
    ReconciliationRequired,
    SessionRetired,
)
from maka_trio.facts import Invocation, RunBoundary
from maka_trio.testing import Gate
from tests.engine.going_on import ECHO, end_of, go_on, stopped
from tests.engine.scene import Scene, registration, scene

OTHER_DIGEST = "sha256:" + "f" * 64


async def refused(it: Scene, run_input: RunInput) -> MakaError:
    """What `start` raises, which must be what the check raises. The log stays where it is."""
    high_water = (await it.log.head()).high_water
    with pytest.raises(MakaError) as checked:
        await it.engine.check_continuation(run_input)
    with pytest.raises(MakaError) as started:
        await it.engine.start(run_input)
    assert (type(checked.value), str(checked.value)) == (type(started.value), str(started.value))
    assert getattr(checked.value, "reason", None) == getattr(started.value, "reason", None)
    assert (await it.log.head()).high_water == high_water
    return started.value


# --- the boundary -----------------------------------------------------------------------------------------

Change = Callable[[RunBoundary], RunBoundary]

BOUNDARIES: dict[str, tuple[Change, str]] = {
    "an earlier end": (lambda at: attrs.evolve(at, high_water=at.high_water - 1), "not that of the log"),
    "a later end": (lambda at: attrs.evolve(at, high_water=at.high_water + 1), "not that of the log"),
    "another digest": (lambda at: attrs.evolve(at, digest=OTHER_DIGEST), "not that of the log"),
    "another turn": (
        lambda at: attrs.evolve(at, invocation=attrs.evolve(at.invocation, turn_id="other")),
        "another turn or invocation",
    ),
    "another invocation": (
        lambda at: attrs.evolve(at, invocation=attrs.evolve(at.invocation, invocation_id="other")),
        "another turn or invocation",
    ),
    "another run": (
        lambda at: attrs.evolve(at, invocation=attrs.evolve(at.invocation, run_id="other")),
        "no run 'other'",
    ),
}


@pytest.mark.parametrize(("change", "words"), BOUNDARIES.values(), ids=BOUNDARIES)
async def test_a_boundary_is_taken_to_the_last_digit(tmp_path: Path, change: Change, words: str) -> None:
    """One that was changed in any way is not that of the run."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        error = await refused(it, go_on(it, change(source)))
        assert isinstance(error, InvalidInput)
        assert words in str(error)


async def test_a_run_is_continued_in_its_own_session(tmp_path: Path) -> None:
    """What another session did is no history of this one."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        error = await refused(it, go_on(it, source, session="other"))
        assert isinstance(error, InvalidInput)
        assert "'session'" in str(error)


@pytest.mark.parametrize("field", ["run_id", "invocation_id"])
async def test_a_continuation_is_a_run_of_its_own(tmp_path: Path, field: str) -> None:
    """It has ids of its own, and does not write into the run that has ended."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        same = attrs.evolve(Invocation.new("session"), **{field: getattr(source.invocation, field)})
        error = await refused(it, go_on(it, source, invocation=same))
        assert isinstance(error, InvalidInput)
        assert "ids of its own" in str(error)


async def test_a_run_id_of_the_session_is_not_used_again(tmp_path: Path) -> None:
    """A lineage is named after its run, so there is one."""
    async with scene(tmp_path) as it:
        it.provider.say("first")
        first = await it.engine.run(it.input("before"))
        source = await stopped(it)
        same = attrs.evolve(Invocation.new("session"), run_id=first.run_id)
        error = await refused(it, go_on(it, source, invocation=same))
        assert isinstance(error, CommitRejected)
        assert error.reason == "claim"


async def test_a_run_that_has_not_ended_has_no_boundary(tmp_path: Path) -> None:
    """Neither to be read nor to be continued from."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say(gate, "the answer")
        running = await it.engine.start(it.input())
        await it.provider.wait_for_request()  # until the gate opens, nothing more is written
        with pytest.raises(ReconciliationRequired, match="not ended"):
            await end_of(it, running.invocation)
        guess = RunBoundary(running.invocation, 1, OTHER_DIGEST)
        assert isinstance(await refused(it, go_on(it, guess)), Busy)
        gate.open()
        await running.wait()


async def test_an_open_run_that_nobody_drives_is_not_continued(tmp_path: Path) -> None:
    """It may still be written to."""
    async with scene(tmp_path) as it:
        invocation = Invocation.new("session")
        opening = facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("hello")))
        await it.log.commit(facts.RuntimeEvent.new(invocation, opening))
        error = await refused(it, go_on(it, RunBoundary(invocation, 1, OTHER_DIGEST)))
        assert isinstance(error, ReconciliationRequired)
        assert "not ended" in str(error)


@pytest.mark.parametrize("where", ["session", "run"])
async def test_no_boundary_of_nothing(tmp_path: Path, where: str) -> None:
    """A session or run that is not there is named."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        ids = {"session": source.invocation.session_id, "run": source.invocation.run_id} | {where: "nothing"}
        with pytest.raises(InvalidInput, match="'nothing'"):
            await it.log.boundary(ids["session"], ids["run"])


async def test_a_run_of_several_invocations_is_not_continued(tmp_path: Path) -> None:
    """Where it ends is not one place."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        it.provider.say("again")
        twin = attrs.evolve(Invocation.new("session"), run_id=source.invocation.run_id)
        await it.engine.run(it.input("again", invocation=twin))
        error = await refused(it, go_on(it, source))
        assert isinstance(error, InvalidInput)
        assert "2 invocations" in str(error)


# --- the session ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_unknown_effect_anywhere_in_the_session_stands_in_the_way(tmp_path: Path, when: str) -> None:
    """Also one that happened later than the run that is to be continued."""
    async with scene(tmp_path) as it:
        if when == "before":
            await dispatched_and_lost(it)
        source = await stopped(it, allow_prior_unknown=True)
        if when == "after":
            await dispatched_and_lost(it)
        error = await refused(it, go_on(it, source))
        assert isinstance(error, ReconciliationRequired)


async def dispatched_and_lost(it: Scene) -> None:
    """A run whose process died in a tool, as recovery leaves it."""
    invocation = Invocation.new("session")
    call = facts.ModelToolCall("c9", "put", {})
    step = facts.ModelStep((facts.ToolCallPart(call),), facts.FinishReason.TOOL_CALLS)
    digest = "sha256:" + "0" * 64
    told: list[facts.Fact] = [
        facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("lost"))),
        facts.ModelRequested("lost", "test", facts.Session("session"), 0, digest, digest, digest),
        facts.ModelCompleted("lost", step),
        facts.ToolDispatched("lost:c9", facts.ToolCallIdentity.provider("lost", "c9"), "put", {}),
        facts.InvocationEnded(facts.Failed(facts.FailureClass.OUTCOME_UNKNOWN)),
    ]
    await it.log.commit_batch([facts.RuntimeEvent.new(invocation, fact) for fact in told])


async def test_a_retired_session_takes_no_continuation(tmp_path: Path) -> None:
    """As it takes no other run."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        await it.log.retire("session")
        assert isinstance(await refused(it, go_on(it, source)), SessionRetired)


async def test_a_busy_session_takes_no_continuation(tmp_path: Path) -> None:
    """The error names the run that holds it."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        gate = Gate()
        it.provider.say(gate, "busy")
        running = await it.engine.start(it.input("meanwhile"))
        await gate.reached()
        error = await refused(it, go_on(it, source))
        assert isinstance(error, Busy)
        assert error.run_id == running.invocation.run_id
        gate.open()
        await running.wait()


async def test_a_closed_engine_checks_nothing(tmp_path: Path) -> None:
    """It would not start anything either."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        await it.engine.drain()
        assert isinstance(await refused(it, go_on(it, source)), EngineClosed)


# --- what is replayed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [("/work", "/other"), ("/work", None), (None, "/work")])
async def test_a_run_is_continued_where_it_was(tmp_path: Path, before: str | None, after: str | None) -> None:
    """The same folder, or none both times."""
    async with scene(tmp_path) as it:
        source = await stopped(it, cwd=before)
        error = await refused(it, go_on(it, source, cwd=after))
        assert isinstance(error, InvalidInput)
        assert "cwd" in str(error)
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source, cwd=before))


@pytest.mark.parametrize("tools", [[], [registration("other", ECHO.handler)]], ids=["none", "others"])  # type: ignore[arg-type]
async def test_tools_that_were_called_must_be_offered(tmp_path: Path, tools: list[Any]) -> None:
    """A model that reads of a tool expects to have it."""
    async with scene(tmp_path) as it:
        source = await stopped(it)
        error = await refused(it, go_on(it, source, tools=tools))
        assert isinstance(error, InvalidInput)
        assert "'echo'" in str(error)


async def test_tools_of_the_whole_lineage_count(tmp_path: Path) -> None:
    """Also those that only a turn before the source called."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("old", {}, "c1"))
        it.provider.say("done")
        await it.engine.run(it.input("before", tools=[registration("old", ECHO.handler)]))  # type: ignore[arg-type]
        source = await stopped(it)
        assert "'old'" in str(await refused(it, go_on(it, source)))
        old = registration("old", ECHO.handler)  # type: ignore[arg-type]
        found = await it.engine.check_continuation(go_on(it, source, tools=[ECHO, old]))
        assert found.tools == ("old", "echo")


async def test_an_answered_message_is_not_answered_again(tmp_path: Path) -> None:
    """A run that completed with an answer left nothing to do."""
    async with scene(tmp_path) as it:
        it.provider.say("the answer")
        done = await it.engine.run(it.input())
        error = await refused(it, go_on(it, await end_of(it, done)))
        assert isinstance(error, InvalidInput)
        assert "nothing left to answer" in str(error)


async def test_calls_that_the_provider_made_are_not_made_again(tmp_path: Path) -> None:
    """They are no text that could be left out."""
    async with scene(tmp_path) as it:
        hosted = facts.ModelToolCall("h1", "web_search", {}, provider_executed=True)
        parts = (facts.ToolCallPart(hosted), facts.ToolResultPart("h1", "web_search", []))
        invocation, digest = Invocation.new("session"), "sha256:" + "0" * 64
        told: list[facts.Fact] = [
            facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("search"))),
            facts.ModelRequested("s", "test", facts.Session("session"), 0, digest, digest, digest),
            facts.ModelCompleted("s", facts.ModelStep(parts, facts.FinishReason.STOP)),
            facts.InvocationEnded(facts.Cancelled()),
        ]
        await it.log.commit_batch([facts.RuntimeEvent.new(invocation, fact) for fact in told])
        error = await refused(it, go_on(it, await end_of(it, invocation)))
        assert isinstance(error, InvalidInput)
        assert "not made again" in str(error)


async def test_a_program_by_itself_is_not_continued(tmp_path: Path) -> None:
    """No model was part of it."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("echo", {}, "c1"))
        invocation = Invocation.new("session")
        await stopped(it)
        told: list[facts.Fact] = [
            facts.InvocationOpened(facts.CodeOpening("1 + 1")),
            facts.InvocationEnded(facts.Cancelled()),
        ]
        await it.log.commit_batch([facts.RuntimeEvent.new(invocation, fact) for fact in told])
        error = await refused(it, go_on(it, await end_of(it, invocation)))
        assert isinstance(error, InvalidInput)
        assert "not opened by a message" in str(error)


# --- the request itself -----------------------------------------------------------------------------------


async def test_only_a_continuation_is_checked(tmp_path: Path) -> None:
    """A message has nothing to claim."""
    async with scene(tmp_path) as it:
        with pytest.raises(InvalidInput, match="ContinuationWork"):
            await it.engine.check_continuation(it.input())
        with pytest.raises(InvalidInput, match="RunInput"):
            await it.engine.check_continuation("go on")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"source": "the last run"}, {"tools": []}, {"max_steps": 0}, {"max_steps": True}], ids=repr
)
def test_bad_work_is_refused_where_it_is_made(settings: dict[str, Any]) -> None:
    """By the name of what is wrong."""
    source = RunBoundary(Invocation.new("session"), 1, OTHER_DIGEST)
    with pytest.raises(InvalidInput, match=next(iter(settings))):
        ContinuationWork(**({"source": source} | settings))
