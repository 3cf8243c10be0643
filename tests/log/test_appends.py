"""Appending: identity, exact retry, all or nothing, uniqueness over the whole log. On files, and after reopening."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from maka_trio import limits
from maka_trio.errors import CommitRejected, InvalidInput, MakaError
from maka_trio.facts import (
    Artifact,
    EffectFailed,
    EventWrite,
    InterruptionStatus,
    Invocation,
    JsonOutput,
    MessageInput,
    MessageOpening,
    RawResult,
    Root,
    RuntimeEvent,
    Session,
    Standalone,
    StepPurpose,
    Succeeded,
    ToolCallIdentity,
    ToolCallReady,
    ToolDispatched,
    ToolNotified,
    ToolSettled,
)
from maka_trio.facts.codec import canonical, digest
from maka_trio.log import queries
from maka_trio.log.prefixes import prefix
from maka_trio.log.prepared import prepare
from maka_trio.log.store import Store
from tests.log.log_story import (
    CANCELLED,
    COMPLETED,
    FAILED,
    call,
    completed,
    count,
    dispatched,
    event,
    interrupted,
    observed,
    opened,
    picture,
    put,
    put_new,
    reader,
    rejected,
    requested,
    running_call,
    running_cell,
    settled,
    shown,
    steered,
    success,
    tell,
)


class Opener:
    """A log that may be closed and opened again in the middle of a test, or is not."""

    def __init__(self, path: Path | None, *, reopens: bool) -> None:
        self._path = path
        self._reopens = reopens
        self.store = self._open()

    def _open(self) -> Store:
        return Store.open(self._path) if self._path else Store.in_memory()

    def again(self) -> Store:
        """The store as a later moment finds it."""
        if self._reopens:
            self.store.close()
            self.store = self._open()
        return self.store


@pytest.fixture(params=["memory", "file", "reopened"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    path = None if request.param == "memory" else tmp_path / "log.db"
    opener = Opener(path, reopens=request.param == "reopened")
    yield opener
    opener.store.close()


@pytest.fixture
def invocation() -> Invocation:
    return Invocation.new("session")


def refusal(store: Store, *items: RuntimeEvent | EventWrite) -> str:
    """The reason for which a batch is refused."""
    with pytest.raises(CommitRejected) as caught:
        put(store, *items)
    return caught.value.reason


# --- order and identity -----------------------------------------------------------------------------------


def test_sequences_rise_over_all_sessions(log: Opener) -> None:
    """One line of sequences without gaps runs through all sessions, before and after reopening."""
    first, second = Invocation.new("a"), Invocation.new("b")
    assert [*put(log.store, event(first, opened())), *put(log.store, event(second, opened()))] == [1, 2]
    assert put(log.again(), event(second, requested()), event(first, requested("s2"))) == [3, 4]


def test_session_runs_one_invocation(log: Opener) -> None:
    """A second opening of a session is refused while the first is open, and admitted after its end."""
    first, second = Invocation.new("session"), Invocation.new("session")
    tell(log.store, first, opened())
    assert refusal(log.again(), event(second, opened())) == "session_open"
    tell(log.store, first, FAILED)
    tell(log.again(), second, opened())


@pytest.mark.parametrize("field", ["session_id", "turn_id", "run_id"])
def test_identity_must_be_that_of_the_opening(log: Opener, invocation: Invocation, field: str) -> None:
    """Events that name the invocation with another session, turn or run are refused."""
    tell(log.store, invocation, opened())
    forged = attrs.evolve(invocation, **{field: "other"})
    assert refusal(log.again(), event(forged, requested())) == "identity"


def test_invocation_id_is_used_once(log: Opener, invocation: Invocation) -> None:
    """An invocation that is open, or has ended, cannot be opened by another event, not even in another session."""
    elsewhere = attrs.evolve(invocation, session_id="other")
    tell(log.store, invocation, opened())
    assert refusal(log.again(), event(invocation, opened())) == "already_open"
    assert refusal(log.again(), event(elsewhere, opened())) == "identity"
    tell(log.store, invocation, COMPLETED)
    assert refusal(log.again(), event(invocation, opened())) == "sealed"
    assert refusal(log.again(), event(elsewhere, opened())) == "sealed"


def test_unknown_invocation_is_not_open(log: Opener, invocation: Invocation) -> None:
    """A fact of an invocation, or of a session, that the log does not know is refused."""
    assert refusal(log.store, event(invocation, requested())) == "not_open"
    tell(log.store, invocation, opened())
    assert refusal(log.again(), event(Invocation.new("session"), requested())) == "not_open"


def test_nothing_follows_the_end(log: Opener, invocation: Invocation) -> None:
    """Any new fact of an ended invocation is refused as sealed."""
    tell(log.store, invocation, opened(), COMPLETED)
    for fact in (requested(), observed(), COMPLETED, settled()):
        assert refusal(log.again(), event(invocation, fact)) == "sealed"


def test_rules_hold_across_reopening(log: Opener, invocation: Invocation) -> None:
    """What an open invocation may do next does not depend on which process wrote what came before."""
    tell(log.store, invocation, opened(), requested(), completed("s1", call("c1"), call("c2"), call("c3")))
    tell(log.again(), invocation, dispatched("s1", "c1"), rejected("s1", "c2"))
    assert refusal(log.again(), event(invocation, dispatched("s1", "c2"))) == "operation_reused"
    assert refusal(log.again(), event(invocation, settled("s1:c2"))) == "operation_rejected"
    assert refusal(log.again(), event(invocation, COMPLETED)) == "unresolved_work"
    tell(log.again(), invocation, settled("s1:c1"), dispatched("s1", "c3"))
    assert refusal(log.again(), event(invocation, settled("s1:c1"))) == "operation_settled"


def test_observations_count_across_reopening(log: Opener, invocation: Invocation) -> None:
    """Replay barriers and remote calls that another process observed still bind, whatever was streamed since."""
    remote = ToolCallReady(call("r1", remote=True))
    tell(log.store, invocation, opened(), requested("s1"), observed("s1", remote), *[observed("s1")] * 300)
    retryable = interrupted("s1", InterruptionStatus.RETRYABLE_FAILURE)
    assert refusal(log.again(), event(invocation, retryable)) == "replay_barrier"
    tell(log.again(), invocation, interrupted("s1"), requested("s2"), completed("s2"))
    tell(log.again(), invocation, COMPLETED)
    found = log.store.connection.execute("SELECT residue FROM invocations").fetchone()
    assert b'"unanswered_remote_calls":1' in found[0].encode()


# --- exact retry ------------------------------------------------------------------------------------------


def test_retry_returns_the_same_sequence(log: Opener, invocation: Invocation) -> None:
    """Committing every event of a sealed invocation again returns its sequences and writes nothing."""
    events: list[RuntimeEvent | EventWrite] = [
        *(event(invocation, fact) for fact in (opened(), requested(), observed(), observed(), completed("s1", call()))),
        event(invocation, dispatched()),
        success(invocation, media=(picture(),)),
        event(invocation, steered()),
        event(invocation, COMPLETED),
    ]
    sequences = [put(log.store, one)[0] for one in events]
    end = log.store.root
    assert sequences == [put(log.again(), one)[0] for one in events]
    assert sequences == put(log.again(), *events)
    assert end == log.store.root
    assert put_new(log.store, *events) == []


def test_retry_of_an_observation_of_an_open_step(log: Opener, invocation: Invocation) -> None:
    """An observation that would still be legal is recognised as a retry, also by the next process."""
    told = tell(log.store, invocation, opened(), requested(), *[observed()] * 5)
    assert put(log.again(), *told[2:]) == [3, 4, 5, 6, 7]
    assert log.store.root.high_water == 7


def test_retry_after_the_parent_settled(log: Opener, invocation: Invocation) -> None:
    """A retried fact need not be legal any more."""
    story = running_cell(ToolNotified("cell", "text", "text"))
    told = tell(log.store, invocation, *story, settled("cell"), settled())
    assert list(range(1, 7)) == [put(log.again(), one)[0] for one in told[:6]]


def test_retry_of_a_notification_while_legal(log: Opener, invocation: Invocation) -> None:
    """A fact that may come any number of times is told from its own retry by its id."""
    told = tell(log.store, invocation, *running_cell(ToolNotified("cell", "text", "text")))
    assert put(log.again(), told[-1]) == [6]
    assert put(log.again(), event(invocation, ToolNotified("cell", "text", "text"))) == [7]


@pytest.mark.parametrize("change", ["recorded_at", "fact", "invocation"])
def test_same_id_with_other_content(log: Opener, invocation: Invocation, change: str) -> None:
    """An event id stands for one event: the same id with anything else is a conflict."""
    told = tell(log.store, invocation, opened(), requested(), observed(), completed())
    other = Invocation.new("other")
    tell(log.store, other, opened())
    changes = {"recorded_at": 1, "fact": requested("s2"), "invocation": other}
    forged = attrs.evolve(told[1], **{change: changes[change]})
    assert refusal(log.again(), forged) == "conflict"


def test_id_of_an_observation_is_taken_too(log: Opener, invocation: Invocation) -> None:
    """An id that an observation has just used stands for it."""
    told = tell(log.store, invocation, opened(), requested(), observed())
    assert refusal(log.again(), attrs.evolve(told[2], fact=requested("s2"))) == "conflict"
    assert refusal(log.again(), attrs.evolve(told[2], fact=observed("s1", ToolCallReady(call())))) == "conflict"


def test_retry_of_a_result_with_other_evidence(log: Opener, invocation: Invocation) -> None:
    """A settlement whose payload or media are not the ones it was written with is no retry."""
    tell(log.store, invocation, *running_call())
    write = success(invocation, media=(picture(),))
    put(log.store, write)
    log.again().connection.execute("UPDATE artifacts SET data = x'00'")
    assert refusal(log.again(), write) == "conflict"
    log.store.connection.execute("DELETE FROM artifacts")
    assert refusal(log.again(), write) == "conflict"


def test_retry_of_a_result_whose_payload_is_lost(log: Opener, invocation: Invocation) -> None:
    """A settlement whose payload is gone is no retry: nothing vouches for it any more."""
    tell(log.store, invocation, *running_call())
    write = success(invocation)
    put(log.store, write)
    log.again().connection.execute("DELETE FROM payloads")
    assert refusal(log.again(), write) == "conflict"


def test_batch_of_retries_and_news(log: Opener, invocation: Invocation) -> None:
    """A batch may hold both; only what is new is written."""
    told = tell(log.store, invocation, opened(), requested())
    fresh = event(invocation, observed())
    assert put_new(log.again(), *told, fresh, fresh) == [3]
    assert put(log.store, *told, fresh, fresh) == [1, 2, 3, 3]


# --- batches ----------------------------------------------------------------------------------------------


def test_batch_is_checked_with_what_stands_before_it(log: Opener, invocation: Invocation) -> None:
    """Each event of a batch sees the ones before it, and sequences follow the order given."""
    facts = [opened(), requested(), completed("s1", call()), dispatched(), settled(), COMPLETED]
    assert put(log.store, *(event(invocation, fact) for fact in facts)) == [1, 2, 3, 4, 5, 6]


def test_refused_batch_leaves_no_trace(log: Opener, invocation: Invocation) -> None:
    """When one event of a batch is refused, nothing of the batch is there, and the same ids can be used again."""
    told = tell(log.store, invocation, opened(), requested(), completed("s1", call("c1"), call("c2")), dispatched())
    end = log.store.root
    batch = [
        event(invocation, rejected("s1", "c2")),
        success(invocation, media=(picture(),)),
        event(invocation, steered()),
        event(invocation, requested("s2")),
        event(Invocation.new("new"), opened()),
        event(invocation, settled("nothing")),
    ]
    assert refusal(log.store, *batch) == "operation_unknown"
    assert end == log.store.root
    for table, rows in {
        "events": 4,
        "payloads": 0,
        "artifacts": 0,
        "messages": 0,
        "sessions": 1,
        "invocations": 1,
    }.items():
        assert rows == count(log.again().connection, table), table
    assert put(log.again(), *batch[:-1]) == [5, 6, 7, 8, 9]
    assert [told[0].id] == [row[0] for row in log.store.connection.execute("SELECT event_id FROM events LIMIT 1")]


def test_refused_batch_that_ended_the_invocation(log: Opener, invocation: Invocation) -> None:
    """An end that is taken back leaves the invocation open as it was."""
    tell(log.store, invocation, opened(), requested())
    batch = [interrupted(), CANCELLED, requested("s2")]
    assert refusal(log.store, *(event(invocation, fact) for fact in batch)) == "sealed"
    assert refusal(log.again(), event(invocation, requested())) == "step_reused"
    tell(log.store, invocation, interrupted(), requested("s2"))


def test_refused_batch_that_opened_the_invocation(log: Opener, invocation: Invocation) -> None:
    """An opening that is taken back never was."""
    assert refusal(log.store, event(invocation, opened()), event(invocation, observed())) == "step_unknown"
    assert refusal(log.again(), event(invocation, requested())) == "not_open"
    assert put(log.store, event(invocation, opened())) == [1]


def test_batch_over_sessions(log: Opener) -> None:
    """A batch may span sessions; a refusal in one takes back the others."""
    first, second = Invocation.new("a"), Invocation.new("b")
    both = [event(first, opened()), event(second, opened())]
    assert refusal(log.store, *both, event(first, completed())) == "step_unknown"
    assert put(log.again(), *both) == [1, 2]


def test_tickets_fail_alone(log: Opener) -> None:
    """Of many appends that share a transaction, a refused one takes nothing with it."""
    runs = [Invocation.new(f"session {number}") for number in range(5)]
    tickets = [[prepare(event(run, opened()))] for run in runs]
    tickets.insert(2, [prepare(event(runs[0], opened()))])
    tickets.insert(4, [prepare(event(runs[1], requested())), prepare(event(runs[1], completed("other")))])
    results = log.store.write(tickets).results
    failures = {number: result.reason for number, result in enumerate(results) if isinstance(result, CommitRejected)}
    assert failures == {2: "already_open", 4: "step_unknown"}
    assert [r[0] for r in results if not isinstance(r, MakaError)] == [1, 2, 3, 4, 5]
    assert count(log.again().connection, "events") == 5


def test_tickets_of_one_transaction_see_each_other(log: Opener, invocation: Invocation) -> None:
    """Appends in one transaction are judged in their order, openings and ends of one session included."""
    second = Invocation.new("session")
    facts = [(invocation, opened()), (invocation, requested()), (invocation, FAILED), (second, opened())]
    tickets = [[prepare(event(who, fact))] for who, fact in facts]
    again = [prepare(event(invocation, requested("s2")))]
    results = log.store.write([*tickets, again, [prepare(event(invocation, opened()))]]).results
    assert [r.reason for r in results if isinstance(r, CommitRejected)] == ["sealed", "sealed"]
    assert [r[0] for r in results if not isinstance(r, MakaError)] == [1, 2, 3, 4]
    assert refusal(log.again(), event(Invocation.new("session"), opened())) == "session_open"


# --- the whole log ----------------------------------------------------------------------------------------


def standalone(operation: str, call_id: str = "k1") -> ToolDispatched:
    return ToolDispatched(operation, ToolCallIdentity(call_id, Standalone()), "put", {})


def test_operation_id_is_used_once_in_the_log(log: Opener, invocation: Invocation) -> None:
    """An operation that any invocation dispatched or rejected is refused to all others; the rest goes on."""
    tell(log.store, invocation, opened(), requested(), completed("s1", call("c1"), call("c2")), standalone("op"))
    tell(log.store, invocation, dispatched("s1", "c1"), rejected("s1", "c2"), FAILED)
    other = Invocation.new("other")
    tell(log.again(), other, opened(), requested(), completed("s1", call("c1"), call("c2")))
    assert refusal(log.again(), event(other, standalone("op"))) == "operation_reused"
    assert refusal(log.again(), event(other, dispatched("s1", "c1"))) == "operation_reused"
    assert refusal(log.again(), event(other, rejected("s1", "c2"))) == "operation_reused"
    tell(log.again(), other, standalone("op2"))


def test_reused_operation_in_a_shared_transaction(log: Opener) -> None:
    """An append that reuses an operation is refused alone, also when the others share its transaction."""
    runs = [Invocation.new(f"session {number}") for number in range(4)]
    for run in runs:
        tell(log.store, run, opened())
    tell(log.store, runs[0], standalone("op"))
    tickets = [
        [prepare(event(run, standalone("op" if number == 2 else f"op{number}")))] for number, run in enumerate(runs[1:])
    ]
    results = log.again().write(tickets).results
    assert [r[0] for r in results if not isinstance(r, MakaError)] == [6, 7]
    assert [r.reason for r in results if isinstance(r, CommitRejected)] == ["operation_reused"]


def test_one_operation_twice_in_a_transaction(log: Opener) -> None:
    """Two appends that name the same new operation: one is written, the other refused."""
    runs = [Invocation.new(f"session {number}") for number in range(3)]
    for run in runs:
        tell(log.store, run, opened())
    results = log.again().write([[prepare(event(run, standalone("op")))] for run in runs]).results
    assert [r.reason for r in results if isinstance(r, CommitRejected)] == ["operation_reused"] * 2
    assert log.store.root.high_water == 4


def test_event_id_is_used_once_in_the_log(log: Opener, invocation: Invocation) -> None:
    """An event id of one session is a conflict in another, also in a batch and among retries."""
    told = tell(log.store, invocation, opened(), requested())
    other = Invocation.new("other")
    forged = attrs.evolve(told[1], invocation=other)
    assert refusal(log.again(), event(other, opened()), forged) == "conflict"
    assert count(log.again().connection, "sessions") == 1


def test_messages_and_events_share_ids(log: Opener, invocation: Invocation) -> None:
    """In a session, an id names one message or one event."""
    told = tell(log.store, invocation, opened(), steered("m1"))
    assert refusal(log.again(), event(invocation, steered("m1"))) == "message_reused"
    assert refusal(log.again(), event(invocation, steered(told[0].id))) == "message_reused"
    assert refusal(log.again(), attrs.evolve(event(invocation, requested()), id="m1")) == "message_reused"
    tell(log.again(), invocation, steered("m2"), COMPLETED)
    again = Invocation.new("session")
    taken = MessageOpening(MessageInput("hello"), source_messages=("m2",))
    assert refusal(log.again(), event(again, opened(taken))) == "message_reused"
    tell(log.again(), Invocation.new("other"), opened(taken))


def test_summary_names_the_session_as_the_log_has_it(log: Opener, invocation: Invocation) -> None:
    """A summary request is held against the session's own high water and digest."""
    tell(log.store, invocation, opened())
    tell(log.store, Invocation.new("other"), opened())
    head = queries.head(reader(log.again()), Session("session"))
    right = attrs.evolve(
        requested("s1", StepPurpose.SUMMARY), source_scope=head.scope, source_high_water=1, source_digest=head.digest
    )
    assert refusal(log.store, event(invocation, attrs.evolve(right, source_high_water=2))) == "source"
    assert refusal(log.store, event(invocation, attrs.evolve(right, source_scope=Root()))) == "source"
    tell(log.store, invocation, right)


# --- evidence ---------------------------------------------------------------------------------------------


def settled_with(invocation: Invocation, payload: bytes, raw: RawResult) -> EventWrite:
    return EventWrite(event(invocation, ToolSettled("s1:c1", Succeeded(raw, JsonOutput("x")))), payload)


def raw_of(payload: bytes) -> RawResult:
    return RawResult(len(payload), digest(payload))


@pytest.mark.parametrize(
    ("payload", "raw"),
    [
        (b'"abc"', RawResult(6, digest(b'"abc"'))),
        (b'"abc"', RawResult(5, digest(b'"abd"'))),
        (b"not json", raw_of(b"not json")),
        (b"1 2", raw_of(b"1 2")),
        (b'"\xff"', raw_of(b'"\xff"')),
        (b"[" * 65 + b"]" * 65, raw_of(b"[" * 65 + b"]" * 65)),
        (b'{"a":' * 65 + b"1" + b"}" * 65, raw_of(b'{"a":' * 65 + b"1" + b"}" * 65)),
    ],
)
def test_payload_must_be_what_the_fact_says(
    log: Opener, invocation: Invocation, payload: bytes, raw: RawResult
) -> None:
    """A raw result of another size or digest, or that is no JSON, or too deep, is refused and nothing is written."""
    tell(log.store, invocation, *running_call())
    with pytest.raises(InvalidInput):
        put(log.store, settled_with(invocation, payload, raw))
    assert log.again().root.high_water == 4


@pytest.mark.parametrize(
    "payload", [b"[" * 64 + b"]" * 64, b"[" + b"[]," * 500 + b"1]", b'"' + b"[" * 500 + b'"', b"null"]
)
def test_payload_within_its_limits(log: Opener, invocation: Invocation, payload: bytes) -> None:
    """Nesting counts, not brackets."""
    tell(log.store, invocation, *running_call())
    put(log.store, settled_with(invocation, payload, raw_of(payload)))
    assert payload == log.again().connection.execute("SELECT data FROM payloads").fetchone()[0]


def test_payload_over_its_limit(log: Opener, invocation: Invocation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw result over the limit is refused; the message names both."""
    monkeypatch.setattr(limits, "TOOL_RESULT_BYTES", 10)
    tell(log.store, invocation, *running_call())
    with pytest.raises(InvalidInput, match=r"11 bytes; the limit is 10"):
        put(log.store, success(invocation, "x" * 9))
    put(log.store, success(invocation, "x" * 8))


@pytest.mark.parametrize("media", [(), (picture("other"),), (picture("a1", b"other"),), (picture(), picture("a2"))])
def test_artifacts_must_be_those_of_the_fact(log: Opener, invocation: Invocation, media: tuple[Artifact, ...]) -> None:
    """A settlement is written with exactly the artifacts that it names."""
    tell(log.store, invocation, *running_call())
    write = success(invocation, media=(picture(),))
    with pytest.raises(InvalidInput):
        put(log.store, attrs.evolve(write, artifacts=media))


def test_artifact_id_is_used_once_in_a_session(log: Opener, invocation: Invocation) -> None:
    """Two events of a session cannot both bring an artifact of one id; another session's is another's."""
    tell(log.store, invocation, *running_call(requested("s2"), completed("s2", call("c2")), dispatched("s2", "c2")))
    put(log.store, success(invocation, media=(picture(),)))
    assert refusal(log.again(), success(invocation, operation="s2:c2", media=(picture(data=b"x"),))) == "conflict"
    assert refusal(log.again(), success(invocation, operation="s2:c2", media=(picture(),))) == "conflict"
    other = Invocation.new("other")
    put(log.again(), shown(other, picture()))


def test_artifact_must_be_what_its_reference_says(log: Opener, invocation: Invocation) -> None:
    """Bytes that are not those of the reference are refused, also beside an opening."""
    forged = Artifact(picture().ref, b"other")
    with pytest.raises(InvalidInput):
        put(log.store, shown(invocation, forged))
    put(log.store, shown(invocation, picture()))
    assert picture() == queries.artifact(reader(log.again()), "session", "a1")


def test_success_needs_its_result(invocation: Invocation) -> None:
    """A succeeded settlement cannot be written as a plain event."""
    with pytest.raises(InvalidInput, match="raw result"):
        prepare(success(invocation).event)


@pytest.mark.parametrize("broken", [None, "event", 7, b"bytes", {}])
def test_only_events_are_written(broken: object) -> None:
    """Anything else is refused, and says what it was."""
    with pytest.raises(InvalidInput, match=type(broken).__name__):
        prepare(broken)  # type: ignore[arg-type]


def test_values_that_json_cannot_carry(invocation: Invocation) -> None:
    """A fact that nests too deep to be read back is refused before it is written."""
    deep: object = 1
    for _ in range(limits.FACT_DEPTH + 1):
        deep = [deep]
    fact = dispatched()
    object.__setattr__(fact, "input", deep)  # past the fact's own check
    with pytest.raises(InvalidInput, match="deeper"):
        prepare(event(invocation, fact))


def test_caller_may_change_its_objects_afterwards(log: Opener, invocation: Invocation) -> None:
    """What was prepared is what is written."""
    arguments = {"n": 1}
    fact = ToolDispatched("op", ToolCallIdentity("k", Standalone()), "put", arguments)
    write = prepare(event(invocation, fact))
    arguments["n"] = 2
    tell(log.store, invocation, opened())
    log.store.append([write])
    stored = prefix(reader(log.again()), Root(), 10, 10_000).events[1].event.fact
    assert isinstance(stored, ToolDispatched)
    assert canonical({"n": 1}) == canonical(stored.input)


def test_failed_effect_has_no_payload(log: Opener, invocation: Invocation) -> None:
    """Other settlements are plain events."""
    tell(log.store, invocation, *running_call(ToolSettled("s1:c1", EffectFailed("no"))))
    assert count(log.again().connection, "payloads") == 0
