"""What passes between a running program and its host: what the program wants, and what it is answered. Values only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from maka_trio.code.outcome import ProgramResult
from maka_trio.errors import MakaError
from maka_trio.records import frozen


@frozen
class ToolWanted:
    """The program called a tool. It may go on and await the answer later, under this number.

    `alone`: it does nothing before it has the answer.
    """

    number: int
    name: str
    payload: str
    alone: bool


@frozen
class HelperWanted:
    """The program called a helper and waits for the answer."""

    name: str
    payload: str


@frozen
class SleepWanted:
    """The program sleeps: as a whole, or (with a number) one of its tasks."""

    seconds: float
    number: int | None


@frozen
class Waiting:
    """Every task of the program waits for one of these answers."""

    numbers: tuple[int, ...]


Turn: TypeAlias = ToolWanted | HelperWanted | SleepWanted | Waiting | ProgramResult


@frozen
class Answer:
    """What a call came to: JSON text, or a failure that is raised in the program."""

    payload: str = "null"
    failure: str | None = None


LATER: Final = Answer()
"""In place of an answer to a tool's call or a task's sleep: it comes under its number, once the program waits."""

Write: TypeAlias = Callable[[str], bool]
"""Takes a text that the program wrote; false when that is more than it may write. Called in whichever thread."""


class InterpreterLost(MakaError):
    """The interpreter cannot be started, ended in the middle of a turn, or does not do what it must."""
