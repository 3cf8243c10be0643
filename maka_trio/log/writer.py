"""Who calls the store: one thread with a queue, or nobody (inline). Knows trio and threads, and no table.

The thread takes all that is queued into one transaction, so that many producers share one sync of the disk, and a
lone one waits for nothing but its own. A submitted append is never taken back: its waiter cannot be cancelled, and if
nobody waits any more it is written all the same.

To wake the other thread takes longer than most of what either does, so it is done seldom and early. What the tasks of
one pass of trio's loop submit is handed over when the pass is done, and so does not have to win the interpreter from
those tasks; but a producer who was alone the last time is taken to be so again, and its append is handed over at once.
Trio is woken when the disk has answered, while the thread still notes what follows from that; it looks before each
pass of its loop, and is woken once more if it looked too early.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs
import outcome
import trio

from maka_trio import limits
from maka_trio.errors import CommitRejected, CommitUnknown, MakaError
from maka_trio.log.bell import Bell
from maka_trio.log.commit import Commit, Result, Ticket
from maka_trio.log.store import Store
from maka_trio.records import define

T = TypeVar("T")

_Answer: TypeAlias = outcome.Value[Any] | outcome.Error

Publish: TypeAlias = Callable[[Commit], object]
"""Told of each commit, in the trio thread, before those who wait for it. Must not raise."""


class Committer(Protocol):
    """How the log writes."""

    async def append(self, ticket: Ticket) -> list[int]:
        """Write one ticket and return its sequences. Not cancellable: what was submitted is written."""
        ...

    async def call(self, work: Callable[[Store], T]) -> T:
        """Run some other work on the store, in turn with the appends. Not cancellable."""
        ...

    async def aclose(self) -> None:
        """Finish all that was submitted. The caller submits nothing more."""
        ...


def _sequences(result: Result) -> list[int]:
    if isinstance(result, MakaError):
        raise result
    return result


def _answer(result: Result) -> _Answer:
    return outcome.Error(result) if isinstance(result, MakaError) else outcome.Value(result)


class InlineCommitter:
    """Writes in the trio thread itself, for logs in memory and for tests that need every step to be the same."""

    def __init__(self, store: Store, publish: Publish) -> None:
        self._store = store
        self._publish = publish

    async def append(self, ticket: Ticket) -> list[int]:
        """See `Committer.append`."""
        commit = self._store.write([ticket])
        self._publish(commit)
        self._store.make_room()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return _sequences(commit.results[0])

    async def call(self, work: Callable[[Store], T]) -> T:
        """See `Committer.call`."""
        result = work(self._store)
        if isinstance(result, Commit):
            self._publish(result)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return result

    async def aclose(self) -> None:
        """See `Committer.aclose`."""
        await trio.lowlevel.checkpoint()


@define(eq=False)
class _Lot:
    """Appends that share a transaction, each with the task that waits for it; or one piece of other work."""

    tasks: list[trio.lowlevel.Task] = attrs.field(factory=list)
    tickets: list[Ticket] = attrs.field(factory=list)
    events: int = 0
    size: int = 0
    work: Callable[[Store], Any] | None = None

    def is_full(self) -> bool:
        """Whether the next append belongs into the next transaction."""
        return self.events >= limits.BATCH_EVENTS or self.size >= limits.BATCH_BYTES or self.work is not None

    def takes(self, other: _Lot) -> bool:
        """Whether all of another lot, too, is within the bounds of one transaction."""
        events, size = self.events + other.events, self.size + other.size
        fits = events <= limits.BATCH_EVENTS and size <= limits.BATCH_BYTES
        return fits and self.work is None and other.work is None

    def add(self, other: _Lot) -> None:
        """Take all of another lot."""
        self.tasks += other.tasks
        self.tickets += other.tickets
        self.events += other.events
        self.size += other.size


def _keep_waiting(_: object) -> trio.lowlevel.Abort:
    """The disk answers by itself, so a cancel waits for it and is delivered at the next checkpoint."""
    return trio.lowlevel.Abort.FAILED


class _AroundEachWait(trio.abc.Instrument):
    """Hands over when all tasks that could run have run, and takes answers in right before the next ones run.

    A task whose answer came while trio waited then runs in the very next pass, not in the one after.
    """

    def __init__(self, hand_over: Callable[[], object], take_in: Callable[[], object]) -> None:
        self._hand_over = hand_over
        self._take_in = take_in

    def before_io_wait(self, timeout: float) -> None:
        """The pass is done."""
        self._hand_over()

    def after_io_wait(self, timeout: float) -> None:
        """The next one begins."""
        self._take_in()


class WriterThread:
    """Writes in a thread of its own.

    Made and used in one trio run; `publish` is called there too.
    """

    def __init__(self, store: Store, publish: Publish) -> None:
        self._store = store
        self._publish = publish
        self._queue: queue.SimpleQueue[_Lot | None] = queue.SimpleQueue()
        self._answers: deque[Callable[[], object]] = deque()
        self._submitted: list[_Lot] = []
        self._waiting = 0
        self._is_lone = False
        self._is_rung = False
        self._has_looked = False
        self._left_over: _Lot | None = None
        self._unchecked = False
        self._death: str | None = None
        self._stopped = trio.Event()
        self._bell = Bell(self._take_in)
        # A daemon: if the trio run ends without closing the log, a commit in progress must not hold the process.
        self._thread = threading.Thread(target=self._run, name="maka_trio log writer", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._bell.close()
            raise
        self._pass = _AroundEachWait(self._hand_over, self._take_in)
        trio.lowlevel.add_instrument(self._pass)

    # --- in the trio thread -------------------------------------------------------------------------------

    async def append(self, ticket: Ticket) -> list[int]:
        """See `Committer.append`."""
        self._admit()
        lot = self._submitted[-1] if self._submitted else None
        if lot is None or lot.is_full():
            lot = _Lot()
            self._submitted.append(lot)
        lot.tasks.append(trio.lowlevel.current_task())
        lot.tickets.append(ticket)
        lot.events += len(ticket)
        lot.size += ticket[0].size if len(ticket) == 1 else sum(write.size for write in ticket)
        if self._is_lone and self._waiting == 1:
            self._hand_over()
        sequences: list[int] = await trio.lowlevel.wait_task_rescheduled(_keep_waiting)
        return sequences

    async def call(self, work: Callable[[Store], T]) -> T:
        """See `Committer.call`."""
        self._admit()
        self._submitted.append(_Lot([trio.lowlevel.current_task()], work=work))
        result: T = await trio.lowlevel.wait_task_rescheduled(_keep_waiting)
        return result

    def _admit(self) -> None:
        if self._death is not None:
            raise CommitRejected(f"the log's writer has failed: {self._death}", reason="log_failed")
        if self._waiting >= limits.QUEUED_WRITES:
            raise CommitRejected(f"{self._waiting} appends are waiting for the disk already", reason="overloaded")
        self._waiting += 1

    def _hand_over(self) -> None:
        if self._submitted:
            for lot in self._submitted:
                self._queue.put(lot)
            self._submitted.clear()

    async def aclose(self) -> None:
        """See `Committer.aclose`."""
        trio.lowlevel.remove_instrument(self._pass)
        self._hand_over()
        if self._death is None:
            self._queue.put(None)
        with trio.CancelScope(shield=True):  # ends when the disk has answered what was submitted
            await self._stopped.wait()
        self._thread.join()  # it has nothing left to do but return
        self._bell.close()

    def _take_in(self) -> None:
        self._has_looked = True  # before it looks, as `_tell` adds before it asks
        # Dropped when done: trio goes on without an instrument that failed, and the bell then fails once more, aloud.
        while self._answers:
            self._answers[0]()
            self._answers.popleft()

    def _settle(self, lot: _Lot, answers: Sequence[_Answer], commit: Commit | None) -> None:
        if commit is not None:
            self._publish(commit)
        self._waiting -= len(answers)
        self._is_lone = len(answers) == 1
        for task, answer in zip(lot.tasks, answers, strict=True):
            trio.lowlevel.reschedule(task, answer)

    def _bury(self, death: str, lot: _Lot | None) -> None:
        """The thread is gone: answer those it had in hand, those who wait, and (in `_admit`) all who come later."""
        self._death = death
        if lot is not None:
            unknown = [outcome.Error(CommitUnknown(f"the log's writer failed: {death}")) for _ in lot.tasks]
            self._settle(lot, unknown, None)
        self._hand_over()
        for rest in self._queued():
            refused = [
                outcome.Error(CommitRejected(f"the log's writer has failed: {death}", reason="log_failed"))
                for _ in rest.tasks
            ]
            self._settle(rest, refused, None)
        self._stopped.set()

    def _queued(self) -> Iterator[_Lot]:
        """What the thread was handed and did not begin."""
        if self._left_over is not None:
            yield self._left_over
        while not self._queue.empty():
            lot = self._queue.get()
            if lot is not None:
                yield lot

    # --- in the writer thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        lot: _Lot | None = None
        try:
            lot = self._take()
            while lot is not None:
                self._perform(lot)
                lot = None  # it has its answer
                self._store.make_room()  # while whoever waited wakes
                lot = self._take()
        except BaseException as error:  # noqa: ASYNC103 - a thread: its error goes to everybody who waits
            self._tell(partial(self._bury, repr(error), lot))
        else:
            self._tell(self._stopped.set)

    def _take(self) -> _Lot | None:
        """The next lot with everything that is queued behind it, within the bounds of one transaction; None to end."""
        lot, self._left_over = self._left_over or self._wait_for_lot(), None
        while lot is not None and not self._queue.empty():
            more = self._queue.get()
            if more is None:
                self._queue.put(None)  # the end; nothing comes after it
                break
            if not lot.takes(more):
                self._left_over = more
                break
            lot.add(more)
        return lot

    def _wait_for_lot(self) -> _Lot | None:
        """The next lot. The first moment without one is used to take the write-ahead log in."""
        if self._unchecked:
            try:
                return self._queue.get(timeout=limits.IDLE_CHECKPOINT_SECONDS)
            except queue.Empty:
                self._unchecked = False
                self._store.checkpoint()
        return self._queue.get()

    def _perform(self, lot: _Lot) -> None:
        if lot.work is not None:
            answer = outcome.capture(lot.work, self._store)
            result = answer.value if isinstance(answer, outcome.Value) else None
            self._tell(partial(self._settle, lot, [answer], result if isinstance(result, Commit) else None))
            return
        self._unchecked = True
        commit = self._store.write(lot.tickets, self._ring_ahead)
        self._tell(partial(self._settle, lot, [_answer(result) for result in commit.results], commit))

    def _ring_ahead(self) -> None:
        """Wake trio for an answer that will be there by the time that it is awake."""
        self._is_rung, self._has_looked = True, False
        self._bell.ring()

    def _tell(self, answer: Callable[[], object]) -> None:
        self._answers.append(answer)
        if not self._is_rung or self._has_looked:  # it may have looked when there was nothing yet
            self._bell.ring()
        self._is_rung = False
