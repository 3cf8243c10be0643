"""A scene for engine tests: a scripted provider, a real log, an engine, and short ways to say what a test needs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from maka_trio import facts
from maka_trio.engine import Engine, MessageWork, RetryPolicy, RunInput
from maka_trio.facts.event import StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import InvocationConfiguration, ToolDefinition
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.request import ProviderKind
from maka_trio.testing import ScriptedProvider
from maka_trio.tools import ToolCall, ToolCatalog, ToolRegistration

Handler = Callable[[Any, ToolCall], Awaitable[Any]]

QUICK = RetryPolicy(base=0.001, longest=0.002)
"""Backoff that a test can wait for."""


def registration(name: str, handler: Handler, **settings: Any) -> ToolRegistration:
    """A tool that takes any object."""
    definition = ToolDefinition(name, f"the tool {name}", settings.pop("schema", {"type": "object"}))
    return ToolRegistration(definition, handler, **settings)


async def echo(value: Any, call: ToolCall) -> Any:
    """Return the input."""
    return value


@attrs.frozen
class Scene:
    """What a test of the engine holds."""

    provider: ScriptedProvider
    log: EventLog
    models: ModelExecutor
    engine: Engine

    def input(
        self,
        message: Any = "question",
        *,
        tools: list[ToolRegistration] | None = None,
        session: str = "session",
        kind: ProviderKind = ProviderKind.OPENAI_CHAT_COMPLETIONS,
        max_steps: int | None = None,
        allow_prior_unknown: bool = False,
        **settings: Any,
    ) -> RunInput:
        """A run of the session, with fresh ids."""
        configuration = {
            name: settings.pop(name) for name in ("system_prompt", "tool_concurrency", "cwd") if name in settings
        }
        return RunInput(
            invocation=settings.pop("invocation", None) or Invocation.new(session),
            provider=settings.pop("provider", None) or self.provider.config(kind),
            work=MessageWork(
                message, ToolCatalog(tools or []), max_steps=max_steps, allow_prior_unknown=allow_prior_unknown
            ),
            configuration=InvocationConfiguration(**configuration),
            **settings,
        )

    async def events(self, session: str = "session") -> list[StoredEvent]:
        """All events of a session."""
        return list((await self.log.prefix(100_000, 1 << 28, facts.Session(session))).events)

    async def facts(self, session: str = "session", *, observed: bool = False) -> list[Any]:
        """The facts of a session, observations apart unless asked for."""
        return [
            stored.event.fact
            for stored in await self.events(session)
            if observed or not isinstance(stored.event.fact, facts.ModelObserved)
        ]

    async def story(self, session: str = "session") -> str:
        """The kinds of a session's facts, observations apart."""
        return " ".join(fact.kind for fact in await self.facts(session))


@asynccontextmanager
async def scene(path: Path, *, idle_timeout: float = 10.0, retry: RetryPolicy = QUICK) -> AsyncGenerator[Scene, None]:
    """A provider, a log in `path`, and an engine."""
    async with (
        ScriptedProvider() as provider,
        EventLog.open(path / "log.sqlite") as log,
        ModelExecutor(idle_timeout) as models,
        Engine(log, models, retry=retry) as engine,
    ):
        yield Scene(provider, log, models, engine)
