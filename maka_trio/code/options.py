"""What the model may say with a call of `exec` or `wait`, and how it is read. Pure.

`exec` takes its options beside the program or in a comment on the program's first line, each in one of the two:

    # @exec: {"yield_time_ms": 1000, "max_output_tokens": 2000}
"""

from __future__ import annotations

import json
from typing import Any, Final

from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import JsonObject
from maka_trio.records import frozen
from maka_trio.tools.failure import bounded

PRAGMA: Final = "# @exec:"

EXEC_YIELD_MS: Final = 30_000
WAIT_YIELD_MS: Final = 10_000
OUTPUT_TOKENS: Final = 10_000

_YIELD: Final[JsonObject] = {"type": "integer", "minimum": 0, "maximum": 60_000}
_TOKENS: Final[JsonObject] = {"type": "integer", "minimum": 64, "maximum": 32_768}

EXEC_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "description": "the program"},
        "yield_time_ms": {
            **_YIELD,
            "description": "how long to wait for the program's end before it is left running (30000)",
        },
        "max_output_tokens": {**_TOKENS, "description": "how much of its output and value to show (10000)"},
    },
    "required": ["code"],
    "additionalProperties": False,
}

WAIT_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "cell_id": {"type": "string", "description": "a program that exec left running"},
        "yield_time_ms": {**_YIELD, "description": "how long to wait for its end (10000)"},
        "max_tokens": {**_TOKENS, "description": "how much of its output and value to show (10000)"},
        "terminate": {"type": "boolean", "description": "stop it; tool calls that it began are finished first"},
    },
    "required": ["cell_id"],
    "additionalProperties": False,
}


@frozen
class ExecOptions:
    """A call of `exec`. The program is whole, its first line included."""

    program: str
    yield_seconds: float
    output_tokens: int


@frozen
class WaitOptions:
    """A call of `wait`."""

    cell_id: str
    yield_seconds: float
    output_tokens: int
    terminate: bool


def exec_options(given: dict[str, Any]) -> ExecOptions:
    """Read a call that its schema admits.

    Raises:
        InvalidInput: the comment on the first line is not what it must be, or says what the call says too.
    """
    options = {name: value for name, value in given.items() if name != "code"}
    for name, value in _pragma(given["code"]).items():
        if name in options:
            raise InvalidInput(f"{name} is given twice: beside the program and in its first line")
        options[name] = value
    return ExecOptions(
        given["code"],
        int(options.get("yield_time_ms", EXEC_YIELD_MS)) / 1000,
        int(options.get("max_output_tokens", OUTPUT_TOKENS)),
    )


def wait_options(given: dict[str, Any]) -> WaitOptions:
    """Read a call that its schema admits."""
    return WaitOptions(
        given["cell_id"],
        int(given.get("yield_time_ms", WAIT_YIELD_MS)) / 1000,
        int(given.get("max_tokens", OUTPUT_TOKENS)),
        bool(given.get("terminate", False)),
    )


def _pragma(program: str) -> dict[str, Any]:
    first = program.split("\n", 1)[0].strip()
    if not first.startswith(PRAGMA):
        return {}
    try:
        options = json.loads(first[len(PRAGMA) :], object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the options in the first line cannot be read: {bounded(str(error), 200)}") from None
    if not isinstance(options, dict):
        raise InvalidInput("the options in the first line are a JSON object")
    for name, value in options.items():
        _check_option(name, value)
    return options


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    options = dict(pairs)
    if len(options) < len(pairs):
        raise InvalidInput("an option is given twice")
    return options


def _check_option(name: str, value: Any) -> None:
    bounds = {"yield_time_ms": _YIELD, "max_output_tokens": _TOKENS}.get(name)
    if bounds is None:
        raise InvalidInput(
            f"the first line has an unknown option {name!r:.80}; there are yield_time_ms, max_output_tokens"
        )
    minimum, maximum = bounds["minimum"], bounds["maximum"]
    assert isinstance(minimum, int)
    assert isinstance(maximum, int)
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidInput(f"{name} in the first line is an integer from {minimum} to {maximum}")
