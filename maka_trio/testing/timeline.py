"""An exploration as a timeline: one row a moment at which something was done to the scenario, one column a way.

Decides what a report shows, and not how.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

from maka_trio.records import frozen
from maka_trio.testing.exploration import Attempt, Exploration
from maka_trio.testing.stepper import Moment
from maka_trio.testing.trial import Shot

Cell: TypeAlias = Literal["held", "broke"]

_CANCELS = ("cancel", "deadline")


@frozen
class Section:
    """What one way of exploring found.

    Attributes:
        title: which way, in a word or two.
        exploration: what came of it.
        story: the steps of the smallest failure, where there is one and it has steps.
        again: the command that makes the smallest failure again.
    """

    title: str
    exploration: Exploration
    story: tuple[Moment, ...] = ()
    again: str = ""


@frozen
class Row:
    """A moment: its name, the place in the program, and what came of each thing done there."""

    name: str
    place: str
    cells: dict[str, Cell]

    @property
    def broke(self) -> bool:
        """Whether something broke a law there."""
        return "broke" in self.cells.values()


@frozen
class Timeline:
    """The moments of one seed, in their order.

    Attributes:
        seed: the seed of the smallest failure, or the first one.
        columns: what was done, by name.
        rows: the moments.
    """

    seed: int
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def timeline_of(exploration: Exploration) -> Timeline:
    """The timeline of the seed that is worth looking at."""
    single = [attempt for attempt in exploration.attempts if len(attempt.replay.shots) == 1]
    seed = _seed(exploration)
    rows: dict[_Key, Row] = {}
    for attempt in single:
        if attempt.replay.seed == seed:
            _enter(rows, attempt, attempt.replay.shots[0])
    columns = dict.fromkeys(column for row in rows.values() for column in row.cells)
    return Timeline(seed, tuple(columns), tuple(rows[key] for key in sorted(rows)))


def _seed(exploration: Exploration) -> int:
    if exploration.smallest is not None:
        return exploration.smallest.seed
    return exploration.attempts[0].replay.seed if exploration.attempts else 0


_Key: TypeAlias = tuple[str, int, bool, str]
"""Kind, number, whether it comes after the moment of that number as something is entered, and place."""


def _enter(rows: dict[_Key, Row], attempt: Attempt, shot: Shot) -> None:
    cancels = shot.how in _CANCELS
    kind = "step" if cancels else shot.target
    column = f"{shot.how} {shot.target}" if cancels else shot.how
    place = attempt.shot_at[0] if attempt.shot_at else "not reached"
    key = kind, shot.step, place.endswith("on entry"), place
    row = rows.setdefault(key, Row(f"{kind} {shot.step}", place, {}))
    row.cells[column] = "broke" if attempt.violations or row.cells.get(column) == "broke" else "held"


def places_of(exploration: Exploration) -> list[tuple[str, int, int]]:
    """Each place, over all seeds: how often something was done there and how often it broke something."""
    broke: Counter[str] = Counter()
    for attempt in exploration.attempts:
        if attempt.violations:
            broke.update(attempt.shot_at[-1:])
    places = [(place, count, broke[place]) for place, count in exploration.points.items()]
    return sorted(places, key=lambda entry: (-entry[2], entry[0]))
