"""Who calls the store: one thread with a queue, or nobody (inline). Knows trio and threads, and no table.

The thread takes all that is queued into one transaction, so that many producers share one sync of the disk, and a
lone one waits for nothing but its own. Neither thread wakes the other more than once for each transaction: what the
tasks of one pass of trio's loop submit is handed over when the pass is done, and so does not have to win the
interpreter from those tasks. A submitted append is never taken back: its waiter cannot be cancelled, and if nobody
waits any more it is written all the same.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import outcome
import trio

from maka_trio import limits
from maka_trio.errors import CommitError, CommitRejected, CommitUnknown, MakaError
from maka_trio.log.commit import Commit, Result, Ticket
from maka_trio.log.store import Store
from maka_trio.records import define

T = TypeVar("T")

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
    return result.sequences


def _answer(result: Result) -> outcome.Value[list[int]] | outcome.Error:
    return outcome.Error(result) if isinstance(result, MakaError) else outcome.Value(result.sequences)


class InlineCommitter:
    """Writes in the trio thread itself, for logs in memory and for tests that need every step to be the same."""

    def __init__(self, store: Store, publish: Publish) -> None:
        self._store = store
        self._publish = publish

    async def append(self, ticket: Ticket) -> list[int]:
        """See `Committer.append`."""
        commit = self._store.write([ticket])
        self._publish(commit)
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
class _Append:
    task: trio.lowlevel.Task
    ticket: Ticket
    size: int


@define(eq=False)
class _Call:
    task: trio.lowlevel.Task
    work: Callable[[Store], Any]


_Job: TypeAlias = _Append | _Call
_Answer: TypeAlias = outcome.Value[Any] | outcome.Error


def _keep_waiting(_: object) -> trio.lowlevel.Abort:
    """The disk answers by itself, so a cancel waits for it and is delivered at the next checkpoint."""
    return trio.lowlevel.Abort.FAILED


class _AfterEachPass(trio.abc.Instrument):
    """Calls a function whenever all tasks that could run have run."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def before_io_wait(self, timeout: float) -> None:
        """The pass is done."""
        self._act()


class WriterThread:
    """Writes in a thread of its own.

    Made and used in one trio run; `publish` is called there too.
    """

    def __init__(self, store: Store, publish: Publish) -> None:
        self._store = store
        self._publish = publish
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._submitted: list[_Job] = []
        self._waiting = 0
        self._unchecked = False
        self._death: str | None = None
        self._stopped = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        # A daemon: if the trio run ends without closing the log, a commit in progress must not hold the process.
        self._thread = threading.Thread(target=self._run, name="maka_trio log writer", daemon=True)
        self._thread.start()
        self._pass = _AfterEachPass(self._hand_over)
        trio.lowlevel.add_instrument(self._pass)

    # --- in the trio thread -------------------------------------------------------------------------------

    async def append(self, ticket: Ticket) -> list[int]:
        """See `Committer.append`."""
        size = ticket[0].size if len(ticket) == 1 else sum(write.size for write in ticket)
        sequences: list[int] = await self._submit(_Append(trio.lowlevel.current_task(), ticket, size))
        return sequences

    async def call(self, work: Callable[[Store], T]) -> T:
        """See `Committer.call`."""
        result: T = await self._submit(_Call(trio.lowlevel.current_task(), work))
        return result

    async def _submit(self, job: _Job) -> Any:
        if self._death is not None:
            raise CommitRejected(f"the log's writer has failed: {self._death}", reason="log_failed")
        if self._waiting >= limits.QUEUED_WRITES:
            raise CommitRejected(f"{self._waiting} appends are waiting for the disk already", reason="overloaded")
        self._waiting += 1
        self._submitted.append(job)
        return await trio.lowlevel.wait_task_rescheduled(_keep_waiting)

    def _hand_over(self) -> None:
        if self._submitted:
            for job in self._submitted:
                self._queue.put(job)
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

    def _settle(self, jobs: Sequence[_Job], answers: Sequence[_Answer], commit: Commit | None) -> None:
        if commit is not None:
            self._publish(commit)
        self._waiting -= len(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            trio.lowlevel.reschedule(job.task, answer)

    def _bury(self, death: str, jobs: Sequence[_Job]) -> None:
        """The thread is gone: answer those it had in hand, those who wait, and (in `_submit`) all who come later."""
        self._death = death
        unknown = [outcome.Error(CommitUnknown(f"the log's writer failed: {death}")) for _ in jobs]
        self._settle(jobs, unknown, None)
        self._hand_over()
        while not self._queue.empty():
            job = self._queue.get_nowait()
            if job is not None:
                error: CommitError = CommitRejected(f"the log's writer has failed: {death}", reason="log_failed")
                self._settle([job], [outcome.Error(error)], None)
        self._stopped.set()

    # --- in the writer thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        jobs: list[_Job] = []
        try:
            more = True
            while more:
                jobs, more = self._take()
                for lot in _lots(jobs):
                    self._perform(lot)
                    jobs = jobs[len(lot) :]
        except BaseException as error:  # noqa: ASYNC103 - a thread: its error goes to everybody who waits
            self._tell(self._bury, repr(error), jobs)
        else:
            self._tell(self._stopped.set)

    def _take(self) -> tuple[list[_Job], bool]:
        """Everything that is queued, within the bounds of one transaction, and whether more may come."""
        jobs: list[_Job] = []
        events = size = 0
        job = self._wait_for_job()
        while job is not None:
            jobs.append(job)
            if isinstance(job, _Append):
                events += len(job.ticket)
                size += job.size
            if events >= limits.BATCH_EVENTS or size >= limits.BATCH_BYTES:
                return jobs, True
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return jobs, True
        return jobs, False

    def _wait_for_job(self) -> _Job | None:
        """The next job. The first moment without one is used to take the write-ahead log in."""
        if self._unchecked:
            with contextlib.suppress(queue.Empty):
                return self._queue.get(timeout=limits.IDLE_CHECKPOINT_SECONDS)
            self._unchecked = False
            self._store.checkpoint()
        return self._queue.get()

    def _perform(self, lot: Sequence[_Job]) -> None:
        first = lot[0]
        if isinstance(first, _Call):
            answer = outcome.capture(first.work, self._store)
            result = answer.value if isinstance(answer, outcome.Value) else None
            self._tell(self._settle, lot, [answer], result if isinstance(result, Commit) else None)
            return
        self._unchecked = True
        commit = self._store.write([job.ticket for job in lot if isinstance(job, _Append)])
        self._tell(self._settle, lot, [_answer(result) for result in commit.results], commit)

    def _tell(self, function: Callable[..., object], *args: object) -> None:
        # After the trio run nobody is left to tell; what was submitted is written all the same.
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function, *args)


def _lots(jobs: Sequence[_Job]) -> list[Sequence[_Job]]:
    """Appends that stand together share a transaction; other work stands alone."""
    lots: list[list[_Job]] = []
    for job in jobs:
        if lots and isinstance(job, _Append) and isinstance(lots[-1][0], _Append):
            lots[-1].append(job)
        else:
            lots.append([job])
    return list(lots)
