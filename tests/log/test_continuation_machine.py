"""Any order of runs and continuations: the store takes what may be, lineages are what they should be, all is lawful."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maka_trio.errors import CommitRejected
from maka_trio.facts import (
    ContinuationClaim,
    EventWrite,
    ExecutorCompleted,
    ExecutorStarted,
    Fact,
    Invocation,
    Lineage,
    ModelRequested,
    PartStarted,
    RunBoundary,
    Session,
    StoredEvent,
    TextKind,
)
from maka_trio.facts.event import NO_SOURCE
from maka_trio.history import History
from maka_trio.laws import check
from maka_trio.log import queries
from maka_trio.log.prefixes import prefix
from maka_trio.log.store import Store
from tests.log.continuation_story import all_events, opening, position
from tests.log.log_story import (
    CANCELLED,
    COMPLETED,
    event,
    interrupted,
    observed,
    opened,
    put,
    reader,
    steered,
)

ROUTE = "sha256:" + "a" * 64


@attrs.define(eq=False)
class Run:
    """A run as the model knows it. `lineage` are the runs that it is told of, itself included, in order."""

    invocation: Invocation
    lineage: list[Run]
    answered: bool
    claimed: bool = False


class Machine:
    """Tells runs to a store and remembers what must follow from them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.runs: list[Run] = []
        self.histories = {session: History() for session in ("a", "b")}
        self._steps = 0

    def tell(self, invocation: Invocation, *facts: Fact | EventWrite) -> None:
        history = self.histories[invocation.session_id]
        for fact in facts:
            write = fact if isinstance(fact, EventWrite) else EventWrite(event(invocation, fact))
            put(self.store, write)
            history.push(write.event)

    def begin(self, session: str, *, answered: bool) -> None:
        """A run that is asked once and stopped, or that a foreign agent answers."""
        invocation = Invocation.new(session)
        before = [run for run in self.runs if run.invocation.session_id == session]
        run = Run(invocation, before, answered)
        run.lineage = [*before, run]
        self.tell(invocation, opened())
        self.finish(run, Session(session))

    def go_on(self, source: Run, *, answered: bool) -> None:
        """A continuation of a run, if there may be one."""
        invocation = Invocation.new(source.invocation.session_id)
        claim = self.claim(source)
        expected = "conflict" if source.claimed else "claim" if source.answered else None
        if expected is not None:
            with pytest.raises(CommitRejected) as caught:
                self.tell(invocation, opening(claim))
            assert caught.value.reason == expected
            return
        self.tell(invocation, opening(claim))
        source.claimed = True
        run = Run(invocation, [], answered)
        run.lineage = [*source.lineage, run]
        self.finish(run, Lineage(invocation.session_id, invocation.run_id))

    def finish(self, run: Run, scope: Any) -> None:
        invocation = run.invocation
        self._steps += 1
        step = f"step {self._steps}"
        history = self.histories[invocation.session_id]
        self.tell(invocation, steered(f"message {self._steps}"))
        digest = history.input_digest(route_identity=ROUTE, model_id="model")
        request = ModelRequested(step, "model", scope, 0, NO_SOURCE, digest, ROUTE)
        self.tell(invocation, EventWrite(event(invocation, request), source_here=True))
        self.tell(invocation, observed_start(step), interrupted(step))
        if run.answered:
            self.tell(invocation, ExecutorStarted({}), ExecutorCompleted("answer"), COMPLETED)
        else:
            self.tell(invocation, CANCELLED)
        self.runs.append(run)

    def claim(self, source: Run) -> ContinuationClaim:
        scope = Lineage(source.invocation.session_id, source.invocation.run_id)
        boundary = RunBoundary(source.invocation, *position(scope, self.events_of([source])))
        _, base = position(scope, self.events_of(source.lineage))
        replay = self.histories[source.invocation.session_id].replay(source.invocation.invocation_id)
        return ContinuationClaim.of(boundary, base_digest=base, replay_digest=replay.digest())

    def events_of(self, runs: list[Run]) -> list[StoredEvent]:
        invocations = {run.invocation for run in runs}
        return [stored for stored in all_events(self.store) if stored.event.invocation in invocations]


def observed_start(step: str) -> Fact:
    return observed(step, PartStarted("p", TextKind.TEXT))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(["a", "a", "b"]), st.booleans()),
        st.tuples(st.just("go on"), st.integers(min_value=0, max_value=20), st.booleans()),
    ),
    max_size=14,
)


@settings(max_examples=60)
@given(actions=ACTIONS)
def test_any_order_of_runs_and_continuations(actions: list[tuple[str, Any, bool]]) -> None:
    """A run is continued once, and only where it left something to answer; nothing else stands in the way."""
    with closing(Store.in_memory()) as store:
        machine = Machine(store)
        for what, which, answered in actions:
            if what == "begin":
                machine.begin(which, answered=answered)
            elif machine.runs:
                machine.go_on(machine.runs[which % len(machine.runs)], answered=answered)
        check_everything(machine)
        with closing(Store.in_memory()) as copy:
            events = all_events(store)
            for start in range(0, len(events), 7):
                put(copy, *(stored.event for stored in events[start : start + 7]))
            assert copy.root == store.root
            assert sources(copy) == sources(store)


def check_everything(machine: Machine) -> None:
    assert list(check(all_events(machine.store))) == []
    for run in machine.runs:
        scope = Lineage(run.invocation.session_id, run.invocation.run_id)
        events = machine.events_of(run.lineage)
        whole = prefix(reader(machine.store), scope, 10_000, 1 << 24)
        assert list(whole.events) == events
        assert (whole.high_water, whole.digest) == position(scope, events)
        assert queries.read_lineage(reader(machine.store), scope, 10_000, 1 << 24).head.digest == whole.digest
        assert list(check(whole.events, scope=scope, digest=whole.digest)) == []


def sources(store: Store) -> list[tuple[int, int | None]]:
    rows = store.connection.execute("SELECT opened, continues FROM invocations ORDER BY opened")
    return rows.fetchall()
