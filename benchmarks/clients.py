"""What our own contenders share: the provider's configuration, a tool, a log with an engine on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import attrs

from maka_trio import (
    ApiKey,
    Engine,
    EventLog,
    Invocation,
    Message,
    MessageWork,
    ModelExecutor,
    ModelRequest,
    ProviderConfig,
    ProviderKind,
    RunInput,
    ToolCatalog,
    tool,
)


@tool
async def echo(value: int) -> int:
    """Give the value back."""
    return value


@cache
def config(url: str, *, anthropic: bool = False) -> ProviderConfig:
    """The provider of the benchmark: one for all its runs, as a program would have it."""
    kind = ProviderKind.ANTHROPIC if anthropic else ProviderKind.OPENAI_CHAT_COMPLETIONS
    return ProviderConfig(kind, "bench", url, ApiKey("bench"))


def request(url: str, *, anthropic: bool = False) -> ModelRequest:
    """One short request."""
    return ModelRequest(config(url, anthropic=anthropic), [Message.user("go on")])


def run_input(url: str, session: str = "session", *, tools: bool = False) -> RunInput:
    """One run."""
    catalog = ToolCatalog([echo] if tools else [])
    return RunInput(Invocation.new(session), config(url), MessageWork("go on", catalog))


@attrs.frozen
class Setup:
    """A log, an executor and an engine."""

    log: EventLog
    models: ModelExecutor
    engine: Engine


@asynccontextmanager
async def setup(place: Path, models: ModelExecutor | None = None) -> AsyncGenerator[Setup, None]:
    """Everything durable in a folder, with the defaults that a user gets."""
    async with (
        EventLog.open(place / "log.sqlite") as log,
        models or ModelExecutor() as executor,
        Engine(log, executor) as engine,
    ):
        yield Setup(log, executor, engine)
