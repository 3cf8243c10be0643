"""A damaged log: the first bad event is named, nothing is made anew, and the rest can still be read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from maka_trio.cli.log_file import LogFile
from maka_trio.errors import InvalidInput, LogCorrupt, LogInUse, StoreError
from maka_trio.facts import CodeOpening, Invocation, Root, Session
from maka_trio.facts.message import MediaContent, TextContent, UserMessage
from maka_trio.laws import Violation
from maka_trio.log.backup import backup
from maka_trio.log.lease import lock_path
from maka_trio.log.mark import read_mark
from maka_trio.log.prefixes import prefix
from maka_trio.log.queries import read_context
from maka_trio.log.reader import Reader
from maka_trio.log.schema import open_reader
from maka_trio.log.store import Store
from maka_trio.log.transfer import Export, import_bundle
from maka_trio.log.verification import Verification
from tests.engine.scene import echo, registration, scene
from tests.forked import exit_code_of
from tests.log.interrupted import append_and_die
from tests.log.log_story import COMPLETED, copied, opened, reader, tell

PNG = b"\x89PNG\r\n\x1a\n"


async def _tell_turns(folder: Path) -> None:
    async with scene(folder) as it:
        for number in range(4):
            it.provider.call_tools(("echo", {"value": "r" * 40 + str(number)}, "c1"))
            it.provider.say("that is all")
            question = UserMessage((TextContent(f"hello {number}"), MediaContent("image/png", PNG + bytes(number))))
            await it.engine.run(it.input(question, tools=[registration("echo", echo)], session=f"session {number % 2}"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lawful log of two sessions, with results and pictures, as an engine writes it."""
    folder = tmp_path_factory.mktemp("template")
    trio.run(_tell_turns, folder)
    return folder / "log.sqlite"


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    """A copy of it, with its lock file."""
    return copied(template, tmp_path / "log.db")


def end_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT max(sequence) FROM events").fetchone()[0])


def at(path: Path, kind: str, number: int = 0) -> int:
    """The sequence of an event of this kind, by how many come before it."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT sequence FROM events WHERE kind = ? ORDER BY 1", (kind,)).fetchall()
    return int(rows[number][0])


def write_many(path: Path, turns: int) -> int:
    """Lengthen the log by programs that say nothing; return its last sequence."""
    store = Store.open(path)
    for number in range(turns):
        tell(store, Invocation.new(f"program {number % 3}"), opened(CodeOpening("x" * 400)), COMPLETED)
    store.close()
    return store.root.high_water


def verify(path: Path, session_id: str | None = None) -> list[Violation]:
    log = LogFile(path)
    return list(Verification(log.read, log.path, session_id).violations())


def places(path: Path, session_id: str | None = None) -> list[int | None]:
    return sorted({one.sequence for one in verify(path, session_id)}, key=lambda one: one or 0)


def change(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(sql, values).rowcount > 0
        connection.commit()


def flip(path: Path, content: bytes) -> None:
    """Change one bit of the file, in the middle of some content that it has once."""
    data = bytearray(path.read_bytes())
    assert data.count(content) == 1
    data[data.index(content) + len(content) // 2] ^= 1
    path.write_bytes(data)


def stored(path: Path, column: str, sequence: int) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        (value,) = connection.execute(f"SELECT {column} FROM events WHERE sequence = ?", (sequence,)).fetchone()
    return value if isinstance(value, bytes) else str(value).encode()


# --- one flipped bit --------------------------------------------------------------------------------------


def test_sound_log_verifies(path: Path) -> None:
    """Nothing is found where nothing is wrong, in the whole log and in each session."""
    assert [verify(path), verify(path, "session 0"), verify(path, "session 1")] == [[], [], []]


@pytest.mark.parametrize("column", ["body", "root_digest", "session_digest", "event_id"])
@pytest.mark.parametrize("kind", ["invocation_opened", "model_observed", "model_completed", "tool_settled"])
@pytest.mark.parametrize("number", [0, 2])
def test_flipped_bit_in_an_event_is_named(path: Path, column: str, kind: str, number: int) -> None:
    """One bit in an event or in its digest is found at that event, once, and reading goes on behind it."""
    sequence = at(path, kind, number)
    content = stored(path, column, sequence)
    if column == "event_id":
        change(path, "UPDATE events SET event_id = 'x' || substr(event_id, 2) WHERE sequence = ?", sequence)
    elif column == "body":
        middle = content.rindex(b'"kind":"') + 9
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        change(path, "UPDATE events SET body = ? WHERE sequence = ?", changed, sequence)
    else:
        flip(path, content)
    assert places(path) == [sequence]


@pytest.mark.parametrize("kind", ["model_observed", "tool_settled"])
def test_prefix_of_a_changed_log_names_the_event(path: Path, kind: str) -> None:
    """The owner that reads the log is told the same place."""
    sequence = at(path, kind, 1)
    content = stored(path, "body", sequence)
    change(path, "UPDATE events SET body = ? WHERE sequence = ?", content.replace(b"s", b"t", 1), sequence)
    store = Store.open(path)
    with pytest.raises(LogCorrupt) as caught:
        prefix(reader(store), Root(), 1000, 10**7)
    assert caught.value.sequence == sequence
    store.close()


def test_context_of_a_changed_log_names_the_event(path: Path) -> None:
    """A changed word never reaches a model: the history of a session is held against the digests as it is read."""
    content = stored(path, "body", 1)
    change(path, "UPDATE events SET body = ? WHERE sequence = 1", content.replace(b"hello", b"jello"))
    store = Store.open(path)
    with pytest.raises(LogCorrupt) as caught:
        read_context(reader(store), "session 0", 1000, 10**7)
    assert caught.value.sequence == 1
    read_context(reader(store), "session 1", 1000, 10**7)
    store.close()


DAMAGE: dict[str, tuple[str, str]] = {
    "a changed result": ("tool_settled", "UPDATE payloads SET data = data || ' ' WHERE sequence = ?"),
    "as long a result": ("tool_settled", "UPDATE payloads SET data = replace(data, 'rr', 'rs') WHERE sequence = ?"),
    "a changed digest": ("tool_settled", "UPDATE payloads SET digest = 'sha256:0' WHERE sequence = ?"),
    "a lost result": ("tool_settled", "DELETE FROM payloads WHERE sequence = ?"),
    "a changed picture": ("invocation_opened", "UPDATE artifacts SET data = data || 'x' WHERE sequence = ?"),
    "another picture": ("invocation_opened", "UPDATE artifacts SET digest = 'sha256:0' WHERE sequence = ?"),
    "a lost picture": ("invocation_opened", "DELETE FROM artifacts WHERE sequence = ?"),
    "a changed time": ("tool_dispatched", "UPDATE events SET recorded_at = recorded_at + 1 WHERE sequence = ?"),
    "another kind": ("model_requested", "UPDATE events SET kind = 'tool_notified' WHERE sequence = ?"),
    "another operation": ("tool_dispatched", "UPDATE events SET operation_id = 'x' WHERE sequence = ?"),
    "a broken link": ("model_completed", "UPDATE events SET previous = 1 WHERE sequence = ?"),
    "a broken link of facts": ("model_completed", "UPDATE events SET previous_fact = 1 WHERE sequence = ?"),
    "a text that is none": ("tool_dispatched", "UPDATE events SET event_id = CAST(x'ff' AS TEXT) WHERE sequence = ?"),
    "a number for a body": ("model_completed", "UPDATE events SET body = 7 WHERE sequence = ?"),
    "no invocation": ("model_observed", "UPDATE events SET invocation = 999 WHERE sequence = ?"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_each_kind_of_damage_is_named(path: Path, name: str) -> None:
    """Whatever column or table was changed, `verify` names the event, and just that one."""
    kind, sql = DAMAGE[name]
    sequence = at(path, kind, 1)
    change(path, sql, sequence)
    found = verify(path)
    assert {(one.law, one.sequence) for one in found} == {(9, sequence)}


def test_event_taken_out_breaks_the_chain_behind_it(path: Path) -> None:
    """The next event of the log no longer follows, whatever its own digest says."""
    sequence = at(path, "model_observed", 3)
    change(path, "DELETE FROM events WHERE sequence = ?", sequence)
    assert (9, sequence + 1) in {(one.law, one.sequence) for one in verify(path)}


def test_last_event_taken_out_is_missed(path: Path) -> None:
    """The session, its invocation and the lock file all know that there was one more."""
    end = end_of(path)
    change(path, "DELETE FROM events WHERE sequence = ?", end)
    assert places(path) == [None, end]
    lock_path(path).unlink()
    assert places(path) == [None, end]


# --- pages --------------------------------------------------------------------------------------------------


def pages_of(path: Path) -> int:
    return path.stat().st_size // 4096


def test_any_damaged_page_leaves_the_rest_readable(path: Path) -> None:
    """Each page in turn is overwritten: what is lost is named, nothing else is lost, and no page is passed over."""
    end = write_many(path, 20)
    sound = path.read_bytes()
    silent = []
    for page in range(1, pages_of(path)):
        damaged = bytearray(sound)
        damaged[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
        path.write_bytes(damaged)
        try:
            log = LogFile(path)
            export = Export(log.read, log.path)
            events = sum(1 for _ in export.lines()) - 2
        except LogCorrupt:
            continue  # the tables cannot even be found: said, and nothing written
        assert events + len({sequence for sequence, _ in export.damaged if sequence}) >= end
        if not export.damaged:
            silent.append(page)
            assert events == end
    assert len(silent) < pages_of(path) // 2  # indexes, which are not evidence
    assert path.read_bytes() == damaged


def test_first_page_overwritten(path: Path) -> None:
    """Without its first page nothing of a log can be read: the damage begins at event 1, and the file is left alone."""
    data = bytearray(path.read_bytes())
    data[:4096] = bytes(4096)
    path.write_bytes(data)
    for opener in (Store.open, LogFile):
        with pytest.raises(LogCorrupt, match="first page") as caught:
            opener(path)
        assert caught.value.sequence == 1
    assert path.read_bytes() == data


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_truncated_file_names_the_first_lost_event(path: Path, share: float) -> None:
    """What was cut off is named by its first event, and what is before it can be exported."""
    write_many(path, 60)
    os.truncate(path, int(pages_of(path) * share) * 4096)
    cut = path.read_bytes()
    with pytest.raises(LogCorrupt) as caught:
        Store.open(path).close()
    assert caught.value.sequence is not None
    assert path.read_bytes() == cut
    found = places(path)
    assert found[0] == caught.value.sequence


# --- the write-ahead log --------------------------------------------------------------------------------------


def killed_owner(path: Path) -> None:
    assert exit_code_of(append_and_die, path) == -signal.SIGKILL
    assert path.with_name(path.name + "-wal").stat().st_size > 0


def test_killed_owner_loses_nothing(path: Path) -> None:
    """What a killed owner left in the write-ahead log is taken in by the next."""
    end = end_of(path)
    killed_owner(path)
    assert verify(path) == []
    store = Store.open(path)
    assert store.root.high_water == end + 10
    store.close()


def test_deleted_write_ahead_log_is_named(path: Path) -> None:
    """Acknowledged events that went with a deleted write-ahead log are missed: nothing is appended over the hole."""
    end = end_of(path)
    killed_owner(path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(LogCorrupt, match="acknowledged") as caught:
            Store.open(path)
        assert caught.value.sequence == end + 1
    assert path.read_bytes() == before
    assert places(path) == [end + 1]
    lock_path(path).unlink()
    store = Store.open(path)  # as the message says: its owner has decided to go on without them
    assert store.root.high_water == end
    store.close()


def test_older_copy_in_the_place_of_a_log(path: Path, tmp_path: Path) -> None:
    """A copy that lacks acknowledged events is not taken for the log."""
    end = end_of(path)
    shutil.copy(path, tmp_path / "older")
    write_many(path, 1)
    shutil.copy(tmp_path / "older", path)
    with pytest.raises(LogCorrupt, match="older copy") as caught:
        Store.open(path)
    assert caught.value.sequence == end + 1


def test_vanished_log_is_not_begun_anew(path: Path) -> None:
    """Where acknowledged events have been, an empty log would be a lie."""
    path.unlink()
    with pytest.raises(LogCorrupt, match="is gone") as caught:
        Store.open(path)
    assert caught.value.sequence == 1
    assert not path.exists()
    lock_path(path).unlink()
    Store.open(path).close()


def test_orphaned_write_ahead_log_is_not_mixed_into_a_new_log(path: Path) -> None:
    """SQLite would take it for the new file's own."""
    killed_owner(path)
    path.unlink()
    lock_path(path).unlink()
    wal = path.with_name(path.name + "-wal")
    before = wal.read_bytes()
    with pytest.raises(LogCorrupt, match="write-ahead log"):
        Store.open(path)
    assert (path.exists(), wal.read_bytes()) == (False, before)


def test_acknowledged_events_are_noted_before_anybody_is_told(tmp_path: Path) -> None:
    """The number beside the log is that of its last commit, while it is open and afterwards, and never ahead of it."""
    path = tmp_path / "new.db"
    store = Store.open(path)
    for expected in range(1, 4):
        tell(store, Invocation.new(f"{expected}"), opened())
        assert read_mark(lock_path(path)) == expected == store.root.high_water
    with pytest.raises(LogInUse):
        Store.open(path)
    assert read_mark(lock_path(path)) == 3
    store.close()
    assert read_mark(lock_path(path)) == 3


# --- copies -------------------------------------------------------------------------------------------------


def lines_of(path: Path, session_id: str | None = None) -> list[bytes]:
    log = LogFile(path)
    export = Export(log.read, log.path, session_id)
    lines = list(export.lines())
    assert export.damaged == []
    return lines


@pytest.mark.parametrize("session_id", [None, "session 0", "session 1"])
def test_exported_and_imported_it_is_the_same(path: Path, tmp_path: Path, session_id: str | None) -> None:
    """Sequences, digests, results and pictures are those of the log it came from, and the copy can be written on."""
    lines = lines_of(path, session_id)
    copy = tmp_path / "copy.db"
    end = import_bundle(iter(lines), copy)
    assert end.events == len(lines) - 2
    assert verify(copy) == []
    assert lines_of(copy, session_id) == lines
    with closing(open_reader(path)) as one, closing(open_reader(copy)) as other:
        names = [session_id] if session_id else ["session 0", "session 1"]
        for name in names:
            assert prefix(Reader(one), Session(name), 1000, 10**7) == prefix(Reader(other), Session(name), 1000, 10**7)
        assert len(prefix(Reader(other), Root(), 1000, 10**7).events) == end.events
    store = Store.open(copy)
    tell(store, Invocation.new(names[0]), opened())
    assert store.root.high_water == max(one.high_water for one in end.sessions) + 1
    store.close()
    assert verify(copy) == []


def test_empty_log_can_be_moved(tmp_path: Path) -> None:
    """A log without events has a bundle too."""
    path = tmp_path / "new.db"
    Store.open(path).close()
    assert import_bundle(iter(lines_of(path)), tmp_path / "copy.db").events == 0


def fields(value: object, at: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """The place of each scalar in some JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from fields(inner, (*at, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from fields(inner, (*at, number))
    else:
        yield at


def tampered(line: bytes, at: tuple[object, ...]) -> bytes:
    value = json.loads(line)
    holder = value
    for key in at[:-1]:
        holder = holder[key]
    old = holder[at[-1]]
    match old:
        case bool():
            new: object = not old
        case int():
            new = old + 1
        case str() if len(old) > 1:
            new = old[:-1] + ("A" if old[-1] != "A" else "B")
        case _:
            new = "x"
    holder[at[-1]] = new
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def test_any_changed_field_is_refused(path: Path, tmp_path: Path) -> None:
    """Each field of each line in turn, whatever it means, also in the header and the end."""
    lines = lines_of(path, "session 0")
    tried = 0
    for number, line in enumerate(lines):
        for place in fields(json.loads(line)):
            changed = [*lines[:number], tampered(line, place), *lines[number + 1 :]]
            assert changed != lines
            with pytest.raises(InvalidInput):
                import_bundle(iter(changed), tmp_path / "copy.db")
            assert not (tmp_path / "copy.db").exists()
            tried += 1
    assert tried > 200


EDITS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a line taken out": lambda lines: [*lines[:3], *lines[4:]],
    "a line twice": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "two lines exchanged": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "cut off": lambda lines: lines[:-1],
    "cut within a line": lambda lines: [*lines[:-1], lines[-1][:20]],
    "more after the end": lambda lines: [*lines, lines[1]],
    "no header": lambda lines: lines[1:],
    "nothing": lambda lines: [],
    "no JSON": lambda lines: [lines[0], b"nonsense\n"],
    "an array": lambda lines: [lines[0], b"[]\n"],
    "other spelling": lambda lines: [lines[0], lines[1].replace(b":", b": ", 1), *lines[2:]],
    "another field": lambda lines: [*lines[:2], lines[2].replace(b'{"', b'{"a":1,"', 1), *lines[3:]],
}


@pytest.mark.parametrize("name", EDITS)
def test_a_bundle_that_was_edited_is_refused(path: Path, tmp_path: Path, name: str) -> None:
    """Lines belong where they were; the folder is left as it was, the lock file apart."""
    with pytest.raises(InvalidInput, match="bundle"):
        import_bundle(iter(EDITS[name](lines_of(path))), tmp_path / "copy.db")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("copy")] == ["copy.db.writer.lock"]


def test_import_overwrites_nothing(path: Path, tmp_path: Path) -> None:
    """A file that is there stays as it is, and so does a log that is in use."""
    lines = lines_of(path)
    (tmp_path / "there").write_bytes(b"mine")
    with pytest.raises(StoreError, match="exists"):
        import_bundle(iter(lines), tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"mine"
    store = Store.open(path)
    with pytest.raises(LogInUse):
        import_bundle(iter(lines), path)
    store.close()


def test_export_of_a_damaged_log_is_for_reading_only(path: Path, tmp_path: Path) -> None:
    """What can be read is there, what is wrong is named in the end, and import refuses it."""
    end, sequence = end_of(path), at(path, "model_observed", 1)
    content = stored(path, "body", sequence)
    change(path, "UPDATE events SET body = ? WHERE sequence = ?", content[:-1], sequence)
    log = LogFile(path)
    export = Export(log.read, log.path)
    lines = list(export.lines())
    assert len(lines) == end - 1 + 2
    assert {sequence for sequence, _ in export.damaged} == {sequence}
    with pytest.raises(InvalidInput):
        import_bundle(iter(lines), tmp_path / "copy.db")


def test_backup_is_a_log(path: Path, tmp_path: Path) -> None:
    """A copy made beside the owner has the same end and verifies, and nothing else is left in the folder."""
    end = end_of(path)
    store = Store.open(path)
    tell(store, Invocation.new("more"), opened())
    with closing(open_reader(path)) as connection:
        head = backup(Reader(connection), tmp_path / "copies.db")
        tell(store, Invocation.new("later"), opened())
        with pytest.raises(StoreError, match="exists"):
            backup(Reader(connection), tmp_path / "copies.db")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("copies")] == ["copies.db"]
    store.close()
    copy = Store.open(tmp_path / "copies.db")
    assert copy.root.high_water == head.high_water == end + 1
    copy.close()
    assert verify(tmp_path / "copies.db") == []
