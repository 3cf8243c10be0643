"""Reading a provider's JSON: one payload, the arguments of a call, the counts of a usage.

What a provider sends is data. Whatever is wrong with it becomes an AdapterError that quotes a bounded, escaped
excerpt; nothing is repaired.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from maka_trio import limits
from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON

T = TypeVar("T")

_PARSE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)


def quoted(data: bytes | str) -> str:
    """The front of a foreign text as an error shows it: escaped, at most `limits.WIRE_EXCERPT_BYTES` of it."""
    raw = data if isinstance(data, bytes) else data.encode(errors="replace")
    front = raw[: limits.WIRE_EXCERPT_BYTES].decode(errors="replace")
    return repr(front) + ("..." if len(raw) > limits.WIRE_EXCERPT_BYTES else "")


def parse_payload(decoder: msgspec.json.Decoder[T], data: bytes, offset: int | None = None) -> T:
    """Decode one JSON document.

    Raises:
        AdapterError: it is not JSON, or not of the shape that the protocol gives it.
    """
    try:
        return decoder.decode(data)
    except _PARSE_ERRORS as error:
        where = "" if offset is None else f" at byte {offset}"
        raise AdapterError(
            f"the answer{where} is not what the protocol allows: {error}: {quoted(data)}", offset=offset
        ) from None


def parse_arguments(text: str, tool: str) -> JSON:
    """The input of a tool call from its arguments as the model wrote them.

    Nothing, white space and `null` are an empty object: that is how providers write a call without arguments.
    Anything else is taken as it is; whether it fits the tool is for its schema to say.

    Raises:
        AdapterError: the text is not one JSON document (NaN, a second document, half of one, a lone surrogate), or
            is nested deeper than `limits.JSON_DEPTH`.
    """
    if not text.strip():
        return {}
    try:
        value = msgspec.json.decode(text)
    except _PARSE_ERRORS as error:
        raise AdapterError(f"the arguments of {excerpt(tool)} are not JSON: {error}: {quoted(text)}") from None
    check_depth(value, text, f"the arguments of {excerpt(tool)}")
    return {} if value is None else value


def check_depth(value: JSON, text: str, what: str) -> None:
    """Refuse a value that is nested deeper than a fact may hold. `text` is the JSON it came from."""
    if text.count("[") + text.count("{") <= limits.JSON_DEPTH:
        return
    level: list[Any] = [value]
    for _ in range(limits.JSON_DEPTH):
        level = [item for container in level for item in _items(container)]
    if any(isinstance(item, (dict, list)) for item in level):
        raise AdapterError(f"{what} are nested deeper than the limit of {limits.JSON_DEPTH} levels")


def _items(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def token_count(value: object, field: str) -> int | None:
    """A count of a usage object: a non-negative integer, or None where it is absent or null.

    Raises:
        AdapterError: anything else, such as -1, 1.5 or "2".
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 3.0 and 3 are one number in JSON
    if type(value) is not int or not 0 <= value <= limits.MAX_OUTPUT_TOKENS:
        raise AdapterError(f"usage {field}={excerpt(value)} is not a non-negative integer")
    return value
