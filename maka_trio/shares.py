"""A share of some numbered things, for a process that takes it while others take the rest. Knows numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from maka_trio.records import frozen

T = TypeVar("T")


@frozen
class Share:
    """Every `of`-th of them, from number `index`."""

    index: int = 0
    of: int = 1

    @property
    def first(self) -> bool:
        """Whether what every share has to do anyway is entered by this one."""
        return self.index == 0

    def has(self, number: object) -> bool:
        """Whether the item of this number is of this share. What has no number is of the first."""
        return (number % self.of if isinstance(number, int) else 0) == self.index

    def mine(self, items: Sequence[T]) -> Sequence[T]:
        """The items of this share."""
        return items[self.index :: self.of]


WHOLE: Final = Share()
"""All of them."""
