"""`StreamDecoder`: the `Decoder` of a protocol that streams server-sent events.

It keeps the promises that hold for every protocol: events that came before a fault are handed out, the fault is
raised by the next call and by every one after it; nothing is decoded after the end; a body that ends early is
truncated. A protocol says what an event means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from maka_trio.errors import AdapterError, InvalidInput, ModelError
from maka_trio.facts.model import ModelEvent
from maka_trio.protocol.failures import truncated
from maka_trio.protocol.parts import AnswerParts
from maka_trio.protocol.sse import SseDecoder, SseEvent


class StreamDecoder(ABC):
    """A decoder over server-sent events. Implements `adapter.Decoder`."""

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._fault: ModelError | None = None
        self.answer = AnswerParts()
        self.in_grace = False

    # --- what a protocol says ----------------------------------------------------------------------------

    @abstractmethod
    def on_event(self, event: SseEvent) -> None:
        """Decode one event into `answer`. Raises ModelError for what cannot become a step."""

    def on_end(self) -> None:
        """The body ended cleanly before the answer was finished: finish it, or raise what that means."""
        raise self.truncated()

    def on_settle(self) -> None:
        """The grace is over; called only while `in_grace`. As if the body had ended, unless a protocol differs."""
        self.on_end()

    def truncated(self) -> ModelError:
        """The error of an answer that ended early."""
        return truncated(replay_safe=self.replay_safe)

    # --- Decoder -----------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """`Finished` was handed out."""
        return self.answer.finished

    @property
    def replay_safe(self) -> bool:
        """No replay barrier was seen."""
        return self.answer.replay_safe

    @property
    def observed_output(self) -> bool:
        """Some part of an answer was decoded."""
        return self.answer.observed_output

    def feed(self, data: bytes) -> list[ModelEvent]:
        """The model events that `data` completes. A finished text is never held back.

        Raises:
            ModelError: the answer cannot become a step. Events decoded before the fault are returned first; then
                the next call raises, `feed(b"")` included.
        """
        self._raise_fault()
        if self.answer.finished:
            return []
        try:
            self._decode(self._sse.feed(data))
        except (ModelError, InvalidInput, RecursionError) as error:
            self._note(error)
        if self._fault is None and not self.answer.finished:
            self._fault = self._sse.fault
        events = self._take()
        if not events:
            self._raise_fault()
        return events

    def settle(self) -> list[ModelEvent]:
        """The grace is over: finish with what is known."""
        return self._conclude(self.on_settle if self.in_grace else self.on_end)

    def close(self) -> list[ModelEvent]:
        """The body ended cleanly.

        Raises:
            ModelError: the answer was not complete. An unfinished last event that changes nothing about that is
                dropped, as the standard has it.
        """
        return self._conclude(self._end_of_body)

    # --- inside ------------------------------------------------------------------------------------------

    def _decode(self, events: list[SseEvent]) -> None:
        answer = self.answer
        for event in events:
            self.on_event(event)
            if answer.finished:
                return

    def _end_of_body(self) -> None:
        self._decode(self._sse.end())
        if not self.answer.finished:
            self.on_end()

    def _conclude(self, act: Callable[[], None]) -> list[ModelEvent]:
        self._raise_fault()
        if self.answer.finished:
            return []
        try:
            act()
        except (ModelError, InvalidInput, RecursionError) as error:
            self._note(error)
        events = self._take()
        self._raise_fault()
        return events

    def _take(self) -> list[ModelEvent]:
        """The events so far. Ending a run of text may itself pass a limit; what came before it still counts."""
        try:
            return self.answer.take()
        except ModelError as error:
            self._note(error)
            return self.answer.take()

    def _note(self, error: Exception) -> None:
        if self._fault is None:
            self._fault = error if isinstance(error, ModelError) else AdapterError(f"the answer is malformed: {error}")

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault
