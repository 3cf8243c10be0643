"""What a program finds around it: the tools it may call, each call an operation of the log, and its helpers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from maka_trio.code.cell import Cell
from maka_trio.code.declarations import declaration
from maka_trio.code.names import HELPERS, function_names
from maka_trio.code.outcome import ProgramError, ProgramValue
from maka_trio.code.sandbox import CellFunctions, Exit, Helper, Tool
from maka_trio.code.store import SessionStore
from maka_trio.code.turnstile import Turnstile
from maka_trio.errors import ToolFailed
from maka_trio.facts.codec import canonical
from maka_trio.facts.event import EventSink, RuntimeEvent, ToolNotified, ToolRejected
from maka_trio.facts.identity import CodeMode, Invocation, ToolCallIdentity, new_id
from maka_trio.facts.json_value import JSON
from maka_trio.facts.outcome import EffectFailed, EffectUnknown, Succeeded, ToolOutcome
from maka_trio.records import frozen
from maka_trio.tools.catalog import ToolCatalog, ToolRegistration, ToolSemantics
from maka_trio.tools.journal import Operation, ToolJournal

NOTIFICATION: Final = "The program {cell_id} says while it runs:\n<notification>\n{text}\n</notification>"
"""How the model is shown what a program notifies it of: as no user's words and no tool's result."""


@frozen(eq=False)
class Surroundings:
    """What the programs of one run share.

    Args:
        journal: the run's operations.
        sink: where notifications go.
        invocation: the run.
        tools: what programs may call.
        store: what sessions keep.
        log_name: the log that the session is in: sessions of others may be called the same.
        write: takes what a program writes; false when that is too much.
    """

    journal: ToolJournal
    sink: EventSink
    invocation: Invocation
    tools: ToolCatalog
    store: SessionStore
    log_name: str
    write: Callable[[Cell, str], bool]
    turnstile: Turnstile = attrs.field(factory=Turnstile)

    @property
    def place(self) -> str:
        """Where the session's values are in the store."""
        return f"{self.log_name}\n{self.invocation.session_id}"

    def functions(self, cell: Cell) -> CellFunctions:
        """What the program of a cell may call, by the names it calls them."""
        names = function_names(tool.name for tool in self.tools)
        tools = {names[tool.name]: self._tool(cell, tool) for tool in self.tools}
        return CellFunctions(tools, _Helpers(self, cell, names).by_name())

    def _tool(self, cell: Cell, registration: ToolRegistration) -> Tool:
        exclusive = registration.semantics is not ToolSemantics.PARALLEL
        parent = cell.operation

        async def call(arguments: JSON) -> str:
            origin = CodeMode(parent.operation_id, parent.call.tool_call_id)
            operation = Operation(new_id(), ToolCallIdentity(new_id(), origin), registration.name, arguments)
            async with self.turnstile.passed(exclusive=exclusive):
                performed = await self.journal.perform(operation, registration)
            if isinstance(performed.fact, ToolRejected):
                raise ToolFailed(str(performed.fact.reason))
            return _result(performed.fact.outcome, performed.payload)

        return call


def _result(outcome: ToolOutcome, payload: bytes | None) -> str:
    """The raw result of a call, or its failure as the program is to see it."""
    match outcome:
        case Succeeded():
            assert payload is not None
            return payload.decode()
        case EffectFailed(message=message) | EffectUnknown(message=message):
            raise ToolFailed(message)


@frozen(eq=False)
class _Helpers:
    """The functions of a program that are no tools. Their names and arguments are part of what a model is told."""

    shared: Surroundings
    cell: Cell
    names: Mapping[str, str]

    def by_name(self) -> dict[str, Helper]:
        return {name: getattr(self, name) for name in HELPERS}

    async def text(self, value: JSON) -> None:
        """Write a value: a text as it is, anything else as JSON."""
        written = value if isinstance(value, str) else canonical(value).decode()
        if not self.shared.write(self.cell, f"{written}\n"):
            raise Exit(ProgramError.over(f"the program wrote more than {self.cell.content.limit} bytes"))
        await trio.lowlevel.checkpoint()

    async def notify(self, text: JSON) -> None:
        """Tell the model something before the program has ended; durable when this returns."""
        told = text if isinstance(text, str) else canonical(text).decode()
        shown = NOTIFICATION.format(cell_id=self.cell.cell_id, text=told.replace("</notification", "<\\/notification"))
        fact = ToolNotified(self.cell.operation.operation_id, told, shown)
        self.cell.notifies(told)
        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled here: the fact was not handed to the log
        with trio.CancelScope(shield=True):  # ends when the log answers
            await self.shared.sink.commit(RuntimeEvent.new(self.shared.invocation, fact))

    async def store(self, name: JSON, value: JSON) -> None:
        """Keep a value for later programs of the session."""
        await trio.lowlevel.checkpoint()
        self.shared.store.put(self.shared.place, name, value)  # type: ignore[arg-type] # it checks

    async def load(self, name: JSON, default: JSON = None) -> JSON:
        """What `store` kept under a name."""
        await trio.lowlevel.checkpoint()
        return self.shared.store.get(self.shared.place, name, default)  # type: ignore[arg-type] # it checks

    async def yield_control(self) -> None:
        """Let the model see what there is, and go on."""
        await trio.lowlevel.checkpoint()
        self.cell.yield_control()

    async def exit(self, value: JSON = None) -> None:
        """End the program here."""
        await trio.lowlevel.checkpoint()
        raise Exit(ProgramValue(value))

    async def tools(self, search: JSON = None) -> JSON:
        """The declarations of the tools whose name or description holds a text, of all without one."""
        await trio.lowlevel.checkpoint()
        wanted = search.casefold() if isinstance(search, str) else ""
        return [
            {"name": tool.name, "function": self.names[tool.name], "declaration": self._declared(tool)}
            for tool in self.shared.tools
            if wanted in tool.name.casefold() or wanted in tool.definition.description.casefold()
        ]

    def _declared(self, tool: ToolRegistration) -> str:
        return declaration(self.names[tool.name], tool.definition)
