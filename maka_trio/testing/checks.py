"""Checks that a test or an explored scenario makes when its program has run: effects, channels, resources."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio

from maka_trio import laws
from maka_trio.facts.scope import Scope
from maka_trio.log.event_log import EventLog
from maka_trio.records import frozen

_EVERYTHING = 2**40
"""More events, and more bytes, than a log that fits in memory has."""

# --- effects ------------------------------------------------------------------------------------------------


class Effects:
    """Counts effects by name: each must happen whole, and none twice.

        effects = Effects()
        with effects("charge the card"):
            await pay()
        trial.check(effects.check)

    An effect that raised, `Cancelled` included, happened in half.
    """

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()
        self._done: Counter[str] = Counter()

    @contextmanager
    def __call__(self, name: str) -> Generator[None, None, None]:
        """Count one effect around the block that makes it."""
        self._begun[name] += 1
        yield
        self._done[name] += 1

    def begun(self, name: str) -> int:
        """How often the effect was begun."""
        return self._begun[name]

    def done(self, name: str) -> int:
        """How often the effect came to its end."""
        return self._done[name]

    def check(self) -> list[str]:
        """What is wrong: effects that were begun twice, or begun and not finished."""
        twice = [f"the effect {name!r} was begun {count} times" for name, count in self._begun.items() if count > 1]
        half = [f"the effect {name!r} happened in half" for name in self._begun if self._done[name] < self._begun[name]]
        return twice + half


# --- channels -----------------------------------------------------------------------------------------------


def channels_closed(*channels: trio.MemorySendChannel[Any] | trio.MemoryReceiveChannel[Any]) -> list[str]:
    """Say which memory channels still have an open end, or hold items that nobody will ever receive."""
    found = []
    for number, channel in enumerate(channels, 1):
        statistics = channel.statistics()
        if statistics.open_send_channels:
            found.append(f"channel {number}: {statistics.open_send_channels} send ends are open")
        if statistics.open_receive_channels:
            found.append(f"channel {number}: {statistics.open_receive_channels} receive ends are open")
    return found


# --- resources ----------------------------------------------------------------------------------------------


@frozen
class Resources:
    """What the process and the trio run hold at one moment."""

    tasks: frozenset[trio.lowlevel.Task]
    threads: frozenset[threading.Thread]
    descriptors: frozenset[str]

    @classmethod
    def now(cls) -> Resources:
        """Look now. Must be called in a trio task."""
        return cls(frozenset(_tasks()), frozenset(_threads()), frozenset(_descriptors()))

    def leaked_since(self, before: Resources) -> list[str]:
        """What is held now and was not held before, in sentences."""
        found = [f"the task {task.name} is running" for task in self.tasks - before.tasks]
        found += [f"the thread {thread.name!r} is running" for thread in self.threads - before.threads]
        found += [f"{descriptor} is open" for descriptor in self.descriptors - before.descriptors]
        return sorted(found)


@asynccontextmanager
async def no_leaks() -> AsyncGenerator[None, None]:
    """Raise AssertionError if the block leaves a task, thread, socket or file behind. Its own error passes as it is.

    Put it around everything that opens and closes: the log, the executor, the engine, the provider.
    """
    before = Resources.now()
    yield
    await trio.lowlevel.checkpoint()
    leaked = Resources.now().leaked_since(before)
    if leaked:
        raise AssertionError("left behind: " + "; ".join(leaked))


def _tasks() -> Iterable[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    pending = [] if root is None else [root]
    while pending:
        task = pending.pop()
        yield task
        pending += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


def _threads() -> Iterable[threading.Thread]:
    # Trio keeps idle worker threads for a while, for anyone to use: they belong to nobody.
    return (thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread"))


def _descriptors() -> Iterable[str]:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        try:
            target = str(entry.readlink())
        except OSError:  # the descriptor of the listing itself
            continue
        if target.startswith("socket:") or (target.startswith("/") and not target.startswith(("/dev/", "/proc/"))):
            yield f"{target} (descriptor {entry.name})"


# --- logs ---------------------------------------------------------------------------------------------------


async def lawful(log: EventLog, scope: Scope | None = None) -> list[str]:
    """Read a log, or one scope of it, and say which of the nine laws it breaks. Holds all of it in memory."""
    prefix = await log.prefix(_EVERYTHING, _EVERYTHING, scope)
    return [str(violation) for violation in laws.check(prefix.events, scope=prefix.scope, digest=prefix.digest)]
