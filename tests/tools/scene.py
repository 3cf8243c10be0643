"""A tool call on a stage of its own: a log that is a list, whose answers and failures the test chooses."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio
from trio.lowlevel import Task

from maka_trio import facts
from maka_trio.facts.event import EventWrite, Fact, RuntimeEvent
from maka_trio.tools import PreparedHandler, ToolCall, ToolJournal, ToolRegistration

STEP = "step"


@attrs.define
class ListLog:
    """An `EventSink` in memory: a commit takes two checkpoints, then the event is there for good.

    `before` and `after` run in the commit of each fact, before it is written and after; either may raise.
    """

    writes: list[EventWrite] = attrs.field(factory=list)
    before: Callable[[Fact], Awaitable[object]] | None = None
    after: Callable[[Fact], object] | None = None

    @property
    def facts(self) -> list[Any]:
        return [write.event.fact for write in self.writes]

    @property
    def kinds(self) -> list[str]:
        return [fact.kind for fact in self.facts]

    async def commit(self, event: RuntimeEvent | EventWrite) -> int:
        write = event if isinstance(event, EventWrite) else EventWrite(event)
        await trio.lowlevel.checkpoint()
        if self.before is not None:
            await self.before(write.event.fact)
        self.writes.append(write)
        if self.after is not None:
            self.after(write.event.fact)
        await trio.lowlevel.checkpoint()
        return len(self.writes)

    async def commit_batch(self, events: Sequence[RuntimeEvent | EventWrite]) -> list[int]:
        return [await self.commit(event) for event in events]


@attrs.define
class Scene:
    """One invocation with its journal."""

    log: ListLog = attrs.field(factory=ListLog)
    invocation: facts.Invocation = attrs.field(factory=lambda: facts.Invocation.new("session"))
    journal: ToolJournal = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.journal = ToolJournal(self.log, self.invocation)

    async def call(self, handler: Any, value: Any = None, *, call_id: str = "c1", schema: Any = True) -> Any:
        """Execute one call of a tool with this handler, and return its last fact."""
        tool = registration(handler, schema=schema)
        return await self.journal.execute(STEP, facts.ModelToolCall(call_id, tool.name, value), tool)


def registration(handler: Any, *, name: str = "put", schema: Any = True, **options: Any) -> ToolRegistration:
    return ToolRegistration(facts.ToolDefinition(name, "A tool.", schema), handler, **options)


@attrs.define
class Prepares(PreparedHandler):
    """A prepared handler that is a plain function."""

    preparation: Callable[[Any, ToolCall], Awaitable[Any]]

    async def prepare(self, arguments: Any, call: ToolCall, /) -> Any:
        return await self.preparation(arguments, call)


# --- cancelling everywhere --------------------------------------------------------------------------------


@attrs.define(eq=False)
class _CancelAt(trio.abc.Instrument):
    """Cancels a scope right after the n-th step of the tasks that run inside it."""

    scope: trio.CancelScope
    step: int
    count: int = 0
    watched: set[Task] = attrs.field(factory=set)

    def task_spawned(self, task: Task) -> None:
        parent = task.parent_nursery.parent_task if task.parent_nursery else None
        if parent in self.watched:
            self.watched.add(task)

    def after_task_step(self, task: Task) -> None:
        if task in self.watched:
            self.count += 1
            if self.count == self.step:
                self.scope.cancel()


async def cancel_everywhere(scenario: Callable[[], Awaitable[object]], check: Callable[[], object]) -> None:
    """Run a scenario again and again, cancelled after its first step, its second, and so on, until it ends untouched.

    `check` runs after each.
    """
    for step in itertools.count(1):
        with trio.CancelScope() as scope:
            instrument = _CancelAt(scope, step)
            instrument.watched.add(trio.lowlevel.current_task())
            trio.lowlevel.add_instrument(instrument)
            try:
                await scenario()
            finally:
                trio.lowlevel.remove_instrument(instrument)
        check()
        if instrument.count < step:
            return
