"""The writer's thread: what it does when it cannot go on, and when too much is asked of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from maka_trio import limits
from maka_trio.errors import CommitRejected, CommitUnknown, MakaError
from maka_trio.facts import Invocation
from maka_trio.log.commit import Commit, Ticket
from maka_trio.log.prepared import prepare
from maka_trio.log.store import Store
from maka_trio.log.writer import WriterThread
from tests.log.log_story import event, opened, put, requested


class GatedStore:
    """A store whose writes wait for the test, and may break."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.opened = threading.Event()
        self.begun: list[int] = []
        self.breaks_at = -1
        self.room_breaks = False

    def write(self, tickets: list[Ticket], on_durable: Callable[[], object]) -> Commit:
        self.begun.append(len(tickets))
        assert self.opened.wait(60)
        if len(self.begun) == self.breaks_at:
            raise MemoryError("no more")
        commit = self.store.write(tickets, on_durable)
        self.noted()
        return commit

    def noted(self) -> None:
        """For tests to stand between what is durable and its answer."""

    def checkpoint(self) -> None:
        self.store.checkpoint()

    def make_room(self) -> None:
        if self.room_breaks:
            raise MemoryError("no room")
        self.store.make_room()


@pytest.fixture
def gated(tmp_path: Path) -> Any:
    store = Store.open(tmp_path / "log.db")
    yield GatedStore(store)
    store.close()


def ticket(number: int) -> Ticket:
    return [prepare(event(Invocation.new(f"session {number}"), opened()))]


async def answer(answers: dict[int, Any], number: int, work: Callable[[], Any]) -> None:
    try:
        answers[number] = await work()
    except MakaError as error:
        answers[number] = error


async def test_queue_is_one_transaction(gated: GatedStore) -> None:
    """All that waits while a transaction is on its way goes into the next one, in order."""
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(answer, answers, number, lambda number=number: writer.append(ticket(number)))
            await trio.testing.wait_all_tasks_blocked()
        gated.opened.set()
    await writer.aclose()
    assert answers == {number: [number + 1] for number in range(10)}
    assert sum(gated.begun) == 10
    assert len(gated.begun) <= 2 or gated.begun[-1] > 1


async def test_what_is_submitted_in_one_pass_is_one_transaction(gated: GatedStore) -> None:
    """The writer, however fast, is not handed a part of what the tasks that can run now are about to submit."""
    gated.opened.set()
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    answers: dict[int, Any] = {}
    for begun in range(20):
        async with trio.open_nursery() as nursery:
            for number in range(10 * begun, 10 * begun + 10):
                nursery.start_soon(answer, answers, number, lambda number=number: writer.append(ticket(number)))
    await writer.aclose()
    assert gated.begun == [10] * 20


async def test_who_was_alone_is_handed_over_at_once(gated: GatedStore) -> None:
    """An append that nobody waits beside does not wait for the pass, if the one before had a transaction to itself."""
    gated.opened.set()
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    answers: dict[int, Any] = {}

    async def append(*numbers: int) -> None:
        async with trio.open_nursery() as nursery:
            for number in numbers:
                nursery.start_soon(answer, answers, number, lambda number=number: writer.append(ticket(number)))

    await append(0)
    trio.lowlevel.remove_instrument(writer._pass)  # as if the pass went on
    with trio.fail_after(60):
        await append(1)
        await append(2)
    trio.lowlevel.add_instrument(writer._pass)
    gated.opened.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append, 3)
        with trio.fail_after(60):
            while len(gated.begun) < 4:
                await trio.lowlevel.checkpoint()
        nursery.start_soon(append, 4, 5)
        await trio.testing.wait_all_tasks_blocked()
        gated.opened.set()
    assert gated.begun == [1, 1, 1, 1, 2]
    trio.lowlevel.remove_instrument(writer._pass)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append, 6)
        await trio.testing.wait_all_tasks_blocked()
        assert len(writer._submitted) == 1
        trio.lowlevel.add_instrument(writer._pass)
    assert sorted(sequence for (sequence,) in answers.values()) == [1, 2, 3, 4, 5, 6, 7]
    await writer.aclose()


async def test_closing_hands_over_what_the_pass_has_not(gated: GatedStore) -> None:
    """An append that was submitted in the pass in which the writer is closed is written."""
    gated.opened.set()
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as nursery:
        trio.lowlevel.remove_instrument(writer._pass)  # as if the pass went on
        nursery.start_soon(answer, answers, 0, lambda: writer.append(ticket(0)))
        await trio.testing.wait_all_tasks_blocked()
        assert answers == {}
        trio.lowlevel.add_instrument(writer._pass)
        await writer.aclose()
    assert answers == {0: [1]}


async def test_transaction_is_bounded(gated: GatedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction takes no more events or bytes than its limits, and at least one append."""
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, answers, 0, lambda: writer.append(ticket(0)))
        with trio.fail_after(60):
            while not gated.begun:
                await trio.lowlevel.checkpoint()
        monkeypatch.setattr(limits, "BATCH_EVENTS", 3)
        for number in range(1, 8):
            nursery.start_soon(answer, answers, number, lambda number=number: writer.append(ticket(number)))
        await trio.testing.wait_all_tasks_blocked()
        gated.opened.set()
    monkeypatch.setattr(limits, "BATCH_BYTES", 1)
    await writer.append(ticket(8))
    await writer.aclose()
    assert gated.begun == [1, 3, 3, 1, 1]


async def test_other_work_keeps_its_place(gated: GatedStore) -> None:
    """Work on the store runs between the appends before it and those after it."""
    gated.opened.set()
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    answers: dict[int, Any] = {}
    end = lambda store: store.store.root.high_water  # noqa: E731
    async with trio.open_nursery() as nursery:
        for number in range(6):
            work = (lambda: writer.call(end)) if number == 3 else (lambda number=number: writer.append(ticket(number)))
            nursery.start_soon(answer, answers, number, work)
            await trio.testing.wait_all_tasks_blocked()
    await writer.aclose()
    assert answers == {0: [1], 1: [2], 2: [3], 3: 3, 4: [4], 5: [5]}


async def test_error_of_other_work(gated: GatedStore) -> None:
    """An error of such work is its caller's, and the writer goes on."""
    gated.opened.set()
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]

    def broken(store: Store) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await writer.call(broken)
    assert await writer.append(ticket(0)) == [1]
    await writer.aclose()


class WatchedWriter(WriterThread):
    """Counts how often trio has looked for answers since it was woken."""

    looks = threading.Semaphore(0)

    def _ring_ahead(self) -> None:
        self.looks = threading.Semaphore(0)
        super()._ring_ahead()

    def _take_in(self) -> None:
        super()._take_in()
        self.looks.release()


@pytest.mark.parametrize("looks", [1, 2])
async def test_answer_that_trio_looked_for_too_early_comes(gated: GatedStore, looks: int) -> None:
    """Woken when the disk has answered, trio may look before the thread has told: it is woken once more."""
    gated.opened.set()
    writer = WatchedWriter(gated, lambda commit: None)  # type: ignore[arg-type]
    in_vain: list[bool] = []

    def look_first() -> None:
        in_vain.extend(writer.looks.acquire(timeout=60) for _ in range(looks))

    gated.noted = look_first  # type: ignore[method-assign]

    rescued: list[int] = []

    async def rescue() -> None:  # an append cannot be cancelled
        await trio.sleep(60)
        while True:
            rescued.append(len(gated.begun))
            writer._bell.ring()
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rescue)
        for number in range(5):
            assert await writer.append(ticket(number)) == [number + 1]
        nursery.cancel_scope.cancel()
    assert rescued == []
    assert in_vain == [True] * 5 * looks
    await writer.aclose()


async def test_writer_that_breaks_between_the_disk_and_the_answer(gated: GatedStore) -> None:
    """Trio is on its way already; what it hears is that nobody can say."""
    gated.opened.set()
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]

    def broken() -> None:
        raise MemoryError("no more")

    gated.noted = broken  # type: ignore[method-assign]
    with trio.fail_after(60), pytest.raises(CommitUnknown, match="no more"):
        await writer.append(ticket(0))
    with pytest.raises(CommitRejected, match="no more"):
        await writer.append(ticket(1))
    await writer.aclose()
    assert gated.store.root.high_water == 1


async def test_dead_writer_answers_everybody(gated: GatedStore) -> None:
    """A writer that breaks leaves nobody waiting: what it had in hand is unknown, all else is refused for good."""
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    gated.breaks_at = 1
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, answers, 0, lambda: writer.append(ticket(0)))
        with trio.fail_after(60):
            while not gated.begun:
                await trio.lowlevel.checkpoint()
        for number in range(1, 5):
            nursery.start_soon(answer, answers, number, lambda number=number: writer.append(ticket(number)))
        await trio.testing.wait_all_tasks_blocked()
        gated.opened.set()
    assert isinstance(answers[0], CommitUnknown)
    assert [answers[number].reason for number in range(1, 5)] == ["log_failed"] * 4
    for work in (lambda: writer.append(ticket(9)), lambda: writer.call(lambda store: None)):
        with pytest.raises(CommitRejected, match="no more"):
            await work()
    await writer.aclose()


async def test_writer_that_breaks_after_a_commit(gated: GatedStore) -> None:
    """What is durable is answered so, whatever the thread does afterwards; later appends are refused."""
    gated.opened.set()
    gated.room_breaks = True
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    assert await writer.append(ticket(0)) == [1]
    with pytest.raises(CommitRejected, match="no room"):
        await writer.append(ticket(1))
    await writer.aclose()
    assert gated.store.root.high_water == 1


async def test_too_many_waiting(gated: GatedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends beyond the limit are refused at once; the others are answered."""
    monkeypatch.setattr(limits, "QUEUED_WRITES", 3)
    writer = WriterThread(gated, lambda commit: None)  # type: ignore[arg-type]
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(answer, answers, number, lambda number=number: writer.append(ticket(number)))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(CommitRejected) as caught:
            await writer.append(ticket(3))
        assert caught.value.reason == "overloaded"
        gated.opened.set()
    assert sorted(answers.values()) == [[1], [2], [3]]
    assert await writer.append(ticket(3)) == [4]
    await writer.aclose()


async def test_commits_are_published_before_they_are_answered(gated: GatedStore) -> None:
    """Whoever is answered finds the log's new end already known; refusals come with no new end."""
    gated.opened.set()
    ends: list[int] = []
    writer = WriterThread(gated, lambda commit: ends.append(commit.root.high_water))  # type: ignore[arg-type]
    await writer.append(ticket(0))
    assert ends == [1]
    with pytest.raises(CommitRejected):
        await writer.append([prepare(event(Invocation.new("nobody"), requested()))])
    assert ends == [1, 1]
    await writer.aclose()
    put(gated.store, event(Invocation.new("later"), opened()))
