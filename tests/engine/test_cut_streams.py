"""No tool is ever dispatched from an answer that did not end properly.

Every recorded stream with a tool call is cut at every event boundary and at random bytes, in order and by force, and
each cut is the whole answer to a run of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio import facts
from maka_trio.engine import Engine, MessageWork, RetryPolicy, RunInput
from maka_trio.errors import MakaError
from maka_trio.facts.identity import Invocation
from maka_trio.log import EventLog
from maka_trio.models import ModelExecutor
from maka_trio.request import ProviderKind
from maka_trio.testing import Disconnect, Reset, ScriptedProvider
from maka_trio.tools import ToolCatalog

CORPUS = Path(os.environ.get("MAKA_TRIO_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
KINDS = {
    "openai_chat": ProviderKind.OPENAI_CHAT_COMPLETIONS,
    "openai_compatible": ProviderKind.OPENAI_COMPATIBLE,
    "openai_responses": ProviderKind.OPENAI_RESPONSES,
    "anthropic": ProviderKind.ANTHROPIC,
}
RANDOM_CUTS = 8


def with_tool_calls(folder: str) -> list[Path]:
    """The recordings of a protocol in which a tool of ours is called."""
    found = []
    for stream in sorted((CORPUS / "streams" / folder).glob("*.sse")):
        expected = (CORPUS / "expected" / folder / stream.name).with_suffix(".json")
        if json.loads(expected.read_text())["tool_calls"]:
            found.append(stream)
    return found


STREAMS = [stream for folder in KINDS for stream in with_tool_calls(folder)]


def boundaries(body: bytes) -> list[int]:
    """The places between two events, the start included and the end left out."""
    places, at = [0], 0
    while True:
        ends = [(body.find(end, at), len(end)) for end in (b"\n\n", b"\r\n\r\n", b"\r\r")]
        found = min(((place + length) for place, length in ends if place >= 0), default=len(body))
        if found >= len(body):
            return places
        places.append(at := found)


def ended(folder: str, body: bytes) -> bool:
    """Whether the provider said, in whole events, that its answer is over."""
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        name, _, data = line.partition(b":")
        if name != b"data":
            continue
        try:
            event = json.loads(data)
        except ValueError:
            continue
        if isinstance(event, dict) and _ends(folder, event):
            return True
    return False


def _ends(folder: str, event: dict[str, Any]) -> bool:
    if folder == "anthropic":
        return event.get("type") == "message_stop"
    if folder == "openai_responses":
        return event.get("type") in ("response.completed", "response.incomplete")
    return any(choice.get("finish_reason") for choice in event.get("choices") or ())


class Counter:
    """Runs an answer and counts what was dispatched."""

    def __init__(self, provider: ScriptedProvider, log: EventLog, engine: Engine, folder: str) -> None:
        self.provider = provider
        self.log = log
        self.engine = engine
        self.folder = folder
        self.sessions = 0

    async def dispatches(self, body: bytes, *stop: object) -> int:
        """Tool facts of a run whose model says exactly this."""
        self.sessions += 1
        session = f"session {self.sessions}"
        self.provider.raw_sse(body, *stop)
        config = self.provider.config(KINDS[self.folder])
        work = MessageWork("x", ToolCatalog([]), max_steps=1)
        with contextlib.suppress(MakaError):
            await self.engine.run(RunInput(Invocation.new(session), config, work))
        prefix = await self.log.prefix(100_000, 1 << 28, facts.Session(session))
        return sum(
            isinstance(stored.event.fact, (facts.ToolDispatched, facts.ToolRejected)) for stored in prefix.events
        )


async def check(stream: Path, cuts: list[int]) -> None:
    body, folder = stream.read_bytes(), stream.parent.name
    async with (
        ScriptedProvider() as provider,
        EventLog.in_memory() as log,
        ModelExecutor(20) as models,
        Engine(log, models, retry=RetryPolicy(retries=0)) as engine,
    ):
        counter = Counter(provider, log, engine, folder)
        with trio.fail_after(240):
            for number, cut in enumerate(cuts):
                part = body[:cut]
                if ended(folder, part):
                    continue
                stop = ((), (Disconnect(),), (Reset(),))[number % 3]
                assert await counter.dispatches(part, *stop) == 0, f"{stream.name} cut at {cut}"


def some(cuts: list[int], count: int) -> list[int]:
    """At most so many of them, the last ones always: there a call is complete and its answer is not."""
    return cuts if len(cuts) <= count else sorted({*random.Random(1).sample(cuts, count), *cuts[-4:]})


@pytest.mark.parametrize("stream", STREAMS[::6], ids=lambda stream: f"{stream.parent.name}-{stream.stem[:3]}")
async def test_a_cut_answer_never_reaches_a_tool(stream: Path) -> None:
    """A sample of the recordings, at some of their places."""
    await check(stream, some(boundaries(stream.read_bytes()), 8))


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: f"{stream.parent.name}-{stream.stem[:3]}")
async def test_no_cut_of_any_recorded_answer_reaches_a_tool(stream: Path) -> None:
    """All of them, at every event boundary and at random bytes."""
    body = stream.read_bytes()
    random_cuts = [random.Random(stream.name).randrange(len(body)) for _ in range(RANDOM_CUTS)]
    await check(stream, [*some(boundaries(body), 120), *random_cuts])
