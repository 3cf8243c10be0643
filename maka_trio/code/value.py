"""A program's value as JSON. What JSON has no form for is shown by what it prints as, which a model can read."""

from __future__ import annotations

import math
from typing import Final

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import JSON
from maka_trio.tools.failure import bounded

VALUE_NODES: Final = 200_000
"""Parts of one value. A small one may hold a part many times over, so its size does not bound them."""

VALUE_DEPTH: Final = limits.PROJECTION_DEPTH - 8
"""Nesting of a value, so that what is put round it can still be shown to a model."""

_SHOWN_BYTES: Final = 200
_LONGEST_INTEGER: Final = 10**limits.JSON_INTEGER_DIGITS


def as_json(value: object) -> JSON:
    """The value of a program as JSON, sharing nothing with it.

    Raises:
        InvalidInput: it has too many parts or levels.
    """
    return _Copy().of(value, VALUE_DEPTH)


class _Copy:
    def __init__(self) -> None:
        self._left = VALUE_NODES

    def of(self, value: object, depth: int) -> JSON:
        self._left -= 1
        if self._left < 0:
            raise InvalidInput(f"it has more than {VALUE_NODES} parts")
        if depth < 0:
            raise InvalidInput(f"it is nested deeper than {VALUE_DEPTH} levels")
        match value:
            case None | True | False:
                return value
            case int() if -_LONGEST_INTEGER < value < _LONGEST_INTEGER:
                return int(value)
            case int():
                return f"<an integer of {value.bit_length()} bits>"
            case float() if math.isfinite(value):
                return float(value)
            case str():
                return value.encode(errors="backslashreplace").decode()
            case dict():
                return {self._key(key): self.of(item, depth - 1) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self.of(item, depth - 1) for item in value]
            case _:
                return shown(value)

    def _key(self, key: object) -> str:
        plain = shown(key) if isinstance(key, (tuple, frozenset)) else self.of(key, 0)
        return plain if isinstance(plain, str) else str(plain)


def shown(value: object) -> str:
    """What a value prints as, bounded."""
    return bounded(repr(value), _SHOWN_BYTES)
