"""A run as it happens: its durable events, shown one by one as they come.

The text of the answer goes to one screen, everything about it to another; both may be the same. Knows no engine: it
is given stored events.
"""

from __future__ import annotations

import os
import re
from typing import TextIO

from maka_trio.cli.escape import columns, escaped
from maka_trio.cli.screen import Look, Screen
from maka_trio.cli.words import Words, describe, ended, observed
from maka_trio.facts.event import (
    InvocationEnded,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    StoredEvent,
    ToolDispatched,
    ToolRejected,
    ToolSettled,
)
from maka_trio.facts.model import ModelEvent, PartDelta, PartFinished, PartStarted, ProviderToolResult, TextKind

_WORDS = re.compile(r"\n|[^\S\n]+|\S+")


class TextFlow:
    """Streamed text on a screen, with a margin, wrapped between words where a terminal is that narrow.

    Args:
        screen: where to.
        margin: stands before the first line; as much room stands before the others. Empty: text as it is.
        look: how the text looks.
        hang: columns by which the other lines are indented further.
    """

    def __init__(self, screen: Screen, margin: str, look: Look, *, hang: int = 0) -> None:
        self._screen = screen
        self._margin = margin
        self._look = look
        self._indent = columns(margin) + hang
        self._column = 0
        self._space = ""
        self._limit = screen.width if margin and screen.is_terminal else None

    def write(self, text: str) -> None:
        """Write the next piece."""
        if not self._margin:
            self._screen.write((text, self._look))
            return
        if self._column == 0:
            self._screen.fresh_line()
            self._screen.write((self._margin, Look.FAINT))
            self._column = columns(self._margin)
        self._screen.write((self._wrapped(escaped(text)), self._look))

    def _wrapped(self, text: str) -> str:
        """The next piece as it is written. A space is kept back until a word follows it on the same line."""
        pieces: list[str] = []
        for word in _WORDS.findall(text):
            if word == "\n":
                pieces.append(self._next_line())
            elif word.isspace():
                self._space += word
            else:
                width = columns(self._space) + columns(word)
                if self._limit is not None and self._column + width > self._limit and self._column > self._indent:
                    pieces.append(self._next_line())
                pieces.append(self._space + word)
                self._column += columns(self._space) + columns(word)
                self._space = ""
        return "".join(pieces)

    def _next_line(self) -> str:
        self._column = self._indent
        self._space = ""
        return "\n" + " " * self._indent


class RunView:
    """Shows the events of one run.

    Args:
        answer: gets the text that the model says.
        notes: gets what it thinks, its tools, and how the run goes.
        margins: name the speaker in front of each line, as in a dialogue.
    """

    def __init__(self, answer: Screen, notes: Screen, *, margins: bool = False) -> None:
        self._answer = answer
        self._notes = notes
        self._margins = margins
        self._kinds: dict[tuple[str, str], TextKind] = {}
        self._speaking: TextKind | None = None
        self._flow = TextFlow(answer, "", Look.MODEL)
        self._tools: dict[str, str] = {}

    def show(self, stored: StoredEvent) -> None:
        """Show one event."""
        match stored.event.fact:
            case ModelObserved(step_id=step_id, event=event):
                self._observe(step_id, event)
            case ToolDispatched() as fact:
                self._tools[fact.operation_id] = fact.name
                self.note("tool", describe(fact))
            case ToolSettled() | ToolRejected() as fact:
                self.note("tool", describe(fact, self.tool_name(fact.operation_id)))
            case ModelInterrupted() as fact:
                self.finish()
                self.note("model", describe(fact))
            case ModelCompleted():
                self.finish()
            case InvocationEnded(outcome=outcome):
                self.finish()
                self.note("run", ended(outcome))

    def tool_name(self, operation_id: str) -> str | None:
        """The tool of an operation that was dispatched."""
        return self._tools.get(operation_id)

    def note(self, speaker: str, words: Words) -> None:
        """A line about the run."""
        self._speaking = None
        self._notes.fresh_line()
        TextFlow(self._notes, self._margin(speaker), words.look, hang=2).write(f"{words.mark} {words.text}")
        self._notes.fresh_line()

    def _observe(self, step_id: str, event: ModelEvent) -> None:
        match event:
            case PartStarted():
                self._kinds[step_id, event.id] = event.text_kind
                if event.text_kind is TextKind.THINKING:
                    self._speaking = None
            case PartDelta(text=text):
                self._say(self._kinds.get((step_id, event.id), TextKind.TEXT), text)
            case PartFinished():
                self._kinds.pop((step_id, event.id), None)
            case ProviderToolResult():
                self.note("tool", observed(event))
            case _:
                pass

    def _say(self, kind: TextKind, text: str) -> None:
        """Parts of one kind that follow each other are one text: providers cut sentences at every citation."""
        if kind is not self._speaking:
            self._speaking = kind
            self._flow = self._new_flow(kind)
        self._flow.write(text)

    def _new_flow(self, kind: TextKind) -> TextFlow:
        if kind is TextKind.THINKING:
            self._notes.fresh_line()
            return TextFlow(self._notes, self._margin("thinks") or "thinking: ", Look.THINKING)
        if self._notes is self._answer:
            self._answer.fresh_line()
        return TextFlow(self._answer, self._margin("model"), Look.MODEL if self._margins else Look.PLAIN)

    def _margin(self, speaker: str) -> str:
        return f"  {speaker:<8}" if self._margins else ""

    def finish(self) -> None:
        """Nothing more of this step comes."""
        self._kinds.clear()
        self._speaking = None
        self._answer.fresh_line()


def same_place(first: TextIO, second: TextIO) -> bool:
    """Whether two streams end in the same terminal, pipe or file."""
    try:
        return os.path.sameopenfile(first.fileno(), second.fileno())
    except (OSError, ValueError):
        return False
