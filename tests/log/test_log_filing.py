"""What a log derives from its facts decides what is paid, unresolved and taken: damage of it is named."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from maka_trio.cli.log_file import LogFile
from maka_trio.errors import LogCorrupt
from maka_trio.facts import CodeOpening, Invocation, MessageInput, MessageOpening
from maka_trio.facts.message import MediaContent, TextContent, UserMessage
from maka_trio.facts.model import ProviderToolResult, ToolCallReady
from maka_trio.laws import Violation
from maka_trio.log.schema import MARK_EVERY
from maka_trio.log.store import Store
from maka_trio.log.verification import Verification
from tests.engine.scene import echo, registration, scene
from tests.log.log_story import (
    CANCELLED,
    COMPLETED,
    UNKNOWN,
    call,
    copied,
    observed,
    opened,
    requested,
    running_call,
    settled,
    steered,
    tell,
)

PAGE = 4096
PNG = b"\x89PNG\r\n\x1a\n"


async def _tell_turns(folder: Path) -> None:
    async with scene(folder) as it:
        for number, session in enumerate(("session", "gone")):
            it.provider.call_tools(("echo", {"value": str(number)}, "c1"))
            it.provider.say("that is all")
            question = UserMessage((TextContent("hello"), MediaContent("image/png", PNG + bytes(number))))
            tools = [registration("echo", echo)]
            await it.engine.run(it.input(question, tools=tools, session=session, request_fingerprint="order"))
        await it.log.retire("gone")
        await it.log.delete_bodies("gone")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with something in every table: also an unknown effect, a run without an end, and a deleted session."""
    folder = tmp_path_factory.mktemp("template")
    trio.run(_tell_turns, folder)
    path = folder / "log.sqlite"
    store = Store.open(path)
    named = MessageOpening(MessageInput("more"), None, ("m1", "m2"))
    tell(store, Invocation.new("messages"), opened(named), steered("m3"), COMPLETED)
    tell(store, Invocation.new("unknown"), opened(CodeOpening("1")), UNKNOWN)
    for _ in range(2 * MARK_EVERY):
        tell(store, Invocation.new("long"), opened(CodeOpening("1")), CANCELLED)
    tell(store, Invocation.new("running"), opened(CodeOpening("1")))
    store.close()
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    """A copy of it, with its lock file."""
    return copied(template, tmp_path / "log.db")


def verify(path: Path, session_id: str | None = None) -> list[Violation]:
    log = LogFile(path)
    return list(Verification(log.read, log.path, session_id).violations())


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(sql).rowcount > 0
        connection.commit()


def only(path: Path, sql: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(sql).fetchone()[0])


def test_a_sound_log_is_filed_as_its_facts_say(path: Path) -> None:
    """Nothing is found where nothing is wrong."""
    assert verify(path) == []
    for session in ("session", "gone", "messages", "unknown", "long", "running"):
        assert verify(path, session) == []


SESSION, GONE, LONG, RUNNING, MESSAGES = (
    f"(SELECT id FROM sessions WHERE session_id = '{name}')"
    for name in ("session", "gone", "long", "running", "messages")
)
FILED = {
    "a session is forgotten": ("DELETE FROM heads WHERE session = " + LONG, "table heads"),
    "a session that is none": ("INSERT INTO sessions VALUES (99, 'made up', NULL)", "table sessions"),
    "a head that is none": ("INSERT INTO heads VALUES (99, 1, 1, 1)", "table heads"),
    "another number of events": ("UPDATE heads SET events = events + 1 WHERE session = " + LONG, "table heads"),
    "retired in words": ("UPDATE sessions SET retired = 'never' WHERE session_id = 'long'", "table sessions"),
    "a deleted session takes runs": ("UPDATE sessions SET retired = NULL WHERE session_id = 'gone'", "table deletions"),
    "a deletion that ended before its time": ("UPDATE deletions SET kept = 3", "table deletions"),
    "opened elsewhere": ("UPDATE invocations SET opened = opened + 1 WHERE session = " + SESSION, "opened"),
    "ended elsewhere": ("UPDATE invocations SET ended = ended - 1 WHERE session = " + SESSION, "ended"),
    "not ended": ("UPDATE invocations SET ended = NULL WHERE session = " + SESSION, "ended"),
    "ended after all": ("UPDATE invocations SET ended = opened WHERE session = " + RUNNING, "ended"),
    "another outcome": ("UPDATE invocations SET outcome = 'completed' WHERE outcome LIKE 'failed%'", "outcome"),
    "another outcome of a deleted run": ("UPDATE invocations SET outcome = 'x' WHERE session = " + GONE, "outcome"),
    "a residue that is none": ("UPDATE invocations SET residue = '{}' WHERE session = " + SESSION, "residue"),
    "another request": ("UPDATE invocations SET fingerprint = 'x' WHERE session = " + SESSION, "fingerprint"),
    "a request forgotten": ("UPDATE invocations SET fingerprint = NULL WHERE session = " + SESSION, "fingerprint"),
    "an invocation that is none": (
        "INSERT INTO invocations(id, session, turn_id, run_id, invocation_id, opened) "
        "VALUES (9999, 1, 't', 'r', 'i', 2)",
        "table invocations",
    ),
    "a message forgotten": ("DELETE FROM messages WHERE message_id = 'm3'", "'m3'"),
    "a message elsewhere": ("UPDATE messages SET sequence = sequence + 1 WHERE message_id = 'm2'", "'m2'"),
    "a message made up": (f"INSERT INTO messages SELECT session, 'm4', sequence FROM messages LIMIT 1", "messages"),  # noqa: F541
    "a message at no event": (f"INSERT INTO messages VALUES ({MESSAGES}, 'm5', 2)", "table messages"),
    "a mark forgotten": ("DELETE FROM marks WHERE session = " + LONG, "table marks"),
    "a mark in another session": (
        f"UPDATE marks SET sequence = 2 WHERE session = {LONG} AND sequence = (SELECT min(sequence) FROM marks)",
        "table marks",
    ),
    "a picture of another event": ("UPDATE artifacts SET sequence = sequence + 1", "artifact"),
    "a picture of another kind": (
        f"UPDATE artifacts SET media_type = 'image/gif' WHERE session = {SESSION}",
        "image/gif",
    ),
    "a picture that nobody names": (
        f"INSERT INTO artifacts SELECT session, 'more', sequence, media_type, digest, data FROM artifacts "
        f"WHERE session = {SESSION}",
        "'more'",
    ),
    "a picture beside no event": (
        "INSERT INTO artifacts SELECT session, 'more', 99999, media_type, digest, data FROM artifacts LIMIT 1",
        "'more'",
    ),
    "a result beside an observation": (
        "INSERT INTO payloads SELECT (SELECT sequence FROM events WHERE kind = 'model_observed' LIMIT 1), digest, data "
        "FROM payloads LIMIT 1",
        "table payloads",
    ),
    "a result beside an opening": (
        "INSERT INTO payloads SELECT 1, digest, data FROM payloads LIMIT 1",
        "table payloads",
    ),
    "a result beside nothing": ("INSERT INTO payloads SELECT 99999, digest, data FROM payloads LIMIT 1", "payloads"),
    "an index dropped": ("DROP INDEX invocations_by_source", "invocations_by_source"),
}


@pytest.mark.parametrize("name", FILED)
def test_what_is_filed_otherwise_is_named(path: Path, name: str) -> None:
    """By the table, the session or invocation, and the column; an export of such a log says so too."""
    sql, words = FILED[name]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
        connection.commit()
    found = verify(path)
    assert any(words in one.words for one in found), found
    assert {one.law for one in found} == {9}


def test_an_unknown_effect_that_was_forgotten_is_named(tmp_path: Path) -> None:
    """At the end of its invocation, with what was left: else the next run would be admitted."""
    path = tmp_path / "log.db"
    store = Store.open(path)
    tell(store, Invocation.new("session"), *running_call(UNKNOWN))
    store.close()
    before = {one.words for one in verify(path)}
    end = only(path, "SELECT ended FROM invocations")
    change(path, "UPDATE invocations SET residue = NULL WHERE residue IS NOT NULL")
    (found,) = [one for one in verify(path) if one.words not in before]
    assert (found.law, found.sequence) == (9, end)
    assert "residue None" in found.words
    assert "only_unknown_effects" in found.words


@pytest.mark.parametrize("answered", [False, True])
def test_what_a_provider_was_left_with_is_filed_as_observed(tmp_path: Path, answered: bool) -> None:
    """An end in the middle of an answer leaves the provider's own call, unless its result came before."""
    path = tmp_path / "log.db"
    store = Store.open(path)
    asked = observed(event=ToolCallReady(call("w1", "web", remote=True)))
    result = [observed(event=ProviderToolResult("w1", "web", "found"))] if answered else []
    tell(store, Invocation.new("session"), opened(), requested(), asked, *result, observed(), UNKNOWN)
    store.close()
    filed = only(path, "SELECT json_extract(residue, '$.unanswered_remote_calls') FROM invocations")
    assert filed == (0 if answered else 1)
    assert not [one for one in verify(path) if "residue" in one.words]
    change(path, f"UPDATE invocations SET residue = replace(residue, 'calls\":{filed}', 'calls\":{filed + 1}')")
    assert len([one for one in verify(path) if "residue" in one.words]) == 1


def test_a_result_beside_a_failed_call_is_named(tmp_path: Path) -> None:
    """It says that something came of it."""
    path = tmp_path / "log.db"
    store = Store.open(path)
    tell(store, Invocation.new("session"), *running_call(settled()))
    store.close()
    sequence = only(path, "SELECT sequence FROM events WHERE kind = 'tool_settled'")
    before = verify(path)
    change(path, f"INSERT INTO payloads VALUES ({sequence}, 'sha256:0', x'00')")
    assert {one.sequence for one in verify(path) if one not in before} == {sequence}


# --- indexes --------------------------------------------------------------------------------------------------

INDEXES = [
    *("invocations_by_run", "invocations_by_request", "invocations_open", "sqlite_autoindex_invocations_1"),
    *("sqlite_autoindex_sessions_1", "sqlite_autoindex_artifacts_1", "artifacts_by_event"),
    *("events_by_id", "events_by_operation"),
]


def root_page(path: Path, name: str) -> int:
    return only(path, f"SELECT rootpage FROM sqlite_schema WHERE name = '{name}'")


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_that_has_nothing_is_named(path: Path, name: str) -> None:
    """What is looked up in it would not be found: a request would be paid for twice, a picture left out."""
    page = root_page(path, name)
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE : page * PAGE] = bytes([0x0A, 0, 0, 0, 0, 0x10, 0, 0]) + bytes(PAGE - 8)
    path.write_bytes(data)
    found = verify(path)
    assert any(name in one.words or f"table {name.split('_')[2]}" in one.words for one in found), found
    log = LogFile(path)
    whole = Verification(log.read, log.path)
    assert [words for one in whole.found() for words in one.words] + list(whole.ends())  # as an export goes through it


@pytest.mark.parametrize("name", ["invocations_by_request", "events_by_operation", "artifacts_by_event"])
def test_one_bit_in_an_index_is_named(path: Path, name: str) -> None:
    """In the key of its first entry."""
    page = (root_page(path, name) - 1) * PAGE
    data = bytearray(path.read_bytes())
    if data[page] == 0x02:
        pytest.fail("the index of this log has more than one page; its first entry is elsewhere")
    cell = int.from_bytes(data[page + 8 : page + 10], "big")
    data[page + cell + 2] ^= 1
    path.write_bytes(data)
    assert verify(path)


@pytest.mark.parametrize("table", ["deletions", "heads", "sessions", "messages", "marks", "invocations_open"])
def test_a_page_that_is_nothing_is_named(path: Path, table: str) -> None:
    """And whoever opens the log for writing is told by an error of ours, or has the log."""
    page = root_page(path, table)
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    path.write_bytes(data)
    try:
        assert any(table.split("_")[0] in one.words for one in verify(path))
    except LogCorrupt:
        assert table in ("heads", "sessions")  # without them no event can be read
    if table in ("deletions", "invocations_open"):
        with pytest.raises(LogCorrupt):
            _use(path)


def _use(path: Path) -> None:
    store = Store.open(path)
    try:
        store.seal(store.abandoned(store.root.high_water))
    finally:
        store.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE invocations SET ended = opened WHERE ended IS NULL",
        "UPDATE invocations SET ended = NULL WHERE session = " + SESSION,
    ],
)
def test_a_run_that_is_filed_otherwise_keeps_its_session_shut(path: Path, sql: str) -> None:
    """What is forgotten as open, or open for ever, is seen when the session is next written to."""
    change(path, sql)
    store = Store.open(path)
    session = "running" if "opened" in sql else "session"
    before = store.root
    with pytest.raises(LogCorrupt, match="its last fact, event"):
        tell(store, Invocation.new(session), opened(), requested(), observed())
    assert store.root == before
    store.close()
