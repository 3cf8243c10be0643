"""From one format of the file to the next; and how a connection that may not write reads an older one.

A migration is a list of statements, so that it can be cut off at each of them. It runs in one transaction and ends
with the new number, which is the last thing that makes the file another one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from maka_trio.errors import LogTooNew, LogUnsupported
from maka_trio.records import frozen


@frozen
class Migration:
    """What is between a format and the next.

    Attributes:
        changes: the statements that make the one into the other.
        stand_ins: statements that give a read-only connection what the older file lacks, in its own temporary
            schema, whose names go before those of the file.
    """

    changes: tuple[str, ...]
    stand_ins: tuple[str, ...] = ()


CONTINUES: Final = "CREATE UNIQUE INDEX invocations_by_source ON invocations(continues) WHERE continues IS NOT NULL"

DELETIONS: Final = """CREATE TABLE deletions(
    session INTEGER PRIMARY KEY,
    kept INTEGER NOT NULL,
    finished INTEGER
)"""

OPERATIONS: Final = """CREATE UNIQUE INDEX events_by_operation ON events(operation_id, kind = 'tool_settled')
    WHERE operation_id IS NOT NULL AND kind IN ('tool_dispatched', 'tool_rejected', 'tool_settled')"""

MIGRATIONS: Final[Mapping[int, Migration]] = {
    1: Migration(
        changes=("ALTER TABLE invocations ADD COLUMN continues INTEGER", CONTINUES, DELETIONS),
        stand_ins=(
            "CREATE TEMP VIEW invocations AS SELECT *, NULL AS continues FROM main.invocations",
            DELETIONS.replace("TABLE", "TEMP TABLE", 1),
        ),
    ),
    2: Migration(changes=("DROP INDEX events_by_operation", OPERATIONS)),
}
"""For each older format, what is between it and the next one.

The index made from 2 on has the entries that it had, under a condition that is quicker to ask of a new row. Making it
reads every event, once: a file in which some cannot be read stays as it is, for who only reads.
"""


def migrate(connection: sqlite3.Connection, target: int, migrations: Mapping[int, Migration]) -> None:
    """Bring the file forward, whole or not at all.

    Raises:
        LogUnsupported: nobody knows the way from its format.
        sqlite3.Error: the disk is full or refuses; the file is as it was.
    """
    steps = _way(connection, target, migrations)
    if not steps:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps:
            for statement in step.changes:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {target}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the header is what an older version looks at


def stand_in(connection: sqlite3.Connection, target: int, migrations: Mapping[int, Migration]) -> None:
    """Let a read-only connection see an older file as one of the target's format. The file is not touched.

    Raises:
        LogTooNew: the file is of a newer format.
        LogUnsupported: nobody knows the way from its format.
        sqlite3.Error: it cannot be read.
    """
    steps = _way(connection, target, migrations)
    if not steps:
        return
    connection.execute("PRAGMA temp_store = MEMORY")
    for step in steps:
        for statement in step.stand_ins:
            connection.execute(statement)


def _way(connection: sqlite3.Connection, target: int, migrations: Mapping[int, Migration]) -> list[Migration]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > target:
        raise LogTooNew(f"the log has format {version}; this version reads up to {target}")
    missing = [step for step in range(version, target) if step not in migrations]
    if missing:
        raise LogUnsupported(f"the log has format {version}, which this version cannot bring forward to {target}")
    return [migrations[step] for step in range(version, target)]
