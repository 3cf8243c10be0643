"""`maka-trio export`: a session, or a whole log, as JSON Lines that prove themselves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from maka_trio.cli.log_file import LogFile
from maka_trio.cli.progress import Progress
from maka_trio.cli.words import quoted
from maka_trio.errors import LogCorrupt, StoreError
from maka_trio.log.transfer import Export


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "export",
        help="write a log, or one session of it, as JSON lines",
        description="Writes a bundle to standard output: each event with its sequence and digest, its results and "
        "media, and an end that covers everything. What is damaged is left out and named, with exit status 1; such a "
        "bundle can be read, and import refuses it. Reads only, also while a program owns the log.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the log")
    parser.add_argument("--session", metavar="S", help="only this session")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    log = LogFile(arguments.file)
    session: str | None = arguments.session
    if session is not None and log.head(session).high_water == 0:
        raise StoreError(f"the log holds nothing of session {quoted(session)}")
    export = Export(log.read, log.path, session)
    with Progress("exporting", export.verification.high_water) as progress:
        for line in export.lines():
            sys.stdout.buffer.write(line)
            progress.at(export.verification.looked_at)
    sys.stdout.buffer.flush()
    if export.damaged:
        sequence, words = export.damaged[0]
        raise LogCorrupt(f"the log is damaged: {words}; {len(export.damaged)} faults in all", sequence=sequence)
    return 0
