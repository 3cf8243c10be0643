"""Planning an append: is it legal, what rows does it make, where do the log and its sessions then stand.

The planner remembers where everything stands *with* all that was planned, committed or not; a draft knows how to
take its part back. It reads the file only for a session it has not met, for an opening, and on the way to a refusal.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from maka_trio.errors import CommitError, CommitRejected, SessionRetired
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import decode_fact, encode, encode_invocation, join_event
from maka_trio.facts.event import (
    InvocationEnded,
    InvocationOpened,
    MessageSteered,
    ModelObserved,
    ModelRequested,
    RuntimeEvent,
    ToolDispatched,
    ToolRejected,
)
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import ContinuationOpening, request_fingerprint
from maka_trio.facts.prefix import chain_both, chain_next, chain_start, chain_text
from maka_trio.facts.scope import Root
from maka_trio.log.claims import prove_planned
from maka_trio.log.commit import Position, Ticket
from maka_trio.log.draft import ARTIFACTS, EVENT_ID, INVOCATIONS, MARKS, MESSAGES, PAYLOADS, SESSIONS, Draft
from maka_trio.log.media import check_media
from maka_trio.log.prepared import PreparedWrite, check_evidence, with_source
from maka_trio.log.replay import check_operation, find_event, is_in_session, same_event, same_evidence
from maka_trio.log.rows import OBSERVED, Identities, last_sequence, next_row, row_at
from maka_trio.log.schema import MARK_EVERY
from maka_trio.log.sessions import OpenInvocation, SessionBook, SessionState, message_ids
from maka_trio.log.sources import check_request, source_link, with_source_of
from maka_trio.log.stub import is_stub, outcome_name
from maka_trio.transitions import InvocationState, Refusal, Residue, refused

RECENT_IDS: Final = 16_384
"""Event ids remembered, to recognise the retry of an observation, which no index holds, while it is still legal."""


class Planner:
    """Where the log stands, and what may be appended to it.

    Args:
        connection: for look-ups; the planner writes nothing.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._identities = Identities()
        self.sessions = SessionBook(connection, self._identities)
        self._recent: dict[str, int] = {}
        self._less_recent: dict[str, int] = {}
        self._sequence, self._digest = _read_end(connection)
        self._durable = self._sequence
        self._next_session = next_row(connection, "sessions")
        self._next_invocation = next_row(connection, "invocations")

    @property
    def root(self) -> Position:
        """The end of the whole log."""
        return Position(self._sequence, self._digest)

    def skip_to(self, sequence: int) -> None:
        """Leave out the sequences up to this one. Only between drafts."""
        assert sequence > self._sequence
        self._sequence = self._durable = sequence - 1

    def draft(self) -> Draft:
        """An empty draft. Only one is under way at a time."""
        draft = Draft(self._sequence + 1)
        self._keep_end(draft)
        return draft

    def plan(self, draft: Draft, ticket: Ticket, *, careful: bool) -> list[int]:
        """Plan one ticket into a draft, and return its sequences. A refused one leaves the draft as it was.

        Args:
            draft: what the next transaction writes.
            ticket: the append.
            careful: look every id up in the file, because the file has refused the draft once.

        Raises:
            CommitRejected: a rule refuses it, or an id stands for something else.
            InvalidInput: its evidence is not what its facts say.
        """
        if len(ticket) == 1 and not careful:
            streamed = self._plan_streamed(draft, ticket[0])
            if streamed is not None:
                return [streamed]
        mark = len(draft.undo)
        # One event by itself is refused before anything of it is kept; only what comes after others needs this.
        kept: set[str] | None = None
        if len(ticket) > 1:
            kept = set()
            self._keep_end(draft)
        try:
            return [self._plan_write(draft, write, kept, careful=careful) for write in ticket]
        except BaseException:
            draft.take_back(mark)
            raise

    def committed(self, draft: Draft) -> None:
        """The draft is durable (or empty): forget what nobody will ask for soon."""
        self._durable = self._sequence
        draft.undo.clear()  # it holds the draft itself, which would then wait for the garbage collector
        self.sessions.settle(draft.touched.values())
        if len(self._recent) > RECENT_IDS:
            self._less_recent, self._recent = self._recent, {}

    # --- one event ----------------------------------------------------------------------------------------

    def _plan_streamed(self, draft: Draft, write: PreparedWrite) -> int | None:
        """Plan streamed text of an open step, which most events are. None leaves it to all the rules, as it was."""
        event = write.event
        fact, identity = event.fact, event.invocation
        session = self.sessions.met.get(identity.session_id)
        if type(fact) is not ModelObserved or write.artifacts or session is None:
            return None
        invocation = session.open
        if invocation is None or self._seen(event, session) is not None or event.id in session.messages:
            return None
        known = invocation.state.invocation
        if not ((known is identity or known == identity) and invocation.state.takes_text(fact)):
            return None
        if session.session_id not in draft.touched:
            draft.touched[session.session_id] = session
            draft.places.append((session, session.place()))
        return self._add_event(draft, write, session, invocation)

    def _plan_write(self, draft: Draft, write: PreparedWrite, kept: set[str] | None, *, careful: bool) -> int:
        event = write.event
        if write.payload is not None or write.artifacts:
            check_evidence(write)
        session = self.sessions.get(event.invocation.session_id)
        known = self._seen(event, session)
        if known is None and careful:
            known = find_event(self._connection, event)
        if known is not None:
            return self._replayed(draft, write, known)
        try:
            session, invocation = self._admit(draft, write, session, kept, careful=careful)
        except CommitError:
            known = find_event(self._connection, event)
            if known is None:
                raise
            return self._replayed(draft, write, known)
        if write.source_here:
            write = with_source(write, session.head, chain_text(source_link(session)))
        sequence = self._add_event(draft, write, session, invocation)
        if not isinstance(event.fact, ModelObserved):
            self._add_beside(draft, write, session, sequence)
            if isinstance(event.fact, InvocationEnded):
                self._seal(draft, session, invocation, sequence)
        return sequence

    def _seen(self, event: RuntimeEvent, session: SessionState | None) -> int | None:
        """The sequence of an id that need not be looked up, because it was written a short while ago."""
        known = self._recent.get(event.id) or self._less_recent.get(event.id)
        if known is None and session is not None and session.open is not None:
            known = session.open.observed.get(event.id)
        return known

    def _replayed(self, draft: Draft, write: PreparedWrite, sequence: int) -> int:
        """The sequence of an exact retry; anything else under the same id is a conflict."""
        if sequence > self._durable:
            planned = draft.writes[sequence - self._durable - 1]
            same = planned == with_source_of(planned.event.fact, write)
        else:
            row = row_at(self._connection, sequence)
            if row is not None and is_stub(row.body):
                raise CommitRejected(f"event id {excerpt(write.event.id)} is of a deleted session", reason="deleted")
            if row is not None and write.source_here:
                write = with_source_of(decode_fact(row.body), write)
            same = (
                row is not None
                and same_event(row, self._identities.of(self._connection, row.invocation)[0], write)
                and same_evidence(self._connection, sequence, write)
            )
        if not same:
            raise CommitRejected(f"event id {excerpt(write.event.id)} stands for another event", reason="conflict")
        return sequence

    def _add_event(self, draft: Draft, write: PreparedWrite, session: SessionState, invocation: OpenInvocation) -> int:
        event = write.event
        sequence = self._sequence + 1
        whole = join_event(event.id, event.recorded_at, invocation.identity, write.body)
        self._digest, session_digest = chain_both(self._digest, session.digest, sequence, whole)
        place = (sequence, session.row, invocation.row, session.head, session.head_fact)
        named = (write.kind, event.id, event.recorded_at, write.operation_id)
        draft.events.append(place + named + (self._digest, session_digest, write.body))
        draft.writes.append(write)
        self._recent[event.id] = self._sequence = session.head = sequence
        session.digest = session_digest
        if session.lineage is not None:
            session.lineage = chain_next(session.lineage, sequence, whole)
        if write.kind != OBSERVED:
            session.head_fact = sequence
        session.events += 1
        if session.events % MARK_EVERY == 0:
            draft.add(MARKS, (session.row, sequence))
        return sequence

    def _add_beside(self, draft: Draft, write: PreparedWrite, session: SessionState, sequence: int) -> None:
        """What is stored beside a fact, or points to it."""
        if write.payload is not None:
            raw = write.event.fact.outcome.raw  # type: ignore[union-attr]  # only a succeeded settlement has a payload
            draft.add(PAYLOADS, (sequence, raw.digest, write.payload))
        for artifact in write.artifacts:
            ref = artifact.ref
            draft.add(ARTIFACTS, (session.row, ref.id, sequence, ref.media_type, ref.digest, artifact.data))
        for message_id in message_ids(write.event.fact):
            draft.add(MESSAGES, (session.row, message_id, sequence))

    # --- who it belongs to --------------------------------------------------------------------------------

    def _admit(
        self, draft: Draft, write: PreparedWrite, session: SessionState | None, kept: set[str] | None, *, careful: bool
    ) -> tuple[SessionState, OpenInvocation]:
        """Fold an event into the state of its invocation, which is what checks it."""
        event, fact = write.event, write.event.fact
        if isinstance(fact, InvocationOpened):
            session, invocation = self._open(draft, event.invocation, fact, session, kept)
        else:
            session, invocation = self._find_open(draft, event.invocation, session)
            self._touch(draft, session, kept)
        if event.id in session.messages:
            raise refused(Refusal.MESSAGE_REUSED, f"event id {excerpt(event.id)} is the id of a message of its session")
        if type(fact) is ModelObserved:
            invocation.state.advance(fact, draft.undo)
            return session, invocation
        if isinstance(fact, ModelRequested):
            check_request(fact, session, invocation, source_here=write.source_here)
        invocation.state.advance(fact, draft.undo)
        invocation.state.check_room(fact)
        if careful and isinstance(fact, (ToolDispatched, ToolRejected)):
            check_operation(self._connection, fact)
        for message_id in message_ids(fact):
            self._admit_message(draft, session, message_id)
        if isinstance(fact, (InvocationOpened, MessageSteered)):
            check_media(self._connection, draft, session.row, write)
        return session, invocation

    def _open(
        self,
        draft: Draft,
        identity: Invocation,
        fact: InvocationOpened,
        session: SessionState | None,
        kept: set[str] | None,
    ) -> tuple[SessionState, OpenInvocation]:
        self._refuse_known(draft, identity, opening=True)
        if session is not None and session.retired:
            raise SessionRetired(f"session {excerpt(identity.session_id)} is retired; it takes no more runs")
        if session is None:
            session = self._new_session(draft, identity.session_id)
        self._touch(draft, session, kept)
        if session.open is not None:
            raise refused(
                Refusal.SESSION_OPEN,
                f"session {excerpt(identity.session_id)} is held by run "
                f"{excerpt(session.open.state.invocation.run_id)}, which has not ended",
            )
        proof = None
        if isinstance(fact.input, ContinuationOpening):
            proof = prove_planned(self._connection, draft, identity, fact)
        row = self._next_invocation
        self._next_invocation += 1
        draft.opened[identity.invocation_id] = identity

        def back() -> None:
            session.open = session.lineage = None
            self._next_invocation = row
            del draft.opened[identity.invocation_id]

        draft.undo.append(back)
        session.open = OpenInvocation(row, encode_invocation(identity), InvocationState(identity))
        session.lineage = None if proof is None else proof.link
        draft.add(
            INVOCATIONS,
            (
                *(row, session.row, identity.turn_id, identity.run_id, identity.invocation_id),
                *(self._sequence + 1, request_fingerprint(fact.input), None if proof is None else proof.source),
            ),
        )
        return session, session.open

    def _new_session(self, draft: Draft, session_id: str) -> SessionState:
        session = SessionState.empty(self._next_session, session_id)
        self._next_session += 1
        self.sessions.add(session)
        draft.add(SESSIONS, (session.row, session_id))

        def back() -> None:
            self._next_session -= 1
            self.sessions.drop(session)

        draft.undo.append(back)
        return session

    def _find_open(
        self, draft: Draft, identity: Invocation, session: SessionState | None
    ) -> tuple[SessionState, OpenInvocation]:
        if session is not None and session.open is not None:
            known = session.open.state.invocation
            if known is identity or known == identity:
                return session, session.open
        self._refuse_known(draft, identity, opening=False)
        raise refused(Refusal.NOT_OPEN, f"invocation {excerpt(identity.invocation_id)} has not opened")

    def _refuse_known(self, draft: Draft, identity: Invocation, *, opening: bool) -> None:
        """Refuse an event whose invocation the log knows otherwise than as this identity and open."""
        known, ended = self._lookup(draft, identity.invocation_id)
        if known is None:
            return
        name = excerpt(identity.invocation_id)
        if ended:
            raise refused(Refusal.SEALED, f"invocation {name} has ended")
        if known != identity:
            raise refused(Refusal.IDENTITY, f"invocation {name} opened with other session, turn or run ids")
        if opening:
            raise refused(Refusal.ALREADY_OPEN, f"invocation {name} is already open")

    def _lookup(self, draft: Draft, invocation_id: str) -> tuple[Invocation | None, bool]:
        """The identity under an invocation id, and whether it has ended."""
        identity, ended = draft.opened.get(invocation_id), False
        if identity is None:
            found = self._connection.execute(
                "SELECT id, ended FROM invocations WHERE invocation_id = ?", (invocation_id,)
            ).fetchone()
            if found is None:
                return None, False
            identity, ended = self._identities.of(self._connection, found[0])[0], found[1] is not None
        session = self.sessions.get(identity.session_id)
        if session is not None:  # what is planned goes before what is in the file
            ended = session.open is None or session.open.state.invocation != identity
        return identity, ended

    def _admit_message(self, draft: Draft, session: SessionState, message_id: str) -> None:
        """Messages and events of a session share one space of ids."""
        if message_id in session.messages or is_in_session(self._connection, session.row, message_id):
            raise refused(Refusal.MESSAGE_REUSED, f"message {excerpt(message_id)} is in this session already")
        session.messages.add(message_id)
        draft.undo.append(lambda: session.messages.discard(message_id))

    # --- taking back --------------------------------------------------------------------------------------

    def _keep_end(self, draft: Draft) -> None:
        """Let the events from here on be taken back all at once."""
        sequence, digest, count = self._sequence, self._digest, len(draft.events)

        def back() -> None:
            for row in draft.events[count:]:
                self._recent.pop(row[EVENT_ID], None)
            del draft.events[count:], draft.writes[count:]
            self._sequence, self._digest = sequence, digest

        draft.undo.append(back)

    def _touch(self, draft: Draft, session: SessionState, kept: set[str] | None) -> None:
        """Let a session be put back to where it stood before the draft, and before this ticket if it needs that."""
        first = session.session_id not in draft.touched
        if not first and (kept is None or session.session_id in kept):
            return
        if kept is not None:
            kept.add(session.session_id)
        before = session.place()
        draft.touched[session.session_id] = session

        def back() -> None:
            session.put_back(before)
            if first:
                del draft.touched[session.session_id]

        draft.undo.append(back)

    def _seal(self, draft: Draft, session: SessionState, invocation: OpenInvocation, sequence: int) -> None:
        outcome, residue = invocation.state.outcome, invocation.state.residue()
        assert outcome is not None
        encoded = None if residue is None else encode(residue, Residue).decode()
        draft.end((sequence, outcome_name(outcome), encoded, invocation.row))
        session.open = session.lineage = None


def _read_end(connection: sqlite3.Connection) -> tuple[int, bytes]:
    last = row_at(connection, last_sequence(connection))
    return (0, chain_start(Root())) if last is None else (last.sequence, last.root_digest)
