"""A prefix of the log: the digest chain over it, and what its facts say of one invocation.

The chain of a scope starts from the scope itself and folds each of its events in: the digest before, the
sequence, the length, the exact bytes. Whoever has the events can compute it; whoever changes one cannot keep it.
"""

from __future__ import annotations

import hashlib
import struct

from maka_trio.errors import SessionDeleted
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import encode
from maka_trio.facts.event import (
    BodyDeleted,
    ExecutorCompleted,
    ExecutorStarted,
    InvocationEnded,
    ModelCompleted,
    ModelInterrupted,
    ModelRequested,
    StoredEvent,
    ToolDispatched,
    ToolSettled,
)
from maka_trio.facts.outcome import InvocationOutcome
from maka_trio.facts.scope import Scope
from maka_trio.records import frozen

_CHAIN_TAG = b"maka.event-chain.v1\n"
_PLACE = struct.Struct(">QQ")


def chain_start(scope: Scope) -> bytes:
    """The digest of a scope without events: 32 bytes."""
    body = encode(scope, Scope)
    return hashlib.sha256(_CHAIN_TAG + struct.pack(">Q", len(body)) + body).digest()


def chain_next(previous: bytes, sequence: int, event: bytes) -> bytes:
    """The digest after one more event, given its canonical bytes."""
    return hashlib.sha256(b"%b%b%b" % (previous, _PLACE.pack(sequence, len(event)), event)).digest()


def chain_both(one: bytes, other: bytes, sequence: int, event: bytes) -> tuple[bytes, bytes]:
    """`chain_next` of two chains that an event is part of."""
    link = _PLACE.pack(sequence, len(event)) + event
    return hashlib.sha256(one + link).digest(), hashlib.sha256(other + link).digest()


def chain_text(value: bytes) -> str:
    """A chain digest as facts print it."""
    return f"sha256:{value.hex()}"


@frozen
class InvocationProjection:
    """What a prefix says of one invocation.

    `uncertain_operations` were dispatched and not settled, sorted. With a terminal present they stay uncertain for
    ever; without one the run may still be draining.
    """

    terminal: InvocationOutcome | None
    uncertain_operations: tuple[str, ...]
    unfinished_model_steps: tuple[str, ...]
    unfinished_executor: bool = False


@frozen
class LogPrefix:
    """All events of a scope up to `high_water`, the last sequence in scope (0 when there is none).

    Appends outside the scope move neither its high water nor its digest.
    """

    scope: Scope
    high_water: int
    digest: str
    events: tuple[StoredEvent, ...]

    def project_invocation(self, invocation_id: str) -> InvocationProjection:
        """Fold the facts of one invocation.

        Raises:
            SessionDeleted: their bodies were deleted, so nobody can say how it ended.
        """
        terminal: InvocationOutcome | None = None
        operations: set[str] = set()
        steps: dict[str, None] = {}
        executor = False
        for stored in self.events:
            if stored.event.invocation.invocation_id != invocation_id:
                continue
            match stored.event.fact:
                case ToolDispatched(operation_id=operation_id):
                    operations.add(operation_id)
                case ToolSettled(operation_id=operation_id):
                    operations.discard(operation_id)
                case ModelRequested(step_id=step_id):
                    steps[step_id] = None
                case ModelCompleted(step_id=step_id) | ModelInterrupted(step_id=step_id):
                    steps.pop(step_id, None)
                case ExecutorStarted():
                    executor = True
                case ExecutorCompleted():
                    executor = False
                case InvocationEnded(outcome=outcome):
                    terminal = outcome
                case BodyDeleted():
                    session_id = stored.event.invocation.session_id
                    words = f"invocation {excerpt(invocation_id)} is of a session whose bodies were deleted"
                    raise SessionDeleted(words, session_id=session_id)
        return InvocationProjection(terminal, tuple(sorted(operations)), tuple(steps), executor)
