"""A request whose source the log names: its session, up to the event before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from maka_trio.errors import CommitRejected, InvalidInput
from maka_trio.facts import EventWrite, Invocation, ModelRequested, RuntimeEvent, Session
from maka_trio.facts.event import NO_SOURCE
from maka_trio.log import queries
from maka_trio.log.prefixes import prefix
from maka_trio.log.store import Store
from tests.log.log_story import DIGEST, event, interrupted, observed, opened, put, reader, tell


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    yield store
    store.close()


def asking(invocation: Invocation, step: str = "s1") -> EventWrite:
    fact = ModelRequested(step, "model", Session(invocation.session_id), 0, NO_SOURCE, DIGEST, DIGEST)
    return EventWrite(event(invocation, fact), source_here=True)


def stored_request(store: Store, session: str, step: str = "s1") -> tuple[int, ModelRequested]:
    events = prefix(reader(store), Session(session), 100, 1 << 20).events
    return next(
        (stored.sequence, stored.event.fact)
        for stored in events
        if isinstance(stored.event.fact, ModelRequested) and stored.event.fact.step_id == step
    )


def test_the_source_is_the_session_right_before_the_request(store: Store) -> None:
    """Other sessions come between and do not count."""
    ours, other = Invocation.new("ours"), Invocation.new("other")
    tell(store, ours, opened())
    head = queries.head(reader(store), Session("ours"))
    tell(store, other, opened())
    put(store, asking(ours))
    _, fact = stored_request(store, "ours")
    assert (fact.source_high_water, fact.source_digest) == (head.high_water, head.digest) == (1, head.digest)


def test_the_source_counts_what_is_written_in_the_same_append(store: Store) -> None:
    """What a request follows need not be durable before it."""
    invocation = Invocation.new("session")
    tell(store, invocation, opened())
    first = [asking(invocation), event(invocation, observed()), event(invocation, interrupted())]
    put(store, *first, asking(invocation, "s2"))
    sequence, fact = stored_request(store, "session", "s2")
    before = prefix(reader(store), Session("session"), 100, 1 << 20).events[: sequence - 1]
    assert fact.source_high_water == before[-1].sequence == sequence - 1
    with closing(Store.in_memory()) as follower:
        put(follower, *(stored.event for stored in before))
        assert fact.source_digest == queries.head(reader(follower), Session("session")).digest


@pytest.mark.parametrize("reopened", [False, True])
def test_an_exact_retry_has_the_sequence_it_had(path: Path, reopened: bool) -> None:
    """Although by then the session ends elsewhere; another request under its id is a conflict."""
    invocation = Invocation.new("session")
    request = asking(invocation)
    other = attrs.evolve(request.event, fact=attrs.evolve(request.event.fact, model_id="other"))  # type: ignore[misc]
    with closing(Store.open(path)) as store:
        tell(store, invocation, opened())
        written = put(store, request, event(invocation, observed()))
        if not reopened:
            check_retry(store, request, EventWrite(other, source_here=True), written[0])
    with closing(Store.open(path)) as store:
        check_retry(store, request, EventWrite(other, source_here=True), written[0])


def check_retry(store: Store, same: EventWrite, other: EventWrite, sequence: int) -> None:
    assert put(store, same) == [sequence]
    with pytest.raises(CommitRejected) as caught:
        put(store, other)
    assert caught.value.reason == "conflict"


def test_a_retry_in_one_append_is_known_too(store: Store) -> None:
    """Before either is durable."""
    invocation = Invocation.new("session")
    tell(store, invocation, opened())
    request = asking(invocation)
    assert put(store, request, request) == [2, 2]


def test_only_a_request_has_a_source(store: Store) -> None:
    """Anything else is refused before it gets anywhere."""
    with pytest.raises(InvalidInput, match="source"):
        EventWrite(RuntimeEvent.new(Invocation.new("session"), opened()), source_here=True)
