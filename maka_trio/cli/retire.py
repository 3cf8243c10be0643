"""`maka-trio retire`: a session takes no more runs, and what was said in it is deleted where that is asked for."""

from __future__ import annotations

import argparse
from pathlib import Path

import trio

from maka_trio.cli.log_file import LogFile
from maka_trio.cli.screen import Look, stdout
from maka_trio.cli.words import quoted
from maka_trio.log import EventLog


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "retire",
        help="let a session take no more runs, and delete what was said in it",
        description="Retires a session. With --delete-bodies its messages, answers, tool inputs, results and media are "
        "deleted from the file, which cannot be undone; of each event stays what kind it was, when, its size and "
        "digests, and of steps, tools and runs what they cost and how they ended. A run of the session that has not "
        "ended prevents that. For a log that no program has open. If it is interrupted, run it again.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the log")
    parser.add_argument("--session", metavar="S", required=True, help="the session")
    parser.add_argument("--delete-bodies", action="store_true", help="delete what was said and done, for good")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    session: str = arguments.session
    log = LogFile(arguments.file)  # a log that is not there would be created below
    deleted = trio.run(_retire, log.path, session, arguments.delete_bodies)
    words = f"✓ session {quoted(session)} takes no more runs"
    if deleted is not None:
        words += f"; the bodies of {deleted} events were deleted"
    stdout().line((words, Look.GOOD))
    return 0


async def _retire(path: Path, session: str, delete_bodies: bool) -> int | None:
    async with EventLog.open(path) as log:
        await log.retire(session)
        return await log.delete_bodies(session) if delete_bodies else None
