"""`maka-trio doctor`: what a log stands on, and what to do about it."""

from __future__ import annotations

import argparse
from pathlib import Path

from maka_trio.cli.json_lines import write_json_line
from maka_trio.cli.screen import Look, Screen, stdout
from maka_trio.log.health import Finding, Verdict, examine

_MARKS = {Verdict.GOOD: ("✓", Look.GOOD), Verdict.NOTE: ("·", Look.WARN), Verdict.BAD: ("✗", Look.BAD)}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "doctor",
        help="look at SQLite, the disk and a log file",
        description="Shows versions, the file system, what an fsync costs, permissions and the state of a log, and "
        "what to do where something is wrong. Exit status 1 if something is. Changes nothing.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="the log")
    parser.add_argument("--json", action="store_true", help="JSON lines: one for each finding")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    screen = stdout()
    bad = False
    for finding in examine(arguments.file):
        bad = bad or finding.verdict is Verdict.BAD
        if arguments.json:
            write_json_line(screen, _as_json(finding))
        else:
            _show(screen, finding)
    return 1 if bad else 0


def _as_json(finding: Finding) -> dict[str, str | None]:
    return {
        "subject": finding.subject,
        "verdict": finding.verdict.value,
        "words": finding.words,
        "advice": finding.advice,
    }


def _show(screen: Screen, finding: Finding) -> None:
    mark, look = _MARKS[finding.verdict]
    screen.line((f"{mark} ", look), f"{finding.subject}: {finding.words}")
    if finding.advice is not None:
        screen.line((f"    → {finding.advice}", Look.FAINT))
