"""JSON as a Python value: its type, and the check that a value is one. Knows nothing of facts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NewType

from maka_trio.errors import InvalidInput
from maka_trio.limits import FACT_DEPTH, JSON_DEPTH, JSON_INTEGER_DIGITS

if TYPE_CHECKING:
    import attrs

if TYPE_CHECKING:
    # Read-only containers, so that a dict[str, int] is JSON for the type checker as it is for everyone else.
    JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]
    JsonObject = Mapping[str, JSON]
else:
    # cattrs dispatches on the annotation object, and a recursive alias has none of its own.
    JSON = NewType("JSON", object)
    JsonObject = NewType("JsonObject", dict)

_TOO_LONG = 10**JSON_INTEGER_DIGITS
_PLAIN = 2**53


def check_json(value: object, *, what: str, depth: int = JSON_DEPTH, nodes: int | None = None) -> JSON:
    """Return `value` as JSON, tuples as arrays, sharing nothing mutable with it.

    Raises:
        InvalidInput: for NaN and infinities, integers of more than `limits.JSON_INTEGER_DIGITS`, lone surrogates, keys
            that are not strings, other types, nesting deeper than `depth`, or more than `nodes` values. The message
            begins with `what`.
    """
    return _Copier(what, depth, nodes if nodes is not None else -1).copy(value, depth)


class _Copier:
    """One copy of one value: how deep it may go, and how many values are left."""

    __slots__ = ("_depth", "_left", "_nodes", "_what")

    def __init__(self, what: str, depth: int, nodes: int) -> None:
        self._what = what
        self._depth = depth
        self._nodes = self._left = nodes

    def copy(self, value: object, depth: int) -> JSON:
        if self._left == 0:
            raise InvalidInput(f"{self._what}: more than {self._nodes} JSON values")
        self._left -= 1
        kind = type(value)
        if kind is str and value.isascii():  # type: ignore[attr-defined]  # it is a str
            return value  # type: ignore[return-value]
        if value is None or kind is bool:
            return value  # type: ignore[return-value]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return self._integer(value)
        if isinstance(value, float):
            return self._number(value)
        if isinstance(value, (list, tuple)):
            self._enter(depth)
            return [self.copy(item, depth - 1) for item in value]
        if isinstance(value, dict):
            self._enter(depth)
            return {self._key(key): self.copy(item, depth - 1) for key, item in value.items()}
        raise InvalidInput(f"{self._what}: {type(value).__name__} is not JSON")

    def _enter(self, depth: int) -> None:
        if depth == 0:
            raise InvalidInput(f"{self._what}: nested deeper than {self._depth} levels")

    def _key(self, key: object) -> str:
        if type(key) is str and key.isascii():
            return key
        if not isinstance(key, str):
            raise InvalidInput(f"{self._what}: a key is {type(key).__name__}, not a string")
        return self._text(key)

    def _integer(self, value: int) -> int:
        if not -_TOO_LONG < value < _TOO_LONG:
            raise InvalidInput(f"{self._what}: an integer of more than {JSON_INTEGER_DIGITS} digits")
        return int(value)

    def _number(self, value: float) -> float:
        if not math.isfinite(value):
            raise InvalidInput(f"{self._what}: {value!r} is not JSON")
        return float(value)

    def _text(self, value: str) -> str:
        try:
            if not value.isascii():
                value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"{self._what}: a text holds a lone surrogate, which UTF-8 cannot carry") from None
        # Not str(value): an enum that is also a str would give its name.
        return str.__str__(value)


def copied_object(value: object, *, what: str) -> JsonObject:
    """A JSON object as `check_json` returns it. Raises InvalidInput for anything that is no dict, or no JSON."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a dict, not {type(value).__name__}")
    checked = check_json(value, what=what)
    assert isinstance(checked, dict)
    return checked


def _is_plain(value: object) -> bool:
    """Whether a value is JSON beyond doubt, as most arguments and options are: a scalar, or an object of scalars."""
    if type(value) is not dict:
        return _is_plain_scalar(value)
    return all(type(key) is str and key.isascii() and _is_plain_scalar(item) for key, item in value.items())


def _is_plain_scalar(value: object) -> bool:
    kind = type(value)
    if kind is str:
        return value.isascii()  # type: ignore[attr-defined,no-any-return]  # it is a str
    return value is None or kind is bool or (kind is int and -_PLAIN < value < _PLAIN)  # type: ignore[operator]


def valid_json(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validator of a field that holds any JSON. How deep a fact may nest is the log's to say of the whole."""
    if not _is_plain(value):
        check_json(value, what=attribute.name, depth=FACT_DEPTH)


def valid_object(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validator of a field that holds a JSON object, or None where that is the default."""
    if value is None and attribute.default is None:
        return
    if not isinstance(value, dict):
        raise InvalidInput(f"{attribute.name} must be a JSON object, not {type(value).__name__}")
    valid_json(instance, attribute, value)


def valid_schema(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validator of a field that holds a JSON Schema: an object or a boolean. What it means is not looked at."""
    if value is not True and value is not False:
        valid_object(instance, attribute, value)


def merge_options(old: JsonObject | None, new: JsonObject | None) -> JsonObject | None:
    """Merge provider options deeply; `new` wins at each leaf, its siblings stay (semantics 1.7)."""
    if not new:
        return old
    if not old:
        return new
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = merge_options(before, value) or {}
        else:
            merged[key] = value
    return merged
