"""A scene for Code Mode: a scripted provider, a real log, an engine with a `CodeExecutor`, and the laws at the end."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from maka_trio import facts
from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.executor import CodeExecutor
from maka_trio.engine import Engine, MessageWork, RunInput
from maka_trio.facts.event import StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import InvocationConfiguration, ToolMode
from maka_trio.laws import check
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.request import ProviderKind
from maka_trio.testing import RecordedRequest, ScriptedProvider
from maka_trio.tools import ToolCatalog, ToolRegistration
from tests.engine.scene import QUICK


@attrs.frozen
class CodeScene:
    """What a test of Code Mode holds."""

    provider: ScriptedProvider
    log: EventLog
    engine: Engine
    executor: CodeExecutor

    def input(
        self,
        *tools: ToolRegistration,
        message: str = "question",
        session: str = "session",
        kind: ProviderKind = ProviderKind.OPENAI_CHAT_COMPLETIONS,
        max_steps: int | None = None,
        **settings: Any,
    ) -> RunInput:
        """A run in Code Mode."""
        return RunInput(
            invocation=Invocation.new(session),
            provider=self.provider.config(kind),
            work=MessageWork(message, ToolCatalog(tools), max_steps=max_steps, **settings),
            configuration=InvocationConfiguration(tool_mode=ToolMode.CODE),
        )

    def script(self, program: str, call_id: str | None = None, *, when: Any = None, **options: Any) -> None:
        """The model calls `exec`."""
        call = ("exec", {"code": program, **options})
        self.provider.call_tools(call if call_id is None else (*call, call_id), when=when)

    def wait(self, **options: Any) -> None:
        """The model calls `wait` for the program that it was told of last."""
        self.provider.call_tools(("wait", lambda request: {"cell_id": last_cell(request), **options}))

    async def events(self, session: str = "session") -> list[StoredEvent]:
        """All events of a session."""
        return list((await self.log.prefix(100_000, 1 << 28, facts.Session(session))).events)

    async def facts(self, *kinds: type, session: str = "session") -> list[Any]:
        """The facts of a session, of these kinds, observations apart."""
        wanted = kinds or (object,)
        return [
            stored.event.fact
            for stored in await self.events(session)
            if isinstance(stored.event.fact, wanted) and not isinstance(stored.event.fact, facts.ModelObserved)
        ]

    async def tale(self, session: str = "session") -> list[str]:
        """The tool facts of a session: what happened to which tool."""
        names: dict[str, str] = {}
        told = []
        for fact in await self.facts(session=session):
            match fact:
                case facts.ToolDispatched():
                    names[fact.operation_id] = fact.name
                    told.append(f"{fact.name} begins")
                case facts.ToolSettled():
                    told.append(f"{names[fact.operation_id]} {fact.outcome.kind}")
                case facts.ToolRejected():
                    told.append(f"{fact.name} rejected")
                case facts.ToolNotified():
                    told.append(f"{names[fact.operation_id]} notifies")
                case facts.ModelCompleted():
                    told.append("step")
                case facts.InvocationEnded():
                    told.append(f"end {fact.outcome.kind}")
                case _:
                    pass
        return told

    async def results(self, name: str, session: str = "session") -> list[Any]:
        """The raw results of a tool's calls, None for those that did not succeed."""
        names = {fact.operation_id: fact.name for fact in await self.facts(facts.ToolDispatched, session=session)}
        found = []
        for stored in await self.events(session):
            fact = stored.event.fact
            if isinstance(fact, facts.ToolSettled) and names[fact.operation_id] == name:
                succeeded = isinstance(fact.outcome, facts.Succeeded)
                found.append(await self.log.resolve_tool_result(session, stored.event.id) if succeeded else None)
        return found

    def answers(self, request: int = -1) -> list[Any]:
        """What a chat request told the model of its calls."""
        messages = self.provider.requests[request].body["messages"]
        return [
            json.loads(m["content"]) if m["content"][:1] in "{[" else m["content"]
            for m in messages
            if m["role"] == "tool"
        ]

    def said(self, request: int = -1) -> list[str]:
        """The roles of a chat request's messages."""
        return [message["role"] for message in self.provider.requests[request].body["messages"]]


def last_cell(request: RecordedRequest) -> str:
    """The program that the last answer of a tool in a chat request tells of."""
    messages = request.body["messages"]  # type: ignore[call-overload, index]
    told = [
        message["content"] for message in messages if message["role"] == "tool" and '"cell_id"' in message["content"]
    ]
    cell_id: str = json.loads(told[-1])["cell_id"]
    return cell_id


async def assert_lawful(log: EventLog) -> None:
    """The log keeps the nine laws."""
    prefix = await log.prefix(100_000, 1 << 28)
    assert [str(violation) for violation in check(prefix.events, digest=prefix.digest)] == []


@asynccontextmanager
async def code_scene(
    path: Path, *, executor: CodeExecutor | None = None, **limits: Any
) -> AsyncGenerator[CodeScene, None]:
    """A scene in `path`; its log is lawful in the end, and after it is opened again."""
    limits.setdefault("execution_seconds", 10.0)
    code = executor or CodeExecutor(CellLimits(**limits))
    file = path / "log.sqlite"
    async with ScriptedProvider() as provider, EventLog.open(file) as log, ModelExecutor(10.0) as models:
        async with Engine(log, models, code=code, retry=QUICK) as engine:
            yield CodeScene(provider, log, engine, code)
        await assert_lawful(log)
    async with EventLog.open(file) as log:
        assert await log.recover() == 0
        await assert_lawful(log)
