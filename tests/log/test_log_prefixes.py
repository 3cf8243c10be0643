"""Prefixes, digests and high waters: exact, bounded, the same after reopening and in a replica."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from maka_trio.errors import InvalidInput, LogCorrupt, PrefixTooLarge
from maka_trio.facts import EventWrite, Invocation, Lineage, Root, RuntimeEvent, Scope, Session
from maka_trio.facts.codec import encode_event
from maka_trio.facts.prefix import LogPrefix, chain_next, chain_start, chain_text
from maka_trio.log import prefixes, queries
from maka_trio.log.store import Store
from tests.log.log_story import (
    COMPLETED,
    FAILED,
    call,
    completed,
    dispatched,
    event,
    observed,
    opened,
    put,
    reader,
    requested,
    success,
    tell,
)

ALICE, BOB = Session("alice"), Session("bob")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "log.db")
    yield store
    store.close()


@pytest.fixture(params=[Store.in_memory], ids=["memory"])
def replica(request: pytest.FixtureRequest) -> Iterator[Store]:
    store = request.param()
    yield store
    store.close()


def prefix(store: Store, scope: Scope, max_events: int = 10_000, max_bytes: int = 10**8) -> LogPrefix:
    return prefixes.prefix(reader(store), scope, max_events, max_bytes)


def folded(whole: LogPrefix) -> str:
    """The digest of a prefix, computed from nothing but its events."""
    link = chain_start(whole.scope)
    for stored in whole.events:
        link = chain_next(link, stored.sequence, encode_event(stored.event))
    return chain_text(link)


def tell_two_sessions(store: Store) -> list[RuntimeEvent | EventWrite]:
    """Two sessions whose events lie among one another: three runs, an effect, many observations."""
    alice, bob, again = Invocation.new("alice"), Invocation.new("bob"), Invocation.new("alice")
    told: list[RuntimeEvent | EventWrite] = [event(alice, opened()), event(bob, opened())]
    told += [event(alice, requested("a1")), event(bob, requested("b1"))]
    for number in range(700):
        told.append(event(alice if number % 3 else bob, observed("a1" if number % 3 else "b1")))
    told += [event(alice, completed("a1", call())), event(bob, completed("b1")), event(alice, dispatched("a1"))]
    told += [success(alice, {"n": 1}, "a1:c1"), event(bob, COMPLETED), event(alice, FAILED)]
    told += [event(again, opened()), event(again, requested("a2"))]
    for start in range(0, len(told), 100):
        put(store, *told[start : start + 100])
    return told


def session_of(one: RuntimeEvent | EventWrite) -> str:
    return (one.event if isinstance(one, EventWrite) else one).invocation.session_id


@pytest.mark.parametrize("scope", [Root(), ALICE, BOB])
def test_prefix_holds_exactly_its_scope(store: Store, scope: Root | Session) -> None:
    """All events of the scope in order, the last sequence in scope, and the digest that its events fold to."""
    told = tell_two_sessions(store)
    expected = [
        (sequence, one.event if isinstance(one, EventWrite) else one)
        for sequence, one in enumerate(told, 1)
        if isinstance(scope, Root) or session_of(one) == scope.id
    ]
    whole = prefix(store, scope)
    assert expected == [(stored.sequence, stored.event) for stored in whole.events]
    assert (expected[-1][0], folded(whole)) == (whole.high_water, whole.digest)


@pytest.mark.parametrize("scope", [Root(), Session("nobody")])
def test_empty_scope(store: Store, scope: Root | Session) -> None:
    """A scope without events stands at zero, with the digest it starts from."""
    whole = prefix(store, scope)
    assert (whole.high_water, whole.digest, whole.events) == (0, chain_text(chain_start(scope)), ())
    head = queries.head(reader(store), scope)
    assert (head.high_water, head.digest) == (0, whole.digest)


@pytest.mark.parametrize("scope", [Root(), ALICE, BOB])
def test_prefix_is_the_same_after_reopening(tmp_path: Path, scope: Scope) -> None:
    """The next owner reads the same events, sequences and digest, and goes on from there."""
    store = Store.open(tmp_path / "log.db")
    tell_two_sessions(store)
    before = prefix(store, scope)
    store.close()
    again = Store.open(tmp_path / "log.db")
    assert before == prefix(again, scope)
    tell(again, Invocation.new("bob"), opened())
    assert folded(prefix(again, scope)) == prefix(again, scope).digest
    again.close()


def test_replica_has_the_same_digests_at_each_cut(store: Store, replica: Store) -> None:
    """A log rebuilt event by event has the same heads, in all scopes, after each of them."""
    tell_two_sessions(store)
    original = prefix(store, Root())
    links = {scope: chain_start(scope) for scope in (Root(), ALICE, BOB)}
    payload = store.connection.execute("SELECT data FROM payloads").fetchone()[0]
    for stored in original.events:
        settled = stored.event.fact.kind == "tool_settled"
        put(replica, EventWrite(stored.event, payload) if settled else stored.event)
        for scope in (Root(), Session(stored.event.invocation.session_id)):
            links[scope] = chain_next(links[scope], stored.sequence, encode_event(stored.event))
        for scope, link in links.items():
            assert chain_text(link) == queries.head(reader(replica), scope).digest
    assert original == prefix(replica, Root())


def test_other_sessions_move_neither_high_water_nor_digest(store: Store) -> None:
    """A session stands still while others go on."""
    tell(store, Invocation.new("alice"), opened())
    before = prefix(store, ALICE)
    tell(store, Invocation.new("bob"), opened(), requested(), observed())
    assert before == prefix(store, ALICE)
    assert prefix(store, Root()).high_water == 4


@pytest.mark.parametrize("scope", [Root(), ALICE])
def test_head_is_that_of_the_prefix(store: Store, scope: Scope) -> None:
    """The end of a scope can be had without its events."""
    tell_two_sessions(store)
    whole, head = prefix(store, scope), queries.head(reader(store), scope)
    assert (whole.high_water, whole.digest) == (head.high_water, head.digest)


# --- bounds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [Root(), ALICE, Lineage("alice", "run")])
def test_bounds_never_cut_short(store: Store, scope: Scope) -> None:
    """A bound that holds everything gives everything; one less gives an error that names it."""
    invocation = Invocation("alice", "turn", "run", "invocation")
    told = tell(store, invocation, opened(), requested(), observed())
    size = sum(len(encode_event(one)) for one in told)
    assert len(prefix(store, scope, 3, size).events) == 3
    with pytest.raises(PrefixTooLarge, match="max_events=2"):
        prefix(store, scope, 2, size)
    with pytest.raises(PrefixTooLarge, match=f"max_bytes={size - 1}"):
        prefix(store, scope, 3, size - 1)


def test_raw_results_do_not_count(store: Store) -> None:
    """Bytes of a prefix are those of its events, not of the payloads beside them."""
    invocation = Invocation.new("alice")
    tell(store, invocation, opened(), requested(), completed("s1", call()), dispatched())
    write = success(invocation, "small")
    size = sum(len(encode_event(stored.event)) for stored in prefix(store, Root()).events)
    put(store, write)
    assert len(prefix(store, Root(), 5, size + len(encode_event(write.event))).events) == 5


@pytest.mark.parametrize("bounds", [(-1, 10), (10, -1), (1.5, 10), (True, 10), ("10", 10)])
def test_bounds_are_counts(store: Store, bounds: tuple[int, int]) -> None:
    """Anything else is refused by name."""
    with pytest.raises(InvalidInput, match="is not a count"):
        prefix(store, Root(), *bounds)


# --- runs -------------------------------------------------------------------------------------------------


def test_run_prefix(store: Store) -> None:
    """One run of a session: its events alone, their last sequence, the digest they fold to."""
    first, second, other = Invocation.new("alice"), Invocation.new("alice"), Invocation.new("bob")
    tell(store, first, opened(), FAILED)
    told = [*tell(store, second, opened()), *tell(store, second, requested())]
    tell(store, other, opened())
    told += tell(store, second, *[observed()] * 400, FAILED)
    tell(store, Invocation.new("alice"), opened())
    run = prefixes.run_prefix(reader(store), "alice", second.run_id, 1000, 10**7)
    assert run is not None
    assert (told, 406) == ([stored.event for stored in run.events], run.high_water)
    assert folded(run) == run.digest
    tell(store, Invocation.new("carol"), opened())
    assert run == prefixes.run_prefix(reader(store), "alice", second.run_id, 1000, 10**7)


@pytest.mark.parametrize(("session_id", "run_id"), [("alice", "nothing"), ("nobody", "nothing"), ("bob", "run")])
def test_run_that_is_not_there(store: Store, session_id: str, run_id: str) -> None:
    """A run that the session does not have is None, not an empty one."""
    tell(store, Invocation("alice", "turn", "run", "invocation"), opened())
    assert prefixes.run_prefix(reader(store), session_id, run_id, 10, 1000) is None


def test_run_prefix_is_bounded(store: Store) -> None:
    """The bounds of a run's prefix are those of any other."""
    invocation = Invocation.new("alice")
    tell(store, invocation, opened(), requested())
    with pytest.raises(PrefixTooLarge, match="max_events=1"):
        prefixes.run_prefix(reader(store), "alice", invocation.run_id, 1, 10**6)


def test_lineage_is_the_session_up_to_the_run(store: Store) -> None:
    """What a run could see: its session before it, and itself; nothing of what came later."""
    first, second = Invocation.new("alice"), Invocation.new("alice")
    told = [*tell(store, first, opened(), FAILED), *tell(store, second, opened(), FAILED)]
    tell(store, Invocation.new("alice"), opened())
    scope = Lineage("alice", second.run_id)
    whole, head = prefix(store, scope), queries.head(reader(store), scope)
    assert (told, 4, folded(whole)) == ([stored.event for stored in whole.events], whole.high_water, whole.digest)
    assert (whole.high_water, whole.digest) == (head.high_water, head.digest)


def test_lineage_of_no_run(store: Store) -> None:
    """The lineage of a run that is not there is refused."""
    with pytest.raises(InvalidInput, match="has no run"):
        prefix(store, Lineage("alice", "nothing"))


# --- damage -----------------------------------------------------------------------------------------------

DAMAGES = {
    "body": "UPDATE events SET body = replace(body, 'text', 'tExt') WHERE sequence = 5",
    "time": "UPDATE events SET recorded_at = recorded_at + 1 WHERE sequence = 5",
    "id": "UPDATE events SET event_id = 'x' WHERE sequence = 5",
    "digest": "UPDATE events SET session_digest = zeroblob(32), root_digest = zeroblob(32) WHERE sequence = 5",
}


@pytest.mark.parametrize("scope", [Root(), ALICE])
@pytest.mark.parametrize("damage", DAMAGES)
def test_changed_event_is_named(store: Store, scope: Scope, damage: str) -> None:
    """Whatever is changed about an event, a prefix that holds it fails and names its sequence."""
    tell(store, Invocation.new("alice"), opened(), requested(), *[observed()] * 5)
    store.connection.execute(DAMAGES[damage])
    with pytest.raises(LogCorrupt) as caught:
        prefix(store, scope)
    assert caught.value.sequence == 5


@pytest.mark.parametrize("scope", [Root(), ALICE])
def test_missing_event_is_damage(store: Store, scope: Scope) -> None:
    """A prefix that lacks one of its events is no prefix."""
    tell(store, Invocation.new("alice"), opened(), requested(), *[observed()] * 5)
    store.connection.execute("DELETE FROM events WHERE sequence = 4")
    with pytest.raises(LogCorrupt):
        prefix(store, scope)


def test_missing_end_of_a_session_is_damage(store: Store) -> None:
    """A session whose last event is gone does not pass for a shorter one."""
    tell(store, Invocation.new("alice"), opened(), requested(), *[observed()] * 5)
    store.connection.execute("DELETE FROM events WHERE sequence = 7")
    with pytest.raises(LogCorrupt, match="missing"):
        prefix(store, ALICE)
    with pytest.raises(LogCorrupt, match="missing"):
        queries.head(reader(store), ALICE)


@pytest.mark.parametrize("change", ["DELETE FROM payloads", "UPDATE payloads SET data = x'00'"])
def test_settlement_without_its_result_is_damage(store: Store, change: str) -> None:
    """A prefix looks whether each succeeded settlement has a payload of the length it should have."""
    invocation = Invocation.new("alice")
    tell(store, invocation, opened(), requested(), completed("s1", call()), dispatched())
    put(store, success(invocation))
    store.connection.execute(change)
    with pytest.raises(LogCorrupt) as caught:
        prefix(store, ALICE)
    assert caught.value.sequence == 5


def test_body_that_is_no_fact_is_named(store: Store) -> None:
    """A reader of facts names the event that it cannot read."""
    tell(store, Invocation.new("alice"), opened(), requested())
    store.connection.execute("UPDATE events SET body = '{' WHERE sequence = 2")
    with pytest.raises(LogCorrupt) as caught:
        queries.read_context(reader(store), "alice", 10, 1000)
    assert caught.value.sequence == 2
