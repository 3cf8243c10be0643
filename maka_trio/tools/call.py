"""What a running tool is given of its call: who it is for, and how it learns that the run was aborted.

An abort is news, not an order: the effect of a dispatched call runs under a shield and ends by itself. It may look
at `cancelled`, or let `abort_scope` end the parts of itself that can be left. Knows nothing of the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

import attrs
import trio

from maka_trio.facts.identity import Invocation, Standalone, ToolCallIdentity
from maka_trio.records import frozen


class AbortSignal:
    """Read-only: whether the run of a call was aborted."""

    __slots__ = ("_event",)

    def __init__(self, event: trio.Event) -> None:
        self._event = event

    def is_set(self) -> bool:
        """Whether the abort has come."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait for the abort, for ever if none comes. Returns at once (after a checkpoint) when it has come."""
        await self._event.wait()


class AbortSwitch:
    """The other end of an `AbortSignal`: whoever runs a call holds it, and throws it once."""

    __slots__ = ("_event", "_interrupted", "_open", "signal")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._open: set[trio.CancelScope] = set()
        self._interrupted = False
        self.signal = AbortSignal(self._event)

    @property
    def interrupted(self) -> bool:
        """Whether some scope was left because of the abort."""
        return self._interrupted

    def throw(self) -> None:
        """Set the signal and cancel every open scope. Again: nothing."""
        self._event.set()
        for scope in self._open:
            scope.cancel("run aborted")

    @contextmanager
    def scope(self) -> Generator[trio.CancelScope, None, None]:
        """A scope that the switch cancels, at once if it was thrown before."""
        scope = trio.CancelScope()
        if self._event.is_set():
            scope.cancel("run aborted")
        self._open.add(scope)
        try:
            with scope:
                yield scope
        finally:
            self._open.discard(scope)
            self._interrupted |= scope.cancelled_caught and self._event.is_set()


@frozen(eq=False)
class ToolCall:
    """One call of a tool, as its handler sees it.

    Args:
        invocation: whose call it is.
        operation_id: names the operation in the log; unique in it.
        name: the tool's name.
        identity: the provider's id of the call, and who made it.
        input_digest: the digest of the recorded arguments, which an approval is bound to.
    """

    invocation: Invocation
    operation_id: str
    name: str
    identity: ToolCallIdentity = attrs.field(factory=lambda: ToolCallIdentity("standalone", Standalone()))
    input_digest: str = ""
    _abort: AbortSwitch = attrs.field(factory=AbortSwitch, repr=False)

    @property
    def cancelled(self) -> AbortSignal:
        """Set once the run of the call is aborted; `await call.cancelled.wait()` waits for that."""
        return self._abort.signal

    def abort_scope(self) -> AbstractContextManager[trio.CancelScope]:
        """Open a part of the effect that may be left when the run is aborted.

        `with call.abort_scope() as scope:` gives a `trio.CancelScope` that an abort cancels, also one that came
        before. Its cancellation ends at the `with`, and `scope.cancelled_caught` then says that the part was left.
        What the settlement says of it is the handler's to choose, by what it returns or by raising `ToolFailed`; an
        effect that was interrupted so and then returns None is settled as failed, saying that it was aborted.
        """
        return self._abort.scope()

    def tool_use_id(self) -> str:
        """A short public id of the call, the same in every process: `tool_` and 32 hexadecimal digits."""
        name = f"{self.invocation.invocation_id}\0{self.operation_id}".encode()
        return f"tool_{hashlib.sha256(name).hexdigest()[:32]}"
