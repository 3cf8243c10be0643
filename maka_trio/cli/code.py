"""`maka-trio code`: one program in the sandbox, with a user's tools and the journal of a run, and no model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import trio

from maka_trio.cli.interrupts import cancelled_by_signals
from maka_trio.cli.json_lines import write_json_line
from maka_trio.cli.run import make_default_log_folder
from maka_trio.cli.screen import Look, Screen, stderr, stdout
from maka_trio.cli.toolbox import load_tools
from maka_trio.cli.usage import UsageError, positive_seconds
from maka_trio.cli.words import excerpt
from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.executor import CodeExecutor
from maka_trio.engine.program import run_program
from maka_trio.facts.codec import canonical
from maka_trio.facts.identity import Invocation, new_id
from maka_trio.log.event_log import EventLog
from maka_trio.tools.catalog import ToolCatalog


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "code",
        help="run a program in the sandbox",
        description="Runs a program in the sandbox of Code Mode. It may call the tools of a catalog, as async "
        "functions, and nothing else of the world; every call is journaled. What it writes and its value go to "
        "standard output. Exit status 1 if it fails. Ctrl-C stops it; what has begun is finished and recorded first.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="the program; - reads it from standard input")
    parser.add_argument("--tools", metavar="MODULE:CATALOG", help="a ToolCatalog (or a list of tools) it may call")
    parser.add_argument("--session", metavar="S", help="the session to write to; a new one by default")
    parser.add_argument("--log", metavar="FILE", type=Path, help="the log; by default that of maka-trio run")
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=positive_seconds,
        default=CellLimits().execution_seconds,
        help="how long it may run, waiting for tools apart (%(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="the result as one line of JSON, nothing else")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    program = _program(arguments.file)
    executor = CodeExecutor(CellLimits(execution_seconds=arguments.seconds))
    executor.require()
    path = arguments.log or make_default_log_folder()
    tools = load_tools(arguments.tools)
    session_id = f"cli-{new_id()[:8]}" if arguments.session is None else arguments.session
    shown = _Shown(stdout(), as_json=arguments.json)

    async def work() -> int:
        return await _run(path, executor, program, tools, Invocation.new(session_id), shown)

    return trio.run(cancelled_by_signals, work)


def _program(file: str) -> str:
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: the program is not UTF-8 (byte {error.start})") from None


async def _run(
    path: Path, executor: CodeExecutor, program: str, tools: ToolCatalog, invocation: Invocation, shown: _Shown
) -> int:
    async with EventLog.open(path) as log:
        told: Any = await run_program(log, executor, program, tools, invocation=invocation, output=shown.write)
    shown.end(told)
    return 0 if told["result"]["ok"] else 1


class _Shown:
    """What the person sees: output as it comes, then the value or the error."""

    def __init__(self, screen: Screen, *, as_json: bool) -> None:
        self._screen = screen
        self._as_json = as_json
        self._failure: OSError | None = None

    def write(self, text: str) -> None:
        """Show what the program wrote. A reader that went away does not end the program: `end` tells of it."""
        if self._as_json or self._failure is not None:
            return
        try:
            self._screen.write(text)
        except OSError as failure:
            self._failure = failure

    def end(self, told: Any) -> None:
        """Show how it ended.

        Raises:
            OSError: what it wrote could not be shown.
        """
        if self._failure is not None:
            raise self._failure
        if self._as_json:
            write_json_line(self._screen, told)
            return
        self._screen.fresh_line()
        result = told["result"]
        if not result["ok"]:
            self._fail(result["error"])
        elif result["value"] is not None:
            self._screen.line(canonical(result["value"]).decode())

    def _fail(self, error: Any) -> None:
        notes = stderr()
        for line in error.get("trace", ()):
            notes.line((f"  {excerpt(line)}", Look.FAINT))
        notes.line((f"{error['kind']}: {excerpt(error['message'])}", Look.BAD))
