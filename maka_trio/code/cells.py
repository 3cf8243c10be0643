"""`CodeCells`: the programs of one run, and the two tools by which its model uses them.

    exec        its T1 is durable; the cell begins, an operation of its own below it; what there is to see after the
                end of the program, or of the time, is the result. A program that is not done goes on by itself
    wait        looks at a cell again, or stops it
    the end     of the run stops what is left. Calls of tools that programs began are finished first

A program that fails is a result like any other. A fault of the log, or a tool that cannot say what became of it, is
not: it stops all programs and the run, whatever the program would make of it, and leaves the operations unsettled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from maka_trio.code.cell import Cell
from maka_trio.code.executor import CodeExecutor
from maka_trio.code.manual import CELL, EXEC, UNCOLLECTED_CELLS, WAIT, exec_definition, wait_definition
from maka_trio.code.options import ExecOptions, WaitOptions, exec_options, wait_options
from maka_trio.code.outcome import ProgramError, ProgramFault, result_json
from maka_trio.code.sandbox import CellEnd
from maka_trio.code.surroundings import Surroundings
from maka_trio.code.turn import InterpreterLost
from maka_trio.errors import InvalidInput, ToolFailed
from maka_trio.facts.event import EventSink
from maka_trio.facts.identity import CodeCell, Invocation, ToolCallIdentity, new_id
from maka_trio.facts.json_value import JSON
from maka_trio.facts.opening import ToolDefinition
from maka_trio.facts.outcome import ToolRejection
from maka_trio.records import frozen
from maka_trio.scopes import owned_nursery
from maka_trio.tools.call import ToolCall
from maka_trio.tools.catalog import ToolCatalog, ToolNesting, ToolRegistration, ToolSemantics
from maka_trio.tools.handler import Handler, PreparedEffect
from maka_trio.tools.journal import Operation, ToolJournal

STOPPED_TEXT = "the program was stopped; the calls of tools that it had begun are settled"
"""The settlement of a cell that was ended from outside."""

WHOLE_OUTPUT = 2**40
"""Tokens that no program's output has."""

NO_CELL_TEXT = "there is no program of this cell_id: it was collected, or belongs to an earlier run"


def code_surface(tools: ToolCatalog, executor: CodeExecutor) -> tuple[ToolDefinition, ...]:
    """What a model is told in Code Mode: `exec`, `wait`, and the tools that only it may call. Sorted by name."""
    direct = (tool.definition for tool in tools if tool.nesting is ToolNesting.DIRECT_ONLY)
    own = (exec_definition(tools.nested(), executor.limits), wait_definition())
    return tuple(sorted((*own, *direct), key=lambda definition: definition.name))


@asynccontextmanager
async def open_cells(
    executor: CodeExecutor,
    journal: ToolJournal,
    sink: EventSink,
    invocation: Invocation,
    tools: ToolCatalog,
    *,
    log_name: str,
    output: Callable[[str], object] = lambda text: None,
) -> AsyncGenerator[CodeCells, None]:
    """The cells of a run, for as long as it takes steps. Leaving stops those that are left and waits for them.

    Args:
        executor: what programs run with.
        journal: the run's operations.
        sink: where notifications go.
        invocation: the run.
        tools: all tools of the run.
        log_name: the log that the run is in.
        output: told, in whichever thread, of each text that a program writes.

    Raises:
        CommitError, StoreError, CleanupUnconfirmed: what a cell met that is no answer. It cancels the block, and is
            raised in place of that cancellation.
    """
    async with owned_nursery() as nursery:
        cells = CodeCells(executor, journal, sink, invocation, tools, nursery, log_name, output)
        try:
            yield cells
        finally:
            nursery.cancel_scope.cancel("the run takes no more steps")
    cells.raise_fault()
    await trio.lowlevel.checkpoint_if_cancelled()  # the nursery may have taken a cancel of the run for its own


class CodeCells:
    """The programs of one run. Made by `open_cells`.

    Attributes:
        catalog: what the model of the run is offered.
    """

    def __init__(
        self,
        executor: CodeExecutor,
        journal: ToolJournal,
        sink: EventSink,
        invocation: Invocation,
        tools: ToolCatalog,
        nursery: trio.Nursery,
        log_name: str,
        output: Callable[[str], object],
    ) -> None:
        self._executor = executor
        self._output = output
        self._journal = journal
        self._nursery = nursery
        store, nested = executor.store, tools.nested()
        self._around = Surroundings(journal, sink, invocation, nested, store, log_name, self._write)
        self._cells: dict[str, Cell] = {}
        self._fault: Exception | None = None
        direct = [tool for tool in tools if tool.nesting is ToolNesting.DIRECT_ONLY]
        exec_tool = _own(exec_definition(tools.nested(), executor.limits), _Exec(self))
        self.catalog = ToolCatalog([*direct, exec_tool, _own(wait_definition(), _Wait(self))])

    @property
    def live(self) -> bool:
        """Whether some program has not come to its durable end."""
        return any(not cell.over for cell in self._cells.values())

    async def stop(self) -> None:
        """Stop every program and wait for their durable ends.

        Raises:
            CommitError, StoreError, CleanupUnconfirmed: as `open_cells` does.
        """
        await trio.lowlevel.checkpoint()
        cells = list(self._cells.values())
        for cell in cells:
            cell.scope.cancel("the model has answered")
        for cell in cells:
            await cell.wait_ended()
        self.raise_fault()

    def raise_fault(self) -> None:
        """Raise what a cell met that is no answer, if one did."""
        if self._fault is not None:
            raise self._fault

    # --- what exec and wait need ------------------------------------------------------------------------------

    def refusal(self) -> str | None:
        """Why no further program may begin, or None."""
        if len(self._cells) >= UNCOLLECTED_CELLS:
            waiting = ", ".join(self._cells)
            return f"{UNCOLLECTED_CELLS} programs run or wait to be looked at; wait for one, or terminate it: {waiting}"
        if not self._executor.has_room():
            return "too many programs run at this moment; try again later"
        return None

    def find(self, cell_id: str) -> Cell | None:
        """The cell of this id, unless it was collected."""
        return self._cells.get(cell_id)

    def begin(self, program: str, parent: ToolCall) -> Cell:
        """Begin a program below a call of `exec`."""
        origin = CodeCell(parent.operation_id, parent.identity.tool_call_id)
        operation = Operation(new_id(), ToolCallIdentity(new_id(), origin), CELL, {"input_digest": parent.input_digest})
        cell = Cell(operation, program, self._executor.limits)
        self._cells[cell.cell_id] = cell
        self._nursery.start_soon(self._live, cell, name=f"program {cell.cell_id}")
        return cell

    async def run_to_end(self, program: str, call: ToolCall) -> JSON:
        """Run a program below an operation of its own, and say all there is to see of it."""
        cell = self.begin(program, call)
        await cell.wait_ended()  # an abort of the run ends the cell as well
        return await self.observe(cell, call, seconds=0, tokens=WHOLE_OUTPUT)

    async def observe(self, cell: Cell, call: ToolCall, *, seconds: float, tokens: int) -> JSON:
        """Wait for the program's end, its yielding or the time, and say what there is to see."""
        with call.abort_scope(), trio.move_on_after(seconds):
            await cell.wait_news()
        if call.cancelled.is_set():
            await cell.wait_ended()  # the run stops it as well, and its calls are drained before ours is settled
        if cell.over:
            self._cells.pop(cell.cell_id, None)
        return cell.observe(tokens=tokens)

    # --- a cell -----------------------------------------------------------------------------------------------

    async def _live(self, cell: Cell) -> None:
        """One program in its task: an operation that may outlive the call that began it."""
        fault: Exception | None = None
        try:
            with cell.scope:
                await self._journal.perform(cell.operation, _cell_tool(partial(self._run, cell)))
        except Exception as error:
            self._fault = self._fault or error
            fault = error
            self._nursery.cancel_scope.cancel("a program met what is no answer")
        finally:
            cell.finish(fault)

    def _write(self, cell: Cell, text: str) -> bool:
        fits = cell.content.write(text)
        if fits:
            self._output(text)
        return fits

    async def _run(self, cell: Cell, given: JSON, call: ToolCall) -> JSON:
        """The effect of a cell."""
        cell.begun = True
        functions = self._around.functions(cell)
        with call.abort_scope():
            try:
                cell.end = await self._executor.run(cell.program, functions, write=partial(self._write, cell))
            except InterpreterLost as lost:
                cell.end = CellEnd(ProgramError(ProgramFault.EXECUTION_ERROR, str(lost)))
        if cell.end is None:
            raise ToolFailed(STOPPED_TEXT)
        result = result_json(cell.end.result, cell.end.tool_calls)
        return {"cell_id": cell.cell_id, "content": cell.content.whole(), "result": result}


def _own(definition: ToolDefinition, handler: Handler) -> ToolRegistration:
    return ToolRegistration(
        definition,
        handler,
        nesting=ToolNesting.DIRECT_ONLY,
        semantics=ToolSemantics.EXCLUSIVE_STEP,
        built_in=True,
    )


def _cell_tool(handler: Any) -> ToolRegistration:
    return ToolRegistration(ToolDefinition(CELL, "", True), handler, built_in=True)


@frozen(eq=False)
class _Exec:
    """The handler of `exec`."""

    cells: CodeCells

    async def prepare(self, given: Any, call: ToolCall) -> PreparedEffect | ToolRejection:
        """Read the options; refuse what cannot begin."""
        await trio.lowlevel.checkpoint()
        try:
            options = exec_options(given)
        except InvalidInput as error:
            return ToolRejection.invalid_input(str(error))
        refusal = self.cells.refusal()
        if refusal is not None:
            return ToolRejection.preparation_failed(refusal)
        return PreparedEffect(partial(self._run, options, call))

    async def _run(self, options: ExecOptions, call: ToolCall, given: JSON) -> JSON:
        cell = self.cells.begin(options.program, call)
        return await self.cells.observe(cell, call, seconds=options.yield_seconds, tokens=options.output_tokens)


@frozen(eq=False)
class _Wait:
    """The handler of `wait`."""

    cells: CodeCells

    async def prepare(self, given: Any, call: ToolCall) -> PreparedEffect | ToolRejection:
        """Find the cell."""
        await trio.lowlevel.checkpoint()
        options = wait_options(given)
        cell = self.cells.find(options.cell_id)
        if cell is None:
            return ToolRejection.invalid_input(NO_CELL_TEXT)
        return PreparedEffect(partial(self._run, cell, options, call))

    async def _run(self, cell: Cell, options: WaitOptions, call: ToolCall, given: JSON) -> JSON:
        if options.terminate:
            cell.scope.cancel("terminated by the model")
            await cell.wait_ended()  # its calls are drained
        return await self.cells.observe(cell, call, seconds=options.yield_seconds, tokens=options.output_tokens)


__all__ = ["EXEC", "WAIT", "CodeCells", "code_surface", "open_cells"]
