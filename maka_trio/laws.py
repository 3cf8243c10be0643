"""The nine laws of a lawful log, as functions over its events in order. Pure, and a witness of its own.

`LawChecker` reads a log once. Each law is one function that is shown the log as it was (`Book`) and the event that
comes next, and says what is wrong in sentences; then the event is entered in the book. Nothing here shares code with
what decides which append is accepted, so that one mistake cannot hide in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, get_args

from maka_trio.ancestry import Ancestry, Read, reader_of
from maka_trio.conversation_laws import broken_by_conversation
from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import canonical, encode
from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import (
    BodyDeleted,
    Fact,
    InvocationEnded,
    InvocationOpened,
    MessageImported,
    MessageSteered,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    StoredEvent,
    ToolDispatched,
    ToolNotified,
    ToolRejected,
    ToolSettled,
)
from maka_trio.facts.identity import CodeCell, CodeMode, Invocation, Provider
from maka_trio.facts.model import ModelStep, ToolResultPart
from maka_trio.facts.outcome import Failed, FailureClass
from maka_trio.facts.prefix import chain_text
from maka_trio.facts.scope import Root, Scope, Session
from maka_trio.facts.streamed import Streamed
from maka_trio.history import History
from maka_trio.lawbook import Book, HistoryFold, RunBook
from maka_trio.records import frozen
from maka_trio.steps import StepBuilder
from maka_trio.stub_laws import broken_by_stub, enter_stub

LAWS: dict[int, str] = {
    1: "An invocation opens once and ends at most once; no fact of it follows its end.",
    2: "One session runs one invocation at a time.",
    3: "No end is written while an effect is alive; a dispatched effect has one settlement, or is outcome_unknown.",
    4: "A committed dispatch is never dispatched again.",
    5: "Every model request is followed by one completion or interruption; its observations lie between.",
    6: "Every local call of a completed step is dispatched or rejected once, before the next request or the end.",
    7: "Observations are durable before anyone is shown them.",
    8: "Every tool call is answered once, in its place, so that every provider accepts the history.",
    9: "The digest chain verifies, and each request's input digest can be recomputed from the log alone.",
}
"""Each law in one sentence, by its number."""


@frozen
class Violation:
    """A broken law: which, at which event (None: at the end of the log), and how."""

    law: int
    sequence: int | None
    words: str

    def __str__(self) -> str:
        where = "at the end" if self.sequence is None else f"at sequence {self.sequence}"
        return f"law {self.law} {where}: {self.words}"


# --- the laws -----------------------------------------------------------------------------------------------


def opens_and_ends_once(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 1."""
    event, run = stored.event, book.run_of(stored)
    invocation_id = event.invocation.invocation_id
    if isinstance(event.fact, MessageImported):
        return  # foreign history has no opening and no end
    if isinstance(event.fact, InvocationOpened):
        if run is not None:
            yield f"invocation {excerpt(invocation_id)} is opened while it is open"
        elif book.has_ended(invocation_id):
            yield f"invocation {excerpt(invocation_id)} is opened again after its end"
    elif run is None:
        when = "after the end" if book.has_ended(invocation_id) else "before the opening"
        yield f"{event.fact.kind} {when} of invocation {excerpt(invocation_id)}"
    elif run.invocation is not event.invocation and run.invocation != event.invocation:
        yield (
            f"{event.fact.kind} of invocation {excerpt(invocation_id)} carries another session, turn or run than "
            "its opening"
        )


def one_run_at_a_time(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 2."""
    if not isinstance(stored.event.fact, InvocationOpened):
        return
    invocation = stored.event.invocation
    others = book.session(invocation.session_id).running - {invocation.invocation_id}
    if others:
        yield f"an opening in session {excerpt(invocation.session_id)} while invocation {excerpt(min(others))} is open"


def effects_settle_once(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 3."""
    run = book.run_of(stored)
    if run is None:
        return
    match stored.event.fact:
        case ToolSettled(operation_id=operation):
            state = run.operations.get(operation, "never dispatched")
            if state != "dispatched":
                yield f"a settlement of operation {excerpt(operation)}, which is {state}"
            for child in run.alive_below(operation):
                yield f"a settlement of operation {excerpt(operation)} while its call {excerpt(child)} is not settled"
        case ToolDispatched(call=call) | ToolRejected(call=call) if isinstance(call.origin, (CodeMode, CodeCell)):
            parent = call.origin.parent_operation_id
            if run.operations.get(parent) != "dispatched":
                yield f"{stored.event.fact.kind} below operation {excerpt(parent)}, which is not alive"
        case ToolNotified(operation_id=operation) if run.operations.get(operation) != "dispatched":
            yield f"a notification of operation {excerpt(operation)}, which is not alive"
        case InvocationEnded(outcome=Failed(failure_class=FailureClass.OUTCOME_UNKNOWN)):
            return
        case InvocationEnded(outcome=outcome):
            for operation in run.alive():
                yield f"the run ends {outcome.kind} while operation {excerpt(operation)} is not settled"
            if run.executor_running:
                yield f"the run ends {outcome.kind} while its foreign agent is running"


def dispatched_never_again(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 4."""
    run, fact = book.run_of(stored), stored.event.fact
    if run is None or not isinstance(fact, ToolDispatched):
        return
    if run.operations.get(fact.operation_id) in ("dispatched", "settled"):
        yield f"operation {excerpt(fact.operation_id)} is dispatched a second time"
    elif isinstance(fact.call.origin, Provider) and fact.call.origin.step_id not in run.steps:
        yield f"operation {excerpt(fact.operation_id)} repeats a call of a step that is not of this invocation"


def requests_end_once(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 5."""
    run = book.run_of(stored)
    if run is None:
        return
    match stored.event.fact:
        case ModelRequested(step_id=step_id):
            if step_id in run.steps:
                yield f"step {excerpt(step_id)} is requested twice"
        case ModelObserved(step_id=step_id):
            if step_id not in run.steps:
                yield f"an observation of step {excerpt(step_id)} before its request"
        case ModelCompleted(step_id=step_id) | ModelInterrupted(step_id=step_id) as fact:
            step = run.steps.get(step_id)
            if step is None:
                yield f"{fact.kind} for step {excerpt(step_id)}, which was not requested"
            elif step.ended:
                yield f"{fact.kind} for step {excerpt(step_id)}, which ended before"
        case InvocationEnded():
            for step_id, step in run.steps.items():
                if not step.ended:
                    yield f"the run ends while step {excerpt(step_id)} is neither completed nor interrupted"


def calls_are_decided_once(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 6."""
    run, fact = book.run_of(stored), stored.event.fact
    if run is None:
        return
    match fact:
        case ToolDispatched() | ToolRejected():
            state = run.operations.get(fact.operation_id)
            step = run.step_of(fact)
            if state == "rejected" or (state is not None and isinstance(fact, ToolRejected)):
                yield f"{fact.kind} for operation {excerpt(fact.operation_id)}, which was {state} before"
            elif step is not None and not step.completed:
                yield f"{fact.kind} for operation {excerpt(fact.operation_id)}, whose step is not completed"
        case ModelRequested(purpose=StepPurpose.MAIN) | InvocationEnded():
            what = "the next request" if isinstance(fact, ModelRequested) else "the end"
            for operation in run.undecided_calls():
                yield f"{what} comes while call {excerpt(operation)} is neither dispatched nor rejected"


def shown_only_when_durable(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 7. A completed step is shown; what it holds must have been observed, and observed before."""
    run = book.run_of(stored)
    if run is None:
        return
    match stored.event.fact:
        case ModelObserved(step_id=step_id):
            step = run.steps.get(step_id)
            if step is not None and step.ended:
                yield f"an observation of step {excerpt(step_id)} after its end"
        case ModelCompleted(step_id=step_id, output=output):
            step = run.steps.get(step_id)
            if step is not None and step.observed and not step.ended and not _is_made_of(output, step.builder):
                yield f"the output of step {excerpt(step_id)} is not what was observed of it"


def _is_made_of(output: ModelStep, builder: StepBuilder) -> bool:
    try:
        observed = builder.finish()
    except AdapterError:
        return False
    return observed == output or encode(observed, ModelStep) == encode(output, ModelStep)


def calls_are_answered_in_place(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 8, from the facts alone: calls and outcomes pair, and nothing is said between them."""
    run, fact = book.run_of(stored), stored.event.fact
    if run is None:
        return
    match fact:
        case ModelRequested(purpose=StepPurpose.MAIN) | MessageSteered():
            for operation in run.unanswered_calls():
                yield f"{fact.kind} while call {excerpt(operation)} has no answer"
        case ModelCompleted(step_id=step_id, output=output):
            yield from _unanswerable(step_id, output)
        case ToolDispatched() | ToolRejected():
            yield from _mispaired(run, fact)


def _unanswerable(step_id: str, output: ModelStep) -> Iterator[str]:
    calls = output.tool_calls()
    if not calls:
        return
    ids = [call.id for call in calls]
    for call_id in {call_id for call_id in ids if ids.count(call_id) > 1}:
        yield f"two calls of step {excerpt(step_id)} have the id {excerpt(call_id)}"
    results = {part.id for part in output.parts if isinstance(part, ToolResultPart)}
    for call in calls:
        if call.provider_executed and call.id not in results:
            yield f"the provider's own call {excerpt(call.id)} of step {excerpt(step_id)} has no result"


def _mispaired(run: RunBook, fact: ToolDispatched | ToolRejected) -> Iterator[str]:
    step = run.step_of(fact)
    if step is None or not step.completed or fact.operation_id in run.operations:
        return
    name = excerpt(fact.operation_id)
    call = run.calls.get(fact.operation_id)
    if call is None or call.id != fact.call.tool_call_id:
        yield f"{fact.kind} for operation {name}, which is no call that waits for it"
    elif (call.name, canonical(call.input)) != (fact.name, canonical(fact.input)):
        yield f"{fact.kind} for operation {name} has another name or input than the model's call"


def evidence_verifies(book: Book, stored: StoredEvent) -> Iterator[str]:
    """Law 9, as far as facts and digests go; `LawChecker` adds what a request was made of."""
    if stored.sequence <= book.high_water:
        yield f"the sequence does not rise: {book.high_water} comes before it"
    fact = stored.event.fact
    if not isinstance(fact, ModelRequested):
        return
    at = _source_position(book, fact.source_scope)
    if at is not None and (fact.source_high_water, fact.source_digest) != at:
        yield f"step {excerpt(fact.step_id)} names another source than the log before it"


def _source_position(book: Book, scope: Scope) -> tuple[int, str] | None:
    """High water and digest of a scope right now, where the book has them."""
    match scope:
        case Session(id=session_id):
            session = book.session(session_id)
            high_water, chain = session.high_water, session.chain
        case Root() if isinstance(book.scope, Root):
            high_water, chain = book.high_water, book.chain
        case _:
            return None
    return (high_water, chain_text(chain)) if chain else None


Law: TypeAlias = Callable[[Book, StoredEvent], Iterator[str]]

_ANY = get_args(Fact)

_LAWS: tuple[tuple[int, Law, tuple[type, ...]], ...] = (
    (1, opens_and_ends_once, _ANY),
    (2, one_run_at_a_time, (InvocationOpened,)),
    (3, effects_settle_once, (ToolDispatched, ToolSettled, ToolRejected, ToolNotified, InvocationEnded)),
    (4, dispatched_never_again, (ToolDispatched,)),
    (5, requests_end_once, (ModelRequested, ModelObserved, ModelCompleted, ModelInterrupted, InvocationEnded)),
    (6, calls_are_decided_once, (ToolDispatched, ToolRejected, ModelRequested, InvocationEnded)),
    (7, shown_only_when_durable, (ModelObserved, ModelCompleted)),
    (8, calls_are_answered_in_place, (ModelRequested, MessageSteered, ModelCompleted, ToolDispatched, ToolRejected)),
    (9, evidence_verifies, _ANY),
)
"""Each law with the facts of which it says anything."""

_LAWS_OF: dict[type, tuple[tuple[int, Law], ...]] = {
    kind: tuple((number, law) for number, law, kinds in _LAWS if kind in kinds) for kind in _ANY
}
_LAWS_OF_ANY = tuple((number, law) for number, law, kinds in _LAWS if kinds is _ANY)


# --- the checker --------------------------------------------------------------------------------------------


class LawChecker:
    """Checks a log event by event, from the first event of its scope.

    Args:
        scope: what the events are all of.
        digest: the digest that the whole scope must have, checked by `finish`.
        history: makes the fold that recomputes input digests and shows that the conversation pairs. None leaves that
            part of laws 8 and 9 out, and with it the memory that conversations take.
        read: reads events that were pushed before. None leaves out the digests that continuations claim.
    """

    def __init__(
        self,
        scope: Scope | None = None,
        *,
        digest: str | None = None,
        history: Callable[[], HistoryFold] | None = History,
        read: Read | None = None,
    ) -> None:
        self._book = Book(scope or Root(), history)
        self._ancestry = Ancestry(read)
        self._digest = digest

    def push(self, stored: StoredEvent, chains: tuple[bytes, bytes] | None = None) -> list[Violation]:
        """Check the next event; return what it breaks.

        Args:
            stored: the event.
            chains: the digests of the log and of its session with this event, if the caller verifies them itself;
                empty bytes stand for one that is in doubt, against which nothing is then held.
        """
        fact = stored.event.fact
        if isinstance(fact, BodyDeleted):
            return self._push_stub(stored, fact, chains)
        found = [
            Violation(number, stored.sequence, words)
            for number, law in _LAWS_OF.get(type(fact), _LAWS_OF_ANY)
            for words in law(self._book, stored)
        ]
        if isinstance(fact, (InvocationOpened, ModelRequested, InvocationEnded)):
            found += [Violation(number, stored.sequence, words) for number, words in self._ancestry.push(stored)]
        if not isinstance(fact, ModelObserved):
            session = self._book.session(stored.event.invocation.session_id)
            said = broken_by_conversation(session, stored, lawful=not found)
            found += [Violation(number, stored.sequence, words) for number, words in said]
        self._book.enter(stored, chains)
        return found

    def may_observe(self, first: int, invocation: Invocation, step_id: str) -> bool:
        """Whether observations of a step from sequence `first` on are lawful beyond doubt."""
        return self._book.open_step(first, invocation, step_id) is not None

    def push_observations(
        self,
        last: int,
        invocation: Invocation,
        step_id: str,
        events: Sequence[Streamed],
        chains: tuple[bytes, bytes],
    ) -> None:
        """Take what `may_observe` allows, the last of it at sequence `last`, with these verified digests after it."""
        self._book.enter_observations(last, invocation, step_id, events, chains)

    def _push_stub(self, stored: StoredEvent, stub: BodyDeleted, chains: tuple[bytes, bytes] | None) -> list[Violation]:
        found = [Violation(law, stored.sequence, words) for law, words in broken_by_stub(self._book, stored, stub)]
        enter_stub(self._book, stored, stub, chains)
        return found

    def finish(self) -> list[Violation]:
        """Check what only the whole log shows. Invocations that are still open break nothing."""
        found = chain_text(self._book.chain)
        if self._digest is None or self._digest == found:
            return []
        return [Violation(9, None, f"the digest is {found}, not {self._digest}")]


def check(
    events: Iterable[StoredEvent],
    *,
    scope: Scope | None = None,
    digest: str | None = None,
    history: Callable[[], HistoryFold] | None = History,
) -> Iterator[Violation]:
    """Check a whole log, or the whole of one scope of it; the arguments are those of `LawChecker`."""
    read = reader_of(events) if isinstance(events, Sequence) else None
    checker = LawChecker(scope, digest=digest, history=history, read=read)
    for stored in events:
        yield from checker.push(stored)
    yield from checker.finish()
