"""What makes a run again: its seed, its schedule and its disturbances, as one value and as one word.

The word goes on a command line: `3/cancel@17:caller` is the cancel of `caller` at step 17 under seed 3, and
`0[0,1]/crash_before@2:commit` a crash before the second commit in a schedule of decisions.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.records import frozen
from maka_trio.testing.orders import Decisions
from maka_trio.testing.trial import Shot

_HEAD = re.compile(r"(\d+)(?:\[([\d,]*)\])?")
_SHOT = re.compile(r"(\w+)@(\d+):(\S+)")


@frozen
class Replay:
    """One run of a scenario.

    Attributes:
        seed: its seed.
        shots: its disturbances, in order.
        decisions: its schedule, if it was not drawn from the seed.
    """

    seed: int = 0
    shots: tuple[Shot, ...] = ()
    decisions: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, word: str) -> Replay:
        """Read the word.

        Raises:
            InvalidInput: it is none.
        """
        first, *rest = word.split("/")
        head, shots = _HEAD.fullmatch(first), [_SHOT.fullmatch(part) for part in rest]
        if head is None or None in shots:
            raise InvalidInput(f"{bounds.excerpt(word)} is no replay: it looks like 3/cancel@17:caller")
        decisions = None if head[2] is None else tuple(int(number) for number in head[2].split(",") if number)
        made = tuple(Shot(int(shot[2]), unquote(shot[3]), shot[1]) for shot in shots if shot is not None)
        return cls(int(head[1]), made, decisions)

    def __str__(self) -> str:
        order = "" if self.decisions is None else f"[{','.join(map(str, self.decisions))}]"
        shots = (f"/{shot.how}@{shot.step}:{quote(shot.target, safe='')}" for shot in self.shots)
        return f"{self.seed}{order}{''.join(shots)}"

    def order(self) -> Decisions | None:
        """A fresh order for the run; None where the seed decides."""
        return None if self.decisions is None else Decisions(self.decisions)
