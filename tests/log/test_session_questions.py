"""What a session can be asked: its context, whether it may go on, its results and media, the list of all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maka_trio.errors import PrefixTooLarge, ReconciliationRequired, ResultUnavailable
from maka_trio.facts import (
    ExecutorStarted,
    Fact,
    Invocation,
    ModelObserved,
    ProviderToolResult,
    RuntimeEvent,
    Session,
    ToolCallReady,
)
from maka_trio.log import queries
from maka_trio.log.queries import SessionSafety, SessionSummary
from maka_trio.log.store import Store
from tests.log.log_story import (
    CANCELLED,
    COMPLETED,
    FAILED,
    UNKNOWN,
    call,
    completed,
    dispatched,
    event,
    interrupted,
    observed,
    opened,
    picture,
    put,
    reader,
    rejected,
    requested,
    running_call,
    settled,
    success,
    tell,
)

BIG = 10**9
REMOTE = call("r1", "search", remote=True)


@pytest.fixture(params=["as written", "reopened"])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Teller]:
    teller = Teller(tmp_path / "log.db", reopens=request.param == "reopened")
    yield teller
    teller.store.close()


class Teller:
    """A store that facts are told to, and that is asked either at once or by its next owner."""

    def __init__(self, path: Path, *, reopens: bool) -> None:
        self._path, self._reopens = path, reopens
        self.store = Store.open(path)

    def __call__(self, *facts: Fact, session: str = "session") -> Invocation:
        invocation = Invocation.new(session)
        tell(self.store, invocation, *facts)
        return invocation

    def ask(self, question: Any, *args: Any, **options: Any) -> Any:
        if self._reopens:
            self.store.close()
            self.store = Store.open(self._path)
        return question(reader(self.store), *args, **options)

    def safety(self, *, except_invocation: str | None = None, allow: bool = False) -> SessionSafety:
        answer = self.ask(queries.require_safe, "session", except_invocation, allow_prior_unknown=allow)
        assert isinstance(answer, SessionSafety)
        return answer


# --- context ----------------------------------------------------------------------------------------------


def test_context_is_the_facts_without_observations(told: Teller) -> None:
    """All facts of a session but its observations, in order, and where the session then stands."""
    told(opened(), session="other")
    told(opened(), requested(), *[observed()] * 300, completed(), COMPLETED)
    told(opened(), requested("s2"), observed("s2"))
    context = told.ask(queries.read_context, "session", 10, BIG)
    kinds = [stored.event.fact.kind for stored in context.events]
    run = ["invocation_opened", "model_requested", "model_completed", "invocation_ended"]
    assert kinds == [*run, *run[:2]]
    assert [stored.sequence for stored in context.events] == [2, 3, 304, 305, 306, 307]
    assert context.head == told.ask(queries.head, Session("session"))
    assert context.head.high_water == 308


def test_context_of_nobody(told: Teller) -> None:
    """A session that the log does not know has no facts and stands at zero."""
    context = told.ask(queries.read_context, "nobody", 10, BIG)
    assert (context.events, context.head.high_water) == ((), 0)


def test_context_is_bounded(told: Teller) -> None:
    """A session with more facts, or more of their JSON, than asked for is refused; observations do not count."""
    invocation = told(opened(), requested(), *[observed()] * 50, completed())
    sizes = "SELECT sum(length(body)) FROM events WHERE kind <> 'model_observed'"
    (size,) = told.store.connection.execute(sizes).fetchone()
    assert len(told.ask(queries.read_context, "session", 3, size).events) == 3
    with pytest.raises(PrefixTooLarge, match="max_events=2"):
        told.ask(queries.read_context, "session", 2, size)
    with pytest.raises(PrefixTooLarge, match=f"max_bytes={size - 1}"):
        told.ask(queries.read_context, "session", 3, size - 1)
    tell(told.store, invocation, COMPLETED)
    with pytest.raises(PrefixTooLarge):
        told.ask(queries.read_context, "session", 3, BIG)


# --- safety -----------------------------------------------------------------------------------------------

SAFE: dict[str, list[Fact]] = {
    "nothing": [],
    "an answer": [opened(), requested(), completed(), COMPLETED],
    "a settled call": running_call(settled(), COMPLETED),
    "a rejected call": [opened(), requested(), completed("s1", call()), rejected(), CANCELLED],
    "an interruption": [opened(), requested(), observed(), interrupted(), FAILED],
    "a remote call with its result": [opened(), requested(), completed("s1", REMOTE, answered=[REMOTE]), COMPLETED],
    "a remote call and its result before an interruption": [
        opened(),
        requested(),
        observed("s1", ToolCallReady(REMOTE)),
        observed("s1", ProviderToolResult("r1", "search", "x")),
        interrupted(),
        FAILED,
    ],
}

UNSAFE: dict[str, list[Fact]] = {
    "no end": [opened()],
    "an unsettled call of a failed run": running_call(FAILED),
    "an unsettled call of a cancelled run": running_call(CANCELLED),
    "a step without end": [opened(), requested(), FAILED],
    "a call neither dispatched nor rejected": [opened(), requested(), completed("s1", call()), FAILED],
    "a remote call without result": [opened(), requested(), completed("s1", REMOTE), COMPLETED],
    "a remote call before an interruption": [
        opened(),
        requested(),
        observed("s1", ToolCallReady(REMOTE)),
        interrupted(),
        FAILED,
    ],
    "a foreign agent without answer": [opened(), ExecutorStarted({}), UNKNOWN],
    "an unknown effect and a call that was not answered": [
        opened(),
        requested(),
        completed("s1", call("c1"), call("c2")),
        dispatched(),
        UNKNOWN,
    ],
}


@pytest.mark.parametrize("name", SAFE)
def test_session_that_may_go_on(told: Teller, name: str) -> None:
    """A session whose invocations resolved everything may be continued, and nothing of it is unknown."""
    if SAFE[name]:
        told(*SAFE[name])
    assert told.safety() == SessionSafety(prior_unknown=False)
    assert told.safety(allow=True) == SessionSafety(prior_unknown=False)


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("name", UNSAFE)
def test_session_that_may_not_go_on(told: Teller, name: str, *, allow: bool) -> None:
    """One unresolved thing in one invocation is enough, however many others follow, whatever is tolerated."""
    invocation = told(*UNSAFE[name])
    if name != "no end":
        told(opened(), COMPLETED)
    with pytest.raises(ReconciliationRequired, match=invocation.invocation_id):
        told.safety(allow=allow)
    assert told.safety(except_invocation=invocation.invocation_id).prior_unknown is False


def test_unknown_effect_may_be_tolerated(told: Teller) -> None:
    """Effects of a run that was sealed as unknown stop everyone but those who say that they know."""
    told(*running_call(UNKNOWN))
    with pytest.raises(ReconciliationRequired, match="1 dispatched operations without settlement"):
        told.safety()
    assert told.safety(allow=True) == SessionSafety(prior_unknown=True)


def test_other_sessions_do_not_matter(told: Teller) -> None:
    """A session is judged by itself."""
    told(opened(), session="other")
    assert told.safety() == SessionSafety(prior_unknown=False)


# --- results and media ------------------------------------------------------------------------------------


@pytest.fixture
def result(told: Teller) -> RuntimeEvent:
    """A settlement with the result `{"n": 1}` and a picture."""
    invocation = told(*running_call())
    write = success(invocation, {"n": 1}, media=(picture(),))
    put(told.store, write)
    return write.event


def test_result_is_read_back(told: Teller, result: RuntimeEvent) -> None:
    """The raw result of a settlement is the value that the tool returned."""
    assert told.ask(queries.tool_result, "session", result.id) == {"n": 1}
    assert told.ask(queries.artifact, "session", "a1") == picture()


def test_result_of_another_session(told: Teller, result: RuntimeEvent) -> None:
    """Knowing an event's id is not enough: the session must be its own."""
    told(opened(), session="other")
    with pytest.raises(ResultUnavailable, match="has no event"):
        told.ask(queries.tool_result, "other", result.id)
    with pytest.raises(ResultUnavailable, match="has no artifact"):
        told.ask(queries.artifact, "other", "a1")


def test_result_of_something_else(told: Teller) -> None:
    """Neither an unknown id nor an event without a result has one."""
    invocation = told(*running_call(), session="session")
    failure = event(invocation, settled())
    observation = event(invocation, requested("s2"))
    put(told.store, failure, observation)
    for event_id in ("nothing", failure.id, observation.id):
        with pytest.raises(ResultUnavailable):
            told.ask(queries.tool_result, "session", event_id)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM payloads",
        "UPDATE payloads SET data = x'7b226e223a327d'",
        "UPDATE payloads SET data = x'7b226e22'",
    ],
    ids=["missing", "changed", "cut"],
)
def test_result_that_does_not_verify(told: Teller, result: RuntimeEvent, damage: str) -> None:
    """A result that is gone, or not the bytes of its digest, is not handed out."""
    told.store.connection.execute(damage)
    with pytest.raises(ResultUnavailable, match="missing or damaged"):
        told.ask(queries.tool_result, "session", result.id)


def test_picture_that_does_not_verify(told: Teller, result: RuntimeEvent) -> None:
    """Media is verified like a result."""
    told.store.connection.execute("UPDATE artifacts SET data = x'00'")
    with pytest.raises(ResultUnavailable, match="damaged"):
        told.ask(queries.artifact, "session", "a1")


# --- all sessions -----------------------------------------------------------------------------------------


def test_sessions_are_listed(told: Teller) -> None:
    """Each session with its events, its end, its invocations, and the run that holds it."""
    told(opened(), COMPLETED, session="a")
    holder = told(opened(), requested(), observed(), session="b")
    told(opened(), COMPLETED, session="a")
    assert told.ask(queries.sessions) == [
        SessionSummary("a", 4, 7, 2, None),
        SessionSummary("b", 3, 5, 1, holder.run_id),
    ]


# --- reading on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", [None, "session"])
@pytest.mark.parametrize("count", [1, 7, 256, 1000])
def test_events_are_read_on_in_pieces(told: Teller, session_id: str | None, count: int) -> None:
    """From any place, in pieces of any size, each event comes once and in order."""
    for number in range(3):
        told(opened(), requested(), *[observed()] * 200, interrupted(), FAILED, session="other")
        told(opened(), requested(f"s{number}"), *[observed(f"s{number}")] * 270, interrupted(f"s{number}"), FAILED)
    seen: list[int] = []
    more = True
    while more:
        events, more = queries.events_after(reader(told.store), session_id, seen[-1] if seen else 0, count, BIG)
        seen += [stored.sequence for stored in events]
    query = "SELECT sequence FROM events JOIN sessions ON sessions.id = session WHERE ?1 IS NULL OR session_id = ?1"
    expected = [sequence for (sequence,) in told.store.connection.execute(query, (session_id,))]
    assert expected == seen


def test_pieces_are_bounded_in_bytes(told: Teller) -> None:
    """A piece ends before the byte bound, but always holds an event."""
    told(opened(), requested(), *[observed()] * 10)
    (size,) = told.store.connection.execute("SELECT max(length(body)) FROM events").fetchone()
    events, more = queries.events_after(reader(told.store), None, 0, 100, 1)
    assert ([stored.sequence for stored in events], more) == ([1], True)
    events, more = queries.events_after(reader(told.store), None, 2, 100, size)
    assert isinstance(events[0].event.fact, ModelObserved)
    assert 1 <= len(events) < 10
    assert more
