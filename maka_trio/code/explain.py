"""What an error of the interpreter means for a program: which fault it is, in which words, and where. Pure.

Errors are told apart by what they say of themselves, since their classes belong to an optional module.
"""

from __future__ import annotations

from typing import Any, Final

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.outcome import MESSAGE_BYTES, TRACE_LINES, ProgramError, ProgramFault
from maka_trio.code.turn import InterpreterLost
from maka_trio.tools.failure import bounded

LOST_TEXT: Final = "the interpreter stopped unexpectedly"

_LINE_BYTES: Final = 200
_PROGRAM_FILE: Final = "<python-input-1>"
"""The second source that a session is fed; the first is ours."""

_UNSUPPORTED: Final = "The monty syntax parser does not yet support"


def explained(error: Any, limits: CellLimits) -> ProgramError:
    """What ended the program.

    Raises:
        InterpreterLost: it was not the program, nor a limit of it.
    """
    match type(error).__name__:
        case "MontySyntaxError" | "MontyRuntimeError":
            return _raised(error, limits)
        case "MontyCrashedError" if error.timed_out:
            return _out_of_time(limits)
        case _:
            raise InterpreterLost(f"{LOST_TEXT}: {bounded(str(error), MESSAGE_BYTES)}") from error


def _raised(error: Any, limits: CellLimits) -> ProgramError:
    words = bounded(error.display("type-msg"), MESSAGE_BYTES)
    match error.exception():
        case MemoryError():
            return ProgramError.over(f"the program needs more than {limits.memory_bytes} bytes of memory")
        case TimeoutError() if "time limit exceeded" in words:
            return _out_of_time(limits)
        case RecursionError():
            return ProgramError(ProgramFault.LIMIT_EXCEEDED, words, _trace(error))
        case SyntaxError() if not _ran(error):
            return ProgramError(ProgramFault.PARSE_ERROR, words, _trace(error))
        case NotImplementedError() if _UNSUPPORTED in words and not _ran(error):
            return ProgramError(ProgramFault.PARSE_ERROR, words, _trace(error))
        case _:
            return ProgramError(ProgramFault.EXECUTION_ERROR, words, _trace(error))


def _out_of_time(limits: CellLimits) -> ProgramError:
    return ProgramError.over(f"the program ran for more than {limits.execution_seconds:g} seconds")


def _ran(error: Any) -> bool:
    """Whether the program ran: what does not parse names a place, but nothing that was running there."""
    return any(frame.function_name for frame in error.traceback())


def _trace(error: Any) -> tuple[str, ...]:
    """The places in the program itself; those in the functions before it are ours."""
    lines = []
    for frame in error.traceback():
        if frame.filename == _PROGRAM_FILE:
            where = f" in {frame.function_name}" if frame.function_name else ""
            lines.append(bounded(f"line {frame.line}{where}: {(frame.source_line or '').strip()}", _LINE_BYTES))
    return tuple(lines[-TRACE_LINES:])
