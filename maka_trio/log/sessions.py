"""What the writer remembers of sessions: where each stands, and the open invocation's state. Loaded once, then kept.

Loading reads the chain of the session's facts back to the opening, and observations only of steps that did not
complete: those are all that the rules still depend on.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import attrs

from maka_trio.errors import CommitRejected, LogCorrupt
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.event import Fact, InvocationEnded, InvocationOpened, MessageSteered
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import ContinuationOpening, MessageOpening
from maka_trio.facts.prefix import chain_start
from maka_trio.facts.scope import Lineage, Session
from maka_trio.log.faults import translated
from maka_trio.log.lineage import lineage_end
from maka_trio.log.reader import Reader
from maka_trio.log.rows import (
    OBSERVED,
    EventRow,
    FactRow,
    Identities,
    SessionHead,
    fact_rows,
    is_retired,
    row_at,
    session_head,
    session_rows,
    stored_event,
)
from maka_trio.records import define
from maka_trio.transitions import InvocationState

IDLE_SESSIONS: Final = 1024
"""Sessions without an open invocation whose place is remembered; others are looked up again."""

_PLAIN_DELTA = b'"kind":"part_delta"},"kind":"model_observed"'
_OPTIONS = b'"provider_options"'


@define(eq=False)
class OpenInvocation:
    """An invocation without its end: its row, its identity's canonical bytes, what its facts left open."""

    row: int
    identity: bytes
    state: InvocationState
    observed: dict[str, int] = attrs.field(factory=dict)
    """Ids and sequences of the observations that its open steps had when it was loaded."""


Place: TypeAlias = tuple[int, int, bytes, int, OpenInvocation | None, bytes | None]
"""What changes of a session when an event is added to it."""


@define(eq=False)
class SessionState:
    """Where a session stands, as the next append needs it."""

    row: int
    session_id: str
    head: int
    head_fact: int
    digest: bytes
    events: int
    open: OpenInvocation | None = None
    lineage: bytes | None = None
    """The digest of its lineage, where the open invocation continues another."""
    retired: bool = False
    messages: set[str] = attrs.field(factory=set)
    """Ids of the user messages in it; events may not use them for themselves."""

    def place(self) -> Place:
        """Where it stands, to be given to `put_back`."""
        return (self.head, self.head_fact, self.digest, self.events, self.open, self.lineage)

    def put_back(self, place: Place) -> None:
        """Stand again where it stood."""
        self.head, self.head_fact, self.digest, self.events, self.open, self.lineage = place

    @classmethod
    def empty(cls, row: int, session_id: str) -> SessionState:
        """A session that the log has nothing of yet."""
        return cls(row, session_id, 0, 0, chain_start(Session(session_id)), 0)


def message_ids(fact: Fact) -> tuple[str, ...]:
    """The ids of the user messages that a fact brings into its session."""
    match fact:
        case MessageSteered(message_id=message_id):
            return (message_id,)
        case InvocationOpened(input=MessageOpening(source_messages=source_messages)):
            return source_messages
        case _:
            return ()


class SessionBook:
    """The sessions that the writer has met.

    Those with an open invocation are kept, and the `IDLE_SESSIONS` that were used last of the others.

    Attributes:
        met: those that are remembered, by their ids; to be read only.
    """

    def __init__(self, connection: sqlite3.Connection, identities: Identities) -> None:
        self._connection = connection
        self._identities = identities
        self.met: dict[str, SessionState] = {}
        self._idle: OrderedDict[str, None] = OrderedDict()

    def get(self, session_id: str) -> SessionState | None:
        """Where a session stands; None when the log has nothing of it."""
        known = self.met.get(session_id)
        if known is None:
            with translated(f"reading session {excerpt(session_id)}"):
                known = load_session(self._connection, self._identities, session_id)
            if known is not None:
                self.met[session_id] = known
                if known.open is None:
                    self._idle[session_id] = None
        return known

    def add(self, session: SessionState) -> None:
        """Remember a session that is about to begin."""
        self.met[session.session_id] = session

    def drop(self, session: SessionState) -> None:
        """Forget one that did not begin after all."""
        del self.met[session.session_id]

    def settle(self, sessions: Iterable[SessionState]) -> None:
        """Note which sessions were used, and forget those that were not for long.

        Only between transactions: what is planned and not yet written is nowhere else.
        """
        for session in sessions:
            self._idle.pop(session.session_id, None)
            if session.open is None:
                self._idle[session.session_id] = None
        while len(self._idle) > IDLE_SESSIONS:
            session_id, _ = self._idle.popitem(last=False)
            del self.met[session_id]


def load_session(connection: sqlite3.Connection, identities: Identities, session_id: str) -> SessionState | None:
    """Read where a session stands, its open invocation included; None when the log has nothing of it.

    Raises:
        LogCorrupt: its chain is broken, or its open invocation holds facts that no rule admits.
    """
    head = session_head(connection, session_id)
    if head is None:
        return None
    last = row_at(connection, head.head)
    if last is None:
        raise LogCorrupt(f"event {head.head}, the last of a session, is missing", sequence=head.head)
    session = SessionState(head.row, session_id, head.head, head.head_fact, last.session_digest, head.events)
    session.retired = is_retired(connection, head.row)
    messages = connection.execute("SELECT message_id FROM messages WHERE session = ?", (head.row,))
    session.messages.update(message_id for (message_id,) in messages)
    found = connection.execute("SELECT id, opened FROM invocations WHERE session = ? AND ended IS NULL", (head.row,))
    for row, opened in found.fetchall():
        identity, encoded = identities.of(connection, row)
        facts = fact_rows(connection, head.head_fact, opened - 1)
        state = _load_state(connection, identity, head, facts)
        session.open = OpenInvocation(row, encoded, state, _observed(connection, head, facts, state))
        if isinstance(state.opening, ContinuationOpening):
            _, session.lineage = lineage_end(Reader(connection), Lineage(session_id, identity.run_id))
    _check_open(connection, session)
    return session


def _check_open(connection: sqlite3.Connection, session: SessionState) -> None:
    """A session has an open invocation exactly where its last fact is no end: forgetting one would run it again."""
    last = row_at(connection, session.head_fact)
    if last is None or (last.kind == InvocationEnded.kind) is not (session.open is None):
        raise LogCorrupt(
            f"the log lists session {excerpt(session.session_id)} as {'idle' if session.open is None else 'running'}, "
            f"and its last fact, event {session.head_fact}, says otherwise",
            sequence=session.head_fact,
        )


def _load_state(
    connection: sqlite3.Connection, invocation: Invocation, head: SessionHead, facts: list[FactRow]
) -> InvocationState:
    state = InvocationState(invocation)
    for row in _in_order(connection, head, facts):
        try:
            state.advance(stored_event(row, invocation).event.fact)
        except CommitRejected as error:
            raise LogCorrupt(f"event {row.sequence} may not stand there: {error}", sequence=row.sequence) from error
    return state


def _in_order(connection: sqlite3.Connection, head: SessionHead, facts: list[FactRow]) -> Iterator[EventRow]:
    """The facts, and among them the observations that still matter."""
    position = 0
    uncompleted = _uncompleted_steps(facts)
    waiting: set[str] = set()
    for fact in facts:
        if waiting:
            yield from _observations(connection, head, position, fact.sequence)
        row = row_at(connection, fact.sequence)
        if row is None:
            raise LogCorrupt(f"event {fact.sequence} is missing", sequence=fact.sequence)
        yield row
        position = fact.sequence
        if fact.operation_id is not None and fact.operation_id in uncompleted:
            waiting ^= {fact.operation_id}  # its request, and later its interruption
    if waiting:
        yield from _observations(connection, head, position, head.head + 1)


def _uncompleted_steps(facts: list[FactRow]) -> set[str]:
    requested = {fact.operation_id for fact in facts if fact.kind == "model_requested" and fact.operation_id}
    return requested - {fact.operation_id for fact in facts if fact.kind == "model_completed"}


def _observations(connection: sqlite3.Connection, head: SessionHead, after: int, before: int) -> Iterator[EventRow]:
    for row in session_rows(connection, head, after):
        if row.sequence >= before:
            return
        if row.kind == OBSERVED and not _is_plain_delta(row.body):
            yield row


def _is_plain_delta(body: bytes) -> bool:
    """Text and nothing else: no rule depends on it. Quotes inside the text are escaped, so they cannot deceive."""
    return _PLAIN_DELTA in body and _OPTIONS not in body


def _observed(
    connection: sqlite3.Connection, head: SessionHead, facts: list[FactRow], state: InvocationState
) -> dict[str, int]:
    requested = [fact.sequence for fact in facts if fact.operation_id in state.steps]
    if not requested:
        return {}
    rows = session_rows(connection, head, min(requested))
    return {row.event_id: row.sequence for row in rows if row.kind == OBSERVED}
