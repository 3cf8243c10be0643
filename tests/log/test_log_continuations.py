"""Continuations in the store: what it accepts, what it proves for itself, and what it keeps of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from maka_trio.errors import CommitRejected, InvalidInput, LogCorrupt, PrefixTooLarge, ReconciliationRequired
from maka_trio.facts import (
    CodeOpening,
    ContinuationClaim,
    EventWrite,
    ExecutorObserved,
    ExecutorStarted,
    Failed,
    FailureClass,
    Invocation,
    InvocationEnded,
    InvocationOpened,
    Lineage,
    ModelRequested,
    RequestSurface,
    RunBoundary,
    Session,
    StepPurpose,
)
from maka_trio.facts.event import NO_SOURCE
from maka_trio.log import queries
from maka_trio.log.lineage import boundary
from maka_trio.log.prefixes import prefix, run_prefix
from maka_trio.log.prepared import prepare
from maka_trio.log.store import Store
from tests.log.continuation_story import (
    WRONG,
    all_events,
    boundary_of,
    changed,
    claim_on,
    events_of,
    opening,
    position,
    stopped,
)
from tests.log.log_story import (
    CANCELLED,
    COMPLETED,
    DIGEST,
    call,
    completed,
    count,
    dispatched,
    event,
    interrupted,
    observed,
    opened,
    put,
    reader,
    requested,
    tell,
)

PLENTY = (100_000, 1 << 28)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    yield store
    store.close()


def continues(connection: sqlite3.Connection) -> dict[str, str]:
    """Which invocation continues which."""
    rows = connection.execute(
        "SELECT own.invocation_id, source.invocation_id FROM invocations AS own "
        "JOIN invocations AS source ON source.id = own.continues"
    )
    return dict(rows.fetchall())


def refusal(store: Store, invocation: Invocation, fact: Any) -> CommitRejected:
    """Why an opening is refused, after which nothing is different."""
    before = (store.root, count(store.connection, "invocations"), count(store.connection, "events"))
    with pytest.raises(CommitRejected) as caught:
        put(store, event(invocation, fact))
    assert (store.root, count(store.connection, "invocations"), count(store.connection, "events")) == before
    return caught.value


def asking(invocation: Invocation, step: str = "s2", **changes: Any) -> EventWrite:
    """A request of a continuation that leaves its source to the log."""
    scope = Lineage(invocation.session_id, invocation.run_id)
    fact = ModelRequested(step, "model", scope, 0, NO_SOURCE, DIGEST, DIGEST)
    return EventWrite(event(invocation, attrs.evolve(fact, **changes)), source_here=True)


# --- openings ---------------------------------------------------------------------------------------------


def test_a_claim_that_holds_is_admitted_and_filed(store: Store) -> None:
    """The row of the run names the row of the one that it continues; no other row does."""
    source, other = stopped(store), stopped(store, "other", "s2")
    continuation = Invocation.new("session")
    tell(store, continuation, opening(claim_on(store, source)), CANCELLED)
    assert continues(store.connection) == {continuation.invocation_id: source.invocation_id}
    assert other.invocation_id not in continues(store.connection)


def another_session(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    return Invocation.new("other"), opening(claim_on(store, source))


def another_cut(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    high_water = boundary_of(store, source).high_water - 1
    return Invocation.new("session"), opening(changed(claim_on(store, source), high_water=high_water))


def another_digest(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    return Invocation.new("session"), opening(changed(claim_on(store, source), digest=WRONG))


def another_turn(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    other = attrs.evolve(source, turn_id="other")
    return Invocation.new("session"), opening(changed(claim_on(store, source), invocation=other))


def another_run(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    other = attrs.evolve(source, run_id="other")
    return Invocation.new("session"), opening(changed(claim_on(store, source), invocation=other))


def a_known_run_id(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    other = tell(store, Invocation.new("session"), opened(), COMPLETED)[0].invocation
    return attrs.evolve(Invocation.new("session"), run_id=other.run_id), opening(claim_on(store, source))


def another_base(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    claim = claim_on(store, source)
    return Invocation.new("session"), opening(attrs.evolve(claim, base=attrs.evolve(claim.base, digest=WRONG)))


def another_replay(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    return Invocation.new("session"), opening(attrs.evolve(claim_on(store, source), replay_digest=WRONG))


def another_folder(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    return Invocation.new("session"), opening(claim_on(store, source), cwd="/work")


def a_missing_tool(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    return Invocation.new("session"), opening(claim_on(store, source), surface=RequestSurface())


def no_surface(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    return Invocation.new("session"), opening(claim_on(store, source), surface=None)


def an_answered_run(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    answered = Invocation.new("session")
    tell(store, answered, opened(), requested("s2"), completed("s2"), COMPLETED)
    return Invocation.new("session"), opening(claim_on(store, answered, before=(source,)))


def a_program(store: Store, source: Invocation) -> tuple[Invocation, InvocationOpened]:
    program = Invocation.new("session")
    tell(store, program, opened(CodeOpening("1")), CANCELLED)
    return Invocation.new("session"), opening(claim_on(store, program, before=(source,)))


LIES = (
    another_session,
    another_cut,
    another_digest,
    another_turn,
    another_run,
    a_known_run_id,
    another_base,
    another_replay,
    another_folder,
    a_missing_tool,
    no_surface,
    an_answered_run,
    a_program,
)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_claim_that_does_not_hold_is_refused(
    store: Store, lie: Callable[[Store, Invocation], tuple[Invocation, InvocationOpened]]
) -> None:
    """The store computes everything itself; the right claim is taken afterwards."""
    source = stopped(store)
    invocation, fact = lie(store, source)
    assert refusal(store, invocation, fact).reason == "claim"
    put(store, event(Invocation.new("session"), opening(claim_on(store, source))))


def test_an_open_run_is_no_source(store: Store) -> None:
    """Its session is held."""
    source = Invocation.new("session")
    tell(store, source, opened())
    fact = opening(ContinuationClaim.of(RunBoundary(source, 1, DIGEST)))
    assert refusal(store, Invocation.new("session"), fact).reason == "session_open"


def test_an_unsafe_session_is_not_continued(store: Store) -> None:
    """An effect without settlement stands in the way wherever in the session it is."""
    source, lost = stopped(store), Invocation.new("session")
    unknown = InvocationEnded(Failed(FailureClass.OUTCOME_UNKNOWN))
    tell(store, lost, opened(), requested("s2"), completed("s2", call()), dispatched("s2"), unknown)
    assert refusal(store, Invocation.new("session"), opening(claim_on(store, source))).reason == "unsafe"


def test_a_session_is_continued_by_itself(store: Store) -> None:
    """What another session left open is no matter."""
    source, lost = stopped(store), Invocation.new("other")
    tell(store, lost, opened(), requested("s2"))
    put(store, event(Invocation.new("session"), opening(claim_on(store, source))))


@pytest.mark.parametrize("reopened", [False, True])
def test_a_source_is_claimed_once(path: Path, reopened: bool) -> None:
    """The second claim is a conflict; the first, to the letter, is the one that it was."""
    with closing(Store.open(path)) as store:
        source = stopped(store)
        claim = claim_on(store, source)
        first = event(Invocation.new("session"), opening(claim))
        (sequence,) = put(store, first)
        put(store, event(first.invocation, CANCELLED))
        if not reopened:
            check_claimed(store, claim, first, sequence)
    with closing(Store.open(path)) as store:
        check_claimed(store, claim, first, sequence)


def check_claimed(store: Store, claim: Any, first: Any, sequence: int) -> None:
    assert refusal(store, Invocation.new("session"), opening(claim)).reason == "conflict"
    assert put(store, first) == [sequence]
    other = attrs.evolve(first, recorded_at=first.recorded_at + 1)
    with pytest.raises(CommitRejected) as caught:
        put(store, other)
    assert caught.value.reason == "conflict"


# --- in one append ----------------------------------------------------------------------------------------


def retold(events: list[Any]) -> list[EventWrite]:
    return [EventWrite(stored.event) for stored in events]


@pytest.mark.parametrize("tickets", ["one", "two", "each"])
def test_a_source_and_its_continuation_may_come_together(store: Store, tickets: str) -> None:
    """In one append, or in appends that share a transaction: the claim is held against what was planned before it."""
    source = stopped(store)
    continuation = Invocation.new("session")
    told = [event(continuation, fact) for fact in (opening(claim_on(store, source)), interrupted("s2"), CANCELLED)]
    put(store, told[0], asking(continuation), *told[1:])
    writes = [prepare(write) for write in retold(all_events(store))]
    at = next(number for number, write in enumerate(writes) if write.event.invocation == continuation)
    cuts = {"one": [writes], "two": [writes[:at], writes[at:]], "each": [[write] for write in writes]}[tickets]
    with closing(Store.in_memory()) as copy:
        commit = copy.write(cuts)
        assert not [result for result in commit.results if isinstance(result, Exception)]
        assert copy.root == store.root
        assert continues(copy.connection) == continues(store.connection)


def test_the_store_goes_on_after_a_claim_in_a_refused_append(store: Store) -> None:
    """What was written for a look only is not there afterwards."""
    source = stopped(store)
    claim = claim_on(store, source)
    aside, first, second = Invocation.new("session"), Invocation.new("session"), Invocation.new("session")
    before = store.root
    with pytest.raises(CommitRejected) as caught:
        put(
            store,
            *(event(aside, fact) for fact in (opened(), COMPLETED)),
            *(event(first, fact) for fact in (opening(claim), CANCELLED)),
            event(second, opening(claim)),
        )
    assert caught.value.reason == "conflict"
    assert store.root == before
    assert continues(store.connection) == {}
    tell(store, second, opening(claim), CANCELLED)
    assert list(continues(store.connection)) == [second.invocation_id]


def test_an_append_with_old_events_and_a_continuation_is_looked_at_again(path: Path) -> None:
    """Ids that are no longer remembered are found in the file, and the rest is written."""
    with closing(Store.open(path)) as store:
        source = stopped(store)
        retried = Invocation.new("other")
        old = [event(retried, fact) for fact in (opened(), ExecutorStarted({}), ExecutorObserved("half"))]
        put(store, *old)
    with closing(Store.open(path)) as store:
        continuation = Invocation.new("session")
        last = store.root.high_water
        written = put(store, old[2], event(continuation, opening(claim_on(store, source))))
        assert written == [last, last + 1]
        assert continues(store.connection) == {continuation.invocation_id: source.invocation_id}


# --- requests ---------------------------------------------------------------------------------------------


def source_of(store: Store, step: str = "s2") -> ModelRequested:
    return next(
        stored.event.fact
        for stored in all_events(store)
        if isinstance(stored.event.fact, ModelRequested) and stored.event.fact.step_id == step
    )


@pytest.mark.parametrize("reopened", [False, True])
def test_requests_are_made_from_the_lineage(path: Path, reopened: bool) -> None:
    """Where the log is to name it, it does, before and after it was opened again; others in between do not count."""
    with closing(Store.open(path)) as store:
        source = stopped(store)
        stopped(store, step="s0")
        continuation = Invocation.new("session")
        tell(store, continuation, opening(claim_on(store, source)))
        stopped(store, "other", "s9")
        if not reopened:
            put(store, asking(continuation))
    with closing(Store.open(path)) as store:
        if reopened:
            put(store, asking(continuation))
        put(store, event(continuation, observed("s2")), event(continuation, interrupted("s2")))
        put(store, asking(continuation, "s3"))
        for step, own in (("s2", 1), ("s3", 4)):
            scope = Lineage("session", continuation.run_id)
            expected = position(scope, events_of(store, source, continuation)[: 7 + own])
            fact = source_of(store, step)
            assert (fact.source_high_water, fact.source_digest) == expected


CHANGES: dict[str, dict[str, Any]] = {
    "the scope of the session": {"source_scope": Session("session")},
    "another lineage": {"source_scope": Lineage("session", "other")},
    "a baseline": {"checkpoint_event_id": "checkpoint"},
    "another effective source": {"effective_source_digest": WRONG},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("purpose", StepPurpose)
def test_a_request_from_elsewhere_is_refused(store: Store, change: dict[str, Any], purpose: StepPurpose) -> None:
    """Main steps and summaries alike; the right one is taken."""
    source, continuation = stopped(store), Invocation.new("session")
    tell(store, continuation, opening(claim_on(store, source)))
    with pytest.raises(CommitRejected) as caught:
        put(store, asking(continuation, purpose=purpose, **change))
    assert caught.value.reason == "source"
    put(store, asking(continuation, purpose=purpose))


@pytest.mark.parametrize("change", [{"source_high_water": 1}, {"source_digest": WRONG}], ids=repr)
def test_a_request_that_names_its_source_wrong_is_refused(store: Store, change: dict[str, Any]) -> None:
    """What it says is held against what the store has folded itself."""
    source, continuation = stopped(store), Invocation.new("session")
    tell(store, continuation, opening(claim_on(store, source)))
    scope = Lineage("session", continuation.run_id)
    at = position(scope, events_of(store, source, continuation))
    right = ModelRequested("s2", "model", scope, *at, DIGEST, DIGEST)
    with pytest.raises(CommitRejected) as caught:
        tell(store, continuation, attrs.evolve(right, **change))
    assert caught.value.reason == "source"
    tell(store, continuation, right)


def test_a_refused_append_takes_the_lineage_back(store: Store) -> None:
    """Its digest stands where it stood before."""
    source, continuation = stopped(store), Invocation.new("session")
    tell(store, continuation, opening(claim_on(store, source)))
    with pytest.raises(CommitRejected):
        put(store, asking(continuation), event(continuation, interrupted("s2")), event(continuation, interrupted("s2")))
    put(store, asking(continuation))
    scope = Lineage("session", continuation.run_id)
    fact = source_of(store)
    assert (fact.source_high_water, fact.source_digest) == position(scope, events_of(store, source, continuation)[:-1])


def test_a_message_after_a_continuation_is_made_from_the_session_again(store: Store) -> None:
    """Nothing of the lineage outlives its run."""
    source, continuation, later = stopped(store), Invocation.new("session"), Invocation.new("session")
    tell(store, continuation, opening(claim_on(store, source)), CANCELLED)
    tell(store, later, opened())
    put(store, asking(later, source_scope=Session("session")))
    fact = source_of(store)
    assert (fact.source_high_water, fact.source_digest) == position(Session("session"), all_events(store)[:-1])


# --- reading ----------------------------------------------------------------------------------------------


def chain(store: Store) -> list[Invocation]:
    """A run before, a run, a sibling, its continuation, another session, a sibling, a continuation of that."""
    before, first = stopped(store, step="s0"), stopped(store)
    stopped(store, step="s2")
    second, third = Invocation.new("session"), Invocation.new("session")
    tell(store, second, opening(claim_on(store, before, first, before=())), CANCELLED)
    stopped(store, "other", "s3")
    stopped(store, step="s4")
    tell(store, third, opening(claim_on(store, before, first, second)), CANCELLED)
    return [before, first, second, third]


def test_a_lineage_is_read_as_it_is_defined(store: Store) -> None:
    """As a prefix, as its head, and as the context of a run; at each link, and for a run that continues none."""
    before, first, second, third = chain(store)
    for run, runs in (
        (before, [before]),
        (first, [before, first]),
        (second, [before, first, second]),
        (third, [before, first, second, third]),
    ):
        scope = Lineage("session", run.run_id)
        events = events_of(store, *runs)
        whole = prefix(reader(store), scope, *PLENTY)
        assert list(whole.events) == events
        assert (whole.high_water, whole.digest) == position(scope, events)
        head = queries.head(reader(store), scope)
        assert (head.high_water, head.digest) == (whole.high_water, whole.digest)
        context = queries.read_lineage(reader(store), scope, *PLENTY)
        assert context.head == head
        assert [stored for stored in events if stored.event.fact.kind != "model_observed"] == list(context.events)
        own = run_prefix(reader(store), "session", run.run_id, *PLENTY)
        assert own is not None
        assert boundary(reader(store), "session", run.run_id) == boundary_of(store, run)
        assert boundary_of(store, run).digest == own.digest


def test_an_open_continuation_is_read_up_to_where_it_is(store: Store) -> None:
    """With what it has done so far; it has no boundary yet."""
    source, continuation = stopped(store), Invocation.new("session")
    stopped(store, step="s0")
    tell(store, continuation, opening(claim_on(store, source)))
    scope = Lineage("session", continuation.run_id)
    assert list(prefix(reader(store), scope, *PLENTY).events) == events_of(store, source, continuation)
    with pytest.raises(ReconciliationRequired, match="not ended"):
        boundary(reader(store), "session", continuation.run_id)


@pytest.mark.parametrize("bounds", [(13, 1 << 20), (1000, 900)], ids=["events", "bytes"])
def test_a_context_is_never_cut_short(store: Store, bounds: tuple[int, int]) -> None:
    """It fits or it fails."""
    *_, third = chain(store)
    with pytest.raises(PrefixTooLarge, match="max_"):
        queries.read_lineage(reader(store), Lineage("session", third.run_id), *bounds)


@pytest.mark.parametrize("damage", ["body", "missing", "last", "source", "itself"])
def test_damage_in_a_lineage_is_named(store: Store, damage: str) -> None:
    """Wherever in it; what lies between its parts is not read."""
    _, first, second, third = chain(store)
    scope = Lineage("session", third.run_id)
    sequences = {run: [stored.sequence for stored in events_of(store, run)] for run in (first, second)}
    change_body(store, sequences[first][-1] + 1)  # the sibling's
    assert len(prefix(reader(store), scope, *PLENTY).events) == 2 * 7 + 2 * 2
    match damage:
        case "body":
            change_body(store, sequences[first][0])
        case "missing":
            store.connection.execute("DELETE FROM events WHERE sequence = ?", (sequences[first][2],))
        case "last":
            store.connection.execute("DELETE FROM events WHERE sequence = ?", (sequences[second][-1],))
        case "source":
            open_again = "UPDATE invocations SET ended = NULL WHERE invocation_id = ?"
            store.connection.execute(open_again, (first.invocation_id,))
        case "itself":
            itself = "UPDATE invocations SET continues = id WHERE invocation_id = ?"
            store.connection.execute(itself, (third.invocation_id,))
    with pytest.raises(LogCorrupt):
        prefix(reader(store), scope, *PLENTY)


def change_body(store: Store, sequence: int) -> None:
    (body,) = store.connection.execute("SELECT body FROM events WHERE sequence = ?", (sequence,)).fetchone()
    changed_body = body.replace(b"hello", b"jello")
    assert changed_body != body
    store.connection.execute("UPDATE events SET body = ? WHERE sequence = ?", (changed_body, sequence))


def test_a_boundary_of_nothing(store: Store) -> None:
    """Session and run are named."""
    stopped(store)
    for ids in (("session", "nothing"), ("nothing", "run")):
        with pytest.raises(InvalidInput, match="'nothing'"):
            boundary(reader(store), *ids)


# --- recovery ---------------------------------------------------------------------------------------------


def test_a_continuation_left_open_is_sealed_like_any_run(path: Path) -> None:
    """And is continued after that."""
    with closing(Store.open(path)) as store:
        source, continuation = stopped(store), Invocation.new("session")
        tell(store, continuation, opening(claim_on(store, source)))
        put(store, asking(continuation))
    with closing(Store.open(path)) as store:
        assert store.abandoned(store.root.high_water) == ["session"]
        store.seal(["session"])
        ended = all_events(store)[-1].event
        assert ended.invocation == continuation
        assert ended.fact == InvocationEnded(Failed(FailureClass.HOST_INTERRUPTED))
        put(store, event(Invocation.new("session"), opening(claim_on(store, source, continuation))))
