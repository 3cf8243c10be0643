"""attrs validators for the bounds that facts keep. Each failure names the field, the value and the limit."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.limits import IDENTITY_BYTES

E = TypeVar("E", bound=Enum)
Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]

_SHORT = reprlib.Repr()  # looks at a few items of a container, and a few levels into it
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_IS_DIGEST = _DIGEST.fullmatch


def excerpt(value: object) -> str:
    """The value as an error shows it: escaped, and short whatever its size. Never raises."""
    try:
        text = repr(value[:80]) if isinstance(value, (str, bytes)) else _SHORT.repr(value)
    except Exception:  # an integer of too many digits, or a repr that fails: its class is worth telling all the same
        bits = f" of {value.bit_length()} bits" if isinstance(value, int) else ""
        text = f"a value of type {type(value).__name__}{bits}"
    return text if len(text) <= 100 else text[:97] + "..."


def utf8_size(value: object, what: str) -> int:
    """Bytes of a text in UTF-8; InvalidInput for anything that is no text or cannot be encoded."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a str, not {type(value).__name__}")
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} holds a lone surrogate, which UTF-8 cannot carry") from None


def check_identity(value: object, what: str, limit: int = IDENTITY_BYTES) -> None:
    """An id: 1 to `limit` bytes of UTF-8."""
    size = utf8_size(value, what)
    if not 1 <= size <= limit:
        raise InvalidInput(f"{what}={excerpt(value)} has {size} bytes; an id has 1 to {limit}")


def identity(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validator of an id."""
    if type(value) is str and value.isascii() and 0 < len(value) <= IDENTITY_BYTES:
        return  # nearly all ids; there are several in each event
    check_identity(value, attribute.name)


def text(*, limit: int | None = None, blank: bool = True) -> Validator:
    """Validator of a text of at most `limit` bytes, not blank unless allowed."""

    def validate(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        size = utf8_size(value, attribute.name)
        if limit is not None and size > limit:
            raise InvalidInput(f"{attribute.name} has {size} bytes; the limit is {limit}")
        if not blank and not str(value).strip():
            raise InvalidInput(f"{attribute.name} must not be blank")

    return validate


def is_digest(value: object) -> bool:
    """Whether it is `sha256:` and 64 lower-case hexadecimal digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def digest(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validator of `sha256:` and 64 lower-case hexadecimal digits."""
    if not (type(value) is str and _IS_DIGEST(value)) and not is_digest(value):
        raise InvalidInput(f"{attribute.name}={excerpt(value)} is not sha256: and 64 hexadecimal digits")


def flag(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validator of a real boolean."""
    if value is not True and value is not False:
        raise InvalidInput(f"{attribute.name}={excerpt(value)} is not a bool")


def check_integer(value: object, what: str, *, minimum: int, maximum: int) -> None:
    """An integer (a bool is none) within bounds."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidInput(f"{what}={excerpt(value)} is not an integer from {minimum} to {maximum}")


def integer(*, minimum: int, maximum: int) -> Validator:
    """Validator of an integer (a bool is none) within bounds."""

    def validate(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        check_integer(value, attribute.name, minimum=minimum, maximum=maximum)

    return validate


def number(*, minimum: float, maximum: float) -> Validator:
    """Validator of a number (a bool is none) within bounds, which are finite."""

    def validate(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if type(value) not in (int, float) or not minimum <= value <= maximum:  # type: ignore[operator]  # NaN is in none
            raise InvalidInput(f"{attribute.name}={excerpt(value)} is not a number from {minimum:g} to {maximum:g}")

    return validate


def check_instance(value: object, what: str, kind: type[Any] | tuple[type[Any], ...]) -> None:
    """A value of a type, or of one of several."""
    if not isinstance(value, kind):
        names = [k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,))]
        raise InvalidInput(f"{what} must be {' or '.join(names)}, not {type(value).__name__}")


def instance(kind: type[Any] | tuple[type[Any], ...]) -> Validator:
    """Validator of a type, raising our error instead of attrs' TypeError."""

    def validate(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
        check_instance(value, attribute.name, kind)

    return validate


def optional(validator: Validator) -> Validator:
    """Validator that lets None pass."""

    def validate(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is not None:
            validator(instance, attribute, value)

    return validate


def member(kind: type[E], value: object) -> E:
    """A member of an enum, from itself or from its value, raising our error instead of ValueError alone."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(one.value) for one in kind)
        raise InvalidInput(f"{excerpt(value)} is not one of {known}") from None
