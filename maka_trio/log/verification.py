"""Whether a log is what it should be: its file, its digests, what lies beside its events, and the laws.

Runs over a file that it does not own, page by page, and goes on past what is damaged. Memory is that of the open
invocations and the conversations of the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from maka_trio.errors import LogCorrupt
from maka_trio.facts.event import BodyDeleted, InvocationOpened, MessageImported, ModelRequested, StoredEvent
from maka_trio.facts.opening import ContinuationOpening
from maka_trio.facts.scope import Root, Session
from maka_trio.laws import LawChecker, Violation
from maka_trio.log import queries
from maka_trio.log.audit import (
    Auditor,
    Found,
    Page,
    Seen,
    SeenElsewhere,
    SeenEvent,
    SeenStep,
    each_of,
    sequence_of,
    up_to,
)
from maka_trio.log.chains import DIGESTS
from maka_trio.log.filing import Filing
from maka_trio.log.lease import lock_path
from maka_trio.log.lineage import events_between
from maka_trio.log.mark import read_mark
from maka_trio.log.reader import Reader
from maka_trio.shares import WHOLE, Share

T = TypeVar("T")

PAGE_EVENTS = 2048
"""What is read in one short transaction."""

_EVIDENCE = 9
"""The law that speaks of digests and evidence."""


def _reaches_out(stored: StoredEvent) -> bool:
    """Whether it takes more than the session of an event to judge it."""
    match stored.event.fact:
        case ModelRequested(source_scope=Root()) | MessageImported():
            return True
        case InvocationOpened(input=ContinuationOpening(claim=claim)):
            return claim.source.invocation.session_id != stored.event.invocation.session_id
        case _:
            return False


def _place(violation: Violation) -> tuple[bool, int]:
    return violation.sequence is None, violation.sequence or 0


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
        share: or at the sessions of a share. Then there may be violations that a pass over all of them does not find,
            in words of their own; but where no share has any, neither has that. It takes only the facts of a session
            to judge them, but for those that `_reaches_out` finds. Each link of the log's chain is held against the
            digest that the event before it states: each event is in one share, so all links are.

    Attributes:
        high_water: the last sequence to look at; None where the file does not say.
        looked_at: the sequence up to which it has looked.
        events: how many events it has read.
        deleted: how many of them have lost their bodies with their session's.
    """

    def __init__(self, ask: Ask, path: Path, session_id: str | None = None, *, share: Share = WHOLE) -> None:
        self._ask = ask
        self._session_id = session_id
        self._share = share
        self._acknowledged = read_mark(lock_path(path))  # before the end is read: it may grow meanwhile
        self.high_water = self._end()
        self.looked_at = 0
        self.events = 0
        self.deleted = 0
        self._audit = Auditor(share)
        self._laws = LawChecker(Root() if session_id is None else Session(session_id), read=self._again)
        self._filing = Filing(session_id, share)
        self._misfiled: list[Violation] = []
        self._lawless: set[str] = set()
        self._all_lawless = False

    def violations(self) -> Iterator[Violation]:
        """What is wrong, in the order of the log."""
        for page in self.pages():
            yield from page
        yield from self.ends()

    def pages(self) -> Iterator[list[Violation]]:
        """What is wrong with the events of one page after another, up to `looked_at`. Without the `ends`."""
        for page in self._seen(self._audit.look_over):
            broken: list[Violation] = []
            for seen in page:
                if isinstance(seen, SeenElsewhere):
                    self._audit.chains.pass_over(seen.root_digest)
                elif not isinstance(seen, SeenStep):
                    broken += self._broken_by(seen)
                elif not self._step_taken(seen):
                    broken += [violation for one in seen.each() for violation in self._broken_by(one)]
            if page:
                self.looked_at = sequence_of(page[-1])
                if misfiled := self._filed(page):
                    broken = sorted((*broken, *misfiled), key=_place)
            yield broken

    def found(self) -> Iterator[Found]:
        """The events, whatever they are like, each made and held against the digests; the laws are the caller's."""
        for page in self._seen(self._audit.look):
            for seen in each_of(page):
                found = self._audit.hold(seen)
                if self._counts(found):
                    self.looked_at = found.sequence
                    yield found
            if page:
                self._misfiled += self._filed(page)

    def _filed(self, page: Page) -> list[Violation]:
        """What the file says otherwise of these events than they say themselves."""
        self._filing.take(page)
        return self._ask(self._filing.wrong)

    def _seen(self, look: Callable[[Reader, int, int], tuple[Page, int]]) -> Iterator[Page]:
        end = 0
        while self.high_water is None or end < self.high_water:
            after = end
            page, end = self._ask(lambda reader, after=after: look(reader, after, PAGE_EVENTS))  # type: ignore[misc]
            if self.high_water is not None and end > self.high_water:
                page = up_to(page, self.high_water)
            yield page
            if end == after:
                return
            self.looked_at = end

    def _step_taken(self, seen: SeenStep) -> bool:
        """Take observations that are sound, in their place and lawful beyond doubt. False: nothing has happened."""
        invocation, step_id = seen.invocation, seen.stream.step_id
        if self._is_lawless(invocation.session_id):
            return False
        ours = self._session_id in (None, invocation.session_id)
        if ours and not self._laws.may_observe(seen.rows[0][0], invocation, step_id):
            return False
        if not self._audit.chains.follow(seen.rows, seen.identity):
            return False
        if ours:
            self.events += len(seen.rows)
            last = seen.rows[-1]
            self._laws.push_observations(last[0], invocation, step_id, seen.events, last[DIGESTS])
        return True

    def _broken_by(self, seen: Seen) -> Iterable[Violation]:
        if self._share is not WHOLE and isinstance(seen, SeenEvent) and _reaches_out(seen.stored):
            return (Violation(_EVIDENCE, seen.stored.sequence, "what this says is not of its session alone"),)
        taken = self._taken(seen)
        return self._judged(self._audit.hold(seen)) if taken is None else taken

    def _taken(self, seen: Seen) -> Sequence[Violation] | None:
        """The laws that an event breaks, by a short way, which is for what is sound and in its place beyond doubt.

        None for anything else: nothing has happened then.
        """
        if not isinstance(seen, SeenEvent):
            return None
        values, session_id = seen.values, seen.invocation.session_id
        if self._is_lawless(session_id) or not self._audit.chains.follows(values, seen.body):
            return None
        if self._session_id is not None and self._session_id != session_id:
            return ()
        self.events += 1
        return self._laws.push(seen.stored, values[DIGESTS])

    def _is_lawless(self, session_id: str) -> bool:
        return self._all_lawless or session_id in self._lawless

    def _counts(self, found: Found) -> bool:
        """Whether the event is one of those to look at."""
        if found.session_id is not None and self._session_id not in (None, found.session_id):
            return False
        self.events += found.stored is not None
        self.deleted += found.stored is not None and isinstance(found.stored.event.fact, BodyDeleted)
        return True

    def _judged(self, found: Found) -> Iterator[Violation]:
        """What one event breaks. Laws are not held against a session of which something cannot be read."""
        if not self._counts(found):
            return
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
        """What only the whole log shows, after its last event; and how its events are filed, if they were `found`."""
        yield from self._misfiled
        if self.high_water is not None:
            yield from self._ask(self._filing.wrong_at_end)
        if self._session_id is None and self.high_water is not None and self.high_water < self._acknowledged:
            yield Violation(
                _EVIDENCE,
                self.high_water + 1,
                f"the log ends at event {self.high_water}, and events up to {self._acknowledged} were acknowledged",
            )
        end = self.high_water
        if self._session_id is None and not self._all_lawless and end is not None and end == self._end():
            for words in self._ask(partial(self._audit.lost, end=end)):
                yield Violation(_EVIDENCE, None, words)

    def _again(self, session_id: str, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Events that this pass has been at, for a law that needs them once more. Raises LogCorrupt."""
        while first <= last:
            page = self._ask(lambda reader, first=first: events_between(reader, session_id, first, last, PAGE_EVENTS))  # type: ignore[misc]
            yield from page
            if len(page) < PAGE_EVENTS:
                return
            first = page[-1][0] + 1

    def _end(self) -> int | None:
        scope = Root() if self._session_id is None else Session(self._session_id)
        try:
            return self._ask(lambda reader: queries.head(reader, scope)).high_water
        except LogCorrupt:
            return None
