"""Logs that an older version wrote: read as they are, brought forward whole or not at all, and then gone on with."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from maka_trio.cli.log_file import LogFile
from maka_trio.cli.main import main
from maka_trio.errors import LogCorrupt, LogFull, LogTooNew, LogUnsupported
from maka_trio.facts import Fact, Invocation, Root, RuntimeEvent, Session
from maka_trio.facts.codec import decode_fact, encode_invocation, join_event
from maka_trio.facts.prefix import chain_next, chain_start
from maka_trio.log import EventLog, schema
from maka_trio.log.backup import backup
from maka_trio.log.filed import wrong_with_file, wrong_with_places
from maka_trio.log.health import examine
from maka_trio.log.lease import lock_path
from maka_trio.log.migrations import MIGRATIONS, Migration, migrate
from maka_trio.log.prefixes import prefix
from maka_trio.log.queries import sessions
from maka_trio.log.replay import check_operation
from maka_trio.log.store import Store
from maka_trio.log.stub import is_stub, read_stub
from maka_trio.log.transfer import Export
from maka_trio.log.verification import Verification
from tests.engine.scene import scene
from tests.forked import exit_code_of
from tests.log.interrupted import Interrupted, migrate_and_die
from tests.log.log_story import COMPLETED, dispatched, event, opened, put, reader


@attrs.frozen
class Stored:
    """A log as an older version wrote it.

    Attributes:
        number: of its format.
        events: how many it has.
        sessions: how many it has.
        retired: those that take no more runs, with the number of their events.
        whole: a session with its bodies, and the number of its events; None and that of all where all have theirs.
    """

    number: int
    events: int
    sessions: int
    retired: dict[str, int]
    whole: tuple[str | None, int]

    @property
    def file(self) -> Path:
        return Path(__file__).with_name("formats") / f"format_{self.number}.sqlite"

    @property
    def steps(self) -> int:
        """Statements of its way to the format of now, with the version, the begin, the number and the commit."""
        return sum(len(MIGRATIONS[number].changes) for number in range(self.number, schema.FORMAT)) + 4

    def __str__(self) -> str:
        return f"format {self.number}"


FORMAT_1 = Stored(1, 385, 5, {"retired": 10}, (None, 385))
"""With a run that never ended."""

FORMAT_2 = Stored(2, 151, 6, {"retired": 21, "deleted": 21}, ("stopped", 18))
"""With a run that never ended, one that was stopped and continued, and a session without its bodies."""

ALL = (FORMAT_1, FORMAT_2)

Told = list[tuple[RuntimeEvent, bytes, bytes]]
"""Events with the digests of the log and of their session."""


@pytest.fixture(params=ALL, ids=str)
def stored(request: pytest.FixtureRequest) -> Stored:
    """Each of the stored files in turn."""
    found: Stored = request.param
    return found


@pytest.fixture
def path(tmp_path: Path, stored: Stored) -> Path:
    """A copy of the stored file, as a checkout gives it: readable by everybody."""
    path = tmp_path / "log.sqlite"
    shutil.copyfile(stored.file, path)
    path.chmod(0o644)
    return path


def version_of(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64], "big")


def told(path: Path) -> Told:
    """What the file holds, by nothing but its first tables."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT events.sequence, kind, event_id, recorded_at, body, root_digest, session_digest, "
            "session_id, turn_id, run_id, invocation_id FROM events "
            "JOIN invocations ON invocations.id = events.invocation JOIN sessions ON sessions.id = events.session "
            "ORDER BY events.sequence"
        ).fetchall()
    found: Told = []
    log = chain_start(Root())
    sessions: dict[str, bytes] = {}
    for sequence, kind, event_id, recorded_at, body, root_digest, session_digest, *identity in rows:
        invocation = Invocation(*identity)
        name = invocation.session_id
        if is_stub(body):
            log, sessions[name] = root_digest, session_digest
            fact: Fact = read_stub(kind, root_digest, session_digest, body)
        else:
            whole = join_event(event_id, recorded_at, encode_invocation(invocation), body)
            log = chain_next(log, sequence, whole)
            sessions[name] = chain_next(sessions.get(name, chain_start(Session(name))), sequence, whole)
            fact = decode_fact(body)
        assert (sequence, root_digest, session_digest) == (len(found) + 1, log, sessions[name])
        found.append((RuntimeEvent(event_id, recorded_at, invocation, fact), log, sessions[name]))
    return found


def tables(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in names}


def lose_page(path: Path, sequence: int) -> int:
    """Lose the page of the first observation from a sequence on; return its own sequence."""
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT sequence, event_id FROM events WHERE kind = 'model_observed' AND sequence >= ? LIMIT 1"
        ((found, event_id),) = connection.execute(sql, (sequence,))
    data = bytearray(path.read_bytes())
    page = data.index(event_id.encode()) // 4096 * 4096
    data[page : page + 4096] = bytes(4096)
    path.write_bytes(data)
    return int(found)


def shape(connection: sqlite3.Connection) -> dict[str, Any]:
    """Tables with their columns, and the indices that somebody made, with theirs."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    indices = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    columns = {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in tables}
    return columns | dict(indices.fetchall())


def test_the_stored_file_is_what_it_was(stored: Stored) -> None:
    """Nobody has made another one, and this version has not been let at it."""
    assert version_of(stored.file) == stored.number
    assert len(told(stored.file)) == stored.events


def test_every_older_format_is_stored() -> None:
    """A version that brings a new format leaves a file of the last one here."""
    assert [one.number for one in ALL] == [*range(1, schema.FORMAT)]


# --- opening ------------------------------------------------------------------------------------------------


def test_every_event_and_digest_is_kept(path: Path, stored: Stored) -> None:
    """Bringing a log forward changes its number and what it can hold besides, and nothing that it holds."""
    before = told(path)
    store = Store.open(path)
    whole = prefix(reader(store), Root(), stored.events, 10**8)
    store.close()
    assert [one.event for one in whole.events] == [one for one, _, _ in before]
    assert whole.digest == f"sha256:{before[-1][1].hex()}"
    assert told(path) == before
    assert version_of(path) == schema.FORMAT


def test_every_row_of_the_last_format_is_kept(path: Path, stored: Stored) -> None:
    """What came after format 1 is in the file as it was: continuations, deletions, what lies beside events."""
    before = tables(path)
    Store.open(path).close()
    after = tables(path)
    if stored.number == 1:
        before["invocations"] = [(*row, None) for row in before["invocations"]]
        before["deletions"] = []
    assert after == before


def test_a_migrated_file_is_shaped_like_a_new_one(path: Path, tmp_path: Path) -> None:
    """The way there leaves no table, column or index out."""
    Store.open(path).close()
    Store.open(tmp_path / "new").close()
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(tmp_path / "new")) as new:
        assert shape(old) == shape(new)
        assert old.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_permissions_are_left_as_they_are(path: Path) -> None:
    """Whoever let others read the file meant it; what is made beside it is for its owner. The doctor says so."""
    Store.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(path.with_name(path.name + ".writer.lock").stat().st_mode) == 0o600
    assert "mode 644: other users may open it" in " ".join(one.words for one in examine(path))


async def test_the_log_goes_on(path: Path, stored: Stored) -> None:
    """What was left open is sealed, every session that may take runs takes them, and the whole is lawful."""
    async with scene(path.parent) as it:
        sessions = {one.session_id: one for one in await it.log.sessions()}
        assert {name for name, one in sessions.items() if one.retired} == stored.retired.keys()
        assert {name for name, one in sessions.items() if one.bodies != "kept"} == stored.retired.keys() - {"retired"}
        assert [one.open_run_id for one in sessions.values()] == [None] * stored.sessions
        for session in ("shop", "stopped", "long"):
            it.provider.say("and on")
            await it.engine.run(it.input("go on", session=session))
        assert (await it.log.head()).high_water > stored.events
    assert told(path)[: stored.events] == told(stored.file)
    log = LogFile(path)
    assert list(Verification(log.read, log.path).violations()) == []


# --- reading without owning ---------------------------------------------------------------------------------


def _export(path: Path, stored: Stored) -> None:
    log = LogFile(path)
    session_id, events = stored.whole
    assert len(list(Export(log.read, log.path, session_id).lines())) == events + 2


def _copy(path: Path, stored: Stored) -> None:
    target = path.with_name("copy")
    end = LogFile(path).read(lambda one: backup(one, target))
    assert (end.high_water, version_of(target)) == (stored.events, stored.number)
    assert told(target) == told(stored.file)
    target.unlink()


def _verify(path: Path, stored: Stored) -> None:
    log = LogFile(path)
    check = Verification(log.read, log.path)
    assert (list(check.violations()), check.events) == ([], stored.events)


def _list(path: Path, stored: Stored) -> None:
    assert len(list(LogFile(path).events())) == stored.events
    for session_id, count in stored.retired.items():
        assert len(list(LogFile(path).events(session_id=session_id))) == count


def _examine(path: Path, stored: Stored) -> None:
    (found,) = [one for one in examine(path) if one.subject == "log"]
    assert found.words.startswith(f"format {stored.number}, ")
    assert f"ends at event {stored.events}" in found.words
    assert f"brings it forward to format {schema.FORMAT}" in (found.advice or "")


@pytest.mark.parametrize("read", [_verify, _list, _export, _copy, _examine])
def test_reading_changes_nothing(path: Path, stored: Stored, read: Callable[[Path, Stored], None]) -> None:
    """Who does not own a log reads an older one as it is: not a byte of it changes, and no file stays beside it."""
    before = path.read_bytes()
    path.chmod(0o444)
    read(path, stored)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("command", ["verify", "log", "export", "doctor"])
def test_the_commands_read_it(path: Path, stored: Stored, capfd: pytest.CaptureFixture[str], command: str) -> None:
    """None asks for a newer file first."""
    before = path.read_bytes()
    session_id, _ = stored.whole
    part = ["--session", session_id] if command == "export" and session_id else []
    assert main([command, str(path), *part]) == 0
    assert capfd.readouterr().out
    assert path.read_bytes() == before
    assert list(path.parent.glob(f"{path.name}*")) == [path]


def test_an_older_log_whose_owner_was_killed(path: Path, stored: Stored) -> None:
    """It has a write-ahead log, which is read with it, and taken in by who opens it."""
    killed = path.with_name("killed.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE sessions SET retired = 1 WHERE session_id = 'long'")
        for suffix in ("", "-wal"):
            shutil.copyfile(path.with_name(path.name + suffix), killed.with_name(killed.name + suffix))
    log = LogFile(killed)
    assert {one.session_id for one in log.read(sessions) if one.retired} == {*stored.retired, "long"}
    assert list(Verification(log.read, log.path).violations()) == []
    assert version_of(killed) == stored.number
    store = Store.open(killed)
    store.close()
    assert (version_of(killed), told(killed)) == (schema.FORMAT, told(stored.file))
    assert {one.session_id for one in LogFile(killed).read(sessions) if one.retired} == {*stored.retired, "long"}


@pytest.mark.parametrize("stored", [FORMAT_1], ids=str, indirect=True)
def test_what_is_left_of_a_damaged_one_is_found(path: Path, stored: Stored) -> None:
    """Past a page that is gone it is read as a newer one would be."""
    assert lose_page(path, 200) == 200
    log = LogFile(path)
    found = {one.sequence for one in Verification(log.read, log.path).violations()}
    assert 200 in found
    assert found.isdisjoint({*range(1, 150), *range(250, stored.events + 1)})
    assert stored.events - 50 < len(list(Export(log.read, log.path).lines())) < stored.events + 2


def test_a_backup_of_an_older_log_is_brought_forward_like_it(path: Path, stored: Stored) -> None:
    """It is a log of its own."""
    LogFile(path).read(lambda one: backup(one, path.with_name("copy")))
    store = Store.open(path.with_name("copy"))
    assert store.root.high_water == stored.events
    store.close()


@pytest.mark.parametrize(("number", "error"), [(schema.FORMAT + 1, LogTooNew), (0, LogUnsupported)])
def test_a_format_that_nobody_knows_is_not_read(path: Path, number: int, error: type[Exception]) -> None:
    """Neither by who owns it nor by who does not; it stays as it is."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    before = path.read_bytes()
    for attempt in (lambda: LogFile(path).head(), lambda: Store.open(path)):
        with pytest.raises(error, match=f"format {number}"):
            attempt()
    assert path.read_bytes() == before


def uses(connection: sqlite3.Connection, ask: Callable[[sqlite3.Connection], Any]) -> set[str]:
    """How SQLite answers what is asked about operations."""
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    assert not ask(connection)
    connection.set_trace_callback(None)
    plans = [connection.execute(f"EXPLAIN QUERY PLAN {one}").fetchall() for one in asked if "operation_id" in one]
    return {line for plan in plans for *_, line in plan if "events_by_id" not in line}


def test_operations_are_looked_up_in_the_index_of_any_format(path: Path) -> None:
    """Its condition became another; what is asked of it implies the one as well as the other."""
    searches = {
        "SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        "SEARCH i USING INDEX events_by_operation (operation_id=? AND <expr>=? AND rowid=?)",
    }
    for _ in range(2):
        with closing(schema.open_immutable(path)) as connection:
            places = uses(connection, lambda one: wrong_with_places(one, (0, 10_000), None, (), ()))
            assert {line for line in places if line.startswith("SEARCH")} == searches
            assert "SEARCH events USING INDEX events_by_operation (operation_id>?)" in uses(connection, wrong_with_file)
        store = Store.open(path)
        assert uses(store.connection, lambda one: check_operation(one, dispatched("new"))) == {
            "SEARCH events USING INDEX events_by_operation (operation_id=?)"
        }
        store.close()


# --- cut off in the middle ----------------------------------------------------------------------------------


def _fail() -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("stored", "number"),
    [(one, number) for one in ALL for number in range(one.steps + 2)],
    ids=str,
    indirect=["stored"],
)
def test_a_failure_at_any_statement_leaves_one_format_or_the_other(
    path: Path, stored: Stored, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The file is of the old format until all of it is of the new one, and is opened either way."""
    before = told(path)

    def broken(connection: sqlite3.Connection, *args: Any) -> None:
        migrate(Interrupted(connection, number, _fail), *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrate", broken)
        if number <= stored.steps:
            with pytest.raises(RuntimeError, match="no"):
                Store.open(path)
        else:
            Store.open(path).close()
    assert version_of(path) == (stored.number if number < stored.steps else schema.FORMAT)
    assert told(path) == before
    store = Store.open(path)
    assert store.root.high_water == stored.events
    store.close()
    assert version_of(path) == schema.FORMAT


def test_a_kill_at_any_statement_leaves_one_format_or_the_other(path: Path, stored: Stored) -> None:
    """The same by a process that is gone: the next one finds a log, whole."""
    before = told(path)
    for number in range(stored.steps + 1):
        copy = path.with_name(f"log {number}")
        shutil.copyfile(path, copy)
        assert exit_code_of(migrate_and_die, copy, number) == -signal.SIGKILL
        with closing(sqlite3.connect(copy)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        assert version == (stored.number if number < stored.steps else schema.FORMAT)
        Store.open(copy).close()
        assert told(copy) == before


def test_a_damaged_one_is_not_brought_forward(path: Path, stored: Stored) -> None:
    """Whoever would write to it is told, and it stays readable as far as it was."""
    lost = lose_page(path, 70)
    before = path.read_bytes()
    with pytest.raises(LogCorrupt):
        Store.open(path)
    assert path.read_bytes() == before
    assert len(list(LogFile(path).events(after=lost + 40))) == stored.events - lost - 40


@pytest.mark.parametrize("stored", [FORMAT_1], ids=str, indirect=True)  # what comes after needs no more pages
def test_a_full_disk_leaves_the_old_format(path: Path, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is LogFull, the file is as it was, and it is brought forward once there is space."""
    before = told(path)
    connect = schema._connect

    def full(*args: Any) -> sqlite3.Connection:
        connection = connect(*args)
        connection.execute("PRAGMA max_page_count = 1")  # which SQLite takes for as many as there are
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(schema, "_connect", full)
        with pytest.raises(LogFull):
            Store.open(path)
    assert (version_of(path), told(path)) == (stored.number, before)
    assert {path, lock_path(path)} == set(path.parent.iterdir())
    store = Store.open(path)
    put(store, event(Invocation.new("new"), opened()))
    store.close()


def test_a_way_of_several_steps_is_gone_in_one(path: Path, stored: Stored) -> None:
    """Each step runs once, in order, in one transaction; a file that is there already is not touched."""
    ways = {stored.number + step: Migration((f"CREATE TABLE added_{step}(x)",)) for step in (0, 1)}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, stored.number + 2, ways)
        migrate(connection, stored.number + 2, ways)
        assert connection.execute("PRAGMA user_version").fetchone() == (stored.number + 2,)
        assert connection.execute("SELECT * FROM added_0, added_1").fetchall() == []


async def test_an_older_log_is_followed_from_its_beginning(path: Path, stored: Stored) -> None:
    """Readers beside the owner see what was written before as what is written now."""
    async with EventLog.open(path) as log:
        invocation = Invocation.new("new")
        await log.commit_batch([event(invocation, opened()), event(invocation, COMPLETED)])
        got = []
        async with log.follow() as follower:
            async for one in follower:
                got.append(one.sequence)
                if one.sequence == stored.events + 2:
                    break
    assert got == list(range(1, stored.events + 3))
