"""The log as a trio program uses it: commits, cancels, many producers, closing. On a real file, and in memory."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from maka_trio import limits
from maka_trio.errors import (
    CommitRejected,
    InvalidInput,
    LogClosed,
    LogInUse,
    PrefixTooLarge,
    ReconciliationRequired,
    ResultUnavailable,
)
from maka_trio.facts import EventSink, Invocation, Lineage, Root, RuntimeEvent, Session
from maka_trio.log import EventLog
from maka_trio.log.prepared import prepare
from maka_trio.log.store import Store
from maka_trio.log.writer import WriterThread, _Lot
from tests.log.log_story import (
    COMPLETED,
    FAILED,
    UNKNOWN,
    event,
    observed,
    opened,
    picture,
    requested,
    running_call,
    success,
)

BIG = 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture(params=["thread", "inline", "memory"])
async def log(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[EventLog]:
    opening = (
        EventLog.in_memory() if request.param == "memory" else EventLog.open(path, inline=request.param == "inline")
    )
    async with opening as log:
        yield log


def events_of(invocation: Invocation, *facts: Any) -> list[RuntimeEvent]:
    return [event(invocation, fact) for fact in facts]


class SlowDisk:
    """Lets the writer answer only when the test allows it."""

    def __init__(self, log: EventLog) -> None:
        self.answers = threading.Event()
        self._write = log._store.write
        log._store.write = self._slowly  # type: ignore[method-assign]

    def _slowly(self, *asked: Any) -> Any:
        assert self.answers.wait(60)
        return self._write(*asked)


def writer_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("maka_trio")]


# --- commits ----------------------------------------------------------------------------------------------


async def test_commit_and_read_back(log: EventLog) -> None:
    """What was committed is read back as it was, in its order, by each of the questions."""
    invocation = Invocation.new("session")
    told = events_of(invocation, *running_call())
    assert await log.commit(told[0]) == 1
    assert await log.commit_batch(told[1:]) == [2, 3, 4]
    write = success(invocation, {"n": 1}, media=(picture(),))
    assert await log.commit(write) == 5
    whole = await log.prefix(10, BIG)
    assert [stored.event for stored in whole.events] == [*told, write.event]
    assert whole.project_invocation(invocation.invocation_id).uncertain_operations == ()
    session = await log.prefix(10, BIG, Session("session"))
    assert session.events == whole.events
    run = await log.run_prefix("session", invocation.run_id, 10, BIG)
    assert run is not None
    assert run.events == whole.events
    assert (await log.read_context("session")).events == whole.events
    assert await log.resolve_tool_result("session", write.event.id) == {"n": 1}
    assert await log.read_artifact("session", "a1") == picture()
    assert [one.session_id for one in await log.sessions()] == ["session"]


async def test_log_is_a_sink(log: EventLog) -> None:
    """Engine and tools commit through the protocol."""
    sink: EventSink = log
    assert await sink.commit(event(Invocation.new("session"), opened())) == 1


async def test_refusals_are_plain_errors(log: EventLog) -> None:
    """Each thing that goes wrong is one exception of the public tree, and the log goes on."""
    invocation = Invocation.new("session")
    for broken in (None, "event", [event(invocation, opened())], success(invocation).event):
        with pytest.raises(InvalidInput):
            await log.commit(broken)  # type: ignore[arg-type]
    too_many = [event(invocation, observed())] * (limits.BATCH_EVENTS + 1)
    for batch in ([], None, "events", {1: 2}, [None], too_many):
        with pytest.raises(InvalidInput):
            await log.commit_batch(batch)  # type: ignore[arg-type]
    with pytest.raises(CommitRejected):
        await log.commit(event(invocation, requested()))
    await log.commit(event(invocation, opened()))
    with pytest.raises(PrefixTooLarge):
        await log.prefix(0, BIG)
    with pytest.raises(ReconciliationRequired):
        await log.require_safe("session")
    with pytest.raises(ResultUnavailable):
        await log.resolve_tool_result("session", "nothing")
    assert (await log.head()).high_water == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.prefix(-1, 1),
        lambda log: log.prefix(1, None),
        lambda log: log.prefix(1, 1, "session"),
        lambda log: log.prefix(1, 1, Lineage("session", "run")),
        lambda log: log.run_prefix("", "run", 1, 1),
        lambda log: log.run_prefix("session", None, 1, 1),
        lambda log: log.head("root"),
        lambda log: log.read_context(""),
        lambda log: log.read_context("session", max_events=-1),
        lambda log: log.read_context("session", ""),
        lambda log: log.read_context("session", "run"),
        lambda log: log.read_context("session", "run", max_bytes=-1),
        lambda log: log.boundary("session", None),
        lambda log: log.boundary("", "run"),
        lambda log: log.boundary("session", "run"),
        lambda log: log.check("an event"),
        lambda log: log.require_safe(None),
        lambda log: log.resolve_tool_result("session", "x" * 5000),
        lambda log: log.read_artifact(7, "x"),
    ],
)
async def test_questions_with_wrong_values(log: EventLog, ask: Any) -> None:
    """A wrong value is refused with an error that names it."""
    with pytest.raises(InvalidInput):
        await ask(log)


@pytest.mark.parametrize("arguments", [(-1,), (1.5,), ("1",), (0, ""), (0, 7)])
async def test_following_from_nowhere(log: EventLog, arguments: Any) -> None:
    """A follower starts from a sequence, and follows a session or everything."""
    with pytest.raises(InvalidInput):
        log.follow(*arguments)


async def test_every_call_checkpoints(log: EventLog) -> None:
    """Each public async function lets others run."""
    invocation = Invocation.new("session")
    told = events_of(invocation, opened(), requested())
    calls = [
        partial(log.commit, told[0]),
        partial(log.commit_batch, told),
        log.head,
        partial(log.head, Session("session")),
        partial(log.head, Session("nobody")),
        partial(log.prefix, 10, BIG),
        partial(log.read_context, "session"),
        partial(log.require_safe, "session", except_invocation=invocation.invocation_id),
        partial(log.read_context, "session", invocation.run_id),
        partial(log.commit, event(invocation, FAILED)),
        partial(log.boundary, "session", invocation.run_id),
        partial(log.check, event(Invocation.new("session"), opened())),
        log.sessions,
        log.recover,
        log.follow().__anext__,
        log.aclose,
    ]
    for call in calls:
        with trio.testing.assert_checkpoints():
            await call()


# --- heads ------------------------------------------------------------------------------------------------


async def test_head_follows_every_commit(log: EventLog) -> None:
    """The head, whether remembered or looked up, is that of the prefix after each commit and after none."""
    invocation = Invocation.new("session")
    for one in [None, *events_of(invocation, opened(), requested(), observed(), FAILED)]:
        if one is not None:
            await log.commit(one)
        for scope in (Root(), Session("session"), Session("nobody")):
            head, whole = await log.head(scope), await log.prefix(10, BIG, scope)
            assert (head.scope, head.high_water, head.digest) == (scope, whole.high_water, whole.digest)


async def test_refused_and_repeated_commits_move_no_head(log: EventLog) -> None:
    """A refused append, and one that is in the log already, leave head and high water alone."""
    invocation = Invocation.new("session")
    first = event(invocation, opened())
    await log.commit(first)
    head = await log.head(Session("session"))
    assert await log.commit(first) == 1
    with pytest.raises(CommitRejected):
        await log.commit(event(invocation, observed()))
    assert await log.head(Session("session")) == head
    assert (await log.head()).high_water == 1


async def test_heads_of_many_sessions(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that is no longer remembered is looked up."""
    monkeypatch.setattr("maka_trio.log.event_log._REMEMBERED_HEADS", 2)
    monkeypatch.setattr("maka_trio.log.sessions.IDLE_SESSIONS", 2)
    names = [f"session {number}" for number in range(5)]
    for name in names:
        await log.commit_batch(events_of(Invocation.new(name), opened(), COMPLETED))
    assert [(await log.head(Session(name))).high_water for name in names] == [2, 4, 6, 8, 10]
    assert await log.commit(event(Invocation.new(names[0]), opened())) == 11


# --- cancels ----------------------------------------------------------------------------------------------


async def test_cancel_before_submission_prevents_the_commit(log: EventLog) -> None:
    """A commit that is made in a cancelled scope raises Cancelled, and nothing is written."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await log.commit(event(Invocation.new("session"), opened()))
    assert scope.cancelled_caught
    assert (await log.head()).high_water == 0


async def test_cancel_after_submission_does_not_take_it_back(path: Path) -> None:
    """A commit that was submitted returns its sequence; the cancel comes at the next checkpoint."""
    sequences: list[int] = []

    async def commit_and_go_on(log: EventLog, scope: trio.CancelScope) -> None:
        with scope:
            sequences.append(await log.commit(event(Invocation.new("session"), opened())))
            await trio.lowlevel.checkpoint()
            sequences.append(-1)

    async with EventLog.open(path) as log:
        disk = SlowDisk(log)
        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit_and_go_on, log, scope)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert sequences == []
            disk.answers.set()
        assert sequences == [1]
        assert scope.cancelled_caught
        assert (await log.head()).high_water == 1


async def test_cancelled_producers_write_what_they_submitted(path: Path) -> None:
    """Of many producers that are cancelled at any moment, all that was submitted is there, each row once."""
    submitted: list[str] = []

    async def produce(log: EventLog, number: int) -> None:
        invocation = Invocation.new(f"session {number}")
        for fact in (opened(), requested(f"s{number}"), *[observed(f"s{number}")] * 100):
            one = event(invocation, fact)
            await log.commit(one)
            submitted.append(one.id)

    async with EventLog.open(path) as log:
        for turn in range(1, 6):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    for number in range(20):
                        nursery.start_soon(produce, log, len(submitted) * 100 + number)
                    while len(submitted) < 100 * turn:
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        whole = await log.prefix(100_000, BIG)
    ids = [stored.event.id for stored in whole.events]
    assert set(submitted) == set(ids)
    assert len(ids) == len(set(ids))


async def test_cancelled_owner_closes_in_order(path: Path) -> None:
    """A log whose block is cancelled writes what was submitted, closes the file and frees the lease."""
    invocation = Invocation.new("session")

    async def commit_all(log: EventLog, batches: list[list[RuntimeEvent]]) -> None:
        for batch in batches:
            await log.commit_batch(batch)

    with trio.CancelScope() as scope:
        async with EventLog.open(path) as log, trio.open_nursery() as nursery:
            await log.commit(event(invocation, opened()))
            batches = [events_of(invocation, requested(), *[observed()] * 200)]
            nursery.start_soon(commit_all, log, batches)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert writer_threads() == []
    async with EventLog.open(path) as log:
        assert (await log.head()).high_water == 202


# --- many producers ---------------------------------------------------------------------------------------


async def test_producers_share_transactions(path: Path) -> None:
    """Many producers at once are written in far fewer transactions than events, each in its own order."""
    async with EventLog.open(path) as log:
        batches = 0
        publish = log._hub.publish

        def count_and_publish(commit: Any) -> None:
            nonlocal batches
            batches += 1
            publish(commit)

        log._hub.publish = count_and_publish  # type: ignore[method-assign]

        async def produce(number: int) -> None:
            invocation = Invocation.new(f"session {number}")
            step = f"s{number}"
            for one in events_of(invocation, opened(), requested(step), *[observed(step)] * 30):
                await log.commit(one)

        async with trio.open_nursery() as nursery:
            for number in range(64):
                nursery.start_soon(produce, number)
        whole = await log.prefix(100_000, BIG)
        for number in range(64):
            kinds = [s.event.fact.kind for s in whole.events if s.event.invocation.session_id == f"session {number}"]
            assert kinds == ["invocation_opened", "model_requested", *["model_observed"] * 30]
    assert batches < len(whole.events) / 4


async def test_one_refusal_among_many(path: Path) -> None:
    """In a shared transaction each producer gets its own answer."""
    invocations = [Invocation.new("one session") for _ in range(50)]
    answers: list[str | int] = []

    async def open_one(log: EventLog, invocation: Invocation) -> None:
        try:
            answers.append(await log.commit(event(invocation, opened())))
        except CommitRejected as error:
            answers.append(error.reason)

    async with EventLog.open(path) as log:
        async with trio.open_nursery() as nursery:
            for invocation in invocations:
                nursery.start_soon(open_one, log, invocation)
        assert sorted(answers, key=str) == [1, *["session_open"] * 49]
        assert (await log.head()).high_water == 1


# --- opening and closing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [False, True])
async def test_second_log_on_the_file(path: Path, *, inline: bool) -> None:
    """A file that is open is refused at once, with a plain error."""
    async with EventLog.open(path):
        with pytest.raises(LogInUse):
            async with EventLog.open(path, inline=inline):
                raise AssertionError


async def test_body_error_comes_out_bare(path: Path) -> None:
    """An error of the block comes out as it is."""
    with pytest.raises(KeyError, match="mine"):
        async with EventLog.open(path):
            raise KeyError("mine")
    assert writer_threads() == []


@pytest.mark.parametrize("wrong", [None, "", 7, b"log.db", "a\0b", ":memory:"])
async def test_path_must_be_one(wrong: Any) -> None:
    """What is no path is refused; a log in memory is inline."""
    with pytest.raises(InvalidInput):
        async with EventLog.open(wrong):
            raise AssertionError


async def test_path_forms(tmp_path: Path) -> None:
    """A path is a str or a Path; the log knows where it really is."""
    for path in (str(tmp_path / "a.db"), tmp_path / "b.db"):
        async with EventLog.open(path) as log:
            assert log.path == Path(path)
    async with EventLog.in_memory() as log:
        assert log.path is None


async def test_closed_log_says_so(log: EventLog) -> None:
    """After closing, once or again, every call is LogClosed."""
    await log.aclose()
    await log.aclose()
    one = event(Invocation.new("session"), opened())
    calls: list[Any] = [
        lambda: log.commit(one),
        lambda: log.commit_batch([one]),
        lambda: log.prefix(1, 1),
        lambda: log.run_prefix("a", "b", 1, 1),
        log.head,
        lambda: log.read_context("a"),
        lambda: log.require_safe("a"),
        lambda: log.resolve_tool_result("a", "b"),
        lambda: log.read_artifact("a", "b"),
        log.recover,
        log.sessions,
    ]
    for call in calls:
        with pytest.raises(LogClosed):
            await call()
    with pytest.raises(LogClosed):
        log.follow()
    with pytest.raises(LogClosed), log.claim():
        raise AssertionError


async def test_closing_finishes_what_was_accepted(path: Path) -> None:
    """Appends that were waiting when the log was closed are written and answered; both closers return."""
    invocation = Invocation.new("session")
    answers: list[list[int]] = []

    async def commit(log: EventLog, batch: list[RuntimeEvent]) -> None:
        answers.append(await log.commit_batch(batch))

    async with EventLog.open(path) as log:
        await log.commit(event(invocation, opened()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, log, events_of(invocation, requested(), *[observed()] * 500))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(log.aclose)
            nursery.start_soon(log.aclose)
    assert [len(one) for one in answers] == [501]
    assert {path, path.with_name("log.db.writer.lock")} == set(path.parent.iterdir())
    assert writer_threads() == []


async def test_cancelled_close_closes(path: Path) -> None:
    """Closing cannot be cancelled: afterwards the file is free."""
    async with EventLog.open(path) as log:
        with trio.CancelScope() as scope:
            scope.cancel()
            await log.aclose()
        async with EventLog.open(path) as again:
            assert again.path == path


async def test_in_memory_logs_are_separate() -> None:
    """Two logs in memory share nothing."""
    async with EventLog.in_memory() as first, EventLog.in_memory() as second:
        await first.commit(event(Invocation.new("session"), opened()))
        assert (await second.head()).high_water == 0


def test_writer_outlives_the_trio_run(tmp_path: Path) -> None:
    """When the trio run was torn down around a log, what was submitted is written all the same, and nothing hangs."""
    store = Store.open(tmp_path / "log.db")

    async def main() -> tuple[WriterThread, trio.lowlevel.Task]:
        return WriterThread(store, lambda commit: None), trio.lowlevel.current_task()

    writer, task = trio.run(main)
    for number in range(100):
        one = prepare(event(Invocation.new(f"session {number}"), opened()))
        writer._queue.put(_Lot([task], [[one]], 1, one.size))
    writer._queue.put(None)
    writer._thread.join(60)
    assert not writer._thread.is_alive()
    assert store.root.high_water == 100
    store.close()


# --- one engine -------------------------------------------------------------------------------------------


async def test_log_serves_one_engine(log: EventLog) -> None:
    """A second claim is refused while the first holds, and only then."""
    with log.claim():
        with pytest.raises(LogInUse), log.claim():
            raise AssertionError
        await log.commit(event(Invocation.new("session"), opened()))
    with log.claim():
        pass


# --- recovery ---------------------------------------------------------------------------------------------


async def test_recovery_seals_what_is_open(log: EventLog) -> None:
    """Open invocations are sealed once; the sessions may then go on, unless an effect's outcome is unknown."""
    await log.commit_batch(events_of(Invocation.new("clean"), opened(), requested("c1"), observed("c1")))
    await log.commit_batch(events_of(Invocation.new("unknown"), *running_call()))
    await log.commit_batch(events_of(Invocation.new("done"), opened(), COMPLETED))
    assert await log.recover() == 2
    assert await log.recover() == 0
    assert (await log.require_safe("clean")).prior_unknown is False
    with pytest.raises(ReconciliationRequired):
        await log.require_safe("unknown")
    assert (await log.require_safe("unknown", allow_prior_unknown=True)).prior_unknown is True
    ends = [s.event.fact for s in (await log.prefix(100, BIG)).events if s.event.fact.kind == "invocation_ended"]
    assert [end for end in ends if end in (UNKNOWN, COMPLETED)][::-1] == [UNKNOWN, COMPLETED]


async def test_recovery_leaves_live_runs_alone(log: EventLog) -> None:
    """While an engine has the log, only what was open when it took it is sealed."""
    await log.commit(event(Invocation.new("old"), opened()))
    with log.claim():
        live = Invocation.new("live")
        await log.commit(event(live, opened()))
        assert await log.recover() == 1
        assert await log.recover() == 0
        assert await log.commit(event(live, requested())) == 4
    assert await log.recover() == 1
