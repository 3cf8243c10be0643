"""A program's value as JSON. What JSON has no form for is shown by what it prints as, which a model can read."""

from __future__ import annotations

import math
import re
from typing import Final

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.codec import parse_json
from maka_trio.facts.json_value import JSON, check_json
from maka_trio.tools.failure import bounded

VALUE_NODES: Final = 10_000
"""Parts of one value, of the arguments of a call too. A small one may hold a part many times over, so its size does not
bound them; and each is copied, checked and written by the task that a whole program waits for."""

VALUE_DEPTH: Final = limits.PROJECTION_DEPTH - 8
"""Nesting of a value, so that what is put round it can still be shown to a model."""

_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
"""One that does not end is one, too: else each of its quotes would be looked at as the beginning of another."""

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
    """What a value prints as, bounded; its kind where it does not print."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of too many digits in it, or too many levels
        text = f"<a {type(value).__name__} that cannot be shown>"
    return bounded(text, _SHOWN_BYTES)


def crossed(payload: str, what: str) -> JSON:
    """What a program hands over as JSON text: no more of it, and no deeper, than a value may be.

    Raises:
        InvalidInput: it is no JSON, or more than that.
    """
    # Parsing is quick for what is in a value, and slow for what is not: it would make all of it first.
    if _marks(payload) > 2 * VALUE_NODES and _marks(_STRING.sub("", payload)) > 2 * VALUE_NODES:
        raise InvalidInput(f"{what}: more than {VALUE_NODES} JSON values")
    return check_json(parse_json(payload, what=what), what=what, depth=VALUE_DEPTH + 2, nodes=VALUE_NODES)


def _marks(text: str) -> int:
    """Each value has at most two of these to itself, strings apart."""
    return text.count(",") + text.count("[") + text.count("{")
