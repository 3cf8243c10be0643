"""Does a JSON value have the type that an SDK declares for it?

The SDKs describe requests as `TypedDict`s for type checkers and check little at run time. This does it strictly:
unknown keys, missing keys and wrong types are all named, with the path to them. (An unknown key that is null says
nothing, and comes back in what a provider once sent.)
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typing_extensions

_REQUIRED = {typing.Required, typing_extensions.Required}
_MARKS = _REQUIRED | {typing.NotRequired, typing_extensions.NotRequired, typing.Annotated}
_LITERALS = {typing.Literal, typing_extensions.Literal}
_UNIONS = {typing.Union, types.UnionType}


def mismatch(value: object, hint: Any, path: str = "body") -> str | None:
    """The first place where a value does not fit a type; None if it fits."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in _MARKS:
        return mismatch(value, arguments[0], path)
    if hint is Any or hint is object:
        return None
    if origin in _UNIONS:
        return _no_member(value, arguments, path)
    if origin in _LITERALS:
        return None if value in arguments else f"{path}: {value!r} is none of {arguments!r}"
    if typing_extensions.is_typeddict(hint):
        return _typed_dict(value, hint, path)
    if _is_array(origin or hint):
        return _array(value, arguments, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(value, arguments, path)
    return None if _is_plain(value, hint) else f"{path}: {value!r:.60} is no {hint!r}"


def _no_member(value: object, members: Sequence[Any], path: str) -> str | None:
    found = [mismatch(value, member, path) for member in members]
    if None in found:
        return None
    # Of all the members, the one that gets furthest into the value says most.
    return max((reason for reason in found if reason is not None), key=lambda reason: len(reason.partition(":")[0]))


def _typed_dict(value: object, hint: Any, path: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{path}: {value!r:.60} is no {hint.__name__}"
    hints = typing_extensions.get_type_hints(hint, include_extras=True)
    unknown = sorted(key for key in value if key not in hints and value[key] is not None)
    if unknown:
        return f"{path}: {hint.__name__} has no key {unknown[0]!r}"
    # The SDKs mark each required key, in hints written as text, which `__required_keys__` does not see through.
    required = {key for key, entry in hints.items() if typing.get_origin(entry) in _REQUIRED}
    missing = sorted(required - set(value))
    if missing:
        return f"{path}: {hint.__name__} lacks {missing[0]!r}"
    return _first(mismatch(value[key], hints[key], f"{path}.{key}") for key in value if key in hints)


def _array(value: object, arguments: Sequence[Any], path: str) -> str | None:
    if not isinstance(value, list):
        return f"{path}: {value!r:.60} is no list"
    item = arguments[0] if arguments else Any
    return _first(mismatch(entry, item, f"{path}[{number}]") for number, entry in enumerate(value))


def _mapping(value: object, arguments: Sequence[Any], path: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{path}: {value!r:.60} is no object"
    return _first(mismatch(entry, arguments[1], f"{path}.{key}") for key, entry in value.items())


def _is_array(kind: Any) -> bool:
    named = getattr(kind, "__name__", "")
    sequence = isinstance(kind, type) and issubclass(kind, Iterable) and not issubclass(kind, (str, bytes, Mapping))
    return named == "SequenceNotStr" or (sequence and typing.get_origin(kind) is None and kind is not object)


def _is_plain(value: object, hint: Any) -> bool:
    if hint in (None, type(None)):
        return value is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint in (str, int, bool):
        return type(value) is hint
    return False  # classes of the SDK itself: a request is made of plain values


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)
