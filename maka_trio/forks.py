"""A forked process that does some work for this one. What it does, and what it says of it, is somebody else's."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any, Self


class Fork:
    """A forked process, for a block: it dies with it, and ends by itself where nobody listens to it any more.

    Args:
        work: is given one end of a pipe, to say something on, and what follows here. Since the process is forked, it
            may be any function. Ctrl-C in it is for the parent to speak of.
        arguments: what follows.

    Attributes:
        answers: the other end.
    """

    def __init__(self, work: Callable[..., object], *arguments: Any) -> None:
        self.answers, self._theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        self._process: ForkProcess = context.Process(target=_run, args=(self.answers, self._theirs, work, arguments))

    def __enter__(self) -> Self:
        """Start it. Raises OSError where the system has no process for it."""
        with warnings.catch_warnings():
            # A thread that is asleep in the parent, such as an idle one of trio's, is no danger to a child
            # that runs nothing of it.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                self._process.start()
            except OSError:
                self.answers.close()
                raise
            finally:
                self._theirs.close()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.answers.close()


def _run(parents: Connection, answers: Connection, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    parents.close()  # else there would always be somebody to listen
    with suppress(BrokenPipeError, KeyboardInterrupt):
        work(answers, *arguments)
