"""Cancel a run at every checkpoint: whatever the moment, the log is lawful and the next run is accepted."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio

from maka_trio import facts
from maka_trio.engine import Engine, MessageWork, RunInput
from maka_trio.errors import RunCancelled
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import InvocationConfiguration
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.request import ProviderKind
from maka_trio.testing import ScriptedProvider, Trial, explore
from maka_trio.testing.checks import Effects, lawful
from maka_trio.tools import ToolCatalog
from tests.engine.scene import QUICK, registration


class World:
    """Two model steps and three tools on an inline log and a provider in memory."""

    def __init__(self, trial: Trial, kind: ProviderKind, concurrency: int) -> None:
        self.trial = trial
        self.kind = kind
        self.concurrency = concurrency
        self.effects = Effects()

    def catalog(self) -> ToolCatalog:
        async def plain(value: Any, call: Any) -> str:
            with self.effects(call.operation_id):
                await trio.sleep(1)
                await trio.sleep(1)
            return "done"

        async def fails(value: Any, call: Any) -> str:
            with self.effects(call.operation_id):
                await trio.lowlevel.checkpoint()
            raise ValueError("no")

        async def patient(value: Any, call: Any) -> str:
            with self.effects(call.operation_id), call.abort_scope() as scope:
                await trio.sleep(1)
            return "interrupted" if scope.cancelled_caught else "slept"

        return ToolCatalog([registration(tool.__name__, tool) for tool in (plain, fails, patient)])

    def run_input(self, provider: ScriptedProvider, message: str) -> RunInput:
        return RunInput(
            Invocation.new("session"),
            provider.config(self.kind),
            MessageWork(message, self.catalog()),
            configuration=InvocationConfiguration(tool_concurrency=self.concurrency),
        )


async def story(trial: Trial, kind: ProviderKind, concurrency: int, target: str) -> None:
    world = World(trial, kind, concurrency)
    async with (
        ScriptedProvider() as provider,
        EventLog.in_memory() as log,
        ModelExecutor(30) as models,
        Engine(log, models, retry=QUICK) as engine,
    ):
        provider.fail(503, when=first_request)
        provider.call_tools(("plain", {}, "c1"), ("fails", {}, "c2"), ("patient", {}, "c3"), when=first_run)
        provider.say("all done", when=first_run)
        provider.say("next", when=second_run)
        if target == "caller":
            with trial.cancellable():
                await engine.run(world.run_input(provider, "question"))
        else:
            running = await engine.start(world.run_input(provider, "question"))
            with trial.target("run", running.cancel):
                await settle(running)
        await engine.wait_idle("session")
        for problem in [*await lawful(log), *world.effects.check()]:
            trial.violation(problem)
        await engine.run(world.run_input(provider, "again"))
        for problem in await lawful(log):
            trial.violation(problem)
        check_calls(trial, (await log.prefix(10_000, 1 << 24)).events)


async def settle(running: Any) -> None:
    with contextlib.suppress(RunCancelled):
        await running.wait()


def first_request(request: Any) -> bool:
    return bool(request.number == 1)


def second_run(request: Any) -> bool:
    return b"again" in request.raw


def first_run(request: Any) -> bool:
    return not second_run(request)


def check_calls(trial: Trial, events: tuple[facts.StoredEvent, ...]) -> None:
    """Every accepted call has one outcome, and each effect one dispatch."""
    found = [stored.event.fact for stored in events]
    calls = sum(len(fact.output.local_calls()) for fact in found if isinstance(fact, facts.ModelCompleted))
    settled = sum(isinstance(fact, (facts.ToolSettled, facts.ToolRejected)) for fact in found)
    if calls != settled:
        trial.violation(f"{calls} calls have {settled} outcomes")


@pytest.mark.parametrize("target", ["caller", "run"])
@pytest.mark.parametrize(
    ("kind", "concurrency"),
    [(ProviderKind.OPENAI_CHAT_COMPLETIONS, 1), (ProviderKind.ANTHROPIC, 3)],
    ids=["chat-sequential", "anthropic-concurrent"],
)
def test_a_cancel_at_any_checkpoint_leaves_a_lawful_log(kind: ProviderKind, concurrency: int, target: str) -> None:
    """Two steps, three tools and a retry; one run for each point of the schedule."""

    async def scenario(trial: Trial) -> None:
        await story(trial, kind, concurrency, target)

    exploration = explore(scenario)
    assert exploration.runs > 100
    exploration.raise_for_violations()
