"""What came of trying a scenario in many ways: counts, each run, and every violation with the way to see it again."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter  # the real one, also while `time` shows virtual time
from typing import Self, TypeAlias

import attrs

from maka_trio.records import frozen
from maka_trio.testing.hash_seed import fixed_hash_seed, in_words
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
        places = itertools.chain(self.shot_at, itertools.repeat("not reached"))
        moments = [
            f"{shot.how} of {shot.target!r} at step {shot.step}: {place}"
            for shot, place in zip(self.shots, places, strict=False)
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
        cuts: why not everything that was chosen was tried, in words; empty if it was.
        attempts: the runs, for a report: the first `KEPT_ATTEMPTS`, and all that broke something.
        hash_seed: the PYTHONHASHSEED of the process, which orders sets of text; None if it was drawn at random.
    """

    runs: int
    points: Counter[str]
    traces: int
    violations: tuple[TrialViolation, ...]
    seconds: float
    cuts: tuple[str, ...]
    attempts: tuple[Attempt, ...] = attrs.field(repr=False, default=())
    hash_seed: int | None = attrs.field(factory=fixed_hash_seed)

    @property
    def complete(self) -> bool:
        """Everything that was chosen was tried."""
        return not self.cuts

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
        end = "".join(f", {why}" for why in self.cuts)
        head = (
            f"{self.runs} runs, {self.points.total()} disturbances at {len(self.points)} places, "
            f"{self.traces} distinct traces, {len(self.violations)} violations{end}"
        )
        if self.smallest is None:
            return head
        return f"{head}\nsmallest: {self.smallest}\n  {in_words(self.hash_seed)}"


@frozen
class Entry:
    """One run as it is entered: a number that equal runs share, what it was, and what it broke."""

    trace: int
    attempt: Attempt
    violations: Sequence[TrialViolation]


@frozen
class Cut:
    """Something that was chosen and is not tried.

    Attributes:
        why: the reason, in words.
        violations: what a run broke before it was cut.
    """

    why: str
    violations: Sequence[TrialViolation] = ()


Runs: TypeAlias = Iterator["Entry | Cut"]


def cut_run(how_far: str, entry: Entry) -> Cut:
    """A run that was stopped when the time was up."""
    return Cut(f"{_BUDGET} {how_far}", entry.violations)


_BUDGET = "stopped by its budget"


def entry(trace: int, replay: Replay, call: str, words: Iterable[str], shot_at: tuple[str, ...]) -> Entry:
    """Enter one run that broke what the words say."""
    violations = [
        TrialViolation(len(replay.shots), replay.seed, replay.shots, text, shot_at, call, str(replay)) for text in words
    ]
    return Entry(trace, Attempt(replay, shot_at, len(violations)), violations)


class Ledger:
    """Adds up the runs of one exploration, or of a share of it.

    Args:
        ends: when it is to stop, by the real `perf_counter`.
        watch: told of the progress, a few times a second.
    """

    def __init__(self, ends: float = math.inf, watch: Watch | None = None) -> None:
        self._began = perf_counter()
        self._told = self._began
        self._ends = ends
        self._watch = watch
        self.cuts: list[str] = []
        self.runs = 0
        self.points: Counter[str] = Counter()
        self.attempts: list[Attempt] = []
        self.traces: set[int] = set()
        self.violations: list[TrialViolation] = []

    def fill(self, runs: Iterable[Entry | Cut]) -> Self:
        """Enter run after run, until the end or the end of the budget."""
        for run in runs:
            self._enter(run)
            if perf_counter() >= self._ends:
                if not any(why.startswith(_BUDGET) for why in self.cuts):
                    self.cuts.append(_BUDGET)
                break
        return self

    def _enter(self, run: Entry | Cut) -> None:
        self.violations += run.violations
        if isinstance(run, Cut):
            self.cuts.append(run.why)
            return
        self.runs += 1
        self.points.update(run.attempt.shot_at)
        if run.violations or len(self.attempts) < KEPT_ATTEMPTS:
            self.attempts.append(run.attempt)
        self.traces.add(run.trace)
        self._tell()

    def _tell(self) -> None:
        now = perf_counter()
        if self._watch is not None and now - self._told > _TELL_EVERY:
            self._told = now
            self._watch(self.runs, len(self.violations))

    def add(self, other: Ledger) -> None:
        """Take over what another ledger, of another share, holds."""
        self.runs += other.runs
        self.points += other.points
        self.attempts += other.attempts
        self.traces |= other.traces
        self.violations += other.violations
        self.cuts += [why for why in other.cuts if why not in self.cuts]

    def close(self) -> Exploration:
        """Add up."""
        if self._watch is not None:
            self._watch(self.runs, len(self.violations))
        return Exploration(
            self.runs,
            self.points,
            len(self.traces),
            tuple(sorted(self.violations)),
            perf_counter() - self._began,
            tuple(self.cuts),
            tuple(self.attempts),
        )

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_watch": None}


_TELL_EVERY = 0.2
