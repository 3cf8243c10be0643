"""What an append is and what becomes of it, as the planner, the store, the writer and the followers pass it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from maka_trio.errors import MakaError
from maka_trio.log.prepared import PreparedWrite

Ticket: TypeAlias = Sequence[PreparedWrite]
"""An append: written whole or not at all."""


Result: TypeAlias = list[int] | MakaError
"""What became of a ticket: its sequences, or why it was not written."""

Added: TypeAlias = tuple[int, list[PreparedWrite]]
"""What one transaction added to the log: the first of its sequences, which follow upon each other, and its events."""


class Position(NamedTuple):
    """The end of a scope: its last sequence, and its digest there."""

    high_water: int
    digest: bytes


class Commit(NamedTuple):
    """What one `Store.write` did.

    A result for each ticket, what is new in the log (retries are not), and where the log and the sessions that it
    touched now end.
    """

    results: list[Result]
    added: list[Added]
    root: Position
    sessions: dict[str, Position]
