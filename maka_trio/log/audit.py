"""Reading a log as evidence: every row held against its digests and what lies beside it, past whatever is damaged.

The other readers stop at the first thing that is wrong. This one says what is wrong and goes on. It looks at rows in
a snapshot of the file (`look`), which may have to be done again, and holds what it saw against the chains (`hold`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from maka_trio.errors import InvalidInput, LogCorrupt
from maka_trio.facts.codec import decode_fact, join_event
from maka_trio.facts.event import RuntimeEvent, StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.streamed import Observed, StreamedText, short_observation
from maka_trio.limits import IDENTITY_BYTES
from maka_trio.log.chains import Chains
from maka_trio.log.evidence import kept_of_deleted, wrong_beside, wrong_with_stub
from maka_trio.log.faults import error_name, translated
from maka_trio.log.reader import Reader
from maka_trio.log.rows import OBSERVED, Identities, Row, event_bytes, stored_event
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
    body: bytes
    observed: Observed

    def stored(self) -> StoredEvent:
        """The event."""
        sequence, _, _, event_id, recorded_at, *_ = self.values
        fact = self.observed.fact() if isinstance(self.observed, StreamedText) else self.observed
        return StoredEvent(sequence, RuntimeEvent(event_id, recorded_at, self.invocation, fact))


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


def sequence_of(seen: Seen) -> int:
    """Its sequence."""
    return seen if isinstance(seen, int) else int(seen.values[0])


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

    # --- the file -----------------------------------------------------------------------------------------

    def look(self, reader: Reader, after: int, count: int) -> tuple[list[Seen], int]:
        """The next events, and up to where this looked; no further is the end.

        May be asked again: nothing follows from having looked.
        """
        with translated("reading the log"):
            try:
                return self._look(reader, after, count)
            except sqlite3.DatabaseError as error:
                if error_name(error):
                    raise
            # A text that is no UTF-8, for which Python has an error of its own. The quick way could not read it.
            reader.connection.text_factory = lambda data: data.decode(errors="surrogateescape")
            return self._look(reader, after, count)

    def _look(self, reader: Reader, after: int, count: int) -> tuple[list[Seen], int]:
        with at_one_moment(reader.connection):  # else what lies beside an event may be deleted after it was read
            rows, end = rows_after(reader.connection, after, count)
            kept = kept_of_deleted(reader.connection)
            return [row if isinstance(row, int) else self._look_at(reader, row, kept) for row in rows], end

    def _look_at(self, reader: Reader, values: Values, kept: Mapping[int, int]) -> Seen:
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
            stored = stored_event(row, invocation)
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

    def _observation(self, reader: Reader, values: Values) -> SeenObservation | None:
        """An observation, if the row is nothing else and nothing is wrong with it by itself."""
        _, invocation_row, _, event_id, recorded_at, _, _, fact, _, _, _, operation_id = values
        if operation_id is not None or type(fact) is not bytes or type(recorded_at) is not int:
            return None
        if type(event_id) is not str or not 0 < len(event_id) <= _SURE_IDENTITY:
            return None
        try:
            observed = short_observation(fact) or decode_fact(fact)
            invocation, identity = self._identities.of(reader.connection, invocation_row)
            body = join_event(event_id, recorded_at, identity, fact)
        except (LogCorrupt, InvalidInput, ValueError):
            return None
        return SeenObservation(values, invocation, body, observed) if isinstance(observed, Observed) else None

    # --- the chains ---------------------------------------------------------------------------------------

    def hold(self, seen: Seen) -> Found:
        """Hold the next event that was seen against the chains."""
        if isinstance(seen, int):
            self.chains.gap()
            return Found(seen, (f"event {seen} cannot be read: its page is damaged",))
        row = Row._make(seen.values)
        beside = seen.words if isinstance(seen, (SeenDamage, SeenStub)) else ()
        session_id = None if seen.invocation is None else seen.invocation.session_id
        words = (*beside, *self.chains.push(row, seen.body, session_id))
        stored = seen.stored() if isinstance(seen, SeenObservation) else seen.stored
        chains = self.chains.known(row.session)
        return Found(row.sequence, words, stored, seen.body, session_id, row.session_digest, chains)

    def lost(self, reader: Reader) -> list[str]:
        """What sessions say of their ends that the events do not show. After the last page."""
        with translated("reading the log"):
            return self.chains.lost(reader.connection)
