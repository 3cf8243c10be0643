"""A disk that is full at any moment of a run: what the caller is told, what is in the log, and how it goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from maka_trio.errors import LogFull, ReconciliationRequired
from maka_trio.facts import Failed, FailureClass, InvocationEnded, Root
from maka_trio.facts.event import StoredEvent
from maka_trio.laws import check
from tests.engine.scene import Scene, registration, scene


class FullDisk:
    """A connection to a disk that is full from the first event of a kind on, until there is space again."""

    def __init__(self, it: Scene, kind: str) -> None:
        self._connection = it.log._store.connection
        self._kind = kind
        self._full = self._free = False
        it.log._store.connection = self  # type: ignore[assignment]

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        if sql.startswith("INSERT INTO events") and not self._free:
            self._full = self._full or self._kind in values
            if self._full:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorname = "SQLITE_FULL"
                raise error
        return self._connection.execute(sql, values)

    def make_space(self) -> None:
        assert self._full
        self._free = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Shop:
    """A tool that counts what it does."""

    def __init__(self) -> None:
        self.orders = 0
        self.tools = [registration("order", self._order)]

    async def _order(self, value: Any, call: Any) -> str:
        self.orders += 1
        return "ordered"


async def ends(it: Scene) -> list[Any]:
    return [fact.outcome for fact in await it.facts() if isinstance(fact, InvocationEnded)]


async def lawful(it: Scene) -> None:
    events: tuple[StoredEvent, ...] = (await it.log.prefix(100_000, 1 << 28, Root())).events
    assert list(check(events)) == []


async def test_full_at_the_opening(tmp_path: Path) -> None:
    """The run is not admitted and nothing is written; with space, the same request is."""
    async with scene(tmp_path) as it:
        disk = FullDisk(it, "invocation_opened")
        for _ in range(2):
            with pytest.raises(LogFull):
                await it.engine.start(it.input(request_fingerprint="r"))
        assert await it.events() == []
        assert it.engine.statistics().active == ()
        disk.make_space()
        it.provider.say("hello")
        await it.engine.run(it.input(request_fingerprint="r"))
        await lawful(it)


@pytest.mark.parametrize("kind", ["model_requested", "model_observed", "model_completed", "tool_dispatched"])
@pytest.mark.parametrize("reopened", [False, True], ids=["same process", "next process"])
async def test_full_before_any_effect(tmp_path: Path, kind: str, *, reopened: bool) -> None:
    """The run fails and no effect happens; its end is written as soon as there is space and somebody asks."""
    shop = Shop()
    async with scene(tmp_path) as it:
        disk = FullDisk(it, kind)
        if kind != "model_requested":  # else nothing is ever asked
            it.provider.call_tools(("order", {}, "c1"))
        running = await it.engine.start(it.input(tools=shop.tools))
        with pytest.raises(LogFull):
            await running.wait()
        assert (shop.orders, await ends(it)) == (0, [])
        with pytest.raises(LogFull):
            await it.engine.start(it.input("and now?"))
        disk.make_space()
        if not reopened:
            it.provider.say("done")
            await go_on(it)
    if reopened:
        async with scene(tmp_path) as it:
            it.provider.say("done")
            await go_on(it)
    assert shop.orders == 0


async def go_on(it: Scene) -> None:
    await it.engine.run(it.input("and now?"))
    first, second = await ends(it)
    assert first == Failed(FailureClass.HOST_INTERRUPTED)
    assert second.kind == "completed"
    await lawful(it)


async def test_full_after_the_effect(tmp_path: Path) -> None:
    """The result is lost and nothing is repeated: the outcome is unknown, and the next run has to accept that."""
    shop = Shop()
    async with scene(tmp_path) as it:
        disk = FullDisk(it, "tool_settled")
        it.provider.call_tools(("order", {}, "c1"))
        running = await it.engine.start(it.input(tools=shop.tools))
        with pytest.raises(LogFull):
            await running.wait()
        assert shop.orders == 1
        disk.make_space()
        with pytest.raises(ReconciliationRequired):
            await it.engine.start(it.input("and now?", tools=shop.tools))
        assert await ends(it) == [Failed(FailureClass.OUTCOME_UNKNOWN)]
        it.provider.say("I shall look whether it was ordered")
        await it.engine.run(it.input("and now?", tools=shop.tools, allow_prior_unknown=True))
        assert shop.orders == 1
        await lawful(it)


async def test_full_for_one_session_is_full_for_all_and_ends_for_all(tmp_path: Path) -> None:
    """Every session goes on by itself once there is space."""
    async with scene(tmp_path) as it:
        disk = FullDisk(it, "model_completed")
        for session in ("a", "b"):
            it.provider.say("hello")
            with pytest.raises(LogFull):
                await it.engine.run(it.input(session=session))
            if session == "a":
                disk._full = False  # the other one gets as far
        disk._full = True
        disk.make_space()
        for session in ("a", "b"):
            it.provider.say("hello")
            await it.engine.run(it.input(session=session))
        await lawful(it)
