"""What a model is told of Code Mode: how a program looks, what it has, and which tools it may call. Pure.

The text is part of every request, so it says what a program's author needs and no more. Which Python the interpreter
has was found by trying; a test tries it again.
"""

from __future__ import annotations

from typing import Final

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.declarations import declaration
from maka_trio.code.names import function_names
from maka_trio.code.options import EXEC_SCHEMA, PRAGMA, WAIT_SCHEMA
from maka_trio.facts.opening import ToolDefinition
from maka_trio.limits import KIB, MIB
from maka_trio.tools.catalog import ToolCatalog

EXEC: Final = "exec"
WAIT: Final = "wait"
CELL: Final = "code_cell"

DECLARED_BYTES: Final = 48 * KIB
"""Declarations of tools in the description of `exec`; the tools that do not fit are named, and found by `tools`."""

UNCOLLECTED_CELLS: Final = 4
"""Cells of a run that run, or whose end the model has not seen."""

_EXEC_TEXT: Final = """\
Runs a Python program in a sandbox and returns what it wrote and its value, the value of its last expression. Use it to
call tools: several at once, in loops, with their results handled by the program instead of by you.

The tools below are async functions: `r = await name(key=value)`. Results are plain JSON values. Independent calls run
beside each other with `await asyncio.gather(a(x=1), b(y=2))`. A call that fails raises RuntimeError, which may be
caught. `await` works at the top level.

Also there, without await: `text(value)` and `print` write to the output; `notify(text)` tells you something while the
program goes on; `store(name, value)` and `load(name, default=None)` keep JSON values for later programs of this
session; `yield_control()` lets you see the output so far; `exit(value=None)` ends the program; `tools(search=None)`
lists the tools with their declarations.

The Python is a subset. It has functions, closures, decorators, plain classes and dataclasses, match, with, try,
comprehensions, f-strings, async functions, and the modules asyncio (gather, sleep), base64, bisect, collections, copy,
datetime, decimal, functools, hashlib, itertools, json, math, random, re, time. It lacks inheritance (so exceptions of
your own), yield, del, async with, except*, property, classmethod, staticmethod, asyncio tasks and timeouts, and every
other module. There are no files, no network and no environment: only the tools reach outside.

Each program starts afresh. It may run {seconds:g} seconds (waiting for tools is free), use {memory} MiB, call tools
{calls} times, {in_flight} at once. A program that is still running after yield_time_ms is left running: you get its
cell_id for `wait`. At most {cells} programs may be left so. The first line may set options:
`{pragma} {{"yield_time_ms": 1000, "max_output_tokens": 2000}}`.
"""

_WAIT_TEXT: Final = """\
Waits for a program that `exec` left running, and returns what it wrote since you last saw it, and its value once it has
ended. With terminate it is stopped instead."""


def exec_definition(tools: ToolCatalog, limits: CellLimits) -> ToolDefinition:
    """`exec`, for programs that may call these tools within these limits."""
    text = _EXEC_TEXT.format(
        seconds=limits.execution_seconds,
        memory=limits.memory_bytes // MIB,
        calls=limits.tool_calls,
        in_flight=limits.tool_calls_in_flight,
        cells=UNCOLLECTED_CELLS,
        pragma=PRAGMA,
    )
    return ToolDefinition(EXEC, f"{text}\n{_declarations(tools)}", EXEC_SCHEMA)


def wait_definition() -> ToolDefinition:
    """`wait`."""
    return ToolDefinition(WAIT, _WAIT_TEXT, WAIT_SCHEMA)


def _declarations(tools: ToolCatalog) -> str:
    """The tools in order of their names, as many as fit; then the names of the rest."""
    if not len(tools):
        return "There are no tools to call."
    names = function_names(tool.name for tool in tools)
    shown: list[str] = []
    left_out: list[str] = []
    room = DECLARED_BYTES
    for tool in tools:
        text = declaration(names[tool.name], tool.definition)
        room -= len(text.encode())
        (shown if room >= 0 else left_out).append(text if room >= 0 else names[tool.name])
    rest = [f"# More tools; tools(search) declares them: {', '.join(left_out)}"] if left_out else []
    return "The tools:\n\n" + "\n\n".join([*shown, *rest])
