"""Agents to be explored: a whole engine on a log in memory and a provider on a network in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from maka_trio.engine import Engine, MessageWork, RunInput
from maka_trio.errors import MakaError
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import InvocationConfiguration, ToolDefinition
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.testing import Effects, RecordedRequest, ScriptedProvider, Trial, fallible, lawful
from maka_trio.tools import ToolCall, ToolCatalog, ToolRegistration

SLOW, FAILING, ABORTABLE = "slow", "failing", "abortable"


def turn_of(request: RecordedRequest) -> int:
    """How many answers of tools the last turn of a request has."""
    messages = request.body["messages"]  # type: ignore[call-overload, index]
    asked = max(index for index, message in enumerate(messages) if message["role"] == "user")
    return sum(message["role"] == "tool" for message in messages[asked:])


def check_wire(trial: Trial, request: RecordedRequest) -> None:
    """Every call is answered once, in call order, right after it: what strict providers insist on."""
    messages = list(request.body["messages"])  # type: ignore[call-overload, index]
    while messages:
        message = messages.pop(0)
        for call in message.get("tool_calls") or ():
            answer = messages.pop(0) if messages else {}
            if answer.get("tool_call_id") != call["id"]:
                trial.violation(f"request {request.number}: call {call['id']} is followed by {answer.get('role')}")
        if message["role"] == "tool":
            trial.violation(f"request {request.number}: an answer to nothing")


@attrs.frozen
class Workshop:
    """All but the engine: three tools, of which one takes long, one fails, and one lets itself be interrupted."""

    trial: Trial
    log: EventLog
    provider: ScriptedProvider
    models: ModelExecutor
    effects: Effects
    tools: ToolCatalog

    def script_turns(self, count: int, **settings: Any) -> None:
        """Each turn: three calls in one step, then an answer. More of them than are asked for do no harm."""
        calls = ((SLOW, {}), (FAILING, {}), (ABORTABLE, {}))
        for _ in range(count):
            self.provider.call_tools(*calls, when=lambda request: turn_of(request) == 0, **settings)
            self.provider.say("do", "ne", when=lambda request: turn_of(request) > 0, **settings)

    def input(self, **settings: Any) -> RunInput:
        """A turn of the one session."""
        work = MessageWork("go", self.tools, allow_prior_unknown=settings.pop("allow_prior_unknown", False))
        return RunInput(
            Invocation.new("session"), self.provider.config(), work, configuration=InvocationConfiguration(**settings)
        )

    async def goes_on(self, **settings: Any) -> None:
        """The next engine of the same log takes the session's next turn, and everything before it is lawful."""
        self.provider.say("well", chunk="packed", when=lambda request: b"last turn" in request.raw)
        work = MessageWork("last turn", **settings)
        async with Engine(self.log, self.models) as engine:
            await engine.run(RunInput(Invocation.new("session"), self.provider.config(), work))
        await self.judge()

    async def judge(self) -> None:
        """The laws, the effects, and every request as a strict provider sees it."""
        for violation in await lawful(self.log):
            self.trial.violation(violation)
        for request in self.provider.requests:
            check_wire(self.trial, request)

    @asynccontextmanager
    async def engine(self, **settings: Any) -> AsyncGenerator[Agent, None]:
        """An engine that lives as long as the block."""
        async with Engine(self.log, self.models, **settings) as engine:
            yield Agent(self.trial, self.log, self.provider, self.models, self.effects, self.tools, engine)


@attrs.frozen
class Agent(Workshop):
    """A workshop with its engine running."""

    running: Engine

    async def turn(self, **settings: Any) -> None:
        """One turn, whose failure is looked at by nobody."""
        try:
            await self.running.run(self.input(**settings))
        except MakaError:
            if not self.trial.shot:
                raise

    async def next_turn_is_accepted(self, **settings: Any) -> None:
        """What must always be possible, after anything that was only cancelled."""
        await self.running.wait_idle("session")
        await self.running.run(self.input(**settings))


def tools(trial: Trial, effects: Effects) -> ToolCatalog:
    """The three tools. Each return of one that returns is a fault point."""

    async def slow(_: Any, call: ToolCall) -> Any:
        with effects(call.operation_id):
            await trio.sleep(0.05)
        return {"slept": True}

    async def failing(_: Any, call: ToolCall) -> Any:
        with effects(call.operation_id):
            await trio.lowlevel.checkpoint()
        raise LookupError("nothing there")

    async def abortable(_: Any, call: ToolCall) -> Any:
        with effects(call.operation_id):
            with call.abort_scope() as scope:
                await trio.sleep(0.05)
            return {"interrupted": scope.cancelled_caught}

    handlers = {SLOW: slow, FAILING: failing, ABORTABLE: abortable}
    made = [ToolRegistration(ToolDefinition(name, name, {"type": "object"}), run) for name, run in handlers.items()]
    return fallible(trial, ToolCatalog(made))


@asynccontextmanager
async def workshop(trial: Trial, log: EventLog | None = None) -> AsyncGenerator[Workshop, None]:
    """A workshop that lives as long as the block."""
    effects = vars(trial.world).setdefault("effects", Effects())
    trial.check(lambda: [words for words in effects.check() if "twice" in words or log is None])
    async with ScriptedProvider() as provider, ModelExecutor(30) as models, _log_or_new(log) as used:
        yield Workshop(trial, used, provider, models, effects, tools(trial, effects))


@asynccontextmanager
async def agent(trial: Trial, log: EventLog | None = None, **engine: Any) -> AsyncGenerator[Agent, None]:
    """The same with its engine."""
    async with workshop(trial, log) as it, it.engine(**engine) as running:
        yield running


@asynccontextmanager
async def _log_or_new(log: EventLog | None) -> AsyncGenerator[EventLog, None]:
    if log is not None:
        yield log
        return
    async with EventLog.in_memory() as new:
        yield new
