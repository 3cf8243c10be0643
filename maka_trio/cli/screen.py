"""Where a command writes: styled where the terminal allows it, plain everywhere else.

A screen escapes whatever it is given, so nothing reaches a terminal unescaped by being forgotten. Styles come from
`rich` (the extra `cli`); without it, without a terminal, with `NO_COLOR` or `TERM=dumb`, text is plain. Knows
nothing of facts.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from enum import Enum
from typing import TextIO, TypeAlias

from maka_trio.cli.escape import clip, columns, escaped

PLAIN_WIDTH = 120
"""Columns where there is no terminal to ask."""


class Look(Enum):
    """How a piece of text looks, as a style of `rich`."""

    PLAIN = ""
    FAINT = "dim"
    STRONG = "bold"
    HEADING = "bold cyan"
    USER = "bold blue"
    MODEL = "cyan"
    THINKING = "dim italic"
    TOOL = "yellow"
    GOOD = "green"
    BAD = "bold red"
    WARN = "magenta"


Span: TypeAlias = str | tuple[str, Look]
"""Text in its look; a bare string is plain."""

Painter: TypeAlias = Callable[[str, Look], str]

_ASCII_MARKS = str.maketrans(
    {"…": "...", "·": "-", "→": ">", "▸": ">", "✓": "+", "✗": "x", "─": "-", "│": "|", "●": "*"}
)


class Screen:
    """One output stream.

    Args:
        stream: text goes to its file descriptor, past its buffer, so that no half-written buffer is left behind
            when a reader goes away; a stream without one is written to as it is.
        painter: puts text into its look; None for plain text.
        width: columns of a line.

    Attributes:
        is_terminal: whether a person looks at it.
    """

    def __init__(self, stream: TextIO, painter: Painter | None = None, width: int = PLAIN_WIDTH) -> None:
        self.is_terminal = _is_terminal(stream)
        self._stream = stream
        self._painter = painter
        self._marks_fit = _can_encode(stream, "…·→▸✓✗─│●")
        self._at_line_start = True
        self.width = width

    @property
    def styled(self) -> bool:
        """Whether looks are shown."""
        return self._painter is not None

    def painted(self, *spans: Span) -> str:
        """The spans as they will be written: escaped and styled."""
        return "".join(map(self._paint, spans))

    def fitted(self, text: str, used: int) -> str:
        """Escaped text as it fits on a line of which so many columns are taken. Where nobody looks, all of it."""
        return clip(text, max(self.width - used, 20)) if self.is_terminal else text

    def line(self, *spans: Span) -> None:
        """Write a whole line, on a new one if the last is unfinished."""
        self.emit(("" if self._at_line_start else "\n") + self.painted(*spans) + "\n")

    def write(self, *spans: Span) -> None:
        """Write without ending the line."""
        self.emit(self.painted(*spans))

    def fresh_line(self) -> None:
        """End an unfinished line."""
        if not self._at_line_start:
            self.emit("\n")

    def rule(self, title: str) -> None:
        """A heading across the line, after an empty one."""
        self.fresh_line()
        room = max(min(self.width, 100) - columns(title) - 4, 3)
        self.line()
        self.line(("── ", Look.FAINT), (title, Look.HEADING), (" " + "─" * room, Look.FAINT))

    def emit(self, text: str) -> None:
        """Write text that is escaped and styled already.

        Raises:
            BrokenPipeError: nobody reads any more.
            OSError: the stream cannot be written.
        """
        if not text:
            return
        shown = text if self._marks_fit else text.translate(_ASCII_MARKS)
        _write_all(self._stream, shown.encode(_encoding(self._stream), "backslashreplace"))
        self._at_line_start = text.endswith("\n")

    def emit_utf8_line(self, text: str) -> None:
        """Write a line for another program: escaped already where that is wanted, and UTF-8 whatever the terminal."""
        _write_all(self._stream, text.encode() + b"\n")

    def _paint(self, span: Span) -> str:
        text, look = (span, Look.PLAIN) if isinstance(span, str) else span
        text = escaped(text)
        return self._painter(text, look) if self._painter and text and look is not Look.PLAIN else text


def open_screen(stream: TextIO) -> Screen:
    """The screen of a stream: styled if it is a terminal that takes styles, and `rich` is there."""
    if not _is_terminal(stream):
        return Screen(stream)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return Screen(stream, None if plain else rich_painter(stream), _width(stream))


def rich_painter(stream: TextIO) -> Painter | None:
    """A painter for the colours that the stream's terminal has, or None without `rich` or colours."""
    try:
        from rich.console import COLOR_SYSTEMS, Console
        from rich.style import Style
    except ImportError:
        return None
    name = Console(file=stream).color_system
    if name is None:
        return None
    system = COLOR_SYSTEMS[name]
    styles = {look: Style.parse(look.value) for look in Look}

    def paint(text: str, look: Look) -> str:
        return styles[look].render(text, color_system=system)

    return paint


def discard_output(stream: TextIO) -> None:
    """Point a stream nobody reads at nothing, so that the interpreter's last flush does not complain."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def stdout() -> Screen:
    """The screen of standard output."""
    return open_screen(sys.stdout)


def stderr() -> Screen:
    """The screen of standard error."""
    return open_screen(sys.stderr)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or PLAIN_WIDTH
    except OSError:
        return PLAIN_WIDTH


def _encoding(stream: TextIO) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(_encoding(stream))
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _write_all(stream: TextIO, data: bytes) -> None:
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        stream.write(data.decode(_encoding(stream)))
        return
    stream.flush()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # somebody made the terminal non-blocking, which all its users share
            select.select([], [descriptor], [])
