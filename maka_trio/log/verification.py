"""Whether a log is what it should be: its file, its digests, what lies beside its events, and the laws.

Runs over a file that it does not own, page by page, and goes on past what is damaged. Memory is that of the open
invocations and the conversations of the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from maka_trio.errors import LogCorrupt
from maka_trio.facts.prefix import chain_start
from maka_trio.facts.scope import Root, Session
from maka_trio.laws import LawChecker, Violation
from maka_trio.log import queries
from maka_trio.log.audit import Auditor, Found
from maka_trio.log.lease import lock_path
from maka_trio.log.mark import read_mark
from maka_trio.log.reader import Reader

T = TypeVar("T")

PAGE_EVENTS = 512
"""What is read in one short transaction."""

_EVIDENCE = 9
"""The law that speaks of digests and evidence."""


class Ask(Protocol):
    """Answers a question from one snapshot of the log."""

    def __call__(self, question: Callable[[Reader], T], /) -> T:
        """Ask it."""
        ...


class Verification:
    """One pass over a log, up to where it ended when the pass began.

    Args:
        ask: reads the log.
        path: its real path.
        session_id: look at this session only.

    Attributes:
        high_water: the last sequence to look at; None where the file does not say.
        looked_at: the sequence up to which it has looked.
        events: how many events it has read.
    """

    def __init__(self, ask: Ask, path: Path, session_id: str | None = None) -> None:
        self._ask = ask
        self._session_id = session_id
        self._acknowledged = read_mark(lock_path(path))  # before the end is read: it may grow meanwhile
        self.high_water = self._end()
        self.looked_at = 0
        self.events = 0
        self._audit = Auditor(chain_start(Root()))
        self._laws = LawChecker(Root() if session_id is None else Session(session_id))
        self._lawless: set[str] = set()
        self._all_lawless = False

    def violations(self) -> Iterator[Violation]:
        """What is wrong, in the order of the log."""
        for found in self.found():
            yield from self.judge(found)
        yield from self.ends()

    def found(self) -> Iterator[Found]:
        """The events, whatever they are like."""
        while self.high_water is None or self.looked_at < self.high_water:
            after = self.looked_at
            page, end = self._ask(lambda reader, after=after: self._audit.page(reader, after, PAGE_EVENTS))  # type: ignore[misc]
            for one in page:
                if self.high_water is not None and one.sequence > self.high_water:
                    break
                if self._session_id is None or one.session_id in (None, self._session_id):
                    self.looked_at = one.sequence
                    self.events += one.stored is not None
                    yield one
            if end == after:
                return
            self.looked_at = end

    def judge(self, found: Found) -> Iterator[Violation]:
        """What one event breaks. Laws are not held against a session of which something cannot be read."""
        for words in found.words:
            yield Violation(_EVIDENCE, found.sequence, words)
        if found.stored is None:
            if found.session_id is None:
                self._all_lawless = True
            else:
                self._lawless.add(found.session_id)
        elif not self._all_lawless and found.session_id not in self._lawless:
            yield from self._laws.push(found.stored, found.chains)

    def ends(self) -> Iterator[Violation]:
        """What only the whole log shows, after its last event."""
        if self._session_id is None and self.high_water is not None and self.high_water < self._acknowledged:
            yield Violation(
                _EVIDENCE,
                self.high_water + 1,
                f"the log ends at event {self.high_water}, and events up to {self._acknowledged} were acknowledged",
            )
        if self._session_id is None and not self._all_lawless and self.high_water == self._end():
            for words in self._ask(self._audit.lost):
                yield Violation(_EVIDENCE, None, words)

    def _end(self) -> int | None:
        scope = Root() if self._session_id is None else Session(self._session_id)
        try:
            return self._ask(lambda reader: queries.head(reader, scope)).high_water
        except LogCorrupt:
            return None
