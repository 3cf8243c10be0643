"""What an append is and what becomes of it, as the planner, the store, the writer and the followers pass it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from maka_trio.errors import MakaError
from maka_trio.log.prepared import PreparedWrite
from maka_trio.records import define, frozen

Ticket: TypeAlias = Sequence[PreparedWrite]
"""An append: written whole or not at all."""


@define(eq=False)
class Written:
    """A ticket that was planned, and then written: its sequences, and what of it is new (replays are not)."""

    sequences: list[int]
    new: list[tuple[int, PreparedWrite]]


Result: TypeAlias = Written | MakaError
"""What became of a ticket."""


@frozen
class Position:
    """The end of a scope: its last sequence, and its digest there."""

    high_water: int
    digest: bytes


@frozen
class Commit:
    """What one `Store.write` did: a result for each ticket, and where the log and the sessions it touched now end."""

    results: list[Result]
    root: Position
    sessions: dict[str, Position]
