"""A question, who is asked, and what a good answer is."""

from __future__ import annotations

import statistics

import attrs


@attrs.frozen
class Contender:
    """One side of a question: `python -m MODULE ARGUMENTS... URL`, in an environment of its own if it is a peer.

    Contenders of a module that starts in `benchmarks.peers` import the peer and nothing of ours. `path` is another
    path of the provider than the question's.
    """

    label: str
    module: str
    arguments: tuple[str, ...] = ()
    peer: str | None = None
    path: str | None = None


@attrs.frozen
class Aim:
    """A ratio of two contenders' figures, or one figure as it is where `against` is None, and what it should be.

    `at_most` says that less is better. `goal` is ambitious; short of `must`, something is wrong.
    """

    contender: str
    against: str | None
    must: float | None
    goal: float | None
    figure: str = "rate"
    at_most: bool = False

    def verdict(self, value: float) -> str:
        """`goal`, `must`, or what is missed."""
        if self.goal is not None and self._holds(value, self.goal):
            return "goal"
        if self.must is not None and not self._holds(value, self.must):
            return "SHORT"
        if self.must is not None:
            return "must"
        return "-" if self.goal is None else "short of the goal"

    def _holds(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound


@attrs.frozen
class Question:
    """What is asked of all contenders, under which provider path, and which ratios count."""

    name: str
    asks: str
    contenders: tuple[Contender, ...]
    aims: tuple[Aim, ...] = ()
    path: str = ""


Sample = dict[str, float]


@attrs.frozen
class Answer:
    """The samples of each contender, one a round. Contenders that were not asked are missing."""

    question: Question
    samples: dict[str, list[Sample]]

    def median(self, label: str, figure: str) -> float | None:
        """The median of a figure of one contender."""
        values = [sample[figure] for sample in self.samples[label] if figure in sample]
        return statistics.median(values) if values else None

    def figures(self) -> list[str]:
        """All figures, in the order in which contenders give them."""
        return list(dict.fromkeys(name for found in self.samples.values() for name in found[0]))

    def ratio(self, aim: Aim) -> float | None:
        """The median of the ratios taken inside each round, so that a slow drift of the machine falls out."""
        mine = self.samples.get(aim.contender)
        if mine is None or (aim.against is not None and aim.against not in self.samples):
            return None
        if aim.against is None:
            return self.median(aim.contender, aim.figure)
        pairs = zip(mine, self.samples[aim.against], strict=True)
        return statistics.median(sample[aim.figure] / other[aim.figure] for sample, other in pairs)
