"""Reading a log as evidence: every row held against its digests and what lies beside it, past whatever is damaged.

The other readers stop at the first thing that is wrong. This one says what is wrong and goes on. It looks at rows in
a snapshot of the file (`look`), which may have to be done again, and holds what it saw against the chains (`hold`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from maka_trio.errors import InvalidInput, LogCorrupt
from maka_trio.facts.codec import decode_fact, join_event
from maka_trio.facts.decoder import usual_fact
from maka_trio.facts.event import ModelObserved, RuntimeEvent, StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.streamed import Observed, StepStream, Streamed, StreamedText, StreamedTexts, short_observation
from maka_trio.limits import CONTEXT_EVENTS, IDENTITY_BYTES
from maka_trio.log.chains import Chains
from maka_trio.log.evidence import kept_of_deleted, wrong_beside, wrong_with_stub
from maka_trio.log.faults import error_name, translated
from maka_trio.log.reader import Reader
from maka_trio.log.rows import OBSERVED, Identities, Row, event_bytes, last_sequence, stored_event
from maka_trio.log.salvage import Values, at_one_moment, rows_after
from maka_trio.log.stub import is_stub
from maka_trio.records import frozen
from maka_trio.shares import WHOLE, Share

_SURE_IDENTITY: Final = IDENTITY_BYTES // 4
"""So many characters are within the limit in any alphabet."""


class SeenObservation(msgspec.Struct, gc=False):
    """A row of an observation with which nothing is wrong by itself."""

    values: Values
    invocation: Invocation
    identity: bytes
    observed: Observed

    @property
    def body(self) -> bytes:
        """The canonical bytes of the whole event, put together when somebody wants them: they are many and large."""
        _, _, _, event_id, recorded_at, _, _, fact, *_ = self.values
        return join_event(event_id, recorded_at, self.identity, fact)

    def stored(self) -> StoredEvent:
        """The event."""
        sequence, _, _, event_id, recorded_at, *_ = self.values
        fact = self.observed.fact() if isinstance(self.observed, StreamedText) else self.observed
        return StoredEvent(sequence, RuntimeEvent(event_id, recorded_at, self.invocation, fact))


class SeenStep(msgspec.Struct, gc=False):
    """Rows of the observations of one step, one after the other, and nothing wrong with any of them by itself.

    Most of most logs is that, so what is the same of all of them is looked at once, no event is made of one unasked,
    and this is the kind of class that is made the fastest. `events` are what they say, the texts of a part together.
    """

    rows: list[Values]
    invocation: Invocation
    identity: bytes
    stream: StepStream
    events: list[Streamed]

    def each(self) -> Iterator[SeenObservation]:
        """Every one of them by itself."""
        for values, observed in zip(self.rows, self._observed(), strict=True):
            yield SeenObservation(values, self.invocation, self.identity, observed)

    def _observed(self) -> Iterator[Observed]:
        step_id = self.stream.step_id
        for event in self.events:
            if isinstance(event, StreamedTexts):
                yield from [StreamedText(step_id, event.part_id, text) for text in event.texts]
            else:
                yield ModelObserved(step_id, event)

    def take(self, rows: Sequence[Values | int], at: int) -> int:
        """Take what goes on with the step, of the rows of a page from a place on. Returns the place where it ends."""
        stream, events, first = self.stream, self.events, self.rows[0]
        texts = events[-1].texts if isinstance(events[-1], StreamedTexts) else None
        for place in range(at, len(rows)):
            values = rows[place]
            if isinstance(values, int):
                return place
            _, row, kind, event_id, recorded_at, _, _, fact, session, _, _, operation_id = values
            if row != first[1] or session != first[8] or kind != OBSERVED:
                return place
            if not _may_be_observed(event_id, recorded_at, fact, operation_id):
                return place
            text = None if texts is None else stream.text_of(fact)
            if texts is not None and text is not None:
                texts.append(text)
            else:
                event = stream.event_of(fact)
                if event is None:
                    return place
                events.append(event)
                texts = event.texts if isinstance(event, StreamedTexts) else None
            self.rows.append(values)
        return len(rows)


class SeenEvent(NamedTuple):
    """A row of any event with which nothing is wrong by itself. `body` are the canonical bytes of the whole event."""

    values: Values
    invocation: Invocation
    body: bytes
    stored: StoredEvent


class SeenDamage(NamedTuple):
    """A row with which something is wrong, in words, and what could be read of it all the same."""

    values: Values
    words: tuple[str, ...]
    invocation: Invocation | None = None
    body: bytes | None = None
    stored: StoredEvent | None = None


class SeenStub(NamedTuple):
    """A row whose body was deleted. Its digests are as it states them: there is nothing to compute them from."""

    values: Values
    words: tuple[str, ...]
    invocation: Invocation
    stored: StoredEvent
    body: None = None


Seen: TypeAlias = SeenObservation | SeenEvent | SeenDamage | SeenStub | int
"""What was seen of an event; a bare sequence where the row cannot be read."""


class SeenElsewhere(NamedTuple):
    """Events in a row that are not in the share: where the last of them is, and the digest of the log it states."""

    sequence: int
    root_digest: object


Page: TypeAlias = Sequence[Seen | SeenStep | SeenElsewhere]
"""What was seen of the events of a page, in order."""


def sequence_of(seen: Seen | SeenStep | SeenElsewhere) -> int:
    """Its sequence; the last where there are several."""
    if isinstance(seen, SeenElsewhere):
        return seen.sequence
    return seen if isinstance(seen, int) else int(rows_of(seen)[-1][0])


def rows_of(seen: Seen | SeenStep) -> Sequence[Values]:
    """The rows of what was seen; none where a row cannot be read."""
    if isinstance(seen, SeenStep):
        return seen.rows
    return () if isinstance(seen, int) else (seen.values,)


def each_of(page: Page) -> Iterator[Seen]:
    """The events of a page one by one."""
    for seen in page:
        if isinstance(seen, SeenStep):
            yield from seen.each()
        elif not isinstance(seen, SeenElsewhere):
            yield seen


def up_to(page: Page, last: int) -> Page:
    """What a page has up to a sequence."""
    cut: list[Seen | SeenStep | SeenElsewhere] = []
    for seen in page:
        if sequence_of(seen) <= last:
            cut.append(seen)
        elif isinstance(seen, SeenStep) and seen.rows[0][0] <= last:
            cut += [one for one in seen.each() if sequence_of(one) <= last]
    return cut


def _may_be_observed(event_id: object, recorded_at: object, fact: object, operation_id: object) -> bool:
    """Whether what a row has beside the digests can be that of an observation."""
    if operation_id is not None or type(fact) is not bytes or type(recorded_at) is not int:
        return False
    return type(event_id) is str and 0 < len(event_id) <= _SURE_IDENTITY


@frozen
class Found:
    """One event as the file has it.

    Attributes:
        sequence: its sequence.
        words: what is wrong with it; empty for a sound one.
        stored: the event; None if it cannot be read.
        body: the canonical bytes of the whole event; None if they cannot be put together.
        session_id: its session; None if even that cannot be read.
        session_digest: the digest of its session, as its row has it.
        chains: the digests of the log and of its session, this event included; empty where they are in doubt.
    """

    sequence: int
    words: tuple[str, ...] = ()
    stored: StoredEvent | None = None
    body: bytes | None = None
    session_id: str | None = None
    session_digest: bytes = b""
    chains: tuple[bytes, bytes] = (b"", b"")


class Auditor:
    """Holds rows, from the first of a log on, against their digests, their columns, and what is stored beside them.

    Args:
        share: the sessions to look at.
    """

    def __init__(self, share: Share = WHOLE) -> None:
        self.chains = Chains()
        self._share = share
        self._homes: dict[int, object] = {}
        self._identities = Identities()
        self._streams: dict[int, StepStream] = {}

    # --- the file -----------------------------------------------------------------------------------------

    def look(self, reader: Reader, after: int, count: int) -> tuple[list[Seen], int]:
        """The next events one by one, and up to where this looked; no further is the end.

        May be asked again: nothing follows from having looked.
        """
        page, end = self.look_over(reader, after, count)
        return list(each_of(page)), end

    def look_over(self, reader: Reader, after: int, count: int) -> tuple[Page, int]:
        """The same with observations by the stretch."""
        with translated("reading the log"):
            try:
                return self._look(reader, after, count)
            except sqlite3.DatabaseError as error:
                if error_name(error):
                    raise
            # A text that is no UTF-8, for which Python has an error of its own. The quick way could not read it.
            reader.connection.text_factory = lambda data: data.decode(errors="surrogateescape")
            return self._look(reader, after, count)

    def _look(self, reader: Reader, after: int, count: int) -> tuple[Page, int]:
        with at_one_moment(reader.connection):  # else what lies beside an event may be deleted after it was read
            rows, end = rows_after(reader.connection, after, count)
            kept = kept_of_deleted(reader.connection)
            return self._looked_at(reader, rows, kept), end

    def _looked_at(self, reader: Reader, rows: list[Values | int], kept: Mapping[int, int]) -> Page:
        page: list[Seen | SeenStep | SeenElsewhere] = []
        at = 0
        while at < len(rows):
            if self._share is not WHOLE:
                at = self._pass_over(rows, at, page)
                if at == len(rows):
                    break
            values = rows[at]
            seen = values if isinstance(values, int) else self._look_at(reader, values, kept)
            page.append(seen)
            at += 1
            if isinstance(seen, SeenStep) and not kept:
                at = seen.take(rows, at)
        return page

    def _pass_over(self, rows: list[Values | int], at: int, page: list[Seen | SeenStep | SeenElsewhere]) -> int:
        """Pass over what is elsewhere, from a place on; return the place after it."""
        first = at
        while at < len(rows):
            values = rows[at]
            if isinstance(values, int) or self._share.has(values[8]):
                break
            at += 1
        if at > first:
            last = rows[at - 1]
            assert not isinstance(last, int)
            page.append(SeenElsewhere(last[0], last[5]))
        return at

    def _is_at_home(self, connection: sqlite3.Connection, values: Values) -> bool:
        """Whether an event is filed under the session of its invocation, so that all of that is in one share."""
        row, session = values[1], values[8]
        if row not in self._homes:
            if len(self._homes) >= CONTEXT_EVENTS:
                self._homes.clear()
            found = connection.execute("SELECT session FROM invocations WHERE id = ?", (row,)).fetchone()
            self._homes[row] = found and found[0]
        return bool(self._homes[row] == session)

    def _look_at(self, reader: Reader, values: Values, kept: Mapping[int, int]) -> Seen | SeenStep:
        if self._share is not WHOLE and not self._is_at_home(reader.connection, values):
            return SeenDamage(values, (f"event {values[0]} is filed under another session than its invocation",))
        to_be_deleted = bool(kept) and values[0] > kept.get(values[8], values[0])
        if values[2] == OBSERVED and not to_be_deleted:
            seen = self._observation(reader, values)
            if seen is not None:
                return seen
        row = Row._make(values)
        invocation: Invocation | None = None
        body: bytes | None = None
        try:
            invocation, identity = self._identities.of(reader.connection, row.invocation)
            body = event_bytes(row, identity)
            stored = stored_event(row, invocation, usual_fact(row.body, row.kind))
        except LogCorrupt as error:
            return SeenDamage(values, (str(error),), invocation, body)
        if is_stub(row.body):
            return SeenStub(values, wrong_with_stub(row, identity, expected=to_be_deleted), invocation, stored)
        if to_be_deleted:
            return SeenDamage(
                values, (f"event {row.sequence} has a body that was to be deleted",), invocation, body, stored
            )
        words = wrong_beside(reader.connection, row, stored.event.fact)
        if words:
            return SeenDamage(values, words, invocation, body, stored)
        return SeenEvent(values, invocation, body, stored)

    def _observation(self, reader: Reader, values: Values) -> SeenStep | None:
        """An observation, if the row is nothing else and nothing is wrong with it by itself."""
        _, row, _, event_id, recorded_at, _, _, fact, _, _, _, operation_id = values
        if not _may_be_observed(event_id, recorded_at, fact, operation_id):
            return None
        try:
            invocation, identity = self._identities.of(reader.connection, row)
            stream = self._streams.get(row)
            event = None if stream is None else stream.event_of(fact)
            if stream is None or event is None:
                observed = short_observation(fact) or decode_fact(fact)
                if not isinstance(observed, (ModelObserved, StreamedText)):
                    return None
                stream = self._stream(row, observed.step_id)
                event = observed.event if isinstance(observed, ModelObserved) else stream.begin(observed)
        except (LogCorrupt, InvalidInput):
            return None
        return SeenStep([values], invocation, identity, stream, [event])

    def _stream(self, row: int, step_id: str) -> StepStream:
        """The stream of a step, remembered for the invocation."""
        if len(self._streams) >= CONTEXT_EVENTS:
            self._streams.clear()
        stream = self._streams[row] = StepStream(step_id)
        return stream

    # --- the chains ---------------------------------------------------------------------------------------

    def hold(self, seen: Seen) -> Found:
        """Hold the next event that was seen against the chains."""
        if isinstance(seen, int):
            self.chains.gap()
            return Found(seen, (f"event {seen} cannot be read: its page is damaged",))
        row = Row._make(seen.values)
        beside = seen.words if isinstance(seen, (SeenDamage, SeenStub)) else ()
        session_id = None if seen.invocation is None else seen.invocation.session_id
        stored, body = seen.stored() if isinstance(seen, SeenObservation) else seen.stored, seen.body
        words = (*beside, *self.chains.push(row, body, session_id))
        chains = self.chains.known(row.session)
        return Found(row.sequence, words, stored, body, session_id, row.session_digest, chains)

    def lost(self, reader: Reader, end: int) -> list[str]:
        """What sessions say of their ends that the events do not show. After the last page.

        Nothing where the log does not end with sequence `end` any more.
        """
        with translated("reading the log"), at_one_moment(reader.connection):
            if last_sequence(reader.connection) != end:
                return []
            return self.chains.lost(reader.connection, self._share)
