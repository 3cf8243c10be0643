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
from maka_trio.facts.streamed import Observed, StreamedText, TextStream, short_observation
from maka_trio.limits import CONTEXT_EVENTS, IDENTITY_BYTES
from maka_trio.log.chains import Chains
from maka_trio.log.evidence import kept_of_deleted, wrong_beside, wrong_with_stub
from maka_trio.log.faults import error_name, translated
from maka_trio.log.reader import Reader
from maka_trio.log.rows import OBSERVED, Identities, Row, event_bytes, last_sequence, stored_event
from maka_trio.log.salvage import Values, at_one_moment, rows_after
from maka_trio.log.stub import is_stub
from maka_trio.records import frozen

_SURE_IDENTITY: Final = IDENTITY_BYTES // 4
"""So many characters are within the limit in any alphabet."""


class SeenObservation(msgspec.Struct, gc=False):
    """A row of an observation with which nothing is wrong by itself.

    Most rows are that, so no event is made of one unasked, and this is the kind of class that is made the fastest.
    """

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


class SeenTexts(msgspec.Struct, gc=False):
    """Rows of one text part as it streamed, one after the other, and nothing wrong with any of them by itself.

    Most of most logs is that, so what is the same of all of them is looked at once.
    """

    rows: list[Values]
    invocation: Invocation
    identity: bytes
    stream: TextStream
    texts: list[str]

    def each(self) -> Iterator[SeenObservation]:
        """Every one of them by itself."""
        for values, text in zip(self.rows, self.texts, strict=True):
            yield SeenObservation(values, self.invocation, self.identity, self.stream.delta(text))

    def goes_on(self, values: Values) -> bool:
        """Take the next row, if it is another of them."""
        _, row, kind, event_id, recorded_at, _, _, fact, session, _, _, operation_id = values
        first = self.rows[0]
        if row != first[1] or session != first[8] or kind != OBSERVED:
            return False
        if not _may_be_observed(event_id, recorded_at, fact, operation_id):
            return False
        text = self.stream.text_of(fact)
        if text is None:
            return False
        self.rows.append(values)
        self.texts.append(text)
        return True


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

Page: TypeAlias = Sequence[Seen | SeenTexts]
"""What was seen of the events of a page, in order."""


def sequence_of(seen: Seen | SeenTexts) -> int:
    """Its sequence; the last where there are several."""
    return seen if isinstance(seen, int) else int(rows_of(seen)[-1][0])


def rows_of(seen: Seen | SeenTexts) -> Sequence[Values]:
    """The rows of what was seen; none where a row cannot be read."""
    if isinstance(seen, SeenTexts):
        return seen.rows
    return () if isinstance(seen, int) else (seen.values,)


def each_of(page: Page) -> Iterator[Seen]:
    """The events of a page one by one."""
    for seen in page:
        if isinstance(seen, SeenTexts):
            yield from seen.each()
        else:
            yield seen


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
    """Holds rows, from the first of a log on, against their digests, their columns, and what is stored beside them."""

    def __init__(self) -> None:
        self.chains = Chains()
        self._identities = Identities()
        self._streams: dict[int, TextStream] = {}

    # --- the file -----------------------------------------------------------------------------------------

    def look(self, reader: Reader, after: int, count: int) -> tuple[list[Seen], int]:
        """The next events one by one, and up to where this looked; no further is the end.

        May be asked again: nothing follows from having looked.
        """
        page, end = self.look_over(reader, after, count)
        return list(each_of(page)), end

    def look_over(self, reader: Reader, after: int, count: int) -> tuple[Page, int]:
        """The same with streamed text by the stretch."""
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
        page: list[Seen | SeenTexts] = []
        texts: SeenTexts | None = None
        for values in rows:
            if texts is not None and not isinstance(values, int) and texts.goes_on(values):
                continue
            seen = values if isinstance(values, int) else self._look_at(reader, values, kept)
            texts = seen if isinstance(seen, SeenTexts) and not kept else None
            page.append(seen)
        return page

    def _look_at(self, reader: Reader, values: Values, kept: Mapping[int, int]) -> Seen | SeenTexts:
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

    def _observation(self, reader: Reader, values: Values) -> SeenObservation | SeenTexts | None:
        """An observation, if the row is nothing else and nothing is wrong with it by itself."""
        _, row, _, event_id, recorded_at, _, _, fact, _, _, _, operation_id = values
        if not _may_be_observed(event_id, recorded_at, fact, operation_id):
            return None
        try:
            invocation, identity = self._identities.of(reader.connection, row)
            stream = self._streams.get(row)
            text = None if stream is None else stream.text_of(fact)
            if stream is not None and text is not None:
                return SeenTexts([values], invocation, identity, stream, [text])
            observed = short_observation(fact) or decode_fact(fact)
        except (LogCorrupt, InvalidInput):
            return None
        if isinstance(observed, StreamedText):
            return SeenTexts([values], invocation, identity, self._stream(row, observed), [observed.text])
        return SeenObservation(values, invocation, identity, observed) if isinstance(observed, ModelObserved) else None

    def _stream(self, row: int, delta: StreamedText) -> TextStream:
        """The stream that a delta is of, remembered for the invocation."""
        if len(self._streams) >= CONTEXT_EVENTS:
            self._streams.clear()
        stream = self._streams[row] = TextStream(delta)
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
            return self.chains.lost(reader.connection) if last_sequence(reader.connection) == end else []
