"""Short ways to stop a run and to go on from it, for tests of continuations."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from maka_trio import facts
from maka_trio.engine import ContinuationWork, RunInput
from maka_trio.errors import StepLimit
from maka_trio.facts import Invocation, RunBoundary
from maka_trio.request import ProviderKind
from maka_trio.tools import ToolCatalog, ToolRegistration
from tests.engine.scene import Scene, echo, registration
from tests.protocol.wire_rules import check_chat, check_messages, check_responses

ECHO = registration("echo", echo)

CHECKERS = {
    ProviderKind.OPENAI_CHAT_COMPLETIONS: check_chat,
    ProviderKind.OPENAI_COMPATIBLE: check_chat,
    ProviderKind.OPENAI_RESPONSES: check_responses,
    ProviderKind.ANTHROPIC: check_messages,
}
"""For each protocol, what refuses a body that its vendors refuse."""


def go_on(
    it: Scene,
    source: RunBoundary,
    *,
    tools: list[ToolRegistration] | None = None,
    max_steps: int | None = None,
    **settings: Any,
) -> RunInput:
    """A run that continues another, with the tool `echo` unless told otherwise."""
    work = ContinuationWork(source, ToolCatalog([ECHO] if tools is None else tools), max_steps)
    return attrs.evolve(it.input(**settings), work=work)


async def end_of(it: Scene, invocation: Invocation) -> RunBoundary:
    """The boundary of a run."""
    return await it.log.boundary(invocation.session_id, invocation.run_id)


async def last_run(it: Scene, session: str = "session") -> Invocation:
    """The run that a session opened last."""
    openings = [stored for stored in await it.events(session) if isinstance(stored.event.fact, facts.InvocationOpened)]
    return openings[-1].event.invocation


async def stopped(it: Scene, message: str = "question", *, call_id: str = "c1", **settings: Any) -> RunBoundary:
    """A run that was stopped after its first step and a tool, by its limit of steps; return where it ended."""
    it.provider.call_tools(("echo", {"n": 1}, call_id))
    with pytest.raises(StepLimit):
        await it.engine.run(it.input(message, tools=[ECHO], max_steps=1, **settings))
    return await end_of(it, await last_run(it))


def messages(it: Scene, number: int = -1) -> list[Any]:
    """The messages of a chat request."""
    body: Any = it.provider.requests[number].body
    return list(body["messages"])


def roles(it: Scene, number: int = -1) -> list[str]:
    """The roles of the messages of a chat request."""
    return [message["role"] for message in messages(it, number)]


def texts(it: Scene, number: int = -1) -> list[Any]:
    """The contents of the messages of a chat request."""
    return [message["content"] for message in messages(it, number)]
