"""A slow answer that nobody follows rests between two reads where many streams are open."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from maka_trio import facts, limits
from maka_trio.engine.rest import rest_after
from maka_trio.errors import RunCancelled
from maka_trio.facts.model import PartDelta, PartStarted
from maka_trio.log import EventLog
from maka_trio.testing import Gate
from maka_trio.testing.gate import Tally
from tests.engine.scene import Scene, scene

LONG = 1000.0


class Crowd:
    """From `gather` on one stream is a crowd, and a rest is longer than everything that is limited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._gathered = False
        self._rests = Tally()
        is_followed = EventLog.is_followed

        def asked(log: EventLog, session_id: str) -> bool:
            if self._gathered:
                self._rests.add()
            return is_followed(log, session_id)

        monkeypatch.setattr(EventLog, "is_followed", asked)

    def gather(self) -> None:
        """From now on."""
        self._gathered = True
        self._patch.setattr(limits, "READ_AHEAD_STREAMS", 0)
        self._patch.setattr(limits, "REST_SECONDS", LONG)
        self._patch.setattr(limits, "REST_SECONDS_A_STREAM", LONG)

    async def rests(self, times: int) -> None:
        """Wait until a run that nobody follows has begun to rest so many times."""
        await self._rests.wait(times)


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    """Nobody yet."""
    return Crowd(monkeypatch)


async def texts(it: Scene) -> list[str]:
    """The text of the session's observations, one by one."""
    observed = [fact.event for fact in await it.facts(observed=True) if isinstance(fact, facts.ModelObserved)]
    return [event.text for event in observed if isinstance(event, PartDelta)]


async def until_observed(it: Scene, *expected: str) -> None:
    """Wait for exactly these; the clock of the test stands still meanwhile."""
    while (found := await texts(it)) != list(expected):
        assert len(found) < len(expected), found
        await wait_all_tasks_blocked(0.001)


async def test_what_comes_while_it_rests_is_read_at_once(tmp_path: Path, crowd: Crowd, mock_clock: MockClock) -> None:
    """The pieces of that time are one observation, nothing is lost, and the provider's time did not run on."""
    gates = [Gate(), Gate(), Gate()]
    async with scene(tmp_path, idle_timeout=LONG / 2) as it, trio.open_nursery() as nursery:
        it.provider.say("a", gates[0], "b", gates[1], "c", "d", gates[2])
        nursery.start_soon(it.engine.run, it.input())
        await until_observed(it, "a")
        crowd.gather()
        gates[0].open()
        await crowd.rests(1)
        gates[1].open()
        await gates[2].reached()
        await wait_all_tasks_blocked(0.05)
        assert await texts(it) == ["a", "b"]
        mock_clock.jump(LONG)
        await crowd.rests(2)
        assert await texts(it) == ["a", "b", "cd"]
        gates[2].open()
        mock_clock.jump(LONG)
        # the block ends when the run has, and raises what it failed with


async def test_an_answer_that_is_followed_never_rests(tmp_path: Path, crowd: Crowd, mock_clock: MockClock) -> None:
    """Who follows the session gets each piece as it comes."""
    crowd.gather()
    gates = [Gate(), Gate()]
    async with scene(tmp_path) as it, it.log.follow(session_id="session") as follower, trio.open_nursery() as nursery:
        it.provider.say("a", gates[0], "b", gates[1], "c")
        nursery.start_soon(it.engine.run, it.input())
        for text, gate in (("a", gates[0]), ("b", gates[1]), ("c", None)):
            async for stored in follower:
                fact = stored.event.fact
                if isinstance(fact, facts.ModelObserved) and fact.event == PartDelta("text-0", text):
                    break
            if gate is not None:
                gate.open()
    assert mock_clock.current_time() == 0


async def test_a_follower_that_left_counts_no_more(tmp_path: Path) -> None:
    """Neither one that was closed nor one that was dropped; one of another session never did."""
    async with scene(tmp_path) as it:
        assert not it.log.is_followed("session")
        async with it.log.follow(session_id="session"):
            assert it.log.is_followed("session")
            assert not it.log.is_followed("another")
        assert not it.log.is_followed("session")
        whole = it.log.follow()
        assert it.log.is_followed("session")
        assert it.log.is_followed("another")
        del whole
        assert not it.log.is_followed("session")


async def test_a_cancel_ends_the_rest(tmp_path: Path, crowd: Crowd, mock_clock: MockClock) -> None:
    """It does not wait for the next read, and the log says how the request ended."""
    crowd.gather()
    async with scene(tmp_path) as it:
        it.provider.say("a", Gate(), "b")
        running = await it.engine.start(it.input())
        await crowd.rests(1)
        running.cancel("enough")
        with pytest.raises(RunCancelled):
            await running.wait()
        assert mock_clock.current_time() == 0
        *_, interrupted, ended = await it.facts()
    assert interrupted.status is facts.InterruptionStatus.CANCELLED
    assert ended.outcome == facts.Cancelled()


def delta(size: int) -> PartDelta:
    """So much text."""
    return PartDelta("text-0", "x" * size)


@pytest.mark.parametrize(
    ("lot", "streams", "seconds"),
    [
        ([delta(1)], 1, 0.0),
        ([delta(1)], 16, 0.0),
        ([delta(1)], 17, 0.0068),
        ([delta(1)], 100, 0.04),
        ([delta(1)], 256, 0.1),
        ([delta(1)], 100_000, 0.1),
        ([delta(255)], 256, 0.1),
        ([delta(256)], 256, 0.0),
        ([delta(128), delta(128)], 256, 0.0),
        ([PartStarted("text-0")], 256, 0.1),
    ],
)
def test_the_rest_grows_with_the_crowd_and_fast_answers_have_none(
    lot: list[PartDelta | PartStarted], streams: int, seconds: float
) -> None:
    """Up to a tenth of a second; from 256 characters in one lot on, there is none."""
    assert rest_after(lot, streams) == pytest.approx(seconds)
