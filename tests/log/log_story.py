"""Facts of small invocations, and the events and stores that tests tell them to."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from maka_trio.facts import (
    Artifact,
    ArtifactRef,
    Cancelled,
    CodeCell,
    CodeMode,
    CodeOpening,
    Completed,
    ContextCompactOpening,
    EffectFailed,
    EventWrite,
    ExecutorStarted,
    Fact,
    Failed,
    FailureClass,
    Finished,
    FinishReason,
    HostSdk,
    InterruptionStatus,
    Invocation,
    InvocationEnded,
    InvocationOpened,
    JsonOutput,
    MessageInput,
    MessageOpening,
    MessageSteered,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    ModelStep,
    ModelToolCall,
    PartDelta,
    RawResult,
    Root,
    RuntimeEvent,
    StepPurpose,
    Succeeded,
    TextKind,
    TextPart,
    ToolCallIdentity,
    ToolCallPart,
    ToolCallReady,
    ToolDispatched,
    ToolRejected,
    ToolRejection,
    ToolResultPart,
    ToolSettled,
)
from maka_trio.facts.codec import canonical, digest
from maka_trio.facts.message import MediaContent
from maka_trio.log.lease import lock_path
from maka_trio.log.prepared import prepare
from maka_trio.log.reader import Reader
from maka_trio.log.store import Store

DIGEST = "sha256:" + "0" * 64
MESSAGE = MessageOpening(MessageInput("hello"))
COMPACTION = ContextCompactOpening("fingerprint")
PROGRAM = CodeOpening("1 + 1")

COMPLETED = InvocationEnded(Completed())
CANCELLED = InvocationEnded(Cancelled())
FAILED = InvocationEnded(Failed(FailureClass.MODEL_PROVIDER))
UNKNOWN = InvocationEnded(Failed(FailureClass.OUTCOME_UNKNOWN))


# --- facts ------------------------------------------------------------------------------------------------


def opened(input: Any = MESSAGE) -> InvocationOpened:  # noqa: A002 - the field's own name
    return InvocationOpened(input)


def requested(step: str = "s1", purpose: StepPurpose = StepPurpose.MAIN) -> ModelRequested:
    return ModelRequested(step, "model", Root(), 0, DIGEST, DIGEST, DIGEST, purpose)


def observed(step: str = "s1", event: Any = None) -> ModelObserved:
    return ModelObserved(step, PartDelta("p", "text") if event is None else event)


def call(call_id: str = "c1", name: str = "put", *, remote: bool = False, **arguments: Any) -> ModelToolCall:
    return ModelToolCall(call_id, name, arguments, provider_executed=remote)


def completed(step: str = "s1", *calls: ModelToolCall, answered: Iterable[ModelToolCall] = ()) -> ModelCompleted:
    parts = [ToolCallPart(one) for one in calls] or [TextPart(TextKind.TEXT, "done")]
    results = [ToolResultPart(one.id, one.name, "result") for one in answered]
    reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    return ModelCompleted(step, ModelStep((*parts, *results), reason))


def interrupted(step: str = "s1", status: InterruptionStatus = InterruptionStatus.FAILED) -> ModelInterrupted:
    return ModelInterrupted(step, status)


def finish() -> Finished:
    return Finished(FinishReason.STOP)


def dispatched(step: str = "s1", call_id: str = "c1", name: str = "put", **arguments: Any) -> ToolDispatched:
    return ToolDispatched(f"{step}:{call_id}", ToolCallIdentity.provider(step, call_id), name, arguments)


def rejected(step: str = "s1", call_id: str = "c1", name: str = "put", **arguments: Any) -> ToolRejected:
    identity = ToolCallIdentity.provider(step, call_id)
    return ToolRejected(f"{step}:{call_id}", identity, name, arguments, ToolRejection.cancelled())


def settled(operation: str = "s1:c1") -> ToolSettled:
    return ToolSettled(operation, EffectFailed("no"))


def child(
    kind: Any, operation: str = "op1", call_id: str = "k1", parent: str | None = "s1:c1", parent_call: str = "c1"
) -> ToolDispatched:
    """A dispatch with a parent: `kind` is CodeMode, CodeCell or HostSdk."""
    origin = HostSdk("package", "entry", "now", parent) if kind is HostSdk else kind(parent, parent_call)
    return ToolDispatched(operation, ToolCallIdentity(call_id, origin), "put", {})


def steered(message_id: str = "m1") -> MessageSteered:
    return MessageSteered(MessageInput("and this"), message_id)


def running_call(*more: Fact) -> list[Fact]:
    """An invocation whose call `s1:c1` is dispatched."""
    return [opened(), requested(), completed("s1", call()), dispatched(), *more]


def running_cell(*more: Fact) -> list[Fact]:
    """The same with a live code cell `cell` under the call."""
    return running_call(child(CodeCell, "cell", "k0"), *more)


def nested_call(*more: Fact) -> list[Fact]:
    """The same with a program's call `op1` under the cell."""
    return running_cell(child(CodeMode, "op1", "k1", "cell", "k0"), *more)


UNFINISHED: dict[str, list[Fact]] = {
    "only opened": [opened()],
    "a step in flight": [opened(), requested(), observed()],
    "between steps": [opened(), requested(), completed()],
    "during a backoff": [opened(), requested(), interrupted()],
    "accepted calls": [opened(), requested(), completed("s1", call("c1", n=1), call("c2"))],
    "a running call and one behind it": [opened(), requested(), completed("s1", call("c1"), call("c2")), dispatched()],
    "a settled call": running_call(settled()),
    "nested calls": nested_call(),
    "a foreign agent": [opened(), ExecutorStarted({})],
    "an answered call and a step": running_call(settled(), requested("s2")),
    "a remote call in flight": [opened(), requested(), observed("s1", ToolCallReady(call("r1", remote=True)))],
}
"""What a process may leave of an invocation when it dies."""


# --- events -----------------------------------------------------------------------------------------------


def event(invocation: Invocation, fact: Fact) -> RuntimeEvent:
    return RuntimeEvent.new(invocation, fact)


def success(
    invocation: Invocation, value: Any = "result", operation: str = "s1:c1", media: tuple[Artifact, ...] = ()
) -> EventWrite:
    """A succeeded settlement with its raw result."""
    payload = canonical(value)
    refs = tuple(artifact.ref for artifact in media)
    outcome = Succeeded(RawResult(len(payload), digest(payload)), JsonOutput(value), refs)
    return EventWrite(event(invocation, ToolSettled(operation, outcome)), payload, media)


def picture(artifact_id: str = "a1", data: bytes = b"\x89PNG") -> Artifact:
    return Artifact(ArtifactRef(artifact_id, "image/png", len(data), digest(data)), data)


def shown(invocation: Invocation, *media: Artifact) -> EventWrite:
    """An opening whose message names these media, and brings them."""
    parts = tuple(MediaContent(one.ref.media_type, artifact=one.ref.id, digest=one.ref.digest) for one in media)
    fact = opened(MessageOpening(MessageInput("see", parts=parts)))
    return EventWrite(event(invocation, fact), artifacts=media)


# --- stores -----------------------------------------------------------------------------------------------


def put(store: Store, *items: RuntimeEvent | EventWrite) -> list[int]:
    """Append a batch."""
    return store.append([prepare(item) for item in items])


def put_new(store: Store, *items: RuntimeEvent | EventWrite) -> list[int]:
    """Append a batch; return the sequences of what the log did not have yet."""
    commit = store.write([[prepare(item) for item in items]])
    return [first + number for first, writes in commit.added for number in range(len(writes))]


def tell(store: Store, invocation: Invocation, *facts: Fact) -> list[RuntimeEvent]:
    """Append facts as one batch; return their events."""
    told = [event(invocation, fact) for fact in facts]
    put(store, *told)
    return told


def reader(store: Store) -> Reader:
    return Reader(store.connection)


def count(connection: sqlite3.Connection, table: str) -> int:
    (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(rows)


def copied(log: Path, path: Path) -> Path:
    """A copy of a log that nobody has open, with its lock file."""
    shutil.copy(log, path)
    shutil.copy(lock_path(log), lock_path(path))
    return path
