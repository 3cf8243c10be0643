"""A log as people read it: one row an event, streamed text joined, indented by run, step and tool.

`Timeline` folds stored events into rows and keeps only what is unfinished; `TimelinePrinter` puts rows on a screen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from maka_trio.cli.escape import clip, columns, one_line
from maka_trio.cli.screen import Look, Screen, Span
from maka_trio.cli.words import EXCERPT, Words, describe, quoted
from maka_trio.facts.event import (
    BodyDeleted,
    Fact,
    InvocationEnded,
    InvocationOpened,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    RuntimeEvent,
    StoredEvent,
    ToolDispatched,
    ToolSettled,
)
from maka_trio.facts.model import PartDelta, PartFinished, PartStarted, TextKind
from maka_trio.records import define, frozen

SESSION_COLUMNS = 20


@frozen
class Row:
    """What one line shows. `first` and `last` are the sequences it stands for; `recorded_at` is the first one's."""

    first: int
    last: int
    recorded_at: int
    session_id: str
    depth: int
    words: Words


@define
class _Streamed:
    """Consecutive events of one text part."""

    first: int
    last: int
    event: RuntimeEvent
    step_id: str
    part_id: str
    thinking: bool
    text: str = ""

    def row(self) -> Row:
        verb, look = ("thinks", Look.THINKING) if self.thinking else ("says", Look.MODEL)
        words = Words("·", f"{verb} {quoted(self.text)}", look)
        return Row(self.first, self.last, self.event.recorded_at, self.event.invocation.session_id, 2, words)


@define
class _Gone:
    """Consecutive observations whose bodies were deleted."""

    first: int
    last: int
    event: RuntimeEvent
    count: int = 0

    def row(self) -> Row:
        words = Words("·", f"deleted: {self.count} of what was streamed", Look.FAINT)
        return Row(self.first, self.last, self.event.recorded_at, self.event.invocation.session_id, 2, words)


class Timeline:
    """Folds events, in the order of their sequences, into rows."""

    def __init__(self) -> None:
        self._streamed: _Streamed | None = None
        self._gone: _Gone | None = None
        self._thinking: set[tuple[str, str]] = set()
        self._tools: dict[str, str] = {}

    def push(self, stored: StoredEvent) -> list[Row]:
        """The rows that an event completes."""
        fact = stored.event.fact
        if isinstance(fact, ModelObserved) and isinstance(fact.event, PartStarted | PartDelta | PartFinished):
            return self._stream(stored, fact, fact.event)
        if isinstance(fact, BodyDeleted) and fact.of_kind == ModelObserved.kind:
            return self._pass_over(stored)
        rows = self.flush()
        rows.append(self._row(stored, fact))
        self._forget(fact)
        return rows

    def flush(self) -> list[Row]:
        """The row of what may still go on: text, or the stubs of it."""
        rows = [kept.row() for kept in (self._streamed, self._gone) if kept is not None]
        self._streamed = self._gone = None
        return rows

    def _pass_over(self, stored: StoredEvent) -> list[Row]:
        rows: list[Row] = []
        gone = self._gone
        if gone is None or gone.event.invocation != stored.event.invocation:
            rows = self.flush()
            gone = self._gone = _Gone(stored.sequence, stored.sequence, stored.event)
        gone.last = stored.sequence
        gone.count += 1
        return rows

    def _stream(
        self, stored: StoredEvent, fact: ModelObserved, event: PartStarted | PartDelta | PartFinished
    ) -> list[Row]:
        key = (fact.step_id, event.id)
        if isinstance(event, PartStarted) and event.text_kind is TextKind.THINKING:
            self._thinking.add(key)
        rows: list[Row] = []
        open_text = self._streamed
        if open_text is None or (open_text.step_id, open_text.part_id) != key:
            rows = self.flush()
            open_text = _Streamed(stored.sequence, stored.sequence, stored.event, *key, key in self._thinking)
            self._streamed = open_text
        open_text.last = stored.sequence
        if isinstance(event, PartDelta) and len(open_text.text) <= EXCERPT:
            open_text.text += event.text[: EXCERPT + 1]
        if isinstance(event, PartFinished):
            self._thinking.discard(key)
            rows.extend(self.flush())
        return rows

    def _row(self, stored: StoredEvent, fact: Fact) -> Row:
        if isinstance(fact, ToolDispatched):
            self._tools[fact.operation_id] = fact.name
        tool = self._tools.get(getattr(fact, "operation_id", ""))
        event = stored.event
        words = describe(fact, tool)
        return Row(
            stored.sequence, stored.sequence, event.recorded_at, event.invocation.session_id, _depth(fact), words
        )

    def _forget(self, fact: Fact) -> None:
        """Hold nothing of what is over: a log may be far larger than memory."""
        match fact:
            case ToolSettled(operation_id=operation_id):
                self._tools.pop(operation_id, None)
            case ModelCompleted(step_id=step_id) | ModelInterrupted(step_id=step_id):
                self._thinking = {key for key in self._thinking if key[0] != step_id}


_DEPTHS = {
    **dict.fromkeys((InvocationOpened.kind, InvocationEnded.kind), 0),
    **dict.fromkeys((ModelRequested.kind, ModelCompleted.kind, ModelInterrupted.kind), 1),
}


def _depth(fact: Fact) -> int:
    match fact:
        case BodyDeleted():
            return _DEPTHS.get(fact.of_kind, 2)
        case _:
            return _DEPTHS.get(fact.kind, 2)


class TimelinePrinter:
    """Puts a timeline on a screen, with a line for each new day.

    Args:
        screen: where to.
        session: the session whose column is left out, because all events are its own.
    """

    def __init__(self, screen: Screen, *, session: str | None = None) -> None:
        self._screen = screen
        self._session = session
        self._timeline = Timeline()
        self._day = ""

    def push(self, stored: StoredEvent) -> None:
        """Print what an event completes."""
        self._print(self._timeline.push(stored))

    def finish(self) -> None:
        """Print what was kept back."""
        self._print(self._timeline.flush())

    def _print(self, rows: Iterable[Row]) -> None:
        for row in rows:
            day, clock = _local_time(row.recorded_at)
            if day != self._day:
                self._day = day
                self._screen.line((f"{'':>9}  {day}", Look.FAINT))
            self._screen.line(*self._spans(row, clock))

    def _spans(self, row: Row, clock: str) -> list[Span]:
        sequence = str(row.first) if row.first == row.last else f"{row.first}-{row.last}"
        margin = f"{sequence:>9}  {clock}  "
        if self._session is None:
            name = clip(one_line(row.session_id), SESSION_COLUMNS)
            margin += name + " " * (SESSION_COLUMNS - columns(name)) + "  "
        indent = "  " * row.depth + row.words.mark + " "
        text = self._screen.fitted(row.words.text, columns(margin) + columns(indent))
        return [(margin, Look.FAINT), (indent + text, row.words.look)]


def _local_time(recorded_at: int) -> tuple[str, str]:
    """Day and time of day. What a log says of time is somebody's clock, and may be no date at all."""
    try:
        moment = time.localtime(recorded_at // 1000)
    except (OverflowError, OSError, ValueError):
        return "no date", "--:--:--.---"
    return time.strftime("%Y-%m-%d", moment), f"{time.strftime('%H:%M:%S', moment)}.{recorded_at % 1000:03}"
