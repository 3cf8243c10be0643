"""What an append, an opening or a question costs does not grow with the age of the log.

Cost is counted in instructions of SQLite's machine, which are the same on every computer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.facts import Invocation, Session
from maka_trio.log import queries, schema
from maka_trio.log.store import Store
from tests.log.log_story import (
    COMPLETED,
    FAILED,
    call,
    completed,
    dispatched,
    event,
    interrupted,
    observed,
    opened,
    put,
    reader,
    requested,
    settled,
    tell,
)


class Meter:
    def __init__(self) -> None:
        self.steps = 0

    def tick(self) -> int:
        self.steps += 1
        return 0


def cost(store: Store, work: Callable[[], object]) -> int:
    """Instructions that SQLite executes for some work."""
    meter = Meter()
    store.connection.set_progress_handler(meter.tick, 1)
    work()
    store.connection.set_progress_handler(None, 1)
    return meter.steps


def fill(store: Store, session: str, runs: int) -> None:
    """Finished runs of a session, of eighty-odd events each."""
    for _ in range(runs):
        invocation = Invocation.new(session)
        step = invocation.invocation_id
        facts = [opened(), requested(step), *[observed(step)] * 75, completed(step, call()), dispatched(step)]
        tell(store, invocation, *facts, settled(f"{step}:c1"), COMPLETED)


@pytest.fixture
def in_memory() -> Iterator[Callable[[], Store]]:
    """Makes logs in memory, which are closed with the test."""
    with ExitStack() as stores:
        yield lambda: stores.enter_context(closing(Store.in_memory()))


@pytest.fixture
def young_and_old(in_memory: Callable[[], Store]) -> tuple[Store, Store]:
    """A log with little in it, and one with eight thousand events in it, half of them of the session `mine`."""
    stores = (in_memory(), in_memory())
    for store, runs in zip(stores, (1, 50), strict=True):
        fill(store, "mine", runs)
        fill(store, "other", runs)
    return stores


def append_costs(store: Store) -> dict[str, int]:
    invocation = Invocation.new("mine")
    facts = [opened(), requested("s"), observed("s"), completed("s", call()), dispatched("s"), settled("s:c1"), FAILED]
    events = [event(invocation, fact) for fact in facts]
    return {one.fact.kind: cost(store, lambda one=one: put(store, one)) for one in events}  # type: ignore[misc]


def test_append_costs_the_same_at_any_age(young_and_old: tuple[Store, Store]) -> None:
    """Each kind of fact takes the same work in a young log and in an old one."""
    young, old = young_and_old
    in_young, in_old = append_costs(young), append_costs(old)
    assert set(in_young) == set(in_old)
    for kind, steps in in_old.items():
        assert steps <= in_young[kind] * 1.1 + 20, kind


def test_append_costs_the_same_in_a_long_invocation(in_memory: Callable[[], Store]) -> None:
    """The thousandth observation of a step, and the call after it, take the same work as the first."""
    store = in_memory()
    invocation = Invocation.new("session")
    tell(store, invocation, opened(), requested())
    first = cost(store, lambda: put(store, event(invocation, observed())))
    for _ in range(10):
        tell(store, invocation, *[observed()] * 100)
    costs = [cost(store, lambda: put(store, event(invocation, observed()))) for _ in range(300)]
    assert sorted(costs)[len(costs) // 2] == first
    assert max(costs) < 2 * first  # one in 256 also leaves a mark


def test_a_step_of_a_deletion_costs_the_same_at_any_age(
    monkeypatch: pytest.MonkeyPatch, young_and_old: tuple[Store, Store]
) -> None:
    """As many bodies take the same work in a young log and in an old one, at its end and at its beginning."""
    monkeypatch.setattr(limits, "DELETION_EVENTS", 40)
    young, old = young_and_old
    for store in (young, old):
        store.retire("mine")
        store.begin_deletion("mine")
    first = cost(young, lambda: young.delete_some("mine"))
    for _ in range(90):
        assert cost(old, lambda: old.delete_some("mine")) < 1.3 * first


def test_refusal_costs_the_same_at_any_age(young_and_old: tuple[Store, Store]) -> None:
    """A fact that a rule refuses is looked up once as a retry, and nothing is scanned."""
    costs = []
    for store in young_and_old:
        invocation = Invocation.new("mine")
        tell(store, invocation, opened())

        def refused_append(store: Store = store, invocation: Invocation = invocation) -> None:
            with pytest.raises(Exception, match="never requested"):
                put(store, event(invocation, completed("nothing")))

        costs.append(cost(store, refused_append))
    assert costs[1] <= costs[0] * 1.1 + 20


@pytest.mark.parametrize(
    "question",
    [
        lambda asked: queries.head(asked, Session("mine")),
        lambda asked: queries.require_safe(asked, "mine", None, allow_prior_unknown=False),
        lambda asked: queries.events_after(asked, "mine", 20, 50, 10**9),
        lambda asked: queries.events_after(asked, None, 20, 50, 10**9),
    ],
    ids=["head", "safety", "reading on in a session", "reading on"],
)
def test_question_costs_the_same_at_any_age(
    question: Callable[[Any], object], young_and_old: tuple[Store, Store]
) -> None:
    """Questions about a place in the log look at that place."""
    costs = [cost(store, lambda store=store: question(reader(store))) for store in young_and_old]  # type: ignore[misc]
    assert costs[1] <= costs[0] * 5 + 500  # up to one stretch between two marks


def test_context_does_not_look_at_observations(in_memory: Callable[[], Store]) -> None:
    """Reading a session's facts costs what its facts are, however much was streamed."""
    costs = []
    for observations in (1, 2000):
        store = in_memory()
        facts = [opened(), requested(), *[observed()] * observations, completed(), COMPLETED]
        tell(store, Invocation.new("mine"), *facts)
        costs.append(cost(store, lambda store=store: queries.read_context(reader(store), "mine", 10, 10**9)))  # type: ignore[misc]
    assert costs[1] <= costs[0] * 1.1 + 20


@contextmanager
def metered_opening(monkeypatch: pytest.MonkeyPatch, meter: Meter):  # type: ignore[no-untyped-def]
    connect = schema._connect

    def connect_with_meter(path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode)
        connection.set_progress_handler(meter.tick, 1)
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(schema, "_connect", connect_with_meter)
        yield


def test_opening_and_recovering_read_what_they_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a log with one open invocation, and sealing it, takes the same work in a young log and in an old one."""
    costs = []
    for name, runs in (("young", 1), ("old", 50)):
        store = Store.open(tmp_path / name)
        fill(store, "mine", runs)
        fill(store, "other", runs)
        step = "open step"
        tell(store, Invocation.new("mine"), opened(), requested(step), *[observed(step)] * 10, interrupted(step))
        fill(store, "other", runs)
        store.close()
        meter = Meter()
        with metered_opening(monkeypatch, meter):
            again = Store.open(tmp_path / name)
            assert len(again.seal(again.abandoned(again.root.high_water)).results) == 1
        costs.append(meter.steps)
        again.close()
    assert costs[1] <= costs[0] * 2 + 1000
