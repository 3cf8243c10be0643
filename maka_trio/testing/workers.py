"""Explores in several processes at once: each takes its share of the runs, and the shares are added up.

The processes are forked, so that a scenario may be any function. Nothing here knows what a run is.
"""

from __future__ import annotations

import math
import multiprocessing.connection
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from time import perf_counter
from typing import TypeAlias

from maka_trio.errors import InvalidInput
from maka_trio.forks import Fork
from maka_trio.shares import Share
from maka_trio.testing.exploration import Exploration, Ledger, Runs, Watch

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


class _Worker(Fork):
    """A process with a share."""

    def __init__(self, plan: Plan, share: Share, ends: float) -> None:
        super().__init__(_work, plan, share, ends)
        self.progress = (0, 0)

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
