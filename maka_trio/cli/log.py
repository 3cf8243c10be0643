"""`maka-trio log`: what a log holds, as a timeline or as JSON lines."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from maka_trio.cli.json_lines import write_stored_event
from maka_trio.cli.log_file import LogFile
from maka_trio.cli.screen import stdout
from maka_trio.cli.timeline import TimelinePrinter
from maka_trio.cli.words import quoted
from maka_trio.errors import StoreError
from maka_trio.facts.event import StoredEvent

FOLLOW_SECONDS = 0.2
"""How often `--follow` looks for more: the owner is another process, which tells us nothing."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "log",
        help="show what a log holds",
        description="Prints the events of a log as a timeline. Reads only, also while a program owns the log.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the log")
    parser.add_argument("--session", metavar="S", help="only this session")
    parser.add_argument("--json", action="store_true", help="JSON lines: canonical events with their sequences")
    parser.add_argument("--follow", action="store_true", help="go on with what is added, until Ctrl-C")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    log = LogFile(arguments.file)
    session: str | None = arguments.session
    if session is not None and not arguments.follow and log.head(session).high_water == 0:
        raise StoreError(f"the log holds nothing of session {quoted(session)}")
    screen = stdout()
    if arguments.json:
        _show(log, session, partial(write_stored_event, screen), lambda: None, follow=arguments.follow)
    else:
        printer = TimelinePrinter(screen, session=session)
        _show(log, session, printer.push, printer.finish, follow=arguments.follow)
    return 0


def _show(
    log: LogFile,
    session: str | None,
    push: Callable[[StoredEvent], None],
    finish: Callable[[], None],
    *,
    follow: bool,
) -> None:
    """Show the events; `finish` is called whenever there is no more for now, an error included."""
    last = 0
    while True:
        try:
            for stored in log.events(last, session):
                push(stored)
                last = stored.sequence
        finally:
            finish()
        if not follow:
            return
        time.sleep(FOLLOW_SECONDS)
