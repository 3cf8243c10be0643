"""Where a run may be made to fail: each such point as it comes, and the failure of one that was chosen.

Knows what can go wrong at a socket, and how it is then broken; what a scenario marks by itself it learns from there.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from maka_trio.records import frozen
from maka_trio.testing.places import where_called_from
from maka_trio.testing.trial import Shot

SOCKET_FAULTS: Final[Mapping[str, Mapping[str, int | None]]] = {
    "connect": {"refused": errno.ECONNREFUSED, "unreachable": errno.EHOSTUNREACH, "timed_out": errno.ETIMEDOUT},
    "read": {"reset": errno.ECONNRESET, "timed_out": errno.ETIMEDOUT, "end": None, "silence": None},
    "write": {"reset": errno.ECONNRESET, "broken_pipe": errno.EPIPE, "timed_out": errno.ETIMEDOUT},
}
"""What can go wrong at each operation of a socket, with the `errno` it is told by.

`end` is an end of the stream before its time; `silence` a peer that says nothing more and does not close.
"""


@frozen
class FaultPoint:
    """One moment at which something could have failed.

    Attributes:
        kind: `connect`, `read`, `write` or `raise`.
        number: which of its kind, from 1.
        where: the place in words.
        faults: the ways in which it could have failed, by name.
    """

    kind: str
    number: int
    where: str
    faults: tuple[str, ...]


class FaultPoints:
    """The fault points of one run.

    Args:
        chosen: the point that fails and how, as a shot whose target is the kind; None for none.
        on_fault: called when it does.
        tell: keep `came`; naming a point costs more than passing it.
    """

    def __init__(self, chosen: Shot | None, on_fault: Callable[[], None], *, tell: bool = False) -> None:
        self._chosen = chosen
        self._on_fault = on_fault
        self._tell = tell
        self._passed: Counter[str] = Counter()
        self.came: list[FaultPoint] = []
        self.failed_at: str | None = None

    def pass_by(self, kind: str, faults: Collection[str], where: Callable[[], str]) -> str | None:
        """Count a point; the name of the fault that it is to have, or None."""
        self._passed[kind] += 1
        number = self._passed[kind]
        if self._tell:
            self.came.append(FaultPoint(kind, number, f"{kind} at {where()}", tuple(faults)))
        chosen = self._chosen
        if chosen is None or (chosen.target, chosen.step) != (kind, number) or chosen.how not in faults:
            return None
        self.failed_at = f"{kind} at {where()}"
        self._on_fault()
        return chosen.how

    def at_operation(self, operation: str) -> tuple[str, OSError | None] | None:
        """The same for an operation of a socket: the name of its fault, and what it raises, if anything."""
        faults = SOCKET_FAULTS[operation]
        name = self.pass_by(operation, faults, where_called_from)
        if name is None:
            return None
        number = faults[name]
        return name, None if number is None else OSError(number, f"an injected fault: {os.strerror(number)}")
