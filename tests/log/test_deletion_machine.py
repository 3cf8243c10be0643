"""Any course of appends, retries and reopens with sessions that are deleted in the middle of it, against the model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from maka_trio import limits
from maka_trio.errors import Busy, CommitError, InvalidInput, SessionDeleted
from maka_trio.facts import BodyDeleted, InvocationOpened, Root, RuntimeEvent, Session, StoredEvent
from maka_trio.facts.codec import encode_event
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.log import queries
from maka_trio.log.prefixes import prefix
from tests.log.log_story import put, reader
from tests.log.test_log_machine import LogMachine, Model

SESSIONS = st.sampled_from(["session 0", "session 1"])


class RetiringModel(Model):
    """The same, with sessions that take no more runs."""

    def __init__(self) -> None:
        super().__init__()
        self.retired: set[str] = set()

    def admits(self, one: RuntimeEvent) -> bool:
        opens = isinstance(one.fact, InvocationOpened)
        return super().admits(one) and not (opens and one.invocation.session_id in self.retired)


class DeletionMachine(LogMachine):
    @initialize()
    def open(self) -> None:
        super().open()
        self.model: RetiringModel = RetiringModel()
        self.deleted: set[str] = set()

    @rule(session=SESSIONS, events=st.integers(1, 6), steps=st.integers(0, 4))
    def delete(self, session: str, events: int, steps: int) -> None:
        """A session that is over is deleted, in so many steps for now; another one is not touched."""
        if not any(one.invocation.session_id == session for one in self.model.events):
            with pytest.raises(InvalidInput):
                self.store.begin_deletion(session)
            return
        self.store.retire(session)
        self.model.retired.add(session)
        if self.model.open_in(session):
            with pytest.raises(Busy):
                self.store.begin_deletion(session)
            return
        self.store.begin_deletion(session)
        self.deleted.add(session)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "DELETION_EVENTS", events)
            for _ in range(steps):
                assert self.store.delete_some(session) <= events

    @rule()
    def reopen(self) -> None:
        """Whoever opens the log finishes what was begun."""
        super().reopen()
        for session in self.deleted:
            assert all(isinstance(stored.event.fact, BodyDeleted) for stored in self.stored(session))

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """Events that are there give their sequences; of one that is not, nobody can say that it is the same."""
        if not self.written:
            return
        number = st.integers(0, len(self.written) - 1)
        chosen = data.draw(st.lists(number, min_size=1, max_size=3))
        gone = {stored.sequence for stored in self.stored() if isinstance(stored.event.fact, BodyDeleted)}
        if gone.isdisjoint(n + 1 for n in chosen):
            assert put(self.store, *(self.written[n] for n in chosen)) == [n + 1 for n in chosen]
            return
        with pytest.raises(CommitError):
            put(self.store, *(self.written[n] for n in chosen))

    def stored(self, session: str | None = None) -> list[StoredEvent]:
        whole = prefix(reader(self.store), Root(), 10**6, 10**9).events
        return [one for one in whole if session is None or one.event.invocation.session_id == session]

    def check_everything(self) -> None:
        """Digests are as they were, kept sessions read as ever, and the others are stubs from some event on."""
        link = chain_start(Root())
        for sequence, one in enumerate(self.model.events, 1):
            link = chain_next(link, sequence, encode_event(one))
        whole = prefix(reader(self.store), Root(), 10**6, 10**9)
        assert whole.digest == chain_text(link) == queries.head(reader(self.store), Root()).digest
        left = dict.fromkeys(self.deleted, False)
        for stored, one in zip(whole.events, self.model.events, strict=True):
            session, fact = one.invocation.session_id, stored.event.fact
            if isinstance(fact, BodyDeleted):
                left[session] = True
                assert stored.event == RuntimeEvent(one.id, one.recorded_at, one.invocation, fact)
                assert (fact.of_kind, session in self.deleted) == (one.fact.kind, True)
            else:
                assert (stored.event, left.get(session, False)) == (one, False)
        for session in ("session 0", "session 1"):
            self.check_session(session)

    def check_session(self, session: str) -> None:
        scope: Any = Session(session)
        link, expected = chain_start(scope), []
        for sequence, one in enumerate(self.model.events, 1):
            if one.invocation.session_id == session:
                link = chain_next(link, sequence, encode_event(one))
                expected.append(one)
        assert queries.head(reader(self.store), scope).digest == chain_text(link)
        if session in self.deleted:
            with pytest.raises(SessionDeleted):
                prefix(reader(self.store), scope, 10**6, 10**9)
            return
        assert [stored.event for stored in prefix(reader(self.store), scope, 10**6, 10**9).events] == expected


DeletionMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestDeletionMachine = DeletionMachine.TestCase
