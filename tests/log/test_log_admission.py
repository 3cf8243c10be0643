"""What a log says to a run before it opens: the same as four questions would say, in one answer."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from maka_trio.errors import InvalidInput, LogClosed, PrefixTooLarge, ReconciliationRequired
from maka_trio.facts import Fact, Invocation, MessageInput, MessageOpening
from maka_trio.log import EventLog
from maka_trio.log.admission import Admission
from tests.log.log_story import COMPLETED, UNKNOWN, completed, event, observed, opened, requested, running_call

ANSWERED: list[Fact] = [opened(), requested(), observed(), completed(), COMPLETED]


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    async with EventLog.open(tmp_path / "log.db") as log:
        yield log


async def told(log: EventLog, *facts: Fact, session: str = "session") -> Invocation:
    invocation = Invocation.new(session)
    await log.commit_batch([event(invocation, fact) for fact in facts])
    return invocation


async def ask(log: EventLog, invocation: Invocation | None = None, name: str | None = None, **how: bool) -> Admission:
    asked = invocation or Invocation.new("session")
    return await log.admission(asked, name, **{"allow_prior_unknown": False, "history": True, **how})


async def test_session_that_is_new(log: EventLog) -> None:
    """Nothing was before, and there is nothing to read."""
    await told(log, *ANSWERED, session="other")
    found = await ask(log)
    assert (found.before, found.take_history()) == (None, ())


async def test_history_is_what_a_run_reads(log: EventLog) -> None:
    """It is read where it is asked for."""
    await told(log, *ANSWERED)
    assert (await ask(log)).take_history() == (await log.read_context("session")).events
    assert (await ask(log, history=False)).take_history() == ()


async def test_same_request_with_its_end(log: EventLog) -> None:
    """It is found by its id and by its name, and nothing else is looked at, whatever state the session is in."""
    opening = opened(MessageOpening(MessageInput("hello"), "order 7"))
    done = await told(log, opening, requested(), completed(), COMPLETED)
    await told(log, opened())
    for found in (await ask(log, done), await ask(log, name="order 7")):
        assert found.before == await log.find_invocation(done.invocation_id)
        assert found.before is not None
        assert found.before.outcome == COMPLETED.outcome
    assert (await ask(log, name="order 8")).before is None
    assert (await ask(log, Invocation.new("other"), "order 7")).before is None


async def test_same_request_without_its_end(log: EventLog) -> None:
    """It is found, and it stands in the way."""
    begun = await told(log, opened(), requested())
    found = await ask(log, begun)
    assert found.before == await log.find_invocation(begun.invocation_id)
    with pytest.raises(ReconciliationRequired, match="has not ended"):
        found.take_history()


@pytest.mark.parametrize("history", [False, True])
async def test_unknown_effects_stand_in_the_way_unless_allowed(log: EventLog, history: bool) -> None:
    """As with `require_safe`, with and without history."""
    await told(log, *running_call(UNKNOWN))
    with pytest.raises(ReconciliationRequired):
        (await ask(log, history=history)).take_history()
    told_now = (await ask(log, history=history, allow_prior_unknown=True)).take_history()
    assert bool(told_now) is history


async def test_history_that_is_too_long_is_told_when_it_is_taken(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who only wanted to know whether the request was run is not troubled by it."""
    monkeypatch.setattr("maka_trio.limits.CONTEXT_EVENTS", 2)
    await told(log, *ANSWERED)
    found = await ask(log)
    assert found.before is None
    with pytest.raises(PrefixTooLarge):
        found.take_history()


async def test_refusal_does_not_wait_for_the_garbage_collector(log: EventLog) -> None:
    """An error leads back to whoever raised it; what it was taken from does not lead back to the error."""
    await told(log, opened())

    def refusal(found: Admission) -> weakref.ref[BaseException]:
        try:
            found.take_history()
        except ReconciliationRequired as error:
            return weakref.ref(error)
        raise AssertionError

    found = await ask(log)
    gc.disable()
    try:
        assert refusal(found)() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("wrong", [("invocation", None), (Invocation.new("session"), ""), (None, None)])
async def test_questions_with_wrong_values(log: EventLog, wrong: Any) -> None:
    """A wrong value is refused with an error that names it."""
    with pytest.raises(InvalidInput):
        await log.admission(*wrong, allow_prior_unknown=False, history=True)


async def test_closed_log(log: EventLog) -> None:
    """It answers nobody."""
    await log.aclose()
    with pytest.raises(LogClosed):
        await ask(log)
