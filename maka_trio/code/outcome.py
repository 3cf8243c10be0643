"""How a program ended, as values. A program that fails is an answer like any other; only ours are exceptions."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from maka_trio.facts.json_value import JSON
from maka_trio.records import frozen

MESSAGE_BYTES = 4096
"""What is kept of the text of a program's error, in UTF-8."""

TRACE_LINES = 8
"""Places in the program that an error names, innermost last."""


class ProgramFault(StrEnum):
    """What ended a program that did not end well."""

    PARSE_ERROR = "parse_error"
    EXECUTION_ERROR = "execution_error"
    TOOL_FAILURE = "tool_failure"
    LIMIT_EXCEEDED = "limit_exceeded"


@frozen
class ProgramValue:
    """The program came to its end, or to `exit`; `value` is its last expression, or what it gave to `exit`."""

    value: JSON


@frozen
class ProgramError:
    """The program failed.

    Args:
        fault: nothing ran (`parse_error`), it raised (`execution_error`), it let a failed call of a tool out
            (`tool_failure`), or it was stopped at a limit (`limit_exceeded`).
        message: the type and text of what it raised, or the limit; bounded.
        trace: the places in the program, outermost first; bounded.
    """

    fault: ProgramFault
    message: str
    trace: tuple[str, ...] = ()

    @classmethod
    def over(cls, limit: str) -> ProgramError:
        """The program was stopped at this limit."""
        return cls(ProgramFault.LIMIT_EXCEEDED, limit)


ProgramResult: TypeAlias = ProgramValue | ProgramError


def result_json(result: ProgramResult, tool_calls: int) -> dict[str, JSON]:
    """The result as tools and the log show it."""
    match result:
        case ProgramValue(value=value):
            return {"ok": True, "value": value, "toolCalls": tool_calls}
        case ProgramError():
            error: dict[str, JSON] = {"kind": result.fault.value, "message": result.message}
            if result.trace:
                error["trace"] = list(result.trace)
            return {"ok": False, "error": error, "toolCalls": tool_calls}
