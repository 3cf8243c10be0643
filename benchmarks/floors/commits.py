"""Raw SQLite: one event a transaction, or as many as it likes, or trio tasks by turns. Full synchronisation, no rules.

A rowid table with the one index that a log cannot do without: where an event of a run is.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import trio

from benchmarks.sample import Stopwatch, folder, quantile

BODY = b"x" * 380
EVENTS = 4000
TABLE = """
CREATE TABLE events(
    sequence INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX events_by_run ON events(run, position);
"""
INSERT = "INSERT INTO events(run, position, kind, body) VALUES (?, ?, 'observed', ?)"
Row = tuple[int, int, bytes]


def opened(place: Path) -> sqlite3.Connection:
    """A new file."""
    connection = sqlite3.connect(place / "raw.sqlite", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(TABLE)
    return connection


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """One transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, rows)
    connection.execute("COMMIT")


def alone(batch: int) -> None:
    """Insert events in transactions of `batch`, in the thread that made them."""
    with folder() as place:
        connection = opened(place)
        count = EVENTS if batch == 1 else 200_000
        waits = []
        watch = Stopwatch()
        for first in range(0, count, batch):
            rows = [(1, position, BODY) for position in range(first, first + batch)]
            begun = time.perf_counter()
            insert(connection, rows)
            waits.append(time.perf_counter() - begun)
        watch.report(count, p50_ms=quantile(waits, 0.5) * 1e3, p99_ms=quantile(waits, 0.99) * 1e3)
        connection.close()


async def by_turns(tasks: int) -> None:
    """Trio tasks, each with a transaction of its own in a worker thread, one at a time: what a program does unaided."""
    with folder() as place:
        connection, turn = opened(place), trio.CapacityLimiter(1)
        waits: list[float] = []

        async def produce(run: int) -> None:
            for position in range(EVENTS // tasks):
                begun = time.perf_counter()
                await trio.to_thread.run_sync(insert, connection, [(run, position, BODY)], limiter=turn)
                waits.append(time.perf_counter() - begun)

        watch = Stopwatch()
        async with trio.open_nursery() as nursery:
            for run in range(tasks):
                nursery.start_soon(produce, run)
        watch.report(EVENTS, p50_ms=quantile(waits, 0.5) * 1e3, p99_ms=quantile(waits, 0.99) * 1e3)
        connection.close()


if __name__ == "__main__":
    how, number = sys.argv[1], int(sys.argv[2])
    if how == "tasks":
        trio.run(by_turns, number)
    else:
        alone(number)
