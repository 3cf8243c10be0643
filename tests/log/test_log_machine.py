"""Any course of appends, legal and illegal, against a model that judges each fact by rereading all the others.

The model is slow and obvious where the store is incremental: it keeps every event and scans them all for each rule.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from maka_trio.errors import CommitError, CommitRejected
from maka_trio.facts import (
    EventWrite,
    Fact,
    Invocation,
    InvocationEnded,
    InvocationOpened,
    MessageSteered,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    Root,
    RuntimeEvent,
    Session,
    ToolDispatched,
    ToolRejected,
    ToolSettled,
)
from maka_trio.facts.codec import encode_event
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.log import queries
from maka_trio.log.prefixes import prefix
from maka_trio.log.store import Store
from maka_trio.recovery import sealing_facts
from maka_trio.transitions import InvocationState
from tests.log.log_story import (
    CANCELLED,
    COMPLETED,
    FAILED,
    UNKNOWN,
    call,
    completed,
    dispatched,
    event,
    interrupted,
    observed,
    opened,
    put,
    reader,
    rejected,
    requested,
    settled,
    steered,
    success,
)

INVOCATIONS = [Invocation(f"session {n % 2}", f"turn {n}", f"run {n}", f"invocation {n}") for n in range(6)]
FORGED = [attrs.evolve(INVOCATIONS[0], run_id="other"), attrs.evolve(INVOCATIONS[1], session_id="session 0")]

STEPS = st.sampled_from(["s1", "s2", "s3", "s4"])
CALLS = st.sampled_from(["c1", "c2"])
FACTS: st.SearchStrategy[Fact | str] = st.one_of(
    st.just(opened()),
    STEPS.map(requested),
    STEPS.map(observed),
    st.builds(lambda step, ids: completed(step, *map(call, ids)), STEPS, st.lists(CALLS, max_size=2, unique=True)),
    STEPS.map(interrupted),
    st.builds(dispatched, STEPS, CALLS),
    st.builds(rejected, STEPS, CALLS),
    st.builds(lambda step, call_id: settled(f"{step}:{call_id}"), STEPS, CALLS),
    st.builds(lambda step, call_id: f"{step}:{call_id}", STEPS, CALLS),  # succeeded, with a raw result
    st.sampled_from([COMPLETED, CANCELLED, FAILED, UNKNOWN]),
    st.sampled_from(["m1", "m2"]).map(steered),
)
WHO = st.sampled_from([*INVOCATIONS * 3, *FORGED])


class Model:
    """All events, and whether one more may follow them."""

    def __init__(self) -> None:
        self.events: list[RuntimeEvent] = []

    def of(self, invocation: Invocation) -> list[Fact]:
        return [e.fact for e in self.events if e.invocation.invocation_id == invocation.invocation_id]

    def open_in(self, session_id: str) -> list[Invocation]:
        mine = {e.invocation for e in self.events if e.invocation.session_id == session_id}
        return [one for one in mine if not any(isinstance(fact, InvocationEnded) for fact in self.of(one))]

    def admits(self, one: RuntimeEvent) -> bool:
        facts, fact, who = self.of(one.invocation), one.fact, one.invocation
        if isinstance(fact, InvocationOpened):
            return not facts and not self.open_in(who.session_id)
        identities = {e.invocation for e in self.events if e.invocation.invocation_id == who.invocation_id}
        if identities != {who} or any(isinstance(f, InvocationEnded) for f in facts):
            return False
        if any(isinstance(e.fact, MessageSteered) and e.fact.message_id == one.id for e in self.events):
            return False
        return self._follows(facts, fact, who.session_id)

    def _follows(self, facts: list[Fact], fact: Fact, session_id: str) -> bool:
        open_steps = self._open_steps(facts)
        live = self._live(facts)
        accepted = self._accepted(facts)
        match fact:
            case ModelRequested():
                return not any(isinstance(f, ModelRequested) and f.step_id == fact.step_id for f in facts)
            case ModelObserved() | ModelCompleted() | ModelInterrupted():
                return fact.step_id in open_steps
            case ToolDispatched() | ToolRejected():
                used = {e.fact.operation_id for e in self.events if isinstance(e.fact, ToolDispatched | ToolRejected)}
                return fact.operation_id in accepted and fact.operation_id not in used
            case ToolSettled():
                return fact.operation_id in live
            case MessageSteered():
                taken = {
                    e.fact.message_id
                    for e in self.events
                    if isinstance(e.fact, MessageSteered) and e.invocation.session_id == session_id
                }
                return not open_steps and not live and not accepted and fact.message_id not in taken
            case InvocationEnded():
                return fact.outcome != COMPLETED.outcome or not (open_steps or live)
        raise AssertionError(fact)

    def _open_steps(self, facts: list[Fact]) -> set[str]:
        ended = {f.step_id for f in facts if isinstance(f, ModelCompleted | ModelInterrupted)}
        return {f.step_id for f in facts if isinstance(f, ModelRequested)} - ended

    def _live(self, facts: list[Fact]) -> set[str]:
        ended = {f.operation_id for f in facts if isinstance(f, ToolSettled)}
        return {f.operation_id for f in facts if isinstance(f, ToolDispatched)} - ended

    def _accepted(self, facts: list[Fact]) -> set[str]:
        """Calls of completed steps of this invocation that it neither dispatched nor rejected."""
        made = {
            f"{f.step_id}:{one.id}" for f in facts if isinstance(f, ModelCompleted) for one in f.output.local_calls()
        }
        return made - {f.operation_id for f in facts if isinstance(f, ToolDispatched | ToolRejected)}


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "log.db"
        self.store = Store.open(self.path)
        self.model = Model()
        self.written: list[RuntimeEvent | EventWrite] = []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.check_everything()
            self.store.close()
            self.folder.cleanup()

    def _make(self, who: Invocation, fact: Fact | str) -> RuntimeEvent | EventWrite:
        return success(who, {"n": 1}, fact) if isinstance(fact, str) else event(who, fact)

    def _append(self, batch: list[RuntimeEvent | EventWrite]) -> None:
        """A batch goes in exactly if each event of it may follow all before it."""
        before = len(self.model.events)
        admitted = True
        for one in batch:
            plain = one.event if isinstance(one, EventWrite) else one
            admitted = admitted and self.model.admits(plain)
            self.model.events.append(plain)
        if admitted:
            assert put(self.store, *batch) == list(range(before + 1, before + len(batch) + 1))
            self.written += batch
            return
        del self.model.events[before:]
        try:
            put(self.store, *batch)
        except CommitError:
            return
        raise AssertionError(f"the store admits what the model refuses: {batch}")

    @rule(who=WHO, facts=st.lists(FACTS, min_size=1, max_size=4))
    def append(self, who: Invocation, facts: list[Fact | str]) -> None:
        self._append([self._make(who, fact) for fact in facts])

    @rule(pairs=st.lists(st.tuples(WHO, FACTS), min_size=2, max_size=3))
    def append_over_sessions(self, pairs: list[tuple[Invocation, Any]]) -> None:
        self._append([self._make(who, fact) for who, fact in pairs])

    @rule(who=st.sampled_from(INVOCATIONS), step=STEPS, ids=st.lists(CALLS, max_size=2, unique=True))
    def take_a_step(self, who: Invocation, step: str, ids: list[str]) -> None:
        """A whole step, so that deep states are met often."""
        if not self.model.of(who):
            self._append([event(who, opened())])
        for fact in (requested(step), observed(step), completed(step, *map(call, ids))):
            self._append([event(who, fact)])
        for call_id in ids:
            self._append([event(who, dispatched(step, call_id))])

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """Any events that are in the log, in any order, give the sequences they have."""
        if self.written:
            number = st.integers(0, len(self.written) - 1)
            chosen = data.draw(st.lists(number, min_size=1, max_size=3))
            assert put(self.store, *(self.written[n] for n in chosen)) == [n + 1 for n in chosen]

    @rule(data=st.data(), fact=FACTS.filter(lambda fact: not isinstance(fact, str)))
    def forge(self, data: st.DataObject, fact: Fact) -> None:
        """The id of an event with another fact is a conflict, or refused for what the fact is.

        Of an observation that holds while its step is open: observations stand in no index.
        """
        if self.model.events:
            known = data.draw(st.sampled_from(self.model.events[-50:]))
            if known.fact != fact and not self._is_over(known):
                try:
                    put(self.store, attrs.evolve(known, fact=fact))
                except CommitRejected:
                    return
                raise AssertionError("one id for two events")

    def _is_over(self, known: RuntimeEvent) -> bool:
        """Whether it is an observation of a step that has ended, whose retry would be refused for that."""
        if not isinstance(known.fact, ModelObserved):
            return False
        return known.fact.step_id not in self.model._open_steps(self.model.of(known.invocation))

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open(self.path)

    @rule()
    def recover(self) -> None:
        """Each open invocation gets what its facts ask for, and then nothing is open."""
        expected: list[tuple[Invocation, Fact]] = []
        order = sorted(
            {e.invocation for e in self.model.events if not self._ended(e.invocation)},
            key=lambda who: who.invocation_id,
        )
        for who in order:
            state = InvocationState(who)
            for fact in self.model.of(who):
                state.advance(fact)
            expected += [(who, fact) for fact in sealing_facts(state)]
        before = len(self.model.events)
        self.store.seal(self.store.abandoned(self.store.root.high_water))
        rows = [s.event for s in prefix(reader(self.store), Root(), 10**6, 10**9).events[before:]]
        self.model.events += rows
        self.written += rows
        assert self.store.abandoned(self.store.root.high_water) == []
        reused = {fact.operation_id for _, fact in expected if isinstance(fact, ToolRejected)} & {
            e.fact.operation_id for e in self.model.events[:before] if isinstance(e.fact, ToolDispatched | ToolRejected)
        }
        if not reused and len({f.operation_id for _, f in expected if isinstance(f, ToolRejected)}) == sum(
            isinstance(fact, ToolRejected) for _, fact in expected
        ):
            found = sorted(((row.invocation, row.fact) for row in rows), key=lambda pair: pair[0].invocation_id)
            assert found == expected

    def _ended(self, who: Invocation) -> bool:
        return any(isinstance(fact, InvocationEnded) for fact in self.model.of(who))

    @invariant()
    def heads_are_right(self) -> None:
        if hasattr(self, "store"):
            assert self.store.root.high_water == len(self.model.events)

    def check_everything(self) -> None:
        """The log reads as the model has it, in every scope, with the digests that it folds to."""
        for scope in (Root(), Session("session 0"), Session("session 1")):
            link = chain_start(scope)
            expected = []
            for sequence, one in enumerate(self.model.events, 1):
                if isinstance(scope, Root) or one.invocation.session_id == scope.id:
                    expected.append((sequence, one))
                    link = chain_next(link, sequence, encode_event(one))
            whole = prefix(reader(self.store), scope, 10**6, 10**9)
            assert [(stored.sequence, stored.event) for stored in whole.events] == expected
            assert whole.digest == chain_text(link) == queries.head(reader(self.store), scope).digest


LogMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestLogMachine = LogMachine.TestCase
