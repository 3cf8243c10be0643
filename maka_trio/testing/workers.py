"""Explores in several processes at once: each takes its share of the runs, and the shares are added up.

The processes are forked, so that a scenario may be any function. Nothing here knows what a run is.
"""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.connection
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from time import perf_counter
from typing import TypeAlias, TypeVar

from maka_trio.errors import InvalidInput
from maka_trio.records import frozen
from maka_trio.testing.exploration import Exploration, Ledger, Runs, Watch

T = TypeVar("T")


@frozen
class Share:
    """Which of the runs are whose: every `of`-th, from number `index`."""

    index: int = 0
    of: int = 1

    @property
    def first(self) -> bool:
        """Whether what every share has to do anyway is entered by this one."""
        return self.index == 0

    def has(self, number: int) -> bool:
        """Whether the item of this number is of this share."""
        return number % self.of == self.index

    def mine(self, items: Sequence[T]) -> Sequence[T]:
        """The items of this share."""
        return items[self.index :: self.of]


Plan: TypeAlias = Callable[[Share, float], Runs]
"""The runs of a share, and when they are to stop, by the real `perf_counter`."""


def explore_shares(
    plan: Plan, *, jobs: int = 1, budget: float | None = None, watch: Watch | None = None
) -> Exploration:
    """Make all runs, in so many processes.

    Raises:
        InvalidInput: `jobs` is no positive number.
    """
    if type(jobs) is not int or jobs < 1:
        raise InvalidInput(f"jobs={jobs!r} must be a positive integer")
    ends = math.inf if budget is None else perf_counter() + budget
    if jobs == 1:
        return Ledger(ends, watch).fill(plan(Share(), ends)).close()
    total = Ledger(watch=watch)
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker(plan, Share(index, jobs), ends)) for index in range(jobs)]
        for ledger in _results(workers, watch):
            total.add(ledger)
    return total.close()


class _Worker:
    """A process with a share. It dies with the block."""

    def __init__(self, plan: Plan, share: Share, ends: float) -> None:
        self.answers, self._theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        self._process: ForkProcess = context.Process(target=_work, args=(self._theirs, plan, share, ends))
        self.progress = (0, 0)

    def __enter__(self) -> _Worker:
        with warnings.catch_warnings():
            # A thread that is asleep in the parent, such as an idle one of trio's, is no danger to a child
            # that runs nothing of it.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        self._theirs.close()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self.answers.close()

    def receive(self) -> Ledger | None:
        """Its next answer: a ledger, or nothing but progress."""
        try:
            answer: Ledger | tuple[int, int] | str = self.answers.recv()
        except EOFError:
            raise RuntimeError("a process of the exploration died") from None
        if isinstance(answer, str):
            raise RuntimeError(f"a process of the exploration failed: {answer}")
        if isinstance(answer, Ledger):
            return answer
        self.progress = answer
        return None


def _work(answers: Connection, plan: Plan, share: Share, ends: float) -> None:
    try:
        answers.send(Ledger(ends, lambda *progress: answers.send(progress)).fill(plan(share, ends)))
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        pass  # it reaches every process of the terminal, and the parent says what is to be said


def _results(workers: list[_Worker], watch: Watch | None) -> Iterator[Ledger]:
    waiting = {worker.answers: worker for worker in workers}
    while waiting:
        for answers in multiprocessing.connection.wait(list(waiting)):
            assert isinstance(answers, Connection)
            ledger = waiting[answers].receive()
            if ledger is not None:
                del waiting[answers]
                yield ledger
        if watch is not None:
            watch(*(sum(counts) for counts in zip(*(worker.progress for worker in workers), strict=True)))
