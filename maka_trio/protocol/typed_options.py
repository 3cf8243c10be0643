"""Typed options of a protocol, and their form in `ModelRequest.provider_options`.

A request carries options as JSON, one object per protocol, so that the log can hold them. Users write them as a
frozen class; an adapter reads the same class back. Unknown names are refused by both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import Validator, excerpt
from maka_trio.facts.json_value import JSON, JsonObject, check_json
from maka_trio.secret_options import refuse_credentials

T = TypeVar("T", bound="TypedOptions")


class TypedOptions:
    """Base of the option classes. `KEY` is the name of the protocol's object."""

    KEY: ClassVar[str]

    def provider_options(self) -> JsonObject:
        """As `ModelRequest` and `RunInput` take them: only what differs from its default."""
        chosen: dict[str, JSON] = {}
        for field in attrs.fields(type(self)):  # type: ignore[arg-type]  # every subclass is an attrs class
            value = getattr(self, field.name)
            if value != field.default:
                chosen[field.name] = list(value) if isinstance(value, tuple) else value
        return {self.KEY: chosen}

    @classmethod
    def read(cls: type[T], provider_options: Mapping[str, JSON]) -> T:
        """The options of a request; the defaults where it has none, or null.

        Raises:
            InvalidInput: an unknown option, or a value it does not take. Names the option.
        """
        given = provider_options.get(cls.KEY)
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise InvalidInput(f"provider_options[{cls.KEY!r}] must be an object, not {type(given).__name__}")
        known = {field.name for field in attrs.fields(cls)}  # type: ignore[arg-type]  # as above
        unknown = sorted(set(given) - known)
        if unknown:
            raise InvalidInput(
                f"provider_options[{cls.KEY!r}] has no option {excerpt(unknown[0])}; it has {', '.join(sorted(known))}"
            )
        return cls(**{name: value for name, value in given.items() if value is not None})


# --- converters and validators --------------------------------------------------------------------------------


def as_tuple(value: Any) -> Any:
    """Converter: a list is a tuple; what is neither stays, for the validator to refuse."""
    return tuple(value) if isinstance(value, list) else value


def _check(test: Callable[[Any], bool], expected: str) -> Validator:
    def validate(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and not test(value):
            raise InvalidInput(f"option {attribute.name}={excerpt(value)} is not {expected}")

    return validate


def one_of(*names: str) -> Validator:
    """Validator of one of a few words, or None."""
    return _check(lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}")


def whole(*, minimum: int) -> Validator:
    """Validator of an integer of at least `minimum`, or None."""
    return _check(lambda value: type(value) is int and value >= minimum, f"an integer of at least {minimum}")


def number(*, minimum: float, maximum: float) -> Validator:
    """Validator of a number within bounds, or None."""
    return _check(
        lambda value: type(value) in (int, float) and minimum <= value <= maximum,
        f"a number from {minimum} to {maximum}",
    )


def flag() -> Validator:
    """Validator of a bool, or None."""
    return _check(lambda value: isinstance(value, bool), "a bool")


def word() -> Validator:
    """Validator of a text that is not blank, or None."""
    return _check(lambda value: isinstance(value, str) and bool(value.strip()), "a text")


def words(*, blank: bool = False) -> Validator:
    """Validator of a tuple of texts, or None. With `blank` a text may be white space, though not empty."""
    return _check(
        lambda value: (
            isinstance(value, tuple)
            and all(isinstance(item, str) and bool(item if blank else item.strip()) for item in value)
        ),
        "a list of texts",
    )


def json_object() -> Validator:
    """Validator of a JSON object, or None."""
    return _json(lambda value: isinstance(value, Mapping), "a JSON object")


def json_objects() -> Validator:
    """Validator of a tuple of JSON objects, or None."""
    return _json(
        lambda value: isinstance(value, tuple) and all(isinstance(item, Mapping) for item in value),
        "a list of JSON objects",
    )


def check_option(value: object, name: str) -> None:
    """Refuse an option that is no JSON, or that holds a credential.

    Raises:
        InvalidInput: names what is wrong. It does not quote the value, in which there may be a credential.
    """
    refuse_credentials(check_json(value, what=f"option {name}"), f"option {name}")


def _json(test: Callable[[Any], bool], expected: str) -> Validator:
    def validate(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is None:
            return
        if not test(value):
            raise InvalidInput(f"option {attribute.name} is a {type(value).__name__}, not {expected}")
        check_option(value, attribute.name)

    return validate


def hosted_tool_parts(tool: JsonObject) -> tuple[str, JsonObject]:
    """Id and arguments of a hosted tool as it is written in options, for any vendor.

    Raises:
        InvalidInput: it is something else.
    """
    tool_id, args = tool.get("id"), tool.get("args", {})
    if not isinstance(tool_id, str) or not isinstance(args, dict) or set(tool) - {"id", "args"}:
        raise InvalidInput("a hosted tool is an object of id and args")
    return tool_id, args
