"""A long log verified by several processes at once, as far as to say that nothing at all is wrong with it.

Each looks at the sessions of its share. Where one of them finds anything, or does not come to its end, a single pass
has to say what there is: theirs would come in other words and in no order.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from maka_trio.cli.log_file import LogFile
from maka_trio.cli.processors import processors
from maka_trio.forks import Fork
from maka_trio.log.verification import Verification
from maka_trio.records import frozen
from maka_trio.shares import Share

LONG: Final = 50_000
"""Events from which on a log is worth more than one process."""

MOST: Final = 4
"""Processes at most: each reads all rows of the log, to look closely at its own."""

Watch = Callable[[int], object]
"""Is told up to which sequence a process has looked."""


@frozen
class Sound:
    """Events with which nothing is wrong, how many of them have lost their bodies, and where the log ended."""

    events: int
    deleted: int
    high_water: int | None


class _Unsure(Exception):
    """A share has something wrong with it, or was not looked at to its end."""


def processes_for(file: LogFile, high_water: int | None) -> int:
    """How many processes should look at a log. One where it is short, or somebody may be writing to it."""
    if high_water is None or high_water < LONG or not file.is_at_rest() or not hasattr(os, "fork"):
        return 1
    return min(processors(), MOST)


def verify_together(file: LogFile, processes: int, watch: Watch) -> Sound | None:
    """Verify a log in so many processes, this one among them. None where a single pass has to."""
    with suppress(_Unsure, OSError), _left_alone(), ExitStack() as stack:  # OSError: there is no process to be had
        others = [stack.enter_context(_Other(file.path, Share(at, processes))) for at in range(1, processes)]

        def look_round(position: int) -> None:
            watch(position)
            for other in others:
                other.look_after()

        found = [_look(file, Share(0, processes), look_round), *(other.result() for other in others)]
        ends = {sound.high_water for sound in found} | {file.head().high_water}
        if len(ends) == 1:
            return Sound(sum(one.events for one in found), sum(one.deleted for one in found), *ends)
    return None


@contextmanager
def _left_alone() -> Generator[None, None, None]:
    """Let no collector look at what is there already: each process would have a copy of all that it looks at."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _look(file: LogFile, share: Share, watch: Watch) -> Sound:
    """Look at a share. Raises _Unsure at the first thing that is wrong."""
    check = Verification(file.read, file.path, share=share)
    for broken in check.pages():
        if broken:
            raise _Unsure
        watch(check.looked_at)
    for _ in check.ends():
        raise _Unsure
    return Sound(check.events, check.deleted, check.high_water)


class _Other(Fork):
    """A process with a share."""

    def __init__(self, path: Path, share: Share) -> None:
        super().__init__(_work, path, share)
        self._sound: Sound | None = None

    def look_after(self) -> None:
        """Take what it has said. Raises _Unsure."""
        while self._sound is None and self.answers.poll():
            self._receive()

    def result(self) -> Sound:
        """Wait for its end. Raises _Unsure."""
        while self._sound is None:
            self._receive()
        return self._sound

    def _receive(self) -> None:
        try:
            answer: Sound | int | None = self.answers.recv()
        except EOFError:
            raise _Unsure from None  # it died
        if answer is None:
            raise _Unsure
        if isinstance(answer, Sound):
            self._sound = answer


def _work(answers: Connection, path: Path, share: Share) -> None:
    try:
        answers.send(_look(LogFile(path), share, answers.send))
    except Exception:  # whatever it is, a single pass will meet it again
        answers.send(None)
