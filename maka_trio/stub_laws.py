"""The laws over events whose bodies were deleted: what of them can still be asked, and a witness of its own again.

Kinds, ids and order are left, so laws 1 to 6 hold as far as they speak of these. Law 7, law 8, and of law 9 what a
request was made of, need what was said; of a session without its bodies they say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from maka_trio.facts.bounds import excerpt
from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import (
    BodyDeleted,
    ExecutorCompleted,
    ExecutorStarted,
    InvocationEnded,
    InvocationOpened,
    MessageImported,
    ModelCompleted,
    ModelInterrupted,
    ModelRequested,
    StoredEvent,
    ToolDispatched,
    ToolRejected,
    ToolSettled,
)
from maka_trio.facts.outcome import Failed, FailureClass
from maka_trio.facts.scope import Root
from maka_trio.lawbook import Book, RunBook, StepBook
from maka_trio.steps import StepBuilder

OUTCOME_UNKNOWN: Final = f"{Failed.kind}:{FailureClass.OUTCOME_UNKNOWN.value}"
"""The end that may leave effects without a settlement."""


# --- the laws -----------------------------------------------------------------------------------------------


def broken_by_stub(book: Book, stored: StoredEvent, stub: BodyDeleted) -> Iterator[tuple[int, str]]:
    """The laws that the next event breaks, if it is one without its body, each with how."""
    run = book.run_of(stored)
    yield from ((1, words) for words in _opens_and_ends_once(book, stored, stub, run))
    if stub.of_kind == InvocationOpened.kind:
        invocation = stored.event.invocation
        others = book.session(invocation.session_id).running - {invocation.invocation_id}
        if others:
            yield 2, f"a deleted opening while invocation {excerpt(min(others))} is open"
    if run is not None:
        for law, check in _OF_RUNS:
            yield from ((law, words) for words in check(run, stub))
    if stored.sequence <= book.high_water:
        yield 9, f"the sequence does not rise: {book.high_water} comes before it"


def _opens_and_ends_once(book: Book, stored: StoredEvent, stub: BodyDeleted, run: RunBook | None) -> Iterator[str]:
    invocation = stored.event.invocation
    name, ended = excerpt(invocation.invocation_id), book.has_ended(invocation.invocation_id)
    if stub.of_kind == MessageImported.kind:
        return
    if stub.of_kind == InvocationOpened.kind:
        if run is not None or ended:
            yield f"invocation {name} is opened {'again after its end' if ended else 'while it is open'}"
    elif run is None:
        yield f"a deleted {stub.of_kind} {'after the end' if ended else 'before the opening'} of invocation {name}"
    elif run.invocation != invocation:
        yield f"a deleted {stub.of_kind} of invocation {name} carries other ids than its opening"


def _effects_settle_once(run: RunBook, stub: BodyDeleted) -> Iterator[str]:
    if stub.of_kind == ToolSettled.kind:
        state = run.operations.get(stub.operation_id or "", "never dispatched")
        if state != "dispatched":
            yield f"a deleted settlement of operation {excerpt(stub.operation_id)}, which is {state}"
    elif stub.of_kind == InvocationEnded.kind and stub.outcome != OUTCOME_UNKNOWN:
        for operation in run.alive():
            yield f"the run ends {stub.outcome} while operation {excerpt(operation)} is not settled"
        if run.executor_running:
            yield f"the run ends {stub.outcome} while its foreign agent is running"


def _dispatched_never_again(run: RunBook, stub: BodyDeleted) -> Iterator[str]:
    again = run.operations.get(stub.operation_id or "") in ("dispatched", "settled")
    if stub.of_kind == ToolDispatched.kind and again:
        yield f"operation {excerpt(stub.operation_id)} is dispatched a second time"


def _requests_end_once(run: RunBook, stub: BodyDeleted) -> Iterator[str]:
    step, name = run.steps.get(stub.operation_id or ""), excerpt(stub.operation_id)
    if stub.of_kind == ModelRequested.kind:
        if step is not None:
            yield f"step {name} is requested twice"
    elif stub.of_kind in (ModelCompleted.kind, ModelInterrupted.kind):
        if step is None:
            yield f"a deleted {stub.of_kind} for step {name}, which was not requested"
        elif step.ended:
            yield f"a deleted {stub.of_kind} for step {name}, which ended before"
    elif stub.of_kind == InvocationEnded.kind:
        for step_id, one in run.steps.items():
            if not one.ended:
                yield f"the run ends while step {excerpt(step_id)} is neither completed nor interrupted"


def _calls_are_decided_once(run: RunBook, stub: BodyDeleted) -> Iterator[str]:
    state = run.operations.get(stub.operation_id or "")
    decided = state == "rejected" or (state is not None and stub.of_kind == ToolRejected.kind)
    if stub.of_kind in (ToolDispatched.kind, ToolRejected.kind) and decided:
        yield f"a deleted {stub.of_kind} for operation {excerpt(stub.operation_id)}, which was {state} before"


_OF_RUNS: Final[tuple[tuple[int, Callable[[RunBook, BodyDeleted], Iterator[str]]], ...]] = (
    (3, _effects_settle_once),
    (4, _dispatched_never_again),
    (5, _requests_end_once),
    (6, _calls_are_decided_once),
)


# --- the book -----------------------------------------------------------------------------------------------


def enter_stub(book: Book, stored: StoredEvent, stub: BodyDeleted, chains: tuple[bytes, bytes] | None) -> None:
    """Take in an event without its body. The chains go on from the digests that it states."""
    run = book.run_of(stored)
    book.session(stored.event.invocation.session_id).history = None
    if chains is None:
        own = _link(stub.session_digest)
        chains = (_link(stub.root_digest) if isinstance(book.scope, Root) else own, own)
    book.advance(stored.sequence, stored.event.invocation, chains)
    if stub.of_kind == InvocationOpened.kind:
        book.open(stored.event.invocation)
    elif stub.of_kind == InvocationEnded.kind:
        book.end(stored.event.invocation)
    elif run is not None:
        _enter_in_run(run, stub)


def _link(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))


def _enter_in_run(run: RunBook, stub: BodyDeleted) -> None:
    name = stub.operation_id or ""
    match stub.of_kind:
        case ModelRequested.kind:
            run.steps.setdefault(name, StepBook(StepPurpose.MAIN, StepBuilder()))
        case ModelCompleted.kind | ModelInterrupted.kind:
            run.end_step(name)
        case ToolDispatched.kind:
            run.operations[name] = "dispatched"
        case ToolSettled.kind:
            run.operations[name] = "settled"
        case ToolRejected.kind:
            run.operations.setdefault(name, "rejected")
        case ExecutorStarted.kind:
            run.executor_running = True
        case ExecutorCompleted.kind:
            run.executor_running = False
        case _:
            pass
