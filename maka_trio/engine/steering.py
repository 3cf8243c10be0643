"""User messages that join a running turn (semantics 2.10).

A message is taken at the next step boundary, when nothing of the run is in flight, and never between a call and its
result. Whoever submits one waits until it is durable, or learns that the run ended without it.
"""

from __future__ import annotations

import attrs
import trio

from maka_trio.errors import RunError
from maka_trio.facts.event import Artifact, EventWrite, MessageSteered, RuntimeEvent
from maka_trio.facts.identity import Invocation, new_id
from maka_trio.facts.opening import MessageInput
from maka_trio.records import define


@define(eq=False)
class _Submitted:
    content: MessageInput
    artifacts: tuple[Artifact, ...]
    message_id: str = attrs.field(factory=new_id)
    decided: trio.Event = attrs.field(factory=trio.Event)
    durable: bool = False

    def write(self, invocation: Invocation) -> EventWrite:
        fact = MessageSteered(self.content, self.message_id)
        return EventWrite(RuntimeEvent.new(invocation, fact), artifacts=self.artifacts)


class Steering:
    """The messages that wait for a run's next step boundary."""

    def __init__(self) -> None:
        self._waiting: list[_Submitted] = []
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def submit(self, content: MessageInput, artifacts: tuple[Artifact, ...]) -> str:
        """Hand a message in and wait until it is durable; return its id.

        Cancelled before the run took it, the message is withdrawn.

        Raises:
            RunError: the run is over, or ended before it took the message.
        """
        if self._closed:
            raise RunError("the run is over; a message to it was not taken")
        submitted = _Submitted(content, artifacts)
        self._waiting.append(submitted)
        try:
            await submitted.decided.wait()
        finally:
            if submitted in self._waiting:
                self._waiting.remove(submitted)
        if not submitted.durable:
            raise RunError("the run ended before it took the message")
        return submitted.message_id

    def take(self) -> list[_Submitted]:
        """All that wait, in order. Each must be told what became of it with `settle`."""
        taken, self._waiting = self._waiting, []
        return taken

    def settle(self, taken: list[_Submitted], *, durable: bool) -> None:
        """Wake those who submitted these messages."""
        for submitted in taken:
            submitted.durable = durable
            submitted.decided.set()

    def close(self) -> None:
        """Take no more messages and send back those that wait."""
        self._closed = True
        self.settle(self.take(), durable=False)
