"""What the command line itself refuses: one line, exit status 2."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from maka_trio.cli.escape import one_line


class UsageError(Exception):
    """The command was not given what it needs. The message is for the person who typed it."""


class Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Say it and leave with status 2."""
        print(f"{self.prog}: {one_line(message)} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def positive_int(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def positive_seconds(text: str) -> float:
    """A number of seconds above 0."""
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


# argparse puts the name of the function into its message.
positive_int.__name__ = "whole number above 0"
positive_seconds.__name__ = "number of seconds above 0"
