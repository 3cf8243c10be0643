"""What the check of a log finds of stubs that somebody or something changed, and what nobody could find."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from maka_trio.facts import Completed, Invocation, InvocationEnded
from maka_trio.facts.codec import encode_invocation
from maka_trio.log.store import Store
from maka_trio.log.stub import Place, make_stub
from tests.log.deletion_story import GONE, STAYS, violations


@pytest.fixture
def path(two_sessions: Path) -> Path:
    """A log of two sessions, one of them without its bodies."""
    store = Store.open(two_sessions)
    store.begin_deletion(GONE)
    while store.delete_some(GONE):
        pass
    store.finish_deletion(GONE)
    store.close()
    assert violations(two_sessions) == []
    return two_sessions


def change(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(sql, values).rowcount > 0
        connection.commit()


def one(path: Path, sql: str, *values: object) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql, values).fetchone()[0]


def at(path: Path, kind: str, session: str = GONE, number: int = 0) -> int:
    """The sequence of an event of a session, by its kind and how many come before it."""
    return int(
        one(
            path,
            "SELECT sequence FROM events JOIN sessions ON sessions.id = events.session "
            "WHERE kind = ? AND session_id = ? ORDER BY sequence LIMIT 1 OFFSET ?",
            kind,
            session,
            number,
        )
    )


def places(path: Path) -> set[int | None]:
    return {violation.sequence for violation in violations(path)}


CHANGES = {
    "kind": "kind = 'tool_notified'",
    "event_id": "event_id = event_id || '0'",
    "recorded_at": "recorded_at = recorded_at + 1",
    "operation_id": "operation_id = operation_id || '0'",
    "root_digest": "root_digest = zeroblob(32)",
    "session_digest": "session_digest = zeroblob(32)",
    "previous": "previous = previous - 1",
    "previous_fact": "previous_fact = 1",
    "session": "session = session + 1",
    "invocation": "invocation = invocation + 1",
    "body": "body = cast(replace(cast(body AS TEXT), 'echo', 'evil') AS BLOB)",
    "a digest that is text": "root_digest = 'text'",
    "a digest that is too short": "session_digest = x'00'",
    "a time that is text": "recorded_at = 'now'",
    "a kind that is bytes": "kind = x'ff'",
    "an id that is no text": "event_id = cast(x'ff' AS TEXT)",
    "a body that is text": "body = cast(body AS TEXT)",
    "no mark": "body = cast(substr(body, 2) AS BLOB)",
}


@pytest.mark.parametrize("assignment", CHANGES.values(), ids=CHANGES)
def test_every_part_of_a_stub_is_held_against_its_seal(path: Path, assignment: str) -> None:
    """Whatever its row says: a change by accident is found where it is."""
    sequence = at(path, "tool_dispatched")
    change(path, f"UPDATE events SET {assignment} WHERE sequence = ?", sequence)
    assert sequence in places(path)


def test_each_bit_of_an_account_counts(path: Path) -> None:
    """What a step cost, for one, and the spaces behind it."""
    sequence = at(path, "model_completed")
    body = bytes(one(path, "SELECT body FROM events WHERE sequence = ?", sequence))
    for number in (1, 16, 17, body.index(b"usage") + 10, len(body) - 1):
        changed = bytearray(body)
        changed[number] ^= 1
        change(path, "UPDATE events SET body = ? WHERE sequence = ?", bytes(changed), sequence)
        assert sequence in places(path)
    change(path, "UPDATE events SET body = ? WHERE sequence = ?", body, sequence)
    assert places(path) == set()


@pytest.mark.parametrize("column", ["turn_id", "run_id", "invocation_id"])
def test_the_identity_of_stubs_is_sealed(path: Path, column: str) -> None:
    """It stands in a row of its own."""
    sequence = at(path, "invocation_opened")
    change(path, f"UPDATE invocations SET {column} = {column} || '0' WHERE opened = ?", sequence)
    assert sequence in places(path)


@pytest.mark.parametrize("kind", ["invocation_opened", "tool_settled", "invocation_ended"])
def test_a_stub_that_is_missing_is_noticed(path: Path, kind: str) -> None:
    """By the events after it, or by where the session should end."""
    change(path, "DELETE FROM events WHERE sequence = ?", at(path, kind, number=1))
    assert violations(path) != []


def test_the_last_stub_that_is_missing_is_noticed(path: Path) -> None:
    """By where the session should end."""
    change(path, "DELETE FROM events WHERE sequence = (SELECT max(sequence) FROM events WHERE session = 1)")
    assert any("ends at event" in violation.words for violation in violations(path))


def forged(path: Path, sequence: int, **changes: object) -> bytes:
    """A stub as whoever can write the file could put it there, seal and all."""
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute(
            "SELECT sequence, previous, previous_fact, kind, event_id, recorded_at, operation_id, root_digest, "
            "session_digest, body, session_id, turn_id, run_id, invocation_id FROM events "
            "JOIN invocations ON invocations.id = events.invocation JOIN sessions ON sessions.id = events.session "
            "WHERE sequence = ?",
            (sequence,),
        ).fetchone()
    place = Place(*row[:9], encode_invocation(Invocation(*row[10:])))
    return make_stub(place._replace(**changes), InvocationEnded(Completed()), len(row[9]))


def test_a_body_is_missing_where_nothing_was_deleted(path: Path) -> None:
    """No stub is taken for one, however well it is made."""
    sequence = at(path, "tool_settled", STAYS)
    change(path, "UPDATE events SET body = ? WHERE sequence = ?", forged(path, sequence), sequence)
    found = [str(violation) for violation in violations(path) if violation.sequence == sequence]
    assert any("its session was not deleted" in words for words in found)


@pytest.mark.parametrize("sql", ["DELETE FROM deletions", "UPDATE deletions SET kept = 12"])
def test_the_deletion_itself_is_held_against_the_stubs(path: Path, sql: str) -> None:
    """A session of which the file does not say that it was deleted has lost its bodies."""
    change(path, sql)
    assert at(path, "invocation_opened") in places(path)


def test_a_body_in_a_deleted_session_is_noticed(path: Path) -> None:
    """It should not be there."""
    sequence = at(path, "invocation_ended")
    body = b'{"kind":"invocation_ended","outcome":{"kind":"completed"}}'
    change(path, "UPDATE events SET body = ? WHERE sequence = ?", body, sequence)
    assert any("was to be deleted" in violation.words for violation in violations(path))


def test_a_forged_digest_is_found_by_the_next_event_that_has_its_body(path: Path) -> None:
    """The chain goes on from it."""
    live = at(path, "invocation_opened", STAYS)
    change(
        path,
        "UPDATE events SET root_digest = zeroblob(32), body = ? WHERE sequence = ?",
        forged(path, live - 1, root_digest=bytes(32)),
        live - 1,
    )
    assert live in places(path)
    assert live - 1 not in places(path)


def test_a_forged_account_cannot_be_found(path: Path) -> None:
    """What a stub says is no more certain than who could write the file: its seal is no secret.

    This pins what the check is not: proof against somebody with a copy of this library.
    """
    sequence = at(path, "invocation_ended", number=3)
    change(path, "UPDATE events SET body = ? WHERE sequence = ?", forged(path, sequence), sequence)
    assert places(path) == {sequence}  # the invocation was filed with another end
    change(path, "UPDATE invocations SET outcome = 'completed' WHERE ended = ?", sequence)
    assert violations(path) == []


def test_readers_say_which_stub_cannot_be_read(path: Path) -> None:
    """As of any other event."""
    sequence = at(path, "tool_dispatched")
    change(path, "UPDATE events SET body = zeroblob(40) WHERE sequence = ?", sequence)
    assert sequence in places(path)
