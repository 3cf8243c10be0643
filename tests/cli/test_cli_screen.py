"""A screen shows styles where a terminal takes them, and plain text everywhere else."""

from __future__ import annotations

import io
import os
import pty
import select
import sys
import termios
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

import pytest

from maka_trio.cli.json_lines import write_json_line
from maka_trio.cli.live import TextFlow, same_place
from maka_trio.cli.screen import Look, Screen, discard_output, open_screen


@contextmanager
def terminal(columns: int = 80) -> Generator[tuple[TextIO, int], None, None]:
    """A terminal: the stream a program writes to, and the descriptor of whoever looks at it."""
    watcher, device = pty.openpty()
    attributes = termios.tcgetattr(device)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(device, termios.TCSANOW, attributes)
    with os.fdopen(device, "w", encoding="utf-8") as stream:
        yield stream, watcher
    os.close(watcher)


def seen(watcher: int) -> str:
    """What has been written, once nothing more arrives: the kernel hands it on in pieces."""
    data = b""
    while select.select([watcher], [], [], 0.1)[0]:
        data += os.read(watcher, 65536)
    return data.decode()


@pytest.fixture(autouse=True)
def _colourful_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_terminal_is_shown_styles() -> None:
    """The text stands between the escapes of its look, and the escapes end with it."""
    with terminal() as (stream, watcher):
        open_screen(stream).line(("fine", Look.GOOD), " and plain")
        assert seen(watcher) == "\x1b[32mfine\x1b[0m and plain\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_an_environment_without_colour_is_obeyed(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """`NO_COLOR` and `TERM=dumb` make a terminal plain."""
    monkeypatch.setenv(name, value)
    with terminal() as (stream, watcher):
        open_screen(stream).line(("fine", Look.GOOD))
        assert seen(watcher) == "fine\n"


def test_without_rich_a_terminal_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is optional: its absence is no error and costs only the colours."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with terminal() as (stream, watcher):
        screen = open_screen(stream)
        screen.line(("fine", Look.GOOD))
        assert not screen.styled
        assert seen(watcher) == "fine\n"


def test_a_pipe_is_plain() -> None:
    """Nobody wants escapes in a file."""
    stream = io.StringIO()
    open_screen(stream).line(("fine", Look.GOOD))
    assert stream.getvalue() == "fine\n"


def test_foreign_escapes_and_markup_are_shown_not_obeyed() -> None:
    """Styles are ours alone, also on a terminal that takes them."""
    with terminal() as (stream, watcher):
        open_screen(stream).line(("[red]\x1b[31mx[/red] :smile:", Look.GOOD))
        assert seen(watcher) == "\x1b[32m[red]\\x1b[31mx[/red] :smile:\x1b[0m\n"


def test_a_line_does_not_continue_an_unfinished_one() -> None:
    """Notes about an answer stand on lines of their own."""
    stream = io.StringIO()
    screen = Screen(stream)
    screen.write("half")
    screen.line("note")
    screen.fresh_line()
    screen.write("half")
    screen.fresh_line()
    assert stream.getvalue() == "half\nnote\nhalf\n"


def test_marks_fall_back_to_ascii_where_the_encoding_has_none() -> None:
    """A Latin-1 or ASCII terminal sees a replacement mark for ours and escapes for foreign text, never an error."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    Screen(stream).line("✓ done: 漢")
    assert raw.getvalue() == b"+ done: \\u6f22\n"


def test_a_pipe_that_nobody_reads_raises_and_leaves_no_buffer() -> None:
    """The error comes at the write, not at the interpreter's exit."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        screen = open_screen(stream)
        with pytest.raises(BrokenPipeError):
            screen.line("text")
        discard_output(stream)
        screen.line("goes nowhere")


def test_a_non_blocking_stream_is_waited_for() -> None:
    """A terminal that another program made non-blocking loses nothing."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    received: list[int] = []

    def read() -> None:
        while data := os.read(reader, 65536):
            received.append(len(data))

    thread = threading.Thread(target=read)
    with os.fdopen(writer, "w") as stream:
        thread.start()
        Screen(stream).write("x" * 2_000_000)
    thread.join()
    os.close(reader)
    assert sum(received) == 2_000_000


def test_streams_of_one_place_are_recognised() -> None:
    """Standard output and error may be the same terminal or pipe, or not."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as first, os.fdopen(os.dup(writer), "w") as second, os.fdopen(reader) as other:
        assert same_place(first, second)
        assert not same_place(first, sys.__stdin__ or other)
    assert not same_place(io.StringIO(), io.StringIO())


def test_streamed_text_is_wrapped_between_words_beside_its_margin() -> None:
    """Whatever the pieces, a narrow terminal shows whole words under each other."""
    with terminal() as (stream, watcher):
        screen = Screen(stream, width=20)
        flow = TextFlow(screen, "model ", Look.PLAIN)
        for piece in ("one two", " three four", " five\nsix"):
            flow.write(piece)
        assert seen(watcher) == "model one two three\n      four five\n      six"


def test_streamed_text_without_a_margin_is_left_as_it_is() -> None:
    """The answer of `run` may be piped to another program: it is not reflowed."""
    stream = io.StringIO()
    flow = TextFlow(Screen(stream, width=10), "", Look.PLAIN)
    flow.write("a line that is longer\n than the screen ")
    assert stream.getvalue() == "a line that is longer\n than the screen "


def test_json_lines_are_exact_in_a_pipe_and_escaped_on_a_terminal() -> None:
    """Another program is given the canonical bytes, whatever the locale; a person the same value in JSON's escapes."""
    value = {"text": "\u202e\x9b🙂"}
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="ascii") as stream:
        write_json_line(open_screen(stream), value)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == '{"text":"\u202e\x9b🙂"}\n'.encode()
    with terminal() as (stream, watcher):
        write_json_line(open_screen(stream), value)
        assert seen(watcher) == '{"text":"\\u202e\\u009b🙂"}\n'
