"""A connection with which something happens before one of its statements, and processes that die of that."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from maka_trio import limits
from maka_trio.facts import Invocation
from maka_trio.log import schema
from maka_trio.log.migrations import migrate
from maka_trio.log.store import Store
from tests.log.deletion_story import GONE
from tests.log.log_story import COMPLETED, PROGRAM, opened, tell


class Interrupted:
    """A connection with which something happens before one of its statements."""

    def __init__(self, connection: sqlite3.Connection, before: int, happens: Callable[[], None]) -> None:
        self._connection, self._left, self._happens = connection, before, happens

    def execute(self, *args: Any) -> sqlite3.Cursor:
        if self._left == 0:
            self._happens()
        self._left -= 1
        return self._connection.execute(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def migrate_and_die(path: Path, number: int, _: Connection) -> None:
    """Open a log of an older format, until a statement of its migration."""

    def migrate_some(connection: sqlite3.Connection, *args: Any) -> None:
        migrate(Interrupted(connection, number, die), *args)  # type: ignore[arg-type]

    schema.migrate = migrate_some  # type: ignore[attr-defined]
    Store.open(path)


def delete_and_die(path: Path, number: int, _: Connection) -> None:
    """Delete the bodies of a session in small steps, until a statement of that, or to the end."""
    limits.DELETION_EVENTS = 9  # type: ignore[misc]
    store = Store.open(path)
    store.connection = Interrupted(store.connection, number, die)  # type: ignore[assignment]
    store.begin_deletion(GONE)
    while store.delete_some(GONE):
        pass
    store.finish_deletion(GONE)


def append_and_die(path: Path, _: Connection) -> None:
    """Append to a log, and leave it open."""
    store = Store.open(path)
    for _number in range(5):
        tell(store, Invocation.new("killed"), opened(PROGRAM), COMPLETED)
    die()
