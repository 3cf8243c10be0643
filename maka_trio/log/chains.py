"""The digest chains of a log and of its sessions, as they are held against what its rows say.

Goes on behind a wrong link and behind what cannot be read: what is in doubt is held against nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from maka_trio.facts.codec import join_event
from maka_trio.facts.prefix import chain_both, chain_next, chain_start
from maka_trio.facts.scope import Root, Session
from maka_trio.log.rows import OBSERVED, Row
from maka_trio.log.salvage import Values
from maka_trio.records import define
from maka_trio.shares import Share

_SESSION: Final = Row._fields.index("session")
DIGESTS: Final = slice(Row._fields.index("root_digest"), Row._fields.index("session_digest") + 1)
"""Where the digests of the log and of the session stand in the values of a row."""


@define(eq=False)
class _Chain:
    """A digest chain up to here. `ends` has two entries after a wrong link: as it is written, and as it should be.

    `last` and `last_fact` are what the next event must name before it; `gaps` is how much of the log could not be
    read when it was last looked at.
    """

    ends: tuple[bytes, ...]
    last: int = 0
    last_fact: int = 0
    gaps: int = 0

    @property
    def known(self) -> bytes:
        """The digest, if there is no doubt about it."""
        return self.ends[0] if len(self.ends) == 1 else b""

    def push(self, sequence: int, body: bytes | None, written: bytes) -> bool:
        """Take the next event; whether it holds."""
        as_written = (written,) if isinstance(written, bytes) else ()
        if body is None or not self.ends:
            self.ends = as_written
            return bool(as_written)
        made = [chain_next(end, sequence, body) for end in self.ends]
        holds = written in made
        self.ends = as_written if holds else (*as_written, made[0])
        return holds


class Chains:
    """All chains of a log, from its first event on."""

    def __init__(self) -> None:
        self._root = _Chain((chain_start(Root()),))
        self._sessions: dict[int, _Chain] = {}
        self._names: dict[int, str] = {}
        self._gaps = 0

    def gap(self) -> None:
        """Something could not be read, whosever it was."""
        self._gaps += 1
        self._root.ends = ()

    def push(self, row: Row, body: bytes | None, session_id: str | None) -> list[str]:
        """Take an event; what is wrong with its place. `body` are its canonical bytes, None if they are not known."""
        chain = self._session(row, session_id)
        words = list(self._wrong(row, body, chain))
        chain.last, chain.gaps = row.sequence, self._gaps
        if row.kind != OBSERVED:
            chain.last_fact = row.sequence
        if isinstance(row.previous_fact, int):
            chain.last_fact = max(chain.last_fact, row.previous_fact)
        return words

    def _wrong(self, row: Row, body: bytes | None, chain: _Chain) -> Iterator[str]:
        of_log = self._root.push(row.sequence, body, row.root_digest)
        of_session = chain.push(row.sequence, body, row.session_digest)
        if not (of_log and of_session):
            which = "of its session " if of_log else "of the log " if of_session else ""
            yield f"event {row.sequence} does not verify against the digest chain {which}".rstrip()
        elif chain.gaps == self._gaps and (row.previous, row.previous_fact) != (chain.last, chain.last_fact):
            yield f"event {row.sequence} does not name the events of its session before it"

    def _session(self, row: Row, session_id: str | None) -> _Chain:
        chain = self._sessions.get(row.session)
        if chain is None:
            ends = () if session_id is None or self._gaps else (chain_start(Session(session_id)),)
            chain = self._sessions[row.session] = _Chain(ends, gaps=self._gaps)
            self._names[row.session] = session_id or ""
        elif chain.gaps != self._gaps:
            chain.ends = ()  # what could not be read may have been of this session
        return chain

    def known(self, session: int) -> tuple[bytes, bytes]:
        """The digests of the log and of the session in a row; empty where they are in doubt."""
        return self._root.known, self._sessions[session].known

    # --- the short way ------------------------------------------------------------------------------------

    def follows(self, values: Values, body: bytes) -> bool:
        """Take an event that is in its place beyond doubt. False says nothing, except that `push` has to look."""
        sequence, _, kind, _, _, root_digest, session_digest, _, session, previous, previous_fact, _ = values
        chain, root = self._sessions.get(session), self._root
        if chain is None or chain.gaps != self._gaps or not len(root.ends) == len(chain.ends) == 1:
            return False
        if previous != chain.last or previous_fact != chain.last_fact:
            return False
        of_root, of_session = chain_both(root.ends[0], chain.ends[0], sequence, body)
        if root_digest != of_root or session_digest != of_session:
            return False
        root.ends, chain.ends, chain.last = (of_root,), (of_session,), sequence
        if kind != OBSERVED:
            chain.last_fact = sequence
        return True

    def follow(self, rows: Sequence[Values], identity: bytes) -> bool:
        """Take observations of one invocation in one session, if every one is in its place beyond doubt."""
        session = rows[0][_SESSION]
        chain, root = self._sessions.get(session), self._root
        if chain is None or chain.gaps != self._gaps or not len(root.ends) == len(chain.ends) == 1:
            return False
        last, last_fact, of_root, of_session = chain.last, chain.last_fact, root.ends[0], chain.ends[0]
        for values in rows:
            sequence, _, _, event_id, recorded_at, root_digest, own_digest, fact, _, previous, previous_fact, _ = values
            if previous != last or previous_fact != last_fact or sequence <= last:
                return False
            body = join_event(event_id, recorded_at, identity, fact)
            of_root, of_session = chain_both(of_root, of_session, sequence, body)
            if of_root != root_digest or of_session != own_digest:
                return False
            last = sequence
        root.ends, chain.ends, chain.last = (of_root,), (of_session,), last
        return True

    def pass_over(self, root_digest: object) -> None:
        """Events that others hold against the chains, of which the last states this digest of the log."""
        self._root.ends = (root_digest,) if isinstance(root_digest, bytes) else ()

    # --- the end ------------------------------------------------------------------------------------------

    def lost(self, connection: sqlite3.Connection, share: Share) -> list[str]:
        """What the sessions of a share say of their ends that the events do not show. After the last event."""
        heads = connection.execute("SELECT session, head, head_fact FROM heads").fetchall()
        return [
            f"session {self._names.get(session, session)!r} ends at event {head}, and the log has it up to "
            f"{self._sessions[session].last if session in self._sessions else 0}"
            for session, head, head_fact in heads
            if share.has(session)
            and ((chain := self._sessions.get(session)) is None or (chain.last, chain.last_fact) != (head, head_fact))
        ]
