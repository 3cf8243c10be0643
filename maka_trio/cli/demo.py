"""`maka-trio demo`: what the library does, shown without a key and without a network."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from maka_trio.cli.demo_play import PlayOptions, perform
from maka_trio.cli.interrupts import cancelled_by_signals
from maka_trio.cli.providers import PROTOCOLS, dialect_name
from maka_trio.cli.recording import protocol_of, read_recording
from maka_trio.cli.screen import stdout
from maka_trio.request import ProviderKind

LOG_NAME = "demo.sqlite"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "demo",
        help="watch an agent being aborted, without a key or a network",
        description="Runs an agent with two tools against a scripted provider on 127.0.0.1 and a real log: a turn with "
        "tool calls, a turn that is aborted while an effect runs, and a turn that goes on from the durable history.",
        allow_abbrev=False,
    )
    parser.add_argument("--log", metavar="PATH", type=Path, help="a folder or file to keep the log in; else temporary")
    parser.add_argument("--stream", metavar="FILE", type=Path, help="a recorded provider stream as the first answer")
    parser.add_argument("--protocol", choices=list(PROTOCOLS), help="the provider's; that of the recording, or chat")
    parser.add_argument("--name", metavar="DIALECT", help="the dialect of a recording from a compatible server")
    parser.add_argument("--slow", action="store_true", help="at a pace that a person can follow")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    recording = read_recording(arguments.stream) if arguments.stream is not None else None
    kind = PROTOCOLS[arguments.protocol or "chat"]
    if arguments.protocol is None and recording is not None:
        kind = ProviderKind.OPENAI_COMPATIBLE if arguments.name is not None else protocol_of(recording)
    options = PlayOptions(
        kind=kind,
        dialect=dialect_name(kind, arguments.name),
        recording=recording,
        slow=arguments.slow,
        keeps_log=arguments.log is not None,
    )
    with _log_place(arguments.log) as path:
        return trio.run(cancelled_by_signals, partial(perform, stdout(), path, options))


@contextmanager
def _log_place(given: Path | None) -> Generator[Path, None, None]:
    """The file of the log: in a folder that is deleted afterwards, unless a place was given."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="maka-trio-demo-") as folder:
            yield Path(folder) / LOG_NAME
    else:
        yield given / LOG_NAME if given.is_dir() else given
