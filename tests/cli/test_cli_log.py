"""`maka-trio log` and `maka-trio verify`, on real files, owned or not."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import trio

from maka_trio import limits
from maka_trio.cli import log_file
from maka_trio.cli.log_file import LogFile
from maka_trio.facts.codec import encode_event
from maka_trio.facts.event import Fact, InvocationEnded, InvocationOpened, RuntimeEvent, StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import MessageInput, MessageOpening
from maka_trio.facts.outcome import Completed
from maka_trio.log.event_log import EventLog
from tests.cli.cli_child import Child, Here, Outcome, running

EVIL = "\x1b[2J[red]\u202e\x9b"


def turn(session_id: str, text: str = "How many?") -> list[RuntimeEvent]:
    invocation = Invocation.new(session_id)
    facts: Sequence[Fact] = (
        InvocationOpened(MessageOpening(MessageInput(text))),
        InvocationEnded(Completed()),
    )
    return [RuntimeEvent.new(invocation, fact) for fact in facts]


async def write(path: Path, *events: RuntimeEvent) -> None:
    async with EventLog.open(path) as log:
        for event in events:
            await log.commit(event)


async def read(path: Path) -> tuple[StoredEvent, ...]:
    async with EventLog.open(path) as log:
        return (await log.prefix(10_000, 64 * limits.MIB)).events


def folder(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file beside a log, with its mode and content."""
    return {file.name: (file.stat().st_mode, file.read_bytes()) for file in path.parent.iterdir() if file.is_file()}


# --- reading ------------------------------------------------------------------------------------------------------


async def test_a_log_is_shown_in_order_with_its_sessions(here: Here, tmp_path: Path) -> None:
    """Each line has sequence, time, session and the fact in words."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop"), *turn("library", "Which book?"))
    shown = here("log", path)
    assert (shown.status, shown.err) == (0, "")
    rows = [line.split() for line in shown.out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [row[2] for row in rows] == ["shop", "shop", "library", "library"]
    assert 'asked "Which book?"' in shown.out
    assert shown.out.count("ended: completed") == 2


async def test_json_lines_are_the_canonical_events_with_their_sequences(here: Here, tmp_path: Path) -> None:
    """Byte for byte what digests cover, so that other programs can check them."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop", EVIL))
    stored = await read(path)
    lines = here("log", path, "--json").out.encode().splitlines()
    assert lines == [b'{"event":%b,"sequence":%d}' % (encode_event(s.event), s.sequence) for s in stored]
    assert [json.loads(line)["event"]["fact"]["kind"] for line in lines] == ["invocation_opened", "invocation_ended"]


async def test_one_session_can_be_asked_for(here: Here, tmp_path: Path) -> None:
    """In words and as JSON; the sequences stay those of the whole log."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop"), *turn("library", "Which book?"))
    words = here("log", path, "--session", "library").out
    lines = here("log", path, "--session", "library", "--json").out
    assert "How many?" not in words
    assert [line.split()[0] for line in words.splitlines()[1:]] == ["3", "4"]
    assert [json.loads(line)["sequence"] for line in lines.splitlines()] == [3, 4]


async def test_what_a_log_holds_cannot_act_on_the_terminal(here: Here, tmp_path: Path) -> None:
    """Text and session ids are shown escaped."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn(EVIL, EVIL))
    out = here("log", path).out
    assert all(line.isprintable() for line in out.splitlines())
    assert "\\x1b[2J[red]\\u202e\\x9b" in out


async def test_a_log_longer_than_a_page_is_shown_whole(here: Here, tmp_path: Path) -> None:
    """Reading goes on from page to page, for one session as for all."""
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        for number in range(700):
            await log.commit_batch(turn("even" if number % 2 == 0 else "odd"))
    everything = here("log", path, "--json").out
    even = here("log", path, "--json", "--session", "even").out
    assert [json.loads(line)["sequence"] for line in everything.splitlines()] == list(range(1, 1401))
    assert len(even.splitlines()) == 700


@pytest.mark.parametrize("command", ["log", "verify"])
async def test_reading_leaves_no_trace(command: str, here: Here, tmp_path: Path) -> None:
    """No lock, no write-ahead log, no changed byte beside a log that nobody owns."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop"))
    before = folder(path)
    assert here(command, path).status == 0
    assert folder(path) == before


async def test_a_log_that_may_not_be_written_beside_can_be_read(here: Here, tmp_path: Path) -> None:
    """Evidence on a read-only medium is still evidence: nothing but the file itself is needed."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop"))
    alone = tmp_path / "alone"
    alone.mkdir()
    path.rename(alone / "copy")
    (alone / "copy").chmod(0o400)
    alone.chmod(0o500)
    assert here("log", alone / "copy").out.count("shop") == 2
    assert [file.name for file in alone.iterdir()] == ["copy"]
    alone.chmod(0o700)


async def test_a_log_in_use_can_be_read_by_another_process(tmp_path: Path) -> None:
    """What is durable is shown and verified, while its owner goes on writing."""
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.commit_batch(turn("shop"))
        for command, words in (("log", b'asked "How many?"'), ("verify", b"lawful")):
            async with running([command, path], home=tmp_path) as child:
                assert await child.status() == 0
            assert child.err == b""
            assert words in child.out
        await log.commit_batch(turn("shop", "And now?"))
    assert len(await read(path)) == 4


async def test_a_log_whose_owner_writes_between_two_pages_is_read_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An owner may come at any moment: what it adds is seen, and nothing is read from half-written pages."""
    path = tmp_path / "log.sqlite"
    monkeypatch.setattr(log_file, "PAGE_EVENTS", 2)
    await write(path, *turn("shop"), *turn("shop"))
    events = LogFile(path).events()
    seen = [next(events).sequence, next(events).sequence]
    async with EventLog.open(path) as log:
        await log.commit_batch(turn("shop"))
        seen += [next(events).sequence, next(events).sequence, next(events).sequence]
    await write(path, *turn("shop"))
    seen += [stored.sequence for stored in events]
    assert seen == list(range(1, 9))


async def test_an_empty_log_is_shown_as_nothing(here: Here, tmp_path: Path) -> None:
    """That is no error."""
    path = tmp_path / "log.sqlite"
    await write(path)
    assert here("log", path) == Outcome(0, "", "")
    assert here("verify", path).status == 0


async def test_follow_goes_on_with_what_is_added(tmp_path: Path) -> None:
    """Until Ctrl-C, which is the ordinary way to end it."""
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.commit_batch(turn("shop", "First?"))
        async with running(["log", path, "--follow"], home=tmp_path) as child:
            await child.answers("First?")
            await log.commit_batch(turn("shop", "Second?"))
            await child.answers("Second?")
            child.interrupt(signal.SIGINT)
            assert await child.status() == 130
    _no_noise(child)


def _no_noise(child: Child) -> None:
    assert child.err == b""


async def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """`| head` says nothing about pipes."""
    path = tmp_path / "log.sqlite"
    async with EventLog.open(path) as log:
        await log.commit_batch([event for _ in range(400) for event in turn("shop", "x" * 1000)])
    async with running(["log", path, "--json"], home=tmp_path) as child:
        assert child.process.stdout is not None
        await child.process.stdout.aclose()
        assert await child.status() == 141
    _no_noise(child)


# --- what cannot be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["log", "verify"])
def test_a_missing_log_is_one_line_and_is_not_created(command: str, here: Here, tmp_path: Path) -> None:
    """Looking at what is not there does not make it."""
    refused = here(command, "nowhere.sqlite")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.count("\n") == 1
    assert "nowhere.sqlite" in refused.err
    assert list(tmp_path.iterdir()) == []


def _foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(x)")
        connection.commit()


def _newer_log(path: Path) -> None:
    trio.run(write, path)
    data = bytearray(path.read_bytes())
    data[60:64] = (999).to_bytes(4, "big")
    path.write_bytes(data)


@pytest.mark.parametrize("command", ["log", "verify"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b""), "not a log"),
        (lambda path: path.write_bytes(b"\x1b[31mhello" * 100), "not a log"),
        (_foreign_database, "another program"),
        (_newer_log, "format"),
        (Path.mkdir, "regular file"),
        (os.mkfifo, "regular file"),
    ],
    ids=["empty", "text", "foreign", "newer", "folder", "fifo"],
)
def test_a_foreign_file_is_one_line_and_stays_as_it_is(
    command: str, make: Callable[[Path], object], words: str, here: Here, tmp_path: Path
) -> None:
    """It is named for what it is, and neither changed nor accompanied."""
    path = tmp_path / "file"
    make(path)
    before = folder(path)
    refused = here(command, path)
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.count("\n") == 1
    assert words in refused.err
    assert folder(path) == before


@pytest.mark.parametrize("command", ["log", "verify"])
async def test_an_unknown_session_is_named(command: str, here: Here, tmp_path: Path) -> None:
    """A misspelt session is not an empty one."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop"))
    refused = here(command, path, "--session", "shpo\x1b")
    assert refused.status == 1
    assert refused.err.count("\n") == 1
    assert '"shpo\\x1b"' in refused.err


# --- damage -------------------------------------------------------------------------------------------------------


def tamper(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql, values)
        connection.commit()


async def test_a_damaged_event_is_named_and_what_comes_before_it_is_shown(here: Here, tmp_path: Path) -> None:
    """As much as can be read is read."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop", "First?"), *turn("shop", "Second?"))
    tamper(path, "UPDATE events SET body = ? WHERE sequence = 3", b"{}")
    shown = here("log", path)
    assert shown.status == 1
    assert "First?" in shown.out
    assert "Second?" not in shown.out
    assert "event 3 is damaged" in shown.err
    assert shown.err.count("\n") == 1


async def test_a_lawful_log_verifies(here: Here, tmp_path: Path) -> None:
    """In words and as JSON, with the number of events that were looked at."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop"), *turn("library"))
    shown = here("verify", path)
    assert shown.status == 0
    assert "lawful" in shown.out
    assert "4 events" in shown.out
    lines = here("verify", path, "--json", "--session", "shop")
    assert (lines.status, json.loads(lines.out)) == (0, {"events": 2, "deleted": 0, "violations": 0})


async def test_a_changed_event_breaks_the_chain_and_is_found(here: Here, tmp_path: Path) -> None:
    """A log that reads well but was tampered with fails, and says which law."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop", "Pay 1"), *turn("shop"))
    with closing(sqlite3.connect(path)) as connection:
        (body,) = connection.execute("SELECT body FROM events WHERE sequence = 1").fetchone()
    tamper(path, "UPDATE events SET body = ? WHERE sequence = 1", bytes(body).replace(b"Pay 1", b"Pay 9"))
    shown = here("verify", path)
    assert (shown.status, shown.err) == (1, "")
    assert "law 9" in shown.out
    lines = here("verify", path, "--json")
    *violations, summary = map(json.loads, lines.out.splitlines())
    assert lines.status == 1
    assert {violation["law"] for violation in violations} == {9}
    assert summary == {"events": 4, "deleted": 0, "violations": len(violations)}


async def test_a_removed_end_breaks_the_laws(here: Here, tmp_path: Path) -> None:
    """Two runs of a session at one time are found by the laws themselves, whatever the digests say."""
    path = tmp_path / "log.sqlite"
    await write(path, *turn("shop"), *turn("shop"))
    tamper(path, "DELETE FROM events WHERE sequence = 2")
    shown = here("verify", path)
    assert shown.status == 1
    assert "law 2 at sequence 3" in shown.out
