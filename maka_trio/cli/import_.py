"""`maka-trio import`: a bundle becomes a new log, if every byte of it is as it was exported."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from maka_trio.cli.screen import Look, stdout
from maka_trio.log.transfer import import_bundle


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "import",
        help="make a new log of what was exported",
        description="Reads a bundle that `maka-trio export` wrote and makes a new log of it, with the same sequences "
        "and digests. Every digest, rule and law is checked on the way in; anything that was changed is refused, and "
        "then there is no log.",
        allow_abbrev=False,
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="the JSON lines; - for standard input")
    parser.add_argument("file", metavar="FILE", type=Path, help="the new log; it must not exist")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    if arguments.bundle == "-":
        end = import_bundle(iter(sys.stdin.buffer), arguments.file)
    else:
        with Path(arguments.bundle).open("rb") as lines:
            end = import_bundle(iter(lines), arguments.file)
    stdout().line((f"✓ imported {end.events} events of {len(end.sessions)} sessions", Look.GOOD))
    return 0
