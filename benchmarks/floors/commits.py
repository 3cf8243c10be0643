"""Raw SQLite: one event a transaction, or as many as it likes. Full synchronisation, a rowid table, no rules."""

from __future__ import annotations

import sqlite3
import sys
import time

from benchmarks.sample import Stopwatch, folder, quantile

BODY = b"x" * 380
EVENTS = 4000


def main(batch: int) -> None:
    """Insert events in transactions of `batch`."""
    with folder() as place:
        connection = sqlite3.connect(place / "raw.sqlite", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE events(sequence INTEGER PRIMARY KEY, id TEXT NOT NULL, body BLOB NOT NULL)")
        rows = [(f"{number:036}", BODY) for number in range(batch)]
        waits = []
        rounds = EVENTS // batch if batch == 1 else 200_000 // batch
        watch = Stopwatch()
        for _ in range(rounds):
            begun = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO events(id, body) VALUES (?, ?)", rows)
            connection.execute("COMMIT")
            waits.append(time.perf_counter() - begun)
        watch.report(rounds * batch, p50_ms=quantile(waits, 0.5) * 1e3, p99_ms=quantile(waits, 0.99) * 1e3)
        connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
