"""One flipped byte, anywhere in a log: whoever opens or reads it is told by an error of ours, or reads it as it was.

And `verify` names damage wherever anybody is refused.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import trio

from maka_trio.cli.log_file import LogFile
from maka_trio.errors import LogCorrupt, MakaError
from maka_trio.facts import CodeOpening, EventWrite, Invocation, MessageInput, MessageOpening, Root
from maka_trio.facts.message import MediaContent, TextContent, UserMessage
from maka_trio.log import health, invocations, queries
from maka_trio.log.backup import backup
from maka_trio.log.health import Finding, Verdict, examine
from maka_trio.log.lease import lock_path
from maka_trio.log.prefixes import prefix
from maka_trio.log.reader import Reader
from maka_trio.log.schema import open_reader
from maka_trio.log.store import Store
from maka_trio.log.transfer import Export, import_bundle
from maka_trio.log.verification import Verification
from maka_trio.request import ProviderConfig
from tests.engine.scene import echo, registration, scene
from tests.log.log_story import COMPLETED, DIGEST, event, opened, put, tell

PAGE = 4096
PNG = b"\x89PNG\r\n\x1a\n"
SESSIONS = ("session 0", "session 1", "gone")


async def _tell_turns(folder: Path) -> None:
    async with scene(folder) as it:
        for number, session in enumerate(SESSIONS):
            it.provider.call_tools(("echo", {"value": str(number)}, "c1"))
            it.provider.say("that is all")
            question = UserMessage((TextContent(f"hello {number}"), MediaContent("image/png", PNG + bytes(number))))
            tools = [registration("echo", echo)]
            await it.engine.run(it.input(question, tools=tools, session=session, request_fingerprint=f"order {number}"))
        await it.log.retire("gone")
        await it.log.delete_bodies("gone")


@pytest.fixture(scope="module", autouse=True)
def same_every_time() -> Iterator[None]:
    """Ids, times and ports are, so that a byte of the log is the same byte in every run of these tests."""
    chance, clock = random.Random(0), itertools.count(1_700_000_000_000_000_000, 1_000_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maka_trio.facts.identity.random_hex", lambda: chance.randbytes(16).hex())
        patch.setattr(time, "time_ns", lambda: next(clock))
        patch.setattr(ProviderConfig, "route_identity", lambda self: DIGEST)
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, same_every_time: None) -> Path:
    """A small log of every kind of table: results, pictures, messages, a deleted session, a run that is open."""
    folder = tmp_path_factory.mktemp("template")
    trio.run(_tell_turns, folder)
    path = folder / "log.sqlite"
    store = Store.open(path)
    named = MessageOpening(MessageInput("more"), None, ("m1", "m2"))
    tell(store, Invocation.new("messages"), opened(named), COMPLETED)
    tell(store, Invocation.new("running"), opened())
    store.close()
    return path


class Damaged:
    """A copy of a log with one byte changed, and what becomes of those who use it."""

    def __init__(self, template: Path, folder: Path, at: int, value: int) -> None:
        self.path = folder / "log.db"
        self._template = template
        self._content = bytearray(template.read_bytes())
        self._content[at] ^= value
        self.refusals: list[MakaError] = []

    def attempt(self, work: Callable[[], object]) -> None:
        for one in self.path.parent.iterdir():
            one.unlink()
        self.path.write_bytes(self._content)
        shutil.copy(lock_path(self._template), lock_path(self.path))
        try:
            work()
        except MakaError as error:
            self.refusals.append(error)

    def verify(self) -> bool:
        """Whether `verify` names damage, or says that the log cannot be read at all."""
        try:
            log = LogFile(self.path)
            return any(Verification(log.read, log.path).violations())
        except MakaError:
            return True

    # --- those who use it -----------------------------------------------------------------------------------

    def show(self) -> None:
        for _ in LogFile(self.path).events():
            pass

    def export(self) -> None:
        log = LogFile(self.path)
        export = Export(log.read, log.path, "session 0")  # of the whole log that one refuses that is deleted
        lines = list(export.lines())
        if not export.damaged:
            import_bundle(iter(lines), self.path.with_name("imported"))
        else:
            with suppress(MakaError):
                import_bundle(iter(lines), self.path.with_name("imported"))

    def copy(self) -> None:
        with closing(open_reader(self.path)) as connection:
            backup(Reader(connection), self.path.with_name("copy"))

    def examine(self) -> None:
        for finding in examine(self.path):
            assert finding.words

    def own(self) -> None:
        store = Store.open(self.path)
        try:
            for act in self._acts(store):
                try:
                    act()
                except MakaError as error:
                    self.refusals.append(error)
        finally:
            store.close()

    def _acts(self, store: Store) -> Iterator[Callable[[], object]]:
        reader = Reader(store.connection)
        yield lambda: prefix(reader, Root(), 10**6, 10**9)
        yield lambda: queries.sessions(reader)
        yield lambda: queries.events_after(reader, None, 0, 10**6, 10**9)
        yield lambda: store.seal(store.abandoned(store.root.high_water))
        for number, session in enumerate(SESSIONS[:2]):
            yield lambda session=session: queries.read_context(reader, session, 10**6, 10**9)  # type: ignore[misc]
            yield lambda session=session: queries.require_safe(reader, session, None, allow_prior_unknown=False)  # type: ignore[misc]
            yield lambda session=session, number=number: invocations.by_request(reader, session, f"order {number}")  # type: ignore[misc]
            yield lambda session=session: _resolve_all(reader, session)  # type: ignore[misc]
            new = Invocation.new(session)
            yield lambda new=new: put(store, EventWrite(event(new, opened(CodeOpening("1")))))  # type: ignore[misc]
            yield lambda new=new: put(store, event(new, COMPLETED))  # type: ignore[misc]
        yield lambda: store.retire("session 0")
        yield lambda: _delete(store, "session 0")


def _resolve_all(reader: Reader, session: str) -> None:
    for stored in queries.events_after(reader, session, 0, 10**6, 10**9)[0]:
        if stored.event.fact.kind == "tool_settled":
            queries.tool_result(reader, session, stored.event.id)
        if stored.event.fact.kind == "invocation_opened":
            for part in stored.event.fact.input.content.parts:  # type: ignore[union-attr]
                if isinstance(part, MediaContent):
                    queries.artifact(reader, session, part.artifact or "")


def _delete(store: Store, session: str) -> None:
    store.begin_deletion(session)
    while store.delete_some(session):
        pass
    store.finish_deletion(session)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the disk costs is measured elsewhere."""
    monkeypatch.setattr(health, "sync_cost", lambda folder: Finding("fsync", Verdict.GOOD, "not measured"))


def sweep(template: Path, folder: Path, places: int) -> int:
    """Damage each page at some places; return how often somebody was refused."""
    refused = 0
    chance = random.Random(places)
    for page in range(template.stat().st_size // PAGE):
        for _ in range(places):
            at, value = page * PAGE + chance.randrange(PAGE), chance.choice([1, 2, 0x80, 0xFF, 0x55])
            damaged = Damaged(template, folder, at, value)
            for work in (damaged.show, damaged.export, damaged.copy, damaged.examine, damaged.own):
                damaged.attempt(work)
            if damaged.refusals:
                refused += 1
                named: list[bool] = []
                damaged.attempt(lambda: named.append(damaged.verify()))  # noqa: B023 - called at once
                assert named == [True], (at, value, damaged.refusals)
    return refused


@pytest.mark.usefixtures("quick")
def test_any_flipped_byte_is_told_by_an_error_of_ours(template: Path, tmp_path: Path) -> None:
    """At some places of each page, those of the schema and of every table and index among them."""
    assert sweep(template, tmp_path, 2) > 0


@pytest.mark.slow
@pytest.mark.parametrize("places", [6])
@pytest.mark.usefixtures("quick")
def test_any_flipped_byte_is_told_by_an_error_of_ours_ever(template: Path, tmp_path: Path, places: int) -> None:
    """The same at many more."""
    assert sweep(template, tmp_path, places) > places


@pytest.mark.usefixtures("quick")
def test_a_sound_log_refuses_nobody(template: Path, tmp_path: Path) -> None:
    """Else the others would prove nothing."""
    sound = Damaged(template, tmp_path, 0, 0)
    for work in (sound.show, sound.copy, sound.examine, sound.own):
        sound.attempt(work)
    assert sound.refusals == []
    sound.attempt(lambda: None)
    assert not sound.verify()


@pytest.mark.usefixtures("quick")
def test_a_schema_that_is_no_text_is_damage(template: Path, tmp_path: Path) -> None:
    """SQLite quotes it in an error that Python cannot decode."""
    at = template.read_bytes().index(b"session_digest BLOB NOT NULL") + 28
    damaged = Damaged(template, tmp_path, at, 0x80)
    for work in (damaged.show, damaged.export, damaged.copy, damaged.examine, damaged.own):
        damaged.attempt(work)
    assert len(damaged.refusals) >= 3
    assert {type(error) for error in damaged.refusals} == {LogCorrupt}
    damaged.attempt(lambda: None)
    assert damaged.verify()


def test_a_result_of_another_type_is_damage(template: Path, tmp_path: Path) -> None:
    """An export names it and goes on."""
    path = tmp_path / "log.db"
    shutil.copy(template, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE payloads SET data = 7")
        connection.commit()
    log = LogFile(path)
    export = Export(log.read, log.path, "session 0")
    assert list(export.lines())
    assert export.damaged
