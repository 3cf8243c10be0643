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

import pytest

from maka_trio.cli.log_file import LogFile
from maka_trio.cli.main import main
from maka_trio.errors import LogFull, LogTooNew, LogUnsupported
from maka_trio.facts import Invocation, Root, RuntimeEvent, Session
from maka_trio.facts.codec import decode_fact, encode_invocation, join_event
from maka_trio.facts.prefix import chain_next, chain_start
from maka_trio.log import EventLog, schema
from maka_trio.log.backup import backup
from maka_trio.log.health import examine
from maka_trio.log.lease import lock_path
from maka_trio.log.migrations import MIGRATIONS, Migration, migrate
from maka_trio.log.prefixes import prefix
from maka_trio.log.queries import sessions
from maka_trio.log.store import Store
from maka_trio.log.transfer import Export
from maka_trio.log.verification import Verification
from tests.engine.scene import scene
from tests.forked import exit_code_of
from tests.log.interrupted import Interrupted, migrate_and_die
from tests.log.log_story import COMPLETED, event, opened, put, reader

FORMAT_1 = Path(__file__).with_name("formats") / "format_1.sqlite"
"""A log as format 1 wrote it: five sessions, one of them retired, one with a run that never ended."""

EVENTS = 385
STEPS = len(MIGRATIONS[1].changes) + 4  # with the version, the begin, the number and the commit

Told = list[tuple[RuntimeEvent, bytes, bytes]]
"""Events with the digests of the log and of their session."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of the stored file, as a checkout gives it: readable by everybody."""
    path = tmp_path / "log.sqlite"
    shutil.copyfile(FORMAT_1, path)
    path.chmod(0o644)
    return path


def version_of(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64], "big")


def told(path: Path) -> Told:
    """What the file holds, by nothing but its first tables."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT events.sequence, event_id, recorded_at, body, root_digest, session_digest, "
            "session_id, turn_id, run_id, invocation_id FROM events "
            "JOIN invocations ON invocations.id = events.invocation JOIN sessions ON sessions.id = events.session "
            "ORDER BY events.sequence"
        ).fetchall()
    found: Told = []
    log = chain_start(Root())
    sessions: dict[str, bytes] = {}
    for sequence, event_id, recorded_at, body, root_digest, session_digest, *identity in rows:
        invocation = Invocation(*identity)
        whole = join_event(event_id, recorded_at, encode_invocation(invocation), body)
        log = chain_next(log, sequence, whole)
        name = invocation.session_id
        sessions[name] = chain_next(sessions.get(name, chain_start(Session(name))), sequence, whole)
        assert (sequence, root_digest, session_digest) == (len(found) + 1, log, sessions[name])
        found.append((RuntimeEvent(event_id, recorded_at, invocation, decode_fact(body)), log, sessions[name]))
    return found


def shape(connection: sqlite3.Connection) -> dict[str, Any]:
    """Tables with their columns, and the indices that somebody made, with theirs."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    indices = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    columns = {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in tables}
    return columns | dict(indices.fetchall())


def test_the_stored_file_is_what_it_was() -> None:
    """Nobody has made another one, and this version has not been let at it."""
    assert version_of(FORMAT_1) == 1
    assert len(told(FORMAT_1)) == EVENTS


# --- opening ------------------------------------------------------------------------------------------------


def test_every_event_and_digest_is_kept(path: Path) -> None:
    """Bringing a log forward changes its number and what it can hold besides, and nothing that it holds."""
    before = told(path)
    store = Store.open(path)
    whole = prefix(reader(store), Root(), EVENTS, 10**8)
    store.close()
    assert [stored.event for stored in whole.events] == [one for one, _, _ in before]
    assert whole.digest == f"sha256:{before[-1][1].hex()}"
    assert told(path) == before
    assert version_of(path) == schema.FORMAT


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


async def test_the_log_goes_on(path: Path) -> None:
    """What was left open is sealed, every session that may take runs takes them, and the whole is lawful."""
    async with scene(path.parent) as it:
        sessions = {one.session_id: one for one in await it.log.sessions()}
        assert {name for name, one in sessions.items() if one.retired} == {"retired"}
        assert {one.bodies for one in sessions.values()} == {"kept"}
        assert [one.open_run_id for one in sessions.values()] == [None] * 5
        for session in ("shop", "stopped", "long"):
            it.provider.say("and on")
            await it.engine.run(it.input("go on", session=session))
        assert (await it.log.head()).high_water > EVENTS
    assert told(path)[:EVENTS] == told(FORMAT_1)
    log = LogFile(path)
    assert list(Verification(log.read, log.path).violations()) == []


# --- reading without owning ---------------------------------------------------------------------------------


def _export(path: Path) -> None:
    log = LogFile(path)
    assert len(list(Export(log.read, log.path).lines())) == EVENTS + 2


def _copy(path: Path) -> None:
    target = path.with_name("copy")
    end = LogFile(path).read(lambda one: backup(one, target))
    assert (end.high_water, version_of(target)) == (EVENTS, 1)
    assert told(target) == told(FORMAT_1)
    target.unlink()


def _verify(path: Path) -> None:
    log = LogFile(path)
    check = Verification(log.read, log.path)
    assert (list(check.violations()), check.events) == ([], EVENTS)


def _list(path: Path) -> None:
    assert len(list(LogFile(path).events())) == EVENTS
    assert len(list(LogFile(path).events(session_id="retired"))) == 10


def _examine(path: Path) -> None:
    (found,) = [one for one in examine(path) if one.subject == "log"]
    assert found.words.startswith("format 1, ")
    assert f"ends at event {EVENTS}" in found.words
    assert "brings it forward" in (found.advice or "")


@pytest.mark.parametrize("read", [_verify, _list, _export, _copy, _examine])
def test_reading_changes_nothing(path: Path, read: Callable[[Path], None]) -> None:
    """Who does not own a log reads an older one as it is: not a byte of it changes, and no file stays beside it."""
    before = path.read_bytes()
    path.chmod(0o444)
    read(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("command", ["verify", "log", "export", "doctor"])
def test_the_commands_read_it(path: Path, capfd: pytest.CaptureFixture[str], command: str) -> None:
    """None asks for a newer file first."""
    before = path.read_bytes()
    assert main([command, str(path)]) == 0
    assert capfd.readouterr().out
    assert path.read_bytes() == before
    assert list(path.parent.glob(f"{path.name}*")) == [path]


def test_an_older_log_whose_owner_was_killed(path: Path) -> None:
    """It has a write-ahead log, which is read with it, and taken in by who opens it."""
    killed = path.with_name("killed.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE sessions SET retired = 1 WHERE session_id = 'long'")
        for suffix in ("", "-wal"):
            shutil.copyfile(path.with_name(path.name + suffix), killed.with_name(killed.name + suffix))
    log = LogFile(killed)
    assert {one.session_id for one in log.read(sessions) if one.retired} == {"retired", "long"}
    assert list(Verification(log.read, log.path).violations()) == []
    assert version_of(killed) == 1
    store = Store.open(killed)
    store.close()
    assert (version_of(killed), told(killed)) == (schema.FORMAT, told(FORMAT_1))
    assert {one.session_id for one in LogFile(killed).read(sessions) if one.retired} == {"retired", "long"}


def test_what_is_left_of_a_damaged_one_is_found(path: Path) -> None:
    """Past a page that is gone it is read as a newer one would be."""
    with closing(sqlite3.connect(path)) as connection:
        ((event_id,),) = connection.execute("SELECT event_id FROM events WHERE sequence = 200")
    data = bytearray(path.read_bytes())
    page = data.index(event_id.encode()) // 4096 * 4096
    data[page : page + 4096] = bytes(4096)
    path.write_bytes(data)
    log = LogFile(path)
    found = {one.sequence for one in Verification(log.read, log.path).violations()}
    assert 200 in found
    assert found.isdisjoint({*range(1, 150), *range(250, EVENTS + 1)})
    assert EVENTS - 50 < len(list(Export(log.read, log.path).lines())) < EVENTS + 2


def test_a_backup_of_an_older_log_is_brought_forward_like_it(path: Path) -> None:
    """It is a log of its own."""
    LogFile(path).read(lambda one: backup(one, path.with_name("copy")))
    store = Store.open(path.with_name("copy"))
    assert store.root.high_water == EVENTS
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


# --- cut off in the middle ----------------------------------------------------------------------------------


def _fail() -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize("number", range(STEPS + 2))
def test_a_failure_at_any_statement_leaves_one_format_or_the_other(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The file is of the old format until all of it is of the new one, and is opened either way."""
    before = told(path)

    def broken(connection: sqlite3.Connection, *args: Any) -> None:
        migrate(Interrupted(connection, number, _fail), *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrate", broken)
        if number <= STEPS:
            with pytest.raises(RuntimeError, match="no"):
                Store.open(path)
        else:
            Store.open(path).close()
    assert version_of(path) == (1 if number < STEPS else schema.FORMAT)
    assert told(path) == before
    store = Store.open(path)
    assert store.root.high_water == EVENTS
    store.close()
    assert version_of(path) == schema.FORMAT


def test_a_kill_at_any_statement_leaves_one_format_or_the_other(path: Path) -> None:
    """The same by a process that is gone: the next one finds a log, whole."""
    before = told(path)
    for number in range(STEPS + 1):
        copy = path.with_name(f"log {number}")
        shutil.copyfile(path, copy)
        assert exit_code_of(migrate_and_die, copy, number) == -signal.SIGKILL
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (1 if number < STEPS else schema.FORMAT,)
        Store.open(copy).close()
        assert told(copy) == before


def test_a_full_disk_leaves_the_old_format(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert (version_of(path), told(path)) == (1, before)
    assert {path, lock_path(path)} == set(path.parent.iterdir())
    store = Store.open(path)
    put(store, event(Invocation.new("new"), opened()))
    store.close()


def test_a_way_of_several_steps_is_gone_in_one(path: Path) -> None:
    """Each step runs once, in order, in one transaction; a file that is there already is not touched."""
    ways = {number: Migration((f"CREATE TABLE added_{number}(x)",)) for number in (1, 2)}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, 3, ways)
        migrate(connection, 3, ways)
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
        assert connection.execute("SELECT * FROM added_1, added_2").fetchall() == []


async def test_an_older_log_is_followed_from_its_beginning(path: Path) -> None:
    """Readers beside the owner see what was written before as what is written now."""
    async with EventLog.open(path) as log:
        invocation = Invocation.new("new")
        await log.commit_batch([event(invocation, opened()), event(invocation, COMPLETED)])
        got = []
        async with log.follow() as follower:
            async for stored in follower:
                got.append(stored.sequence)
                if stored.sequence == EVENTS + 2:
                    break
    assert got == list(range(1, EVENTS + 3))
