"""What a file has beside its events, asked of its tables and indexes: whether it is what events say, and no more.

Knows tables and statements; what the events say is found by `filing`. Each question goes through the index that others
rely on, so that a damaged index shows.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Final, TypeAlias

from maka_trio.facts.bounds import excerpt
from maka_trio.log.faults import error_name
from maka_trio.log.salvage import is_damage
from maka_trio.log.schema import FORMAT, TABLES
from maka_trio.records import frozen
from maka_trio.shares import WHOLE, Share

Words: TypeAlias = tuple[int | None, str]
"""What is wrong, and the sequence where."""


class Unknown(Enum):
    """Stands for what the events do not tell any more."""

    VALUE = "unknown"


@frozen
class Expected:
    """The row of an invocation as its events have it."""

    row: int
    invocation_id: str
    session: int
    opened: int
    ended: int | None
    outcome: str | Unknown | None
    residue: str | Unknown | None
    fingerprint: str | Unknown | None


@frozen
class Place:
    """What lies beside a fact that may have something beside it.

    Attributes:
        sequence: of the fact.
        session: the row of its session.
        messages: the ids of the messages that it brings.
        media: the media types of the artifacts that it names, by their ids.
        all_its_own: it brings all of them; else some may have been stored before.
        raw_result: it has one.
    """

    sequence: int
    session: int
    messages: tuple[str, ...]
    media: Mapping[str, str]
    all_its_own: bool
    raw_result: bool


_INVOCATION: Final = "SELECT session, opened, ended, outcome, residue, fingerprint FROM invocations WHERE id = ?"
_COLUMNS: Final = ("session", "opened", "ended", "outcome", "residue", "fingerprint")
_OPERATIONS: Final = "operation_id IS NOT NULL AND kind IN ('tool_dispatched', 'tool_rejected', 'tool_settled')"
"""Of which rows `events_by_operation` has entries, in words that imply its condition in a file of any format."""

_UNINDEXED: Final = f"""
SELECT sequence, by_id, by_operation FROM (
    SELECT sequence,
        EXISTS (SELECT 1 FROM events AS i INDEXED BY events_by_id
            WHERE i.event_id = e.event_id AND i.kind <> 'model_observed' AND i.sequence = e.sequence) AS by_id,
        NOT ({_OPERATIONS}) OR EXISTS (
            SELECT 1 FROM events AS i INDEXED BY events_by_operation WHERE i.operation_id = e.operation_id
            AND (i.kind = 'tool_settled') = (e.kind = 'tool_settled') AND {_OPERATIONS}
            AND i.sequence = e.sequence) AS by_operation
    FROM events AS e NOT INDEXED
    WHERE sequence > ? AND sequence <= ? AND kind <> 'model_observed' AND (?3 IS NULL OR session = ?3)
    AND (?5 = 1 OR session % ?5 = ?4)
) WHERE NOT (by_id AND by_operation)
"""
_STRAYS: Final = (
    (
        "table payloads has a raw result beside event {0}, which has none",
        "SELECT sequence, NULL FROM payloads WHERE NOT EXISTS "
        "(SELECT 1 FROM events WHERE events.sequence = payloads.sequence AND kind = 'tool_settled')",
    ),
    (
        "table artifacts has {1} beside event {0}, which has none",
        "SELECT sequence, artifact_id FROM artifacts WHERE NOT EXISTS (SELECT 1 FROM events "
        "WHERE events.sequence = artifacts.sequence AND events.session = artifacts.session "
        "AND kind IN ('invocation_opened', 'message_steered', 'tool_settled'))",
    ),
    (
        "table messages has message {1} at event {0}, which brings none",
        "SELECT sequence, message_id FROM messages WHERE NOT EXISTS (SELECT 1 FROM events "
        "WHERE events.sequence = messages.sequence AND events.session = messages.session "
        "AND kind IN ('invocation_opened', 'message_steered'))",
    ),
    (
        "table invocations has invocation {1} opened by event {0}, which does not open it",
        "SELECT opened, invocation_id FROM invocations WHERE NOT EXISTS (SELECT 1 FROM events "
        "WHERE events.sequence = invocations.opened AND events.invocation = invocations.id "
        "AND events.session = invocations.session AND kind = 'invocation_opened')",
    ),
    (
        "table sessions has session {1}, of which there is no event",
        "SELECT NULL, session_id FROM sessions WHERE NOT EXISTS (SELECT 1 FROM heads WHERE session = sessions.id)",
    ),
    (
        "table heads has a session that is none: {1}",
        "SELECT head, session FROM heads WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = heads.session)",
    ),
    (
        "table marks has a mark of a session that is none: {1}",
        "SELECT sequence, session FROM marks WHERE NOT EXISTS (SELECT 1 FROM heads WHERE session = marks.session)",
    ),
    (
        "table sessions does not say when session {1} was retired, but something else",
        "SELECT NULL, session_id FROM sessions WHERE retired IS NOT NULL AND typeof(retired) <> 'integer'",
    ),
    (
        "table deletions has session {1}, which is not retired, or ends its deletion before it was done",
        "SELECT NULL, coalesce(session_id, session) FROM deletions LEFT JOIN sessions ON sessions.id = session "
        "WHERE retired IS NULL OR typeof(kept) <> 'integer' OR typeof(finished) NOT IN ('integer', 'null') "
        "OR (finished IS NOT NULL AND kept <> 0) OR (kept <> 0 AND NOT EXISTS "
        "(SELECT 1 FROM events WHERE events.sequence = kept AND events.session = deletions.session))",
    ),
    (
        "an index of table artifacts does not have {1} of event {0}",
        "SELECT sequence, artifact_id FROM artifacts AS a NOT INDEXED WHERE NOT EXISTS "
        "(SELECT 1 FROM artifacts AS i INDEXED BY artifacts_by_event "
        "WHERE i.sequence = a.sequence AND i.rowid = a.rowid) OR NOT EXISTS "
        "(SELECT 1 FROM artifacts AS i INDEXED BY sqlite_autoindex_artifacts_1 "
        "WHERE i.session = a.session AND i.artifact_id = a.artifact_id AND i.rowid = a.rowid)",
    ),
)
"""What is wrong, with the question that finds it: a sequence and a name."""

_COUNTS: Final = (
    ("events_by_id", "events", "WHERE kind <> 'model_observed'"),
    ("events_by_operation", "events", f"WHERE {_OPERATIONS}"),
    ("artifacts_by_event", "artifacts", "WHERE sequence IS NOT NULL"),
    ("sqlite_autoindex_artifacts_1", "artifacts", "WHERE session IS NOT NULL"),
)
"""Indexes with their tables and rows. Without a condition SQLite counts in whatever index is the smallest."""

_SMALL: Final = ("sessions", "heads", "marks", "invocations", "messages", "deletions")
"""Tables of which SQLite compares every row with every index; of the others that would read all that was said."""

_MISSING: Final = re.compile(r"row (\d+) missing from index (\w+)")


# --- beside events ------------------------------------------------------------------------------------------


def wrong_with_places(
    connection: sqlite3.Connection,
    between: tuple[int, int],
    session: int | None,
    places: Sequence[Place],
    invocations: Sequence[Expected],
    share: Share = WHOLE,
) -> list[Words]:
    """What is wrong with the facts after a sequence up to another, of one session or of all of a share."""
    words: list[Words] = []
    after, last = between
    asked = (after, last, session, share.index, share.of)
    rows = answer(connection, "an index of table events", _UNINDEXED, asked, words) if after < last else ()
    for sequence, by_id, _ in rows:
        index = "events_by_operation" if by_id else "events_by_id"
        words.append((sequence, f"index {index} does not have event {sequence}"))
    for place in places:
        words += _wrong_place(connection, place)
    for expected in invocations:
        words += _wrong_invocation(connection, expected)
    return words


def _wrong_invocation(connection: sqlite3.Connection, expected: Expected) -> Iterator[Words]:
    name = f"invocation {excerpt(expected.invocation_id)}"
    told: list[Words] = []
    rows = list(answer(connection, "table invocations", _INVOCATION, (expected.row,), told))
    yield from told
    if not rows and not told:
        yield expected.opened, f"table invocations has lost {name}"
    for found in rows:
        for column, value in zip(_COLUMNS, found, strict=True):
            wanted = getattr(expected, column)
            if not (wanted is Unknown.VALUE or (value == wanted and type(value) is type(wanted))):
                yield (
                    _place_in(expected, column, value),
                    f"table invocations has {column} {excerpt(value)} of {name}, and its events say {excerpt(wanted)}",
                )
                if column == "ended" and expected.ended is None:
                    break  # the rest of an end goes with it


def _place_in(expected: Expected, column: str, value: object) -> int:
    """The event that says otherwise."""
    if column in ("session", "opened", "fingerprint"):
        return expected.opened
    if expected.ended is None and column == "ended" and isinstance(value, int):
        return value
    return expected.ended or expected.opened


def _wrong_place(connection: sqlite3.Connection, place: Place) -> Iterator[Words]:
    at, told = place.sequence, list[Words]()
    for message_id in place.messages:
        sql = "SELECT sequence FROM messages WHERE session = ? AND message_id = ?"
        rows = list(answer(connection, "table messages", sql, (place.session, message_id), told))
        if rows != [(at,)]:
            yield at, f"table messages has lost message {excerpt(message_id)} of event {at}"
    sql = "SELECT artifact_id, media_type FROM artifacts INDEXED BY artifacts_by_event WHERE sequence = ?"
    beside = dict(answer(connection, "index artifacts_by_event", sql, (at,), told))
    for artifact_id, media_type in beside.items():
        if artifact_id not in place.media:
            yield at, f"table artifacts has {excerpt(artifact_id)} beside event {at}, which does not name it"
        elif place.media[artifact_id] != media_type:
            yield at, f"artifact {excerpt(artifact_id)} of event {at} is filed as {excerpt(media_type)}"
    for artifact_id in place.media.keys() - beside.keys():
        yield from _wrong_elsewhere(connection, place, artifact_id, told)
    rows = list(answer(connection, "table payloads", "SELECT 1 FROM payloads WHERE sequence = ?", (at,), told))
    if rows and not place.raw_result:
        yield at, f"table payloads has a raw result beside event {at}, which has none"
    yield from told


def _wrong_elsewhere(
    connection: sqlite3.Connection, place: Place, artifact_id: str, told: list[Words]
) -> Iterator[Words]:
    """An artifact that is named and was brought by an earlier event. That it is there at all is looked at elsewhere."""
    sql = "SELECT sequence, media_type FROM artifacts WHERE session = ? AND artifact_id = ?"
    for sequence, media_type in answer(connection, "table artifacts", sql, (place.session, artifact_id), told):
        if place.all_its_own or not isinstance(sequence, int) or sequence > place.sequence:
            yield place.sequence, f"artifact {excerpt(artifact_id)} of event {place.sequence} is filed with another"
        elif media_type != place.media[artifact_id]:
            words = f"artifact {excerpt(artifact_id)} of event {place.sequence} is filed as {excerpt(media_type)}"
            yield place.sequence, words


# --- the whole file -----------------------------------------------------------------------------------------


def wrong_with_file(connection: sqlite3.Connection) -> list[Words]:
    """What a file has that no event says, and what its indexes do not have."""
    return [*_wrong_schema(connection), *_strays(connection), *_wrong_tables(connection)]


def _strays(connection: sqlite3.Connection) -> list[Words]:
    words: list[Words] = []
    for said, sql in _STRAYS:
        table = said.partition("table ")[2].split()[0]
        for sequence, name in answer(connection, f"table {table}", sql, (), words):
            at = sequence if isinstance(sequence, int) else None
            words.append((at, said.format(excerpt(sequence), excerpt(name))))
    for index, table, where in _COUNTS:
        sql = (
            f"SELECT (SELECT count(*) FROM {table} INDEXED BY {index} {where}), "
            f"(SELECT count(*) FROM {table} NOT INDEXED {where})"
        )
        for in_index, in_table in answer(connection, f"index {index}", sql, (), words):
            if in_index != in_table:
                words.append((None, f"index {index} has {in_index} entries, and table {table} {in_table}"))
    return words


def _wrong_tables(connection: sqlite3.Connection) -> list[Words]:
    words: list[Words] = []
    there = {name for (name,) in answer(connection, "the schema", _TABLE_NAMES, (), words)}
    for table in _SMALL:
        if table not in there:
            continue
        for (said,) in answer(connection, f"table {table}", f"PRAGMA main.integrity_check({table})", (), words):
            if said != "ok":
                words.append((_place_of(connection, table, said), f"table {table}: {excerpt(said)}"))
    return words


_TABLE_NAMES: Final = "SELECT name FROM main.sqlite_schema WHERE type = 'table'"


def _place_of(connection: sqlite3.Connection, table: str, said: str) -> int | None:
    """The event of which an index lacks the row, where SQLite names one."""
    missing = _MISSING.search(said)
    column = {"invocations": "opened", "heads": "head"}.get(table)
    if missing is None or column is None:
        return None
    sql = f"SELECT {column} FROM {table} NOT INDEXED LIMIT 1 OFFSET ?"
    rows = list(answer(connection, table, sql, (int(missing[1]) - 1,), []))
    return rows[0][0] if rows and isinstance(rows[0][0], int) else None


def _wrong_schema(connection: sqlite3.Connection) -> Iterator[Words]:
    told: list[Words] = []
    rows = list(answer(connection, "the schema", "PRAGMA main.user_version", (), told))
    if rows != [(FORMAT,)]:
        return
    found = _schema(answer(connection, "the schema", _SCHEMA, (), told))
    yield from told
    for name, sql in _expected_schema().items():
        if not told and found.get(name) != sql:
            yield None, f"the schema has lost {name}, or has something else under its name"


_SCHEMA: Final = "SELECT name, sql FROM main.sqlite_schema WHERE name NOT LIKE 'sqlite_%'"


def _schema(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: "".join(str(sql).split()) for name, sql in rows}


@cache
def _expected_schema() -> dict[str, str]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(TABLES)
        return _schema(connection.execute(_SCHEMA).fetchall())
    finally:
        connection.close()


def answer(
    connection: sqlite3.Connection, what: str, sql: str, values: tuple[object, ...], words: list[Words]
) -> Iterator[tuple]:  # type: ignore[type-arg]  # of whatever columns
    """The rows of an answer; what cannot be read is added to the words once."""
    try:
        yield from connection.execute(sql, values).fetchall()
    except sqlite3.DatabaseError as error:
        if not (is_damage(error) or error_name(error) == "SQLITE_ERROR"):
            raise
        said = (None, f"{what} cannot be read: {error}")
        if said not in words:
            words.append(said)
