"""Killed again and again, with several sessions at work: one log lives through it, lawful and whole.

Each round is a process that dies of SIGKILL around one of its commits or at any moment, and this one, which comes
next: it looks at the file as it was left, recovers it, and runs every session once more.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
import trio

from maka_trio import facts
from maka_trio.cli.log_file import LogFile
from maka_trio.engine import Engine
from maka_trio.errors import ReconciliationRequired
from maka_trio.log import EventLog
from maka_trio.log.verification import Verification
from maka_trio.models import ModelExecutor
from maka_trio.testing import ScriptedProvider
from tests.engine.kill_child import SESSIONS, Death, How, append_to, live, script_turns
from tests.engine.scene import QUICK, Scene, registration
from tests.forked import PATIENCE, forked, said

COMMITS = 36
"""Commits around which a process is killed. Three turns of three steps make at least so many."""

ANYTIME = 100
LONGEST_RUN = 250
"""Milliseconds, about, that the sessions are at work."""

PARTS = 16


def deaths() -> list[Death]:
    """Before, during and after each commit, and at moments of chance; in no order."""
    chance = random.Random(1)
    around = [Death(how, at) for how in get_args(How) if how != "anytime" for at in range(1, COMMITS + 1)]
    found = [*around, *(Death("anytime", chance.randrange(LONGEST_RUN)) for _ in range(ANYTIME))]
    chance.shuffle(found)
    return found


DEATHS = deaths()


class Round:
    """One death and what follows it, in a folder that goes on from round to round."""

    def __init__(self, folder: Path, death: Death) -> None:
        self.folder = folder
        self.death = death
        self.path = folder / "log.sqlite"

    def run(self) -> None:
        told = self.killed()
        if self.path.exists():
            assert self.verify() == []
        trio.run(self.follow, told)
        assert self.verify() == []

    def killed(self) -> dict[int, str]:
        """Let a process live until it dies; return what it said was durable."""
        told: dict[int, str] = {}
        with forked(live, self.folder, self.death) as (process, reading):
            for batch in said(reading):
                told |= batch
            process.join(PATIENCE)
            expected = {-signal.SIGKILL, 0} if self.death.how == "anytime" else {-signal.SIGKILL}
            assert process.exitcode in expected, f"{self.death} ended with {process.exitcode}"
        return told

    def verify(self) -> list[str]:
        """The whole check of the file, digests included, by one who does not own it."""
        file = LogFile(self.path)
        return [str(violation) for violation in Verification(file.read, file.path).violations()]

    async def follow(self, told: dict[int, str]) -> None:
        """The process that comes next: what was acknowledged is there, and every session goes on."""
        async with EventLog.open(self.path) as log:
            left = await log.prefix(10**6, 1 << 30)
            assert told.items() <= {stored.sequence: stored.event.id for stored in left.events}.items()
            effects = self.effects(left)
            async with (
                ScriptedProvider() as provider,
                ModelExecutor(10) as models,
                Engine(log, models, retry=QUICK) as engine,
            ):
                assert self.effects(left) == effects, "recovery ran an effect"
                await self.next_turns(Scene(provider, log, models, engine))
            self.effects(await log.prefix(10**6, 1 << 30))
            assert await log.recover() == 0

    def effects(self, prefix: facts.LogPrefix) -> Counter[str]:
        """What has happened in the world: nothing twice, and nothing that the log does not know of."""
        file = self.folder / "effects"
        happened = Counter(file.read_text().split() if file.exists() else [])
        known = [stored.event.fact for stored in prefix.events]
        dispatched = {fact.operation_id for fact in known if isinstance(fact, facts.ToolDispatched)}
        assert set(happened.values()) <= {1}
        assert happened.keys() <= dispatched
        return happened

    async def next_turns(self, it: Scene) -> None:
        """A turn of every session, all at once; one with effects of unknown outcome asks to be told of them first."""
        script_turns(it.provider, len(SESSIONS))
        tools = [registration("append", append_to(self.folder / "effects"))]
        async with trio.open_nursery() as nursery:
            for session in SESSIONS:
                try:
                    await it.log.require_safe(session)
                except ReconciliationRequired:
                    with pytest.raises(ReconciliationRequired):
                        await it.engine.run(it.input(tools=tools, session=session))
                nursery.start_soon(it.engine.run, it.input(tools=tools, session=session, allow_prior_unknown=True))


def rounds(folder: Path, some: list[Death]) -> None:
    for death in some:
        Round(folder, death).run()


def test_killed_with_several_sessions_at_work(tmp_path: Path) -> None:
    """A few deaths of each kind, spread over the run, on one log."""
    rounds(tmp_path, [Death(how, 3 + number * 4) for number, how in enumerate(get_args(How) * 2)])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_around_every_commit_and_at_any_time(tmp_path: Path, part: int) -> None:
    """More than two hundred deaths: before, during and after each commit, and at moments of chance."""
    assert len(DEATHS) >= 200
    rounds(tmp_path, DEATHS[part::PARTS])
