"""What a log derives from its facts, recomputed from the facts: its sessions, invocations, messages, marks, media.

The derived tables decide who may run, what is paid already and what is unresolved, and no digest covers them. Here
each of them is held against the events as they pass by. What the file has without any event is the matter of `filed`.
Memory is that of the open invocations and a little for each session.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import attrs

from maka_trio.errors import CommitRejected
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import encode
from maka_trio.facts.event import (
    BodyDeleted,
    Fact,
    InvocationEnded,
    InvocationOpened,
    MessageSteered,
    ModelObserved,
    ToolSettled,
)
from maka_trio.facts.identity import Invocation
from maka_trio.facts.model import ProviderToolResult, ToolCallReady
from maka_trio.facts.opening import request_fingerprint
from maka_trio.facts.outcome import Succeeded
from maka_trio.facts.streamed import Observed
from maka_trio.laws import Violation
from maka_trio.log.audit import (
    Page,
    SeenDamage,
    SeenElsewhere,
    SeenEvent,
    SeenObservation,
    SeenStep,
    SeenStub,
    rows_of,
    sequence_of,
)
from maka_trio.log.filed import Expected, Place, Unknown, Words, answer, wrong_with_file, wrong_with_places
from maka_trio.log.prepared import message_media
from maka_trio.log.reader import Reader
from maka_trio.log.rows import Row, last_sequence
from maka_trio.log.salvage import Values, at_one_moment
from maka_trio.log.schema import MARK_EVERY
from maka_trio.log.sessions import message_ids
from maka_trio.log.stub import outcome_name
from maka_trio.records import define
from maka_trio.shares import WHOLE, Share
from maka_trio.transitions import InvocationState, Residue

_Row: TypeAlias = SeenObservation | SeenStep | SeenEvent | SeenDamage | SeenStub
_SESSION: Final = Row._fields.index("session")
_UNRESOLVED: Final = (ToolCallReady, ProviderToolResult)
"""What a step may observe that has to do with what its invocation leaves unresolved."""

_EVENTS: Final = "SELECT events FROM heads WHERE session = ?"
_MARKS: Final = "SELECT sequence FROM marks WHERE session = ?"
_MESSAGES: Final = "SELECT count(*) FROM messages WHERE session = ?"


@define(eq=False)
class _Run:
    """An open invocation. `state` is None where not all of its facts are known."""

    invocation: Invocation
    session: int
    opened: int
    fingerprint: str | Unknown | None
    state: InvocationState | None


@define(eq=False)
class _Session:
    """What was seen of a session: how many events, at which of them it has marks, how many messages it names."""

    name: str = ""
    events: int = 0
    messages: int = 0
    marks: array[int] = attrs.field(factory=lambda: array("q"))


class Filing:
    """Takes the events of a log, or of one session of it, from the first on.

    Args:
        session_id: look at this session only.
        share: or at these.
    """

    def __init__(self, session_id: str | None = None, share: Share = WHOLE) -> None:
        self._only = session_id
        self._share = share
        self._runs: dict[int, _Run] = {}
        self._sessions: dict[int, _Session] = {}
        self._places: list[Place] = []
        self._ends: list[Expected] = []
        self._begin = 0
        self._end = 0
        self._sure = True
        self._gaps = False

    # --- what passes by -----------------------------------------------------------------------------------

    def take(self, page: Page) -> None:
        """Take the next events, in whatever state they are."""
        self._begin, self._end = self._end, sequence_of(page[-1]) if page else self._end
        self._places, self._ends = [], []
        for seen in page:
            if isinstance(seen, SeenElsewhere):
                continue
            if not isinstance(seen, int):
                self._count(seen)
            if isinstance(seen, SeenStep):
                for event in seen.events:
                    if isinstance(event, _UNRESOLVED):
                        self._advance(seen.rows[0][1], ModelObserved(seen.stream.step_id, event))
            elif isinstance(seen, SeenObservation):
                self._observe(seen.values[1], seen.observed)
            elif isinstance(seen, int) or seen.stored is None or seen.invocation is None:
                self._doubt(seen)
            elif self._only in (None, seen.invocation.session_id):
                self._file(seen.values, seen.invocation, seen.stored.event.fact)

    def _count(self, seen: _Row) -> None:
        rows = rows_of(seen)
        session = self._sessions.get(rows[0][_SESSION])
        if session is None:
            session = self._sessions[rows[0][_SESSION]] = _Session()
        if not session.name and seen.invocation is not None:
            session.name = seen.invocation.session_id
        number = MARK_EVERY - session.events % MARK_EVERY
        while number <= len(rows):
            session.marks.append(rows[number - 1][0])
            number += MARK_EVERY
        session.events += len(rows)

    def _doubt(self, seen: int | SeenDamage) -> None:
        """An event cannot be read, as is said already: nothing is recomputed from what is not known."""
        self._sure = False
        if isinstance(seen, int):
            self._gaps = True
            self._runs.clear()
        else:
            self._runs.pop(seen.values[1], None)

    # --- what a fact says ---------------------------------------------------------------------------------

    def _file(self, values: Values, invocation: Invocation, fact: Fact) -> None:
        sequence, row, session = values[0], values[1], values[_SESSION]
        if isinstance(fact, ModelObserved):
            self._observe(row, fact)
            return
        if isinstance(fact, BodyDeleted):
            self._file_stub(sequence, row, session, invocation, fact)
            return
        if isinstance(fact, InvocationOpened):
            fingerprint = request_fingerprint(fact.input)
            self._runs[row] = _Run(invocation, session, sequence, fingerprint, InvocationState(invocation))
        self._advance(row, fact)
        if isinstance(fact, InvocationEnded):
            self._file_end(sequence, row, outcome_name(fact.outcome))
        elif isinstance(fact, (InvocationOpened, MessageSteered, ToolSettled)):
            self._file_place(sequence, session, fact)

    def _observe(self, row: int, observed: Observed) -> None:
        if type(observed) is ModelObserved and type(observed.event) in _UNRESOLVED:
            self._advance(row, observed)

    def _file_stub(self, sequence: int, row: int, session: int, invocation: Invocation, stub: BodyDeleted) -> None:
        if stub.of_kind == InvocationOpened.kind:
            self._runs[row] = _Run(invocation, session, sequence, Unknown.VALUE, None)
        run = self._runs.get(row)
        if run is not None:
            run.state = None
        if stub.of_kind == InvocationEnded.kind:
            self._file_end(sequence, row, Unknown.VALUE if stub.outcome is None else stub.outcome)

    def _file_end(self, sequence: int, row: int, outcome: str | Unknown) -> None:
        run = self._runs.pop(row, None)
        if run is not None:
            self._ends.append(_expected(row, run, sequence, outcome))

    def _file_place(self, sequence: int, session: int, fact: InvocationOpened | MessageSteered | ToolSettled) -> None:
        ids = message_ids(fact)
        self._sessions[session].messages += len(ids)
        media: dict[str, str] = {}
        if not isinstance(fact, ToolSettled):
            media = {part.artifact or "": part.media_type for part in message_media(fact)}
        elif isinstance(fact.outcome, Succeeded):
            media = {ref.id: ref.media_type for ref in fact.outcome.artifacts}
        own = isinstance(fact, ToolSettled)
        raw = own and isinstance(fact.outcome, Succeeded)  # type: ignore[union-attr]  # `own` says so
        self._places.append(Place(sequence, session, ids, media, all_its_own=own, raw_result=raw))

    def _advance(self, row: int, fact: Fact) -> None:
        run = self._runs.get(row)
        if run is None or run.state is None:
            return
        try:
            run.state.advance(fact)
        except CommitRejected:  # the laws say what is wrong; nothing can be said of what follows from it
            run.state = None

    # --- what the file says -------------------------------------------------------------------------------

    def wrong(self, reader: Reader) -> list[Violation]:
        """What the file says otherwise of the events that were taken last. May be asked again."""
        only = None
        if self._only is not None:
            only = next((row for row, session in self._sessions.items() if session.name == self._only), -1)
        begin = self._end if self._gaps else self._begin  # the indexes of what cannot be read are nothing to look at
        between = (begin, self._end)
        words = wrong_with_places(reader.connection, between, only, self._places, self._ends, self._share)
        return _violations(words)

    def wrong_at_end(self, reader: Reader) -> list[Violation]:
        """What only the whole file shows, if it still ends with the event that was taken last. May be asked again."""
        connection = reader.connection
        still_open = [_expected(row, run, None, None) for row, run in self._runs.items()]
        words: list[Words] = []
        if self._gaps:  # much will be missing, and why is said already
            return []
        with at_one_moment(connection):
            if last_sequence(connection) != self._end:
                return []
            words += wrong_with_places(connection, (self._end, self._end), None, (), still_open)
            if self._sure:
                words += self._wrong_sessions(connection)
            if self._only is None and self._share.first:
                words += wrong_with_file(connection)
        return _violations(words)

    def _wrong_sessions(self, connection: sqlite3.Connection) -> list[Words]:
        words: list[Words] = []
        deleted = {row for (row,) in answer(connection, "table deletions", "SELECT session FROM deletions", (), words)}
        for row, session in self._sessions.items():
            if self._only in (None, session.name):
                words += _wrong_session(connection, row, session, deleted=row in deleted)
        return words


def _wrong_session(connection: sqlite3.Connection, row: int, session: _Session, *, deleted: bool) -> Iterator[Words]:
    where, told = f"session {excerpt(session.name)}", list[Words]()
    for (events,) in _or_none(answer(connection, "table heads", _EVENTS, (row,), told)):
        if events != session.events:
            yield None, f"table heads has {excerpt(events)} events of {where}, and the log {session.events}"
    marks = {mark for (mark,) in answer(connection, "table marks", _MARKS, (row,), told)}
    for mark in sorted(marks ^ set(session.marks), key=str)[:1]:
        at = mark if isinstance(mark, int) else None
        yield at, f"table marks has {'made up' if mark in marks else 'lost'} mark {excerpt(mark)} of {where}"
    for (count,) in answer(connection, "table messages", _MESSAGES, (row,), told):
        if count != session.messages and not deleted:
            yield None, f"table messages has {count} messages of {where}, and its events {session.messages}"
    yield from told


def _or_none(rows: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(rows) or [(None,)]


def _expected(row: int, run: _Run, ended: int | None, outcome: str | Unknown | None) -> Expected:
    residue: str | Unknown | None = None
    if ended is not None and run.state is None:
        residue = Unknown.VALUE
    elif ended is not None and run.state is not None:
        left = run.state.residue()
        residue = None if left is None else encode(left, Residue).decode()
    name = run.invocation.invocation_id
    return Expected(row, name, run.session, run.opened, ended, outcome, residue, run.fingerprint)


def _violations(words: Iterable[Words]) -> list[Violation]:
    return [Violation(9, sequence, said) for sequence, said in words]
