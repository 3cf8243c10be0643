"""`run_cell`: one program, run apart from us, calling back for its tools.

The program runs in turns (`turn`). Between two of them everything is decided in this task:
tools run as tasks of the cell, helpers and sleeps are answered in order. Whatever ends the cell (its end, a limit, a
cancel, a fault of ours) kills the interpreter first and then waits for the tools it called: what they began is theirs
to finish. Knows nothing of logs, operations and models.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import trio

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.interpreter import Interpreter, Interpreters, PythonInterpreters
from maka_trio.code.outcome import MESSAGE_BYTES, ProgramError, ProgramFault, ProgramResult, ProgramValue
from maka_trio.code.turn import (
    LATER,
    Answer,
    HelperWanted,
    InterpreterLost,
    SleepWanted,
    ToolWanted,
    Turn,
    Waiting,
    Write,
)
from maka_trio.code.value import crossed
from maka_trio.errors import CleanupUnconfirmed, InvalidInput, ToolError
from maka_trio.facts.codec import canonical
from maka_trio.facts.json_value import JSON
from maka_trio.records import frozen
from maka_trio.scopes import owned_nursery
from maka_trio.tools.failure import bounded

Tool: TypeAlias = Callable[[JSON], Awaitable[str]]
"""`async (arguments) -> JSON text`. A `ToolError` is raised in the program; any other error ends the cell with it."""

Helper: TypeAlias = Callable[..., Awaitable[JSON]]
"""An async function that the program waits for. `InvalidInput` is raised in the program."""

RESULT_SHARE: Final = 4
"""A result may have this part of the program's memory as text, since it is read into objects there."""


class Exit(Exception):
    """Raised by a helper: the program ends here, with this result. No error."""

    def __init__(self, result: ProgramResult) -> None:
        super().__init__()
        self.result = result


@frozen(eq=False)
class CellFunctions:
    """What a program may call.

    Args:
        tools: by the name of the program's function, the tool.
        helpers: by the name of the program's function, what answers it.
    """

    tools: Mapping[str, Tool] = attrs.field(factory=dict)
    helpers: Mapping[str, Helper] = attrs.field(factory=dict)


@frozen
class CellEnd:
    """How a program ended, and how many calls of tools it made."""

    result: ProgramResult
    tool_calls: int = 0


async def run_cell(
    program: str,
    functions: CellFunctions,
    limits: CellLimits,
    *,
    write: Write = lambda text: True,
    threads: trio.CapacityLimiter | None = None,
    interpreters: Interpreters | None = None,
) -> CellEnd:
    """Run a program to its end, in a fresh interpreter.

    Cancelled, it kills the interpreter at once, also in the middle of a computation, and ends when the tools that
    were called have: nothing is called afterwards.

    Args:
        program: Python, of the subset that the interpreter has.
        functions: what the program may call.
        limits: what it may use.
        write: takes what the program prints, in a thread of the worker; false when that is too much.
        threads: how many programs run at once; one that waits for a tool is not running.
        interpreters: what makes the interpreter; by default, `PythonInterpreters`.

    Raises:
        InvalidInput: the interpreter is not installed.
        InterpreterLost: it does not start.
        BaseException: what a tool or helper raised that is no answer for the program.
    """
    if oversize := _oversize(program, limits):
        await trio.lowlevel.checkpoint()
        return CellEnd(oversize)
    interpreter = (interpreters or PythonInterpreters()).make(limits, write, threads)
    cell = _Cell(interpreter, functions, limits)
    try:
        async with owned_nursery() as nursery:
            nursery.start_soon(_kill_when_cancelled, interpreter)
            result = await cell.drive(program, nursery)
            nursery.cancel_scope.cancel("the program has ended")
    finally:
        await interpreter.aclose()  # noqa: ASYNC102 - it shields itself, and a killed interpreter ends by itself
        cell.raise_fault()  # what a tool met while it was drained outranks a cancellation
    return CellEnd(result, cell.tool_calls)


def _oversize(program: str, limits: CellLimits) -> ProgramError | None:
    # No character has less than one byte, so a text that is far too long is never encoded as a whole.
    size = len(program) if len(program) > limits.source_bytes else len(program.encode(errors="replace"))
    if size > limits.source_bytes:
        return ProgramError.over(f"the program has {size} bytes; the limit is {limits.source_bytes}")
    return None


async def _kill_when_cancelled(interpreter: Interpreter) -> None:
    try:
        await trio.sleep_forever()
    finally:
        interpreter.kill()


class _Cell:
    """A program on its way through its turns."""

    def __init__(self, interpreter: Interpreter, functions: CellFunctions, limits: CellLimits) -> None:
        self.tool_calls = 0
        self._interpreter = interpreter
        self._functions = functions
        self._limits = limits
        self._in_flight = trio.Semaphore(limits.tool_calls_in_flight)
        self._answers: dict[int, Answer] = {}
        self._news = trio.Event()
        self._timers = 0
        self._failures: set[str] = set()
        self._fault: Exception | None = None

    async def drive(self, program: str, nursery: trio.Nursery) -> ProgramResult:
        """Take turns until the program has ended; its tools run in the nursery."""
        await self._open()
        turn = await self._turn(self._interpreter.start(program))
        while not isinstance(turn, (ProgramValue, ProgramError)):
            try:
                turn = await self._next(turn, nursery)
            except Exit as leaving:
                return leaving.result
        return self._told(turn)

    def raise_fault(self) -> None:
        """Raise what a tool ended the cell with, if one did."""
        if self._fault is not None:
            raise self._fault

    # --- turns ------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        try:
            await self._interpreter.open(self._functions.tools, self._functions.helpers)
        except InterpreterLost:
            await trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC120 - cancelled, it was killed by us: no news
            raise

    async def _next(self, turn: Turn, nursery: trio.Nursery) -> Turn:
        """Do what the program wants and run it on."""
        match turn:
            case ToolWanted():
                if self.tool_calls == self._limits.tool_calls:
                    return ProgramError.over(f"the program called tools more than {self.tool_calls} times")
                self.tool_calls += 1
                return await self._run_tool(turn, nursery)
            case HelperWanted():
                answer = await self._help(turn)
                return await self._turn(self._interpreter.go_on(answer))
            case SleepWanted():
                return await self._sleep(turn, nursery)
            case Waiting():
                answers = await self._settled(turn.numbers)
                return await self._turn(self._interpreter.settle(answers))
            case _:
                return turn

    async def _run_tool(self, wanted: ToolWanted, nursery: trio.Nursery) -> Turn:
        if not wanted.alone:
            nursery.start_soon(self._call, wanted)
            return await self._turn(self._interpreter.go_on(LATER))
        await self._call(wanted)
        self.raise_fault()
        return await self._turn(self._interpreter.go_on_alone(wanted.number, self._answers.pop(wanted.number)))

    async def _turn(self, turn: Awaitable[Turn]) -> Turn:
        """One turn. An interpreter that is lost because it was killed says why it was."""
        try:
            return await turn
        except InterpreterLost as lost:
            await trio.lowlevel.checkpoint_if_cancelled()
            self.raise_fault()
            return ProgramError(ProgramFault.EXECUTION_ERROR, bounded(str(lost), MESSAGE_BYTES))

    def _told(self, result: ProgramResult) -> ProgramResult:
        """A failure of a tool that the program let out is told from one of its own."""
        if isinstance(result, ProgramError) and result.message in self._failures:
            return attrs.evolve(result, fault=ProgramFault.TOOL_FAILURE)
        return result

    # --- answers ----------------------------------------------------------------------------------------------

    async def _call(self, wanted: ToolWanted) -> None:
        """One call of a tool, in a task of its own."""
        try:
            try:
                self._in_flight.acquire_nowait()
            except trio.WouldBlock:
                await self._in_flight.acquire()
            try:
                self._answers[wanted.number] = await self._answered(wanted)
            finally:
                self._in_flight.release()
            self._news.set()
        except Exception as fault:
            self._fail(fault)

    async def _answered(self, wanted: ToolWanted) -> Answer:
        tool = self._functions.tools.get(wanted.name)
        if tool is None:
            return self._failed(f"there is no tool {wanted.name!r:.80}")
        try:
            text = await tool(crossed(wanted.payload, "the input"))
        except CleanupUnconfirmed:
            raise
        except (ToolError, InvalidInput) as error:
            return self._failed(str(error))
        limit = self._limits.memory_bytes // RESULT_SHARE
        if len(text) > limit:
            return self._failed(f"the result has {len(text)} characters; a program takes at most {limit}")
        return Answer(text)

    def _failed(self, message: str) -> Answer:
        """An error for the program, remembered, so that it can be told from one of its own."""
        message = bounded(message, MESSAGE_BYTES // 2)
        self._failures.add(f"RuntimeError: {message}")
        return Answer(failure=message)

    async def _help(self, wanted: HelperWanted) -> Answer:
        try:
            arguments, named = _arguments(wanted.payload)
            helper = self._functions.helpers[wanted.name]
            inspect.signature(helper).bind(*arguments, **named)
        except (InvalidInput, KeyError, TypeError) as error:
            return Answer(failure=bounded(f"{wanted.name}: {error}", MESSAGE_BYTES))
        try:
            return Answer(canonical(await helper(*arguments, **named)).decode())
        except InvalidInput as error:
            return Answer(failure=bounded(str(error), MESSAGE_BYTES))

    async def _sleep(self, wanted: SleepWanted, nursery: trio.Nursery) -> Turn:
        if self._timers == self._limits.timers:
            return ProgramError.over(f"the program slept more than {self._timers} times")
        self._timers += 1
        if wanted.number is None:
            await trio.sleep(wanted.seconds)
            return await self._turn(self._interpreter.go_on(Answer()))
        nursery.start_soon(self._wake, wanted.number, wanted.seconds)
        return await self._turn(self._interpreter.go_on(LATER))

    async def _wake(self, number: int, seconds: float) -> None:
        await trio.sleep(seconds)
        self._answers[number] = Answer("")
        self._news.set()

    async def _settled(self, numbers: tuple[int, ...]) -> dict[int, Answer]:
        """Wait for answers that the program waits for, and take all there are."""
        while True:
            self.raise_fault()
            ready = {number: self._answers.pop(number) for number in numbers if number in self._answers}
            if ready:
                return ready
            self._news = trio.Event()
            await self._news.wait()

    def _fail(self, fault: Exception) -> None:
        """End the cell with a fault that is no answer, wherever the program is."""
        self._fault = self._fault or fault
        self._interpreter.kill()
        self._news.set()


def _arguments(payload: str) -> tuple[list[Any], dict[str, Any]]:
    match crossed(payload, "the arguments"):
        case [list() as arguments, dict() as named]:
            return arguments, named
        case _:
            raise InvalidInput("the arguments are not what a function of the program sends")
