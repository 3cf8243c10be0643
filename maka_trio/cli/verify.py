"""`maka-trio verify`: whether a log is lawful."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from maka_trio.cli.json_lines import write_json_line
from maka_trio.cli.log_file import LogFile
from maka_trio.cli.progress import Progress
from maka_trio.cli.screen import Look, Screen, stdout
from maka_trio.cli.verify_together import processes_for, verify_together
from maka_trio.cli.words import excerpt, quoted
from maka_trio.errors import StoreError
from maka_trio.laws import LAWS, Violation
from maka_trio.log.verification import Verification


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "verify",
        help="check that a log is lawful",
        description="Checks every law over the events of a log, its digest chain, the results and media stored beside "
        "it, the tables and indexes that are made of its events, and the input digest of each request; goes on past "
        "what is damaged. "
        "Exit status 1 if a law is broken. Reads only, also while a program owns the log.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the log")
    parser.add_argument("--session", metavar="S", help="only this session")
    parser.add_argument("--json", action="store_true", help="JSON lines: each violation, then a summary")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    check = _Check(LogFile(arguments.file), arguments.session)
    screen = stdout()
    for violation in check.violations():
        check.broken += 1
        if arguments.json:
            write_json_line(screen, _as_json(violation))
        else:
            screen.line((f"✗ {excerpt(str(violation))}", Look.BAD))
    _summarise(screen, check, as_json=arguments.json)
    return 1 if check.broken else 0


class _Check:
    """A log being verified, shown as it goes on.

    Attributes:
        events: how many events were read.
        deleted: how many of them have no bodies any more.
    """

    def __init__(self, log: LogFile, session_id: str | None) -> None:
        if session_id is not None and log.head(session_id).high_water == 0:
            raise StoreError(f"the log holds nothing of session {quoted(session_id)}")
        self._log = log
        self._pass = Verification(log.read, log.path, session_id)
        self._processes = 1 if session_id is not None else processes_for(log, self._pass.high_water)
        self.broken = self.events = self.deleted = 0

    def violations(self) -> Iterator[Violation]:
        """What is wrong, in the order of the log."""
        if self._processes > 1 and self._is_sound():
            return
        yield from self._single_pass()
        self.events, self.deleted = self._pass.events, self._pass.deleted

    def _is_sound(self) -> bool:
        with Progress("verifying", self._pass.high_water) as progress:
            sound = verify_together(self._log, self._processes, progress.at)
        if sound is not None:
            self.events, self.deleted = sound.events, sound.deleted
        return sound is not None

    def _single_pass(self) -> Iterator[Violation]:
        with Progress("verifying", self._pass.high_water) as progress:
            for page in self._pass.pages():
                progress.at(self._pass.looked_at)
                for violation in page:
                    progress.hide()
                    yield violation
        yield from self._pass.ends()


def _as_json(violation: Violation) -> dict[str, str | int | None]:
    return {"law": violation.law, "sequence": violation.sequence, "words": violation.words}


def _summarise(screen: Screen, check: _Check, *, as_json: bool) -> None:
    if as_json:
        write_json_line(screen, {"events": check.events, "deleted": check.deleted, "violations": check.broken})
    elif check.broken:
        screen.line((f"not lawful: {_count(check.broken, 'violation')} in {_count(check.events, 'event')}", Look.BAD))
    else:
        deleted = f", {check.deleted} of them without their bodies" if check.deleted else ""
        screen.line((f"✓ lawful: the {len(LAWS)} laws hold over {_count(check.events, 'event')}{deleted}", Look.GOOD))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
