"""`maka-trio explore`: cancel, crash or fail a scenario of one's own at every point, and see what it breaks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from maka_trio.cli.explore_progress import Progress
from maka_trio.cli.load import load
from maka_trio.cli.processors import processors
from maka_trio.cli.screen import Look, Screen, stderr, stdout
from maka_trio.cli.usage import UsageError, positive_int, positive_seconds
from maka_trio.records import frozen
from maka_trio.testing.crash import crash_everywhere, only_recover
from maka_trio.testing.exploration import Exploration, Watch
from maka_trio.testing.explorer import explore
from maka_trio.testing.faults import fault_everywhere
from maka_trio.testing.hash_seed import command_with, fix_hash_seed, fixed_hash_seed, in_words
from maka_trio.testing.log_trial import takes_log
from maka_trio.testing.replaying import cancel_scenario, replay, story_of
from maka_trio.testing.report_files import as_json, as_junit
from maka_trio.testing.report_page import page
from maka_trio.testing.timeline import Section

SHOWN = 10
"""Violations that are shown; the reports have all of them."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "explore",
        help="cancel, crash or fail a scenario at every point",
        description="Runs an async function of a maka_trio.testing.Trial once for each point at which it can be "
        "cancelled, deterministically, and checks it after each run. Exit status 1 if anything broke.",
        allow_abbrev=False,
    )
    parser.add_argument("scenario", metavar="MODULE:SCENARIO", help="a module or file, and a function in it")
    parser.add_argument("--points", type=points, default="all", metavar="all|N", help="at most N points of each seed")
    parser.add_argument("--seeds", type=positive_int, default=1, metavar="N", help="schedules to try (1)")
    parser.add_argument("--deadlines", action="store_true", help="let deadlines pass as well as cancelling")
    parser.add_argument("--pairs", type=positive_int, default=0, metavar="N", help="N runs with a second cancel")
    parser.add_argument("--crash", action="store_true", help="die at every commit; SCENARIO takes a trial and a log")
    parser.add_argument("--kill", action="store_true", help="the same with real processes, files and SIGKILL")
    parser.add_argument("--faults", action="store_true", help="let every commit, socket and fault point fail once")
    parser.add_argument("--without", action="append", default=[], metavar="FAULT", help="a kind or fault to leave out")
    parser.add_argument("--then", metavar="NAME", help="what runs after a crash or fault: a function of the module")
    parser.add_argument("--budget", type=duration, metavar="60s", help="stop after so long: 60s, 5m")
    parser.add_argument("--jobs", type=positive_int, default=processors(), metavar="N", help="processes (one a CPU)")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page with the timeline")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit's XML")
    parser.add_argument("--replay", metavar="WORD", help="make one run again, and tell its steps")
    parser.set_defaults(command=command)


def points(text: str) -> Literal["all"] | int:
    """`all`, or a whole number above 0."""
    return "all" if text == "all" else positive_int(text)


def duration(text: str) -> float:
    """Seconds above 0, from `90`, `90s` or `1.5m`."""
    factor = 60 if text.endswith("m") else 1
    return positive_seconds(text.removesuffix("m").removesuffix("s")) * factor


# argparse puts the name of the function into its message.
points.__name__ = "'all' or whole number above 0"
duration.__name__ = "duration such as 90s or 5m"


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    if arguments.own_process:
        fix_hash_seed()
    scenario = load(arguments.scenario)
    follow_up = load(arguments.then, beside=arguments.scenario) if arguments.then else None
    if arguments.replay:
        return _replay(stdout(), scenario, arguments.replay, follow_up)
    if (arguments.crash or arguments.kill) and not takes_log(scenario):
        raise UsageError(f"{arguments.scenario} takes no log, so there are no commits to crash at")
    sections = [section for way in _ways(arguments, scenario, follow_up) for section in _explore(way, arguments)]
    _summarise(stdout(), sections)
    _write_reports(arguments, sections)
    return 1 if any(section.exploration.violations for section in sections) else 0


# --- exploring ----------------------------------------------------------------------------------------------


@frozen
class _Way:
    """One way to explore the scenario."""

    title: str
    run: Callable[..., Exploration]
    scenario: Any
    follow_up: Any


def _ways(arguments: argparse.Namespace, scenario: Any, follow_up: Any) -> Iterator[_Way]:
    how = ["cancel", "deadline"] if arguments.deadlines else ["cancel"]
    after_crash = follow_up or only_recover

    def cancels(**settings: Any) -> Exploration:
        return explore(cancel_scenario(scenario), how=how, pairs=arguments.pairs, **settings)  # type: ignore[arg-type]

    def faults(**settings: Any) -> Exploration:
        return fault_everywhere(scenario, follow_up, without=arguments.without, **settings)

    yield _Way("Cancels", cancels, scenario, None)
    if arguments.crash:
        yield _Way("Crashes", lambda **rest: crash_everywhere(scenario, after_crash, **rest), scenario, follow_up)
    if arguments.kill:
        kills = lambda **rest: crash_everywhere(scenario, after_crash, kill=True, **rest)  # noqa: E731
        yield _Way("Kills", kills, scenario, follow_up)
    if arguments.faults:
        yield _Way("Faults", faults, scenario, follow_up)


def _explore(way: _Way, arguments: argparse.Namespace) -> Iterator[Section]:
    left = _time_left(arguments)
    if left is not None and left <= 0:
        stdout().line((f"{way.title}: no time left of the budget", Look.WARN))
        return
    with Progress(stderr(), way.title) as progress:
        watch: Watch = progress.show
        found = way.run(points=arguments.points, seeds=arguments.seeds, budget=left, jobs=arguments.jobs, watch=watch)
    smallest = found.smallest
    if smallest is None:
        yield Section(way.title, found)
        return
    yield Section(way.title, found, story_of(way.scenario, smallest), _again(arguments, smallest.token))


def _time_left(arguments: argparse.Namespace) -> float | None:
    if arguments.budget is None:
        return None
    if not hasattr(arguments, "ends"):
        arguments.ends = time.monotonic() + arguments.budget
    left: float = arguments.ends - time.monotonic()
    return left


def _again(arguments: argparse.Namespace, token: str) -> str:
    then = ["--then", arguments.then] if arguments.then else []
    words = ["maka-trio", "explore", arguments.scenario, *then, "--replay", token]
    return command_with(fixed_hash_seed(), words)


def _replay(screen: Screen, scenario: Any, word: str, follow_up: Any) -> int:
    again = replay(scenario, word, follow_up)
    for moment in again.moments:
        if moment.task:
            screen.line((f"{moment.task}  ", Look.FAINT), moment.where)
        else:
            screen.line((f"● {moment.where}", Look.WARN))
    for words in again.violations:
        screen.line((f"✗ {words}", Look.BAD))
    if not again.violations:
        screen.line(("✓ every check holds", Look.GOOD))
    return 1 if again.violations else 0


# --- telling ------------------------------------------------------------------------------------------------

_COLUMNS = ("", "runs", "places", "traces", "broke", "seconds")


def _summarise(screen: Screen, sections: list[Section]) -> None:
    rows = [_COLUMNS, *(_cells(section) for section in sections)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        screen.line(("  ".join(cells), Look.FAINT if number == 0 else Look.PLAIN))
    for section in sections:
        _tell(screen, section)


def _cells(section: Section) -> tuple[str, ...]:
    found = section.exploration
    counts = (found.runs, len(found.points), found.traces, len(found.violations))
    return (section.title, *map(str, counts), f"{found.seconds:.1f}")


def _tell(screen: Screen, section: Section) -> None:
    found = section.exploration
    for why in found.cuts:
        screen.line((f"{section.title}: {why}; not everything chosen was tried", Look.WARN))
    smallest = found.smallest
    if smallest is None:
        screen.line((f"✓ {section.title}: every check held in every run", Look.GOOD))
        return
    screen.line((f"✗ {section.title}, the smallest failure: {smallest.words}", Look.BAD))
    for place in smallest.shot_at:
        screen.line(f"  at {place}")
    screen.line("  again: ", (section.again, Look.STRONG))
    if found.hash_seed is None:
        screen.line((f"  {in_words(None)}", Look.WARN))
    for place, count in found.violating_points().most_common(SHOWN):
        screen.line((f"  {count} at {place}", Look.FAINT))


def _write_reports(arguments: argparse.Namespace, sections: list[Section]) -> None:
    writers = ((arguments.report, page), (arguments.json, as_json), (arguments.junit, as_junit))
    for path, write in writers:
        if path is not None:
            path.write_text(write(arguments.scenario, sections), encoding="utf-8")
