"""`maka-trio`: takes the command line apart, runs a command, and turns how it ended into one line and a status.

Exit status: 0 done, 1 failed, 2 wrong usage, 130 after Ctrl-C (128 and the number of any signal), 141 when whoever
read the output went away.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from maka_trio.cli import code, decode, demo, doctor, explore, export, import_, log, retire, run, verify
from maka_trio.cli.escape import clip, one_line
from maka_trio.cli.screen import discard_output
from maka_trio.cli.usage import Parser, UsageError
from maka_trio.errors import MakaError

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
NOBODY_READS = 141

MESSAGE_COLUMNS = 2000
"""What of an error's text is shown: some quote what a provider sent."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status. An error that can be expected is one line on standard error."""
    try:
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            discard_output(stream)
        return NOBODY_READS
    return status


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv, argparse.Namespace(own_process=argv is None))
        status: int = arguments.command(arguments)
    except SystemExit as leaving:  # argparse has said why
        return leaving.code if isinstance(leaving.code, int) else FAILED
    except UsageError as error:
        return _complain(str(error), WRONG_USAGE)
    except MakaError as error:
        return _complain(str(error) or type(error).__name__, FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _complain(_os_error(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseExceptionGroup as group:
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        return INTERRUPTED
    return status


def _parser() -> Parser:
    parser = Parser(prog="maka-trio", description="Runs LLM agents on trio with a durable log.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"maka-trio {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (demo, run, code, log, decode, verify, export, import_, retire, doctor, explore):
        command.add_to(commands)
    return parser


def _version() -> str:
    with suppress(PackageNotFoundError):
        return version("maka-trio")
    return "of a source tree that is not installed"


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _complain(message: str, status: int) -> int:
    print(f"maka-trio: {clip(one_line(message), MESSAGE_COLUMNS)}", file=sys.stderr)
    return status
