"""`RunningInvocation`: a caller's handle on a run it does not own."""

from __future__ import annotations

import copy
from types import TracebackType
from typing import Self

import trio

from maka_trio.engine.input import submitted_message
from maka_trio.engine.media import check_stored
from maka_trio.engine.steering import Steering
from maka_trio.errors import InvalidInput, RunCancelled
from maka_trio.facts.event import BodyDeleted, Fact, InvocationEnded, StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.message import UserMessage
from maka_trio.log.event_log import EventLog
from maka_trio.log.follow import Follower
from maka_trio.log.invocations import InvocationRecord
from maka_trio.scopes import Home, Latch


class RunEvents:
    """The durable events of one run, from its opening on, live; ends after `invocation_ended`.

    An async iterator, and an async context manager for who leaves it early. It holds no task and no scope. What a
    deletion left of an event counts as that event.
    """

    def __init__(self, follower: Follower, invocation_id: str) -> None:
        self._follower = follower
        self._invocation_id = invocation_id
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StoredEvent:
        if self._ended:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        while True:
            stored = await self._follower.__anext__()
            if stored.event.invocation.invocation_id == self._invocation_id:
                self._ended = _ends(stored.event.fact)
                return stored

    async def aclose(self) -> None:
        """Stop following. Idempotent."""
        self._ended = True
        await self._follower.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _ends(fact: Fact) -> bool:
    match fact:
        case InvocationEnded() | BodyDeleted(of_kind=InvocationEnded.kind):
            return True
        case _:
            return False


class RunningInvocation:
    """A run that was admitted, now or before. The engine owns it; losing the handle changes nothing.

    Attributes:
        invocation: the identity of the run.
    """

    def __init__(self, log: EventLog, invocation: Invocation, steering: Steering, message_bytes: int) -> None:
        self.invocation = invocation
        self.scope = trio.CancelScope()
        self._home = Home("the run")
        self._log = log
        self._steering = steering
        self._message_bytes = message_bytes
        self._opened_at = 0
        self._admitted = Latch()
        self._finished = Latch()
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        state = "finished" if self._finished.is_set() else "running"
        return f"<RunningInvocation {self.invocation.run_id!r} of session {self.invocation.session_id!r}, {state}>"

    @property
    def finished(self) -> bool:
        """Whether the end is durable (or the log failed) and the session is free again."""
        return self._finished.is_set()

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the run: what reads stops at once, what was dispatched is drained. Returns immediately."""
        self.scope.cancel(reason)

    async def wait(self) -> None:
        """Wait until the run has ended. Cancelling the wait does not cancel the run.

        Not for a tool of the run, which would wait for itself.

        Raises:
            RunCancelled: the run was cancelled.
            RunError, ModelError, ToolError, CommitError, StoreError: what the run failed with.
        """
        self._home.check()
        await self._finished.wait()
        self._raise_failure()

    async def steer(self, message: str | UserMessage) -> str:
        """Add a user message to the running turn; it joins at the next step boundary.

        Returns its id once it is durable. Cancelled before that, the message is withdrawn.

        Raises:
            InvalidInput: the message is blank or too large, or names an artifact that the session does not have.
            RunError: the run is over, or ended before it took the message.
        """
        if not isinstance(message, (str, UserMessage)):
            raise InvalidInput(f"steer takes a str or a user message, not {type(message).__name__}")
        content, artifacts = submitted_message(message, self._message_bytes)
        await check_stored(self._log, self.invocation.session_id, content, artifacts)
        return await self._steering.submit(content, artifacts)

    def events(self) -> RunEvents:
        """Follow the run's durable events, live or after the fact."""
        follower = self._log.follow(after=max(self._opened_at - 1, 0), session_id=self.invocation.session_id)
        return RunEvents(follower, self.invocation.invocation_id)

    # --- the engine's side --------------------------------------------------------------------------------

    async def wait_admitted(self) -> None:
        """Wait until the opening is durable; raise what kept it from being so."""
        await self._admitted.wait()
        if not self._opened_at:
            self._raise_failure()

    def admitted(self, sequence: int) -> None:
        """The opening is durable."""
        self._opened_at = sequence
        self._admitted.set()

    def recalled(self, record: InvocationRecord) -> None:
        """The request was run before: stand for that run. Nothing is written."""
        self.invocation = record.invocation
        self._steering.close()
        self.admitted(record.opened_at)

    def settle(self, failure: BaseException | None) -> None:
        """The run is over and its session free."""
        self._failure = failure
        self._admitted.set()
        self._finished.set()

    async def wait_finished(self) -> None:
        """Wait until the run is over, however it ended."""
        await self._finished.wait()

    def _raise_failure(self) -> None:
        """Each waiter gets an exception of its own: one that is raised twice grows somebody else's traceback."""
        if self._failure is None:
            return
        if isinstance(self._failure, RunCancelled):
            raise RunCancelled(self._failure.message)
        try:
            failure = copy.copy(self._failure)
        except Exception:  # an exception of somebody's own that does not copy
            failure = self._failure
        raise failure.with_traceback(self._failure.__traceback__) from self._failure.__cause__
