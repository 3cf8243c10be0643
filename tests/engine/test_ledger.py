"""The ledger of a run: several tasks write through it, and history keeps the order of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from maka_trio import facts, limits
from maka_trio.engine.ledger import RunLedger
from maka_trio.errors import CommitRejected
from maka_trio.facts.event import EventWrite, RuntimeEvent
from maka_trio.history import History

RUN = facts.Invocation.new("s")


class SlowSink:
    """Gives out sequences at once, and answers each commit when it is told to."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.answers: list[trio.Event] = []
        self.failures: dict[int, Exception] = {}

    async def commit(self, event: RuntimeEvent | EventWrite) -> int:
        return (await self.commit_batch([event]))[0]

    async def commit_batch(self, events: Sequence[RuntimeEvent | EventWrite]) -> list[int]:
        number = len(self.answers)
        first = len(self.taken) + 1
        self.taken.extend(events)
        self.answers.append(trio.Event())
        await self.answers[number].wait()
        if number in self.failures:
            raise self.failures[number]
        return list(range(first, first + len(events)))


class Seen(History):
    """Remembers what was folded."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def push(self, event: RuntimeEvent) -> None:
        assert isinstance(event.fact, facts.ToolNotified)
        self.texts.append(event.fact.text)
        if event.fact.text == "bad":
            raise ZeroDivisionError


def note(text: str) -> facts.ToolNotified:
    return facts.ToolNotified("c", text, text)


async def test_history_keeps_the_order_of_the_log_however_its_writers_wake() -> None:
    """Who is answered early waits for those before it."""
    sink, history, done = SlowSink(), Seen(), list[str]()
    ledger = RunLedger(sink, RUN, history)

    async def write(text: str) -> None:
        await ledger.record(note(text))
        done.append(text)

    async with trio.open_nursery() as nursery:
        for text in ("a", "b", "c"):
            nursery.start_soon(write, text)
            await trio.testing.wait_all_tasks_blocked()
        for number in (2, 1):
            sink.answers[number].set()
            await trio.testing.wait_all_tasks_blocked()
        assert (history.texts, done) == ([], [])
        sink.answers[0].set()
    assert history.texts == ["a", "b", "c"]
    assert sorted(done) == ["a", "b", "c"]
    assert ledger.last_sequence == 3


async def test_a_failed_append_and_one_that_does_not_fold_hold_nobody_up() -> None:
    """Each failure is raised where it belongs."""
    sink, history = SlowSink(), Seen()
    sink.failures[0] = CommitRejected("no")
    ledger = RunLedger(sink, RUN, history)

    async def fails(text: str, error: type[Exception]) -> None:
        with pytest.raises(error):
            await ledger.record(note(text))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails, "lost", CommitRejected)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(fails, "bad", ZeroDivisionError)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ledger.record, note("good"))
        await trio.testing.wait_all_tasks_blocked()
        for number in (2, 1, 0):
            sink.answers[number].set()
    assert history.texts == ["bad", "good"]


class QuickSink(SlowSink):
    """Answers at once, and remembers what came together."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []

    async def commit_batch(self, events: Sequence[RuntimeEvent | EventWrite]) -> list[int]:
        self.batches.append([event.fact.text for event in events])  # type: ignore[union-attr]
        if error := self.failures.get(len(self.batches)):
            raise error
        self.taken.extend(events)
        return list(range(len(self.taken) - len(events) + 1, len(self.taken) + 1))


async def test_what_is_recorded_soon_is_history_at_once_and_written_with_what_comes_next() -> None:
    """One append for both, in order; the caller is told the sequence of its own."""
    sink, history = QuickSink(), Seen()
    ledger = RunLedger(sink, RUN, history, patient=True)
    await ledger.record_soon(note("completed"))
    assert (history.texts, sink.batches) == (["completed"], [])
    assert await ledger.commit(RuntimeEvent.new(RUN, note("dispatched"))) == 2
    assert history.texts == ["completed", "dispatched"]
    assert sink.batches == [["completed", "dispatched"]]


async def test_what_waits_can_be_written_by_itself() -> None:
    """Before anything that takes long. With nothing to write, nothing is written."""
    sink, history = QuickSink(), Seen()
    ledger = RunLedger(sink, RUN, history, patient=True)
    await ledger.flush()
    await ledger.record_soon(note("a"), note("b"))
    await ledger.flush()
    await ledger.flush()
    assert (history.texts, sink.batches, ledger.last_sequence) == (["a", "b"], [["a", "b"]], 2)


async def test_nothing_waits_where_others_write_too() -> None:
    """History keeps the order of the log."""
    sink, history = QuickSink(), Seen()
    ledger = RunLedger(sink, RUN, history)
    await ledger.record_soon(note("a"))
    assert sink.batches == [["a"]]


async def test_what_waits_stays_within_one_append() -> None:
    """A batch has a limit, and so have the facts that wait for one."""
    sink, history = QuickSink(), Seen()
    ledger = RunLedger(sink, RUN, history, patient=True)
    half = limits.BATCH_EVENTS // 2
    await ledger.record_soon(*[note("early")] * half)
    assert sink.batches == []
    await ledger.record_soon(note("one more"))
    assert [len(batch) for batch in sink.batches] == [half + 1]
    await ledger.record_soon(*[note("early")] * half)
    await ledger.record(*[note("late")] * (half + 1))
    assert [len(batch) for batch in sink.batches] == [half + 1, half, half + 1]


async def test_a_refused_append_does_not_take_what_waited_with_it() -> None:
    """What was recorded before is written by itself, and the history stays right."""
    sink, history = QuickSink(), Seen()
    sink.failures[1] = CommitRejected("no")
    ledger = RunLedger(sink, RUN, history, patient=True)
    await ledger.record_soon(note("settled"))
    with pytest.raises(CommitRejected):
        await ledger.record(note("requested"))
    assert (ledger.ahead, history.texts) == (False, ["settled"])
    await ledger.record(note("ended"))
    assert sink.batches == [["settled", "requested"], ["settled"], ["ended"]]


@pytest.mark.parametrize("last", ["requested", None], ids=["with company", "alone"])
async def test_what_waited_and_is_refused_itself_leaves_the_history_wrong(last: str | None) -> None:
    """Which is known then. It is not written again."""
    sink, history = QuickSink(), Seen()
    sink.failures |= {1: CommitRejected("no"), 2: CommitRejected("no")}
    ledger = RunLedger(sink, RUN, history, patient=True)
    await ledger.record_soon(note("settled"))
    with pytest.raises(CommitRejected):
        await (ledger.flush() if last is None else ledger.record(note(last)))
    assert ledger.ahead
    assert len(sink.batches) == (1 if last is None else 2)


async def test_a_refusal_of_what_waited_for_nobody_leaves_the_history_right() -> None:
    """Only what was folded ahead of the log can be wrong."""
    sink, history = QuickSink(), Seen()
    sink.failures[1] = CommitRejected("no")
    ledger = RunLedger(sink, RUN, history, patient=True)
    with pytest.raises(CommitRejected):
        await ledger.record(note("requested"))
    assert (ledger.ahead, history.texts) == (False, [])
