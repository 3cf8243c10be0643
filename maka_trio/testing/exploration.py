"""What came of trying a scenario in many ways: counts, each run, and every violation with the way to see it again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeAlias

import attrs

from maka_trio.records import frozen
from maka_trio.testing.replay import Replay
from maka_trio.testing.trial import Shot

Watch: TypeAlias = Callable[[int, int], None]
"""Told now and then how many runs were made and how many violations were found."""


KEPT_ATTEMPTS = 50_000
"""Runs that are remembered one by one though they broke nothing; beyond, they are only counted."""


@frozen
class Attempt:
    """One run, for a report.

    Attributes:
        replay: what it was.
        shot_at: where each of its disturbances came.
        violations: how much it broke.
    """

    replay: Replay
    shot_at: tuple[str, ...]
    violations: int


@frozen(order=True)
class TrialViolation:
    """What one run broke. The smallest has the fewest shots, then the smallest seed, then the earliest shot.

    Attributes:
        shot_count: how many disturbances the run had.
        seed: its seed.
        shots: the disturbances.
        words: what is wrong.
        shot_at: where each disturbance came.
        replay: the call that makes the run again.
        token: the same for `maka-trio explore --replay`.
    """

    shot_count: int
    seed: int
    shots: tuple[Shot, ...]
    words: str = attrs.field(order=False)
    shot_at: tuple[str, ...] = attrs.field(order=False)
    replay: str = attrs.field(order=False)
    token: str = attrs.field(order=False, default="")

    def __str__(self) -> str:
        moments = [
            f"{shot.how} of {shot.target!r} at step {shot.step}: {place}"
            for shot, place in zip(self.shots, self.shot_at, strict=False)
        ]
        return f"{self.words}\n  seed {self.seed}, {'; '.join(moments) or 'undisturbed'}\n  {self.replay}"


@frozen
class Exploration:
    """What an exploration covered and found.

    Attributes:
        runs: runs made.
        points: how many disturbances came at each place: a source line, or a commit.
        traces: distinct runs among them.
        violations: smallest first.
        seconds: how long it took, by the real clock.
        complete: everything chosen was tried; False when a budget ended it.
        attempts: the runs, for a report: the first `KEPT_ATTEMPTS`, and all that broke something.
    """

    runs: int
    points: Counter[str]
    traces: int
    violations: tuple[TrialViolation, ...]
    seconds: float
    complete: bool
    attempts: tuple[Attempt, ...] = attrs.field(repr=False, default=())

    @property
    def smallest(self) -> TrialViolation | None:
        """The smallest violation, or None."""
        return self.violations[0] if self.violations else None

    def violating_points(self) -> Counter[str]:
        """How often a disturbance at each place broke something."""
        return Counter(place for violation in self.violations for place in violation.shot_at[-1:])

    def raise_for_violations(self) -> None:
        """Raise AssertionError with the smallest violation, if there is one."""
        if self.violations:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        end = "" if self.complete else ", stopped by its budget"
        head = (
            f"{self.runs} runs, {self.points.total()} disturbances at {len(self.points)} places, "
            f"{self.traces} distinct traces, {len(self.violations)} violations{end}"
        )
        return head if self.smallest is None else f"{head}\nsmallest: {self.smallest}"


@frozen
class Entry:
    """One run as it is entered: a number that equal runs share, what it was, and what it broke."""

    trace: int
    attempt: Attempt
    violations: Sequence[TrialViolation]


def entry(trace: int, replay: Replay, call: str, words: Iterable[str], shot_at: tuple[str, ...]) -> Entry:
    """Enter one run that broke what the words say."""
    violations = [
        TrialViolation(len(replay.shots), replay.seed, replay.shots, text, shot_at, call, str(replay)) for text in words
    ]
    return Entry(trace, Attempt(replay, shot_at, len(violations)), violations)


class Ledger:
    """Adds up the runs of one exploration, or of a share of it.

    Args:
        budget: seconds of real time after which it is to stop.
        watch: told of the progress, a few times a second.
    """

    def __init__(self, budget: float | None = None, watch: Watch | None = None) -> None:
        self._began = time.perf_counter()
        self._told = self._began
        self._budget = budget
        self._watch = watch
        self.complete = True
        self.runs = 0
        self.points: Counter[str] = Counter()
        self.attempts: list[Attempt] = []
        self.traces: set[int] = set()
        self.violations: list[TrialViolation] = []

    def take(self, entry: Entry) -> bool:
        """Enter one run; say whether there is time for another."""
        self.runs += 1
        self.points.update(entry.attempt.shot_at)
        if entry.violations or len(self.attempts) < KEPT_ATTEMPTS:
            self.attempts.append(entry.attempt)
        self.traces.add(entry.trace)
        self.violations += entry.violations
        now = time.perf_counter()
        if self._watch is not None and now - self._told > _TELL_EVERY:
            self._told = now
            self._watch(self.runs, len(self.violations))
        return self._budget is None or now - self._began < self._budget

    def fill(self, entries: Iterable[Entry]) -> Self:
        """Enter run after run, until the end or the end of the budget."""
        self.complete = all(map(self.take, entries))
        return self

    def add(self, other: Ledger) -> None:
        """Take over what another ledger, of another share, holds."""
        self.runs += other.runs
        self.points += other.points
        self.attempts += other.attempts
        self.traces |= other.traces
        self.violations += other.violations
        self.complete = self.complete and other.complete

    def close(self) -> Exploration:
        """Add up."""
        if self._watch is not None:
            self._watch(self.runs, len(self.violations))
        return Exploration(
            self.runs,
            self.points,
            len(self.traces),
            tuple(sorted(self.violations)),
            time.perf_counter() - self._began,
            self.complete,
            tuple(self.attempts),
        )

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_watch": None}


_TELL_EVERY = 0.2
