"""Two sessions told in turns, of which one is to be deleted; and what a log and its files say afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from maka_trio.cli.log_file import LogFile
from maka_trio.errors import AdapterError, ToolFailed
from maka_trio.facts import (
    BodyDeleted,
    EffectFailed,
    Fact,
    Failed,
    FailureClass,
    FinishReason,
    InterruptionStatus,
    Invocation,
    InvocationEnded,
    MessageInput,
    MessageOpening,
    MessageSteered,
    ModelCompleted,
    ModelInterrupted,
    ModelStep,
    ModelUsage,
    PartDelta,
    StoredEvent,
    ToolCallPart,
    ToolSettled,
)
from maka_trio.facts.message import MediaContent, TextContent, UserMessage
from maka_trio.facts.prefix import LogPrefix
from maka_trio.laws import Violation
from maka_trio.log import EventLog
from maka_trio.log.store import Store
from maka_trio.log.verification import Verification
from maka_trio.tools import ToolCall
from tests.engine.scene import Scene, echo, registration, scene
from tests.log.log_story import call, dispatched, event, observed, opened, picture, put, requested, success, tell

SECRET = "PEACOCK"
"""In everything that is said and done in the session that goes."""

GONE, STAYS = "gone", "stays"
USAGE = ModelUsage(input_tokens=70, output_tokens=9)


def turn(store: Store, session: str, number: int, *, deltas: int = 5, result: int = 100) -> None:
    """A run with a message, streamed text, a call with a picture, a failed call, a message in between, an error."""
    word = SECRET if session == GONE else "sparrow"
    step, invocation = f"{session}-{number}", Invocation.new(session)
    message = MessageOpening(MessageInput(f"{word} asks {number}"), source_messages=(f"m-{session}-{number}",))
    calls = (call("c1", x=f"{word} in"), call("c2", x="y"))
    output = ModelStep(tuple(ToolCallPart(one) for one in calls), FinishReason.TOOL_CALLS, USAGE, model="bird-1")
    put(store, event(invocation, opened(message)))
    streamed = [observed(step, PartDelta("p", f"{word} says {piece}")) for piece in range(deltas)]
    asked: list[Fact] = [dispatched(step, "c1", x=f"{word} in"), dispatched(step, "c2", x="y")]
    tell(store, invocation, requested(step), *streamed, ModelCompleted(step, output), *asked)
    media = (picture(f"a-{session}-{number}", word.encode() * 20),)
    put(store, success(invocation, f"{word} out" + "." * result, f"{step}:c1", media))
    tell(store, invocation, ToolSettled(f"{step}:c2", EffectFailed(f"{word} breaks")))
    tell(store, invocation, MessageSteered(MessageInput(f"{word} adds"), f"m-{session}-{number}-b"))
    tell(store, invocation, requested(f"{step}-b"))
    tell(store, invocation, ModelInterrupted(f"{step}-b", InterruptionStatus.FAILED, f"{word} faults"))
    tell(store, invocation, InvocationEnded(Failed(FailureClass.MODEL_PROVIDER, f"{word} fails")))


TURN_EVENTS = 16
"""Events of one such run."""


def write_log(path: Path, turns: int = 6, *, result: int = 100) -> None:
    """A log of both sessions, of which one is retired."""
    store = Store.open(path)
    for number in range(turns):
        for session in (GONE, STAYS):
            turn(store, session, number, result=result)
    store.retire(GONE)
    store.close()


def traces(path: Path, word: str = SECRET) -> int:
    """How often a word stands in the log's files."""
    return sum(file.read_bytes().count(word.encode()) for file in path.parent.glob(f"{path.name}*"))


def violations(path: Path, session_id: str | None = None) -> list[Violation]:
    log = LogFile(path)
    return list(Verification(log.read, log.path, session_id).violations())


def envelope(stored: StoredEvent) -> tuple[object, ...]:
    """What of an event its deletion does not touch."""
    one = stored.event
    return stored.sequence, one.id, one.recorded_at, one.invocation, getattr(one.fact, "of_kind", one.fact.kind)


# --- the same by an engine ----------------------------------------------------------------------------------


TURNS = 3
"""Runs of each session in the log of the fixture `two_sessions`; the one that goes has one more, which failed."""


async def breaks(value: Any, tool_call: ToolCall) -> Any:
    raise ToolFailed(f"{value['word']} breaks")


async def run_turn(it: Scene, session: str) -> None:
    """A run with a picture, a call that succeeds, one that fails and one that is refused."""
    word = SECRET if session == GONE else "sparrow"
    it.provider.call_tools(("echo", {"word": word}), ("breaks", {"word": word}), ("nothing", {"word": word}))
    it.provider.say(f"the {word} says")
    tools = [registration("echo", echo), registration("breaks", breaks)]
    picture = MediaContent("image/png", b"\x89PNG\r\n\x1a\n" + word.encode())
    question = UserMessage((TextContent(f"what does the {word} say?"), picture))
    await it.engine.run(it.input(question, tools=tools, session=session, system_prompt=f"be like a {word}"))


async def run_turns(folder: Path) -> None:
    """A lawful log of both sessions, of which one is retired, in `log.sqlite`."""
    async with scene(folder) as it:
        for _ in range(TURNS):
            for session in (GONE, STAYS):
                await run_turn(it, session)
        it.provider.fail(400, "invalid_request_error", f"no {SECRET} here")
        with suppress(AdapterError):
            await it.engine.run(it.input(SECRET, session=GONE))
        await it.log.retire(GONE)


# --- what a log says ----------------------------------------------------------------------------------------


async def whole(log: EventLog) -> LogPrefix:
    return await log.prefix(10_000, 10**9)


def stubs(events: Iterable[StoredEvent]) -> list[BodyDeleted]:
    return [one.event.fact for one in events if isinstance(one.event.fact, BodyDeleted)]


async def bodies(log: EventLog, session: str = GONE) -> str:
    """What the log says of a session's bodies."""
    return next(one.bodies for one in await log.sessions() if one.session_id == session)


async def length_of(log: EventLog, session: str) -> int:
    return next(one.events for one in await log.sessions() if one.session_id == session)
