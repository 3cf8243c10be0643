"""A continuation cancelled at every checkpoint, and crashed and failed at every commit of it and of its source."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio

from maka_trio.engine import ContinuationWork, Engine, MessageWork, RunInput
from maka_trio.errors import InvalidInput, MakaError, ReconciliationRequired, StepLimit
from maka_trio.facts import Invocation, InvocationOpened, RunBoundary
from maka_trio.facts.opening import ContinuationOpening
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.request import ProviderKind
from maka_trio.testing import (
    Effects,
    ScriptedProvider,
    Trial,
    crash_everywhere,
    explore,
    fault_everywhere,
    lawful,
)
from maka_trio.tools import ToolCatalog
from tests.engine.going_on import CHECKERS
from tests.engine.scene import QUICK, registration

KIND = ProviderKind.ANTHROPIC


class World:
    """A provider in memory, an engine on a log, and two tools whose effects are counted."""

    def __init__(self, trial: Trial, log: EventLog, provider: ScriptedProvider, engine: Engine) -> None:
        self.trial = trial
        self.log = log
        self.provider = provider
        self.engine = engine
        self.effects: Effects = vars(trial.world).setdefault("effects", Effects())

    @property
    def tools(self) -> ToolCatalog:
        async def slow(value: Any, call: Any) -> str:
            with self.effects(call.operation_id):
                await trio.sleep(1)
            return "done"

        async def patient(value: Any, call: Any) -> str:
            with self.effects(call.operation_id), call.abort_scope() as scope:
                await trio.sleep(1)
            return "interrupted" if scope.cancelled_caught else "slept"

        return ToolCatalog([registration(tool.__name__, tool) for tool in (slow, patient)])

    def message(self, text: str, **settings: Any) -> RunInput:
        work = MessageWork(text, self.tools, **settings)
        return RunInput(Invocation.new("session"), self.provider.config(KIND), work)

    def continuation(self, source: RunBoundary) -> RunInput:
        work = ContinuationWork(source, self.tools)
        return RunInput(Invocation.new("session"), self.provider.config(KIND), work)

    async def last_run(self) -> Invocation | None:
        """The run that the session opened last."""
        events = (await self.log.prefix(10_000, 1 << 24)).events
        opened = [stored.event for stored in events if isinstance(stored.event.fact, InvocationOpened)]
        return opened[-1].invocation if opened else None

    async def stop_a_run(self) -> RunBoundary:
        """A run that makes one step, with both tools."""
        self.provider.call_tools(("slow", {}, "c1"), ("patient", {}, "c2"), when=is_at(1))
        with contextlib.suppress(StepLimit):
            await self.engine.run(self.message("question", max_steps=1))
        last = await self.last_run()
        assert last is not None
        return await self.log.boundary("session", last.run_id)

    def script_continuation(self) -> None:
        """One more step with both tools, and the answer."""
        self.provider.fail(503, when=lambda request: request.number == 2)
        self.provider.call_tools(("slow", {}, "c1"), ("patient", {}, "c2"), when=is_at(3))
        self.provider.say("the ", "answer", when=is_at(5))

    async def goes_on(self) -> None:
        """Whatever was left can be gone on from, or was answered; then the session takes its next message."""
        self.provider.call_tools(("slow", {}, "c1"), when=is_at(3))
        for length in (1, 5, 7, 9):
            self.provider.say("the answer", when=is_at(length))
        self.provider.say("bye", when=lambda request: b"good night" in request.raw)
        unknown = await self.continue_the_last()
        await self.engine.run(self.message("good night", allow_prior_unknown=unknown))
        await self.judge()

    async def continue_the_last(self) -> bool:
        """Go on from the last run if there is something left to do; whether an unknown effect forbids it."""
        last = await self.last_run()
        if last is None:
            return False
        try:
            await self.engine.run(self.continuation(await self.log.boundary("session", last.run_id)))
        except InvalidInput as error:
            if "nothing left to answer" not in str(error):
                raise
        except ReconciliationRequired:
            return True
        return False

    async def judge(self) -> None:
        """The laws, one continuation a run, and every request as its vendor sees it."""
        for problem in await lawful(self.log):
            self.trial.violation(problem)
        events = (await self.log.prefix(10_000, 1 << 24)).events
        sources = [
            stored.event.fact.input.claim.source
            for stored in events
            if isinstance(stored.event.fact, InvocationOpened)
            and isinstance(stored.event.fact.input, ContinuationOpening)
        ]
        if len(set(sources)) != len(sources):
            self.trial.violation("a run was continued twice")
        for request in self.provider.requests:
            try:
                CHECKERS[KIND](request.raw)
            except AssertionError as error:
                self.trial.violation(f"request {request.number}: {error}")


def is_at(length: int) -> Any:
    """Whether a request has so many messages."""

    def check(request: Any) -> bool:
        return len(request.body["messages"]) == length and b"good night" not in request.raw

    return check


@contextlib.asynccontextmanager
async def world(trial: Trial, log: EventLog) -> Any:
    async with ScriptedProvider() as provider, ModelExecutor(30) as models, Engine(log, models, retry=QUICK) as engine:
        it = World(trial, log, provider, engine)
        trial.check(lambda: [words for words in it.effects.check() if "twice" in words])
        yield it


@pytest.mark.parametrize("target", ["caller", "run"])
def test_a_continuation_is_cancelled_at_any_checkpoint(target: str) -> None:
    """Afterwards it is continued itself, or another is, and the session takes its next message."""

    async def scenario(trial: Trial) -> None:
        async with EventLog.in_memory() as log, world(trial, log) as it:
            source = await it.stop_a_run()
            it.script_continuation()
            if target == "caller":
                with trial.cancellable():
                    await it.engine.run(it.continuation(source))
            else:
                running = await it.engine.start(it.continuation(source))
                with trial.target("run", running.cancel), contextlib.suppress(MakaError):
                    await running.wait()
            await it.engine.wait_idle("session")
            await it.judge()
            await it.goes_on()

    exploration = explore(scenario)
    assert exploration.runs > 50
    exploration.raise_for_violations()


async def one_continuation(trial: Trial, log: EventLog) -> None:
    """A stopped run and its continuation; a commit that fails may end either."""
    async with world(trial, log) as it:
        it.script_continuation()
        with contextlib.suppress(MakaError):
            await it.engine.run(it.continuation(await it.stop_a_run()))


async def the_next(trial: Trial, log: EventLog) -> None:
    """The next process goes on from whatever there is."""
    async with world(trial, log) as it:
        await it.goes_on()


def test_a_process_dies_at_any_commit_of_a_continuation() -> None:
    """Before and after it; the next process recovers, continues what was left, and never a run twice."""
    exploration = crash_everywhere(one_continuation, the_next)
    assert exploration.runs > 20
    exploration.raise_for_violations()


def test_any_commit_of_a_continuation_fails() -> None:
    """Refused, unanswered or with a full disk."""
    exploration = fault_everywhere(one_continuation, the_next, without=("connect", "read", "write", "raise"))
    assert exploration.runs > 20
    exploration.raise_for_violations()


@pytest.mark.slow
def test_a_process_is_killed_at_commits_of_a_continuation() -> None:
    """The same with real processes and a real file, at commits all over it."""
    exploration = crash_everywhere(one_continuation, the_next, kill=True, points=8)
    assert exploration.runs > 8
    exploration.raise_for_violations()
