"""`ScriptedInterpreters`: programs that do what a test tells them, in the trio thread.

The real interpreter lives in a process and threads, which no explorer can put in order. This one takes the same turns
at checkpoints. Its language has a line for each thing a program can want:

    call put {"n": 1}          call a tool and wait for it
    begin put {"n": 1}         call a tool and go on
    gather                     wait until every call that was begun is answered
    help notify ["text"]       call a helper with these arguments
    sleep 0.5                  sleep
    print some words           write a line
    attempt                    from here on, failures of calls are caught
    loop                       compute for ever
    value {"any": "json"}      end with a value

A failed call ends the program, as an exception would, unless it attempts; so does a line that is none of these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import trio

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.interpreter import Interpreter
from maka_trio.code.outcome import ProgramError, ProgramFault, ProgramValue
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
from maka_trio.facts.codec import parse_json


class ScriptedInterpreters:
    """Makes interpreters of scripts: `CodeExecutor(interpreters=ScriptedInterpreters())`.

    Attributes:
        alive: interpreters that were opened and not closed.
    """

    def __init__(self) -> None:
        self.alive = 0

    def require(self) -> None:
        """There is always one."""

    def make(self, limits: CellLimits, write: Write, threads: trio.CapacityLimiter | None) -> Interpreter:
        """An interpreter for one script. The limits on calls and sleeps are kept by its cell, others are not."""
        return _Scripted(self, write)


class _Scripted:
    def __init__(self, owner: ScriptedInterpreters, write: Write) -> None:
        self._owner = owner
        self._write = write
        self._lines: Iterator[str] = iter(())
        self._begun: deque[int] = deque()
        self._number = 0
        self._attempts = False
        self._open = False
        self._killed = trio.Event()

    async def open(self, tools: Iterable[str], helpers: Iterable[str]) -> None:
        self._open = True
        self._owner.alive += 1
        await trio.lowlevel.checkpoint()

    async def start(self, program: str) -> Turn:
        self._lines = iter(program.splitlines())
        return await self._next()

    async def go_on(self, answer: Answer) -> Turn:
        return await self._next(answer)

    async def go_on_alone(self, number: int, answer: Answer) -> Turn:
        self._begun.remove(number)
        return await self._next(answer)

    async def settle(self, answers: Mapping[int, Answer]) -> Turn:
        for number in answers:
            self._begun.remove(number)
        failed = next((answer for answer in answers.values() if answer.failure is not None), None)
        if failed is not None and not self._attempts:
            return await self._next(failed)
        return Waiting(tuple(self._begun)) if self._begun else await self._next()

    def kill(self) -> None:
        self._killed.set()

    async def aclose(self) -> None:
        self.kill()
        if self._open:
            self._open = False
            self._owner.alive -= 1
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _next(self, answer: Answer = LATER) -> Turn:
        await trio.lowlevel.checkpoint()
        if self._killed.is_set():
            raise InterpreterLost("the script was killed")
        if answer.failure is not None and not self._attempts:
            return ProgramError(ProgramFault.EXECUTION_ERROR, f"RuntimeError: {answer.failure}")
        for line in self._lines:
            turn = await self._do(*line.strip().split(" ", 1))
            if turn is not None:
                return turn
        return ProgramValue(None)

    async def _do(self, word: str, rest: str = "") -> Turn | None:
        """One line; None where the program goes on by itself."""
        match word:
            case "call" | "begin":
                self._number += 1
                self._begun.append(self._number)
                name, payload = rest.split(" ", 1)
                return ToolWanted(self._number, name, payload, alone=word == "call")
            case "gather":
                return Waiting(tuple(self._begun)) if self._begun else None
            case "help":
                name, _, arguments = rest.partition(" ")
                return HelperWanted(name, f"[{arguments or '[]'}, {{}}]")
            case "sleep":
                return SleepWanted(float(rest), None)
            case "print":
                self._write(f"{rest}\n")
                return None
            case "attempt":
                self._attempts = True
                return None
            case "loop":
                await self._killed.wait()
                raise InterpreterLost("the script was killed")
            case "value":
                return ProgramValue(parse_json(rest, what="the value of a script"))
            case _:
                return ProgramError(ProgramFault.PARSE_ERROR, f"SyntaxError: {word}")
