"""Processes that are there to be killed, forked from one that has imported what they need.

A new interpreter takes longer to start than most of what a test kills takes to run. These are processes like any other:
with threads, files and a death of their own.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

PATIENCE: Final = 120.0
"""Seconds after which a process that neither died nor ended is taken for one that hangs."""

_IMPORTED: Final = [
    "pytest",
    "tests.engine.crash_child",
    "tests.engine.kill_child",
    "tests.log.interrupted",
    "tests.log.log_kill_child",
]


@contextmanager
def forked(work: Callable[..., None], *arguments: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process that does some work, and what it says; it is killed at the end of the block if it is alive then.

    Args:
        work: a function at the top level of a module.
        arguments: for it; after them it is given the end of a pipe on which it may say something.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(*arguments, writing))
    with reading:
        process.start()
        writing.close()
        try:
            yield process, reading
        finally:
            process.kill()
            process.join()
            process.close()


def said(reading: Connection) -> Iterator[Any]:
    """What a process says, until it is dead; what it was saying as it died is not whole and left out."""
    while reading.poll(PATIENCE):
        try:
            yield reading.recv()
        except (EOFError, OSError):
            return
    raise AssertionError("the process neither died nor went on")


def exit_code_of(work: Callable[..., None], *arguments: Any) -> int | None:
    """The exit code of a process that did some work: minus the signal that killed it."""
    with forked(work, *arguments) as (process, _):
        process.join(PATIENCE)
        return process.exitcode
