"""Our side of a conversation with a foreign server: providers of every kind, a run with a tool that adds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from maka_trio import facts, laws
from maka_trio.engine import Engine, MessageWork, RetryPolicy, RunInput
from maka_trio.facts import Invocation
from maka_trio.facts.message import Message
from maka_trio.facts.model import ModelStep
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from maka_trio.steps import StepBuilder
from maka_trio.tools import ToolCatalog, tool

KINDS = tuple(ProviderKind)
QUICK = RetryPolicy(base=0.06, longest=0.3)
"""Backoff that a test can wait for, and that a judge of clients still takes for one."""


def provider(base_url: str, kind: ProviderKind, **settings: Any) -> ProviderConfig:
    """A provider of this kind at a server of many."""
    name = "generic" if kind is ProviderKind.OPENAI_COMPATIBLE else None
    return ProviderConfig(kind, "gpt-4o-mini", base_url, ApiKey("sk-test"), name=name, **settings)


async def step_of(models: ModelExecutor, config: ProviderConfig, question: str) -> ModelStep:
    """The answer to one question."""
    builder = StepBuilder("step")
    request = ModelRequest(config, [Message.user(question)], max_output_tokens=500)
    async with models.stream(request) as stream:
        async for event in stream:
            builder.push(event)
    return builder.finish()


@attrs.define
class Adder:
    """An engine with a log and one tool, which counts what it was asked."""

    engine: Engine
    log: EventLog
    asked: list[tuple[int, int]] = attrs.field(factory=list)

    def input(self, config: ProviderConfig, question: str) -> RunInput:
        """A run in a session of its own."""

        @tool
        async def add(a: int = 0, b: int = 0) -> int:
            """Add two numbers."""
            self.asked.append((a, b))
            return a + b

        invocation = Invocation.new(facts.new_id())
        return RunInput(invocation, config, MessageWork(question, ToolCatalog([add]), max_steps=6))

    async def facts_of(self, invocation: Invocation) -> list[Any]:
        """The facts of a run's session, which are lawful, observations apart."""
        prefix = await self.log.prefix(100_000, 1 << 28, facts.Session(invocation.session_id))
        assert list(laws.check(prefix.events, scope=prefix.scope)) == []
        found = [stored.event.fact for stored in prefix.events]
        return [fact for fact in found if not isinstance(fact, facts.ModelObserved)]


@asynccontextmanager
async def adder(path: Path, *, retry: RetryPolicy = QUICK, idle_timeout: float = 10.0) -> AsyncGenerator[Adder, None]:
    """An engine in a folder."""
    async with (
        EventLog.open(path / "log.sqlite") as log,
        ModelExecutor(idle_timeout) as models,
        Engine(log, models, retry=retry) as engine,
    ):
        yield Adder(engine, log)
