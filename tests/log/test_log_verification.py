"""Verifying by the short way finds exactly what the long one finds, whatever was done to a log."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.errors import LogCorrupt, StoreError
from maka_trio.facts import (
    Finished,
    FinishReason,
    Invocation,
    ModelEvent,
    ModelObserved,
    PartDelta,
    PartFinished,
    PartStarted,
    ResponseMetadata,
    ToolCallReady,
    codec,
    decoder,
    streamed,
)
from maka_trio.facts.codec import encode_fact, join_event
from maka_trio.facts.prefix import chain_next, chain_start
from maka_trio.facts.scope import Root, Session
from maka_trio.facts.streamed import StepStream
from maka_trio.log import audit
from maka_trio.log.audit import Auditor
from maka_trio.log.reader import Reader
from maka_trio.log.rows import Identities
from maka_trio.log.salvage import Row
from maka_trio.log.verification import Verification
from maka_trio.shares import Share
from tests.engine.scene import echo, registration, scene

T = TypeVar("T")

CHANGES = 200
"""In each part."""


async def _tell_turns(folder: Path) -> None:
    async with scene(folder) as it:
        tools = [registration("echo", echo)]
        for turn in range(2):
            it.provider.call_tools(("echo", {"turn": turn}), ("echo", {"turn": "\u00e9\U0001f600"}), text="let us see")
            it.provider.fail(503)
            it.provider.say("that ", "is ", '"all"\n', "\U0001f600")
            await it.engine.run(it.input(f"hello {turn}", tools=tools, session=f"session {turn}"))
        async with trio.open_nursery() as nursery:
            for turn in range(2):
                it.provider.say(*"abcdef")
                nursery.start_soon(it.engine.run, it.input("again", session=f"session {turn}"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lawful log of two sessions, with results, a retry, and turns side by side."""
    folder = tmp_path_factory.mktemp("template")
    trio.run(_tell_turns, folder)
    return folder / "log.sqlite"


class Opened:
    """A log in memory to be changed and looked at; every change is taken back."""

    def __init__(self, template: Path) -> None:
        self.path = template.with_name("nowhere")
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self._sound = sqlite3.connect(template)
        self._sound.backup(self.connection)

    def close(self) -> None:
        self._sound.close()
        self.connection.close()

    def ask(self, question: Callable[[Reader], T]) -> T:
        return question(Reader(self.connection))

    def verify(self, session_id: str | None = None) -> list[str]:
        check = Verification(self.ask, self.path, session_id)
        return [*map(str, check.violations()), f"{check.events} events up to {check.looked_at}"]

    def is_sound_in_shares(self, shares: int) -> bool:
        """Whether whoever looks at one of so many shares finds nothing."""
        checks = [Verification(self.ask, self.path, share=Share(number, shares)) for number in range(shares)]
        return not any(str(one) for check in checks for one in check.violations())

    @contextmanager
    def changed(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self.connection
        finally:
            self.connection.text_factory = str
            self._sound.backup(self.connection)


@pytest.fixture
def log(template: Path) -> Iterator[Opened]:
    with closing(Opened(template)) as opened:
        yield opened


@contextmanager
def long_way() -> Iterator[None]:
    """Every event is made by the converter, held by itself, and shown to every law."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Verification, "_taken", lambda *_: None)
        patch.setattr(audit, "usual_fact", lambda *_: None)
        patch.setattr(decoder, "usual_fact", lambda *_: None)
        patch.setattr(Auditor, "_observation", lambda *_: None)
        patch.setattr(codec, "short_observation", lambda _: None)
        yield


def outcome(look: Callable[[], list[str]]) -> object:
    try:
        return look()
    except StoreError as error:
        return type(error)


# --- changes ------------------------------------------------------------------------------------------------


def rechain(connection: sqlite3.Connection) -> None:
    """Give every event the digests that it should have: what is then wrong, only the laws can tell."""
    chains: dict[int, bytes] = {}
    root = chain_start(Root())
    identities = Identities()
    columns = ", ".join(Row._fields)
    for row in map(Row._make, connection.execute(f"SELECT {columns} FROM events ORDER BY sequence").fetchall()):
        invocation, identity = identities.of(connection, row.invocation)
        whole = join_event(row.event_id, row.recorded_at, identity, row.body)
        root = chain_next(root, row.sequence, whole)
        before = chains.get(row.session, chain_start(Session(invocation.session_id)))
        chains[row.session] = chain_next(before, row.sequence, whole)
        connection.execute(
            "UPDATE events SET root_digest = ?, session_digest = ? WHERE sequence = ?",
            (root, chains[row.session], row.sequence),
        )


def other_value(chance: random.Random, value: Any, others: list[Any]) -> Any:
    """Another value for a column: of another type, of another row, or the same with something done to it."""
    choices: list[Any] = [*chance.choices(others, k=12), 7, -1, 1.5, "x", "", b"", "\u00e9", "1"]
    if isinstance(value, int):
        choices += [value + 1, value - 1, str(value)]
    if isinstance(value, str):
        choices += [value + "x", value[:-1], value.encode(), "y" * 2000]
    if isinstance(value, bytes) and value:
        at = chance.randrange(len(value))
        choices += [value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :], value[:at], value.decode(errors="replace")]
        choices += [value.replace(b"step_id", b"step_ID"), value.replace(b":", b": ", 1), value + b" "]
        choices += [value.replace(b'"text":"', b'"text":"more '), value.replace(b'"text":', b'"text":1,"text":')] * 3
        choices += [value.replace(b'"id":"', b'"id":"other'), value.replace(b'"step_id":"', b'"step_id":"other')]
    return chance.choice(choices)


TABLES = ["events"] * 12 + ["invocations", "sessions", "heads", "payloads"]


def change(chance: random.Random, connection: sqlite3.Connection) -> None:
    table = chance.choice(TABLES)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if not row[5]]
    rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
    row = chance.choice(rows)[0]
    what = chance.random()
    if what < 0.05:
        connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
        return
    if what < 0.1 and table == "events":
        connection.execute(f"UPDATE {table} SET rowid = ? WHERE rowid = ?", (max(rows)[0] + chance.randrange(3), row))
        return
    column = "body" if table == "events" and chance.random() < 0.5 else chance.choice(columns)
    (value,) = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()
    others = [one for (one,) in connection.execute(f"SELECT {column} FROM {table}")]
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (other_value(chance, value, others), row))


@pytest.mark.parametrize("part", range(4))
def test_short_way_finds_what_the_long_way_finds(log: Opened, part: int) -> None:
    """Any column of any row, changed at random, with the digests as they were or made to fit: in the same words.

    And whoever looks at shares of the sessions knows that there is something.
    """
    compare_ways(log, part)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4, 7))
def test_short_way_finds_what_the_long_way_finds_ever(log: Opened, part: int) -> None:
    """The same hundreds of times more."""
    compare_ways(log, part)


def compare_ways(log: Opened, part: int) -> None:
    found = 0
    for number in range(CHANGES):
        chance = random.Random(f"{part} {number}")
        session = chance.choice([None, None, "session 0"])
        with log.changed() as connection:
            try:
                for _ in range(chance.choice([1, 1, 2])):
                    change(chance, connection)
                if chance.random() < 0.5:
                    rechain(connection)
            except (sqlite3.IntegrityError, LogCorrupt, TypeError, ValueError):
                continue  # a constraint refused it, or no digest can be made of it any more
            short = outcome(lambda session=session: log.verify(session))  # type: ignore[misc]
            with long_way():
                long = outcome(lambda session=session: log.verify(session))  # type: ignore[misc]
            in_shares = outcome(lambda number=number: log.is_sound_in_shares(2 + number % 2))  # type: ignore[misc]
        assert short == long, (part, number)
        broken = not isinstance(short, list) or len(short) > 1
        assert session or broken == (in_shares is not True), (part, number)
        found += isinstance(short, list) and broken
    assert found > CHANGES / 3


def test_sound_log_is_taken_by_the_short_way(log: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Observations are not taken one by one and no event is made of them, in the whole log and in each session."""
    made: list[str] = []
    each, fact = audit.SeenStep.each, streamed.StreamedText.fact
    monkeypatch.setattr(audit.SeenStep, "each", lambda self: made.append(self.stream.step_id) or each(self))
    monkeypatch.setattr(streamed.StreamedText, "fact", lambda self: made.append(self.step_id) or fact(self))
    assert sum(b"part_delta" in body for (body,) in log.connection.execute("SELECT body FROM events")) > 10
    for session in (None, "session 0", "session 1"):
        assert len(log.verify(session)) == 1
        assert made == []


def test_text_side_by_side_and_up_to_anywhere_is_verified(log: Opened) -> None:
    """Streams of several sessions take turns, and a pass may end in the middle of one."""
    (last,) = log.connection.execute("SELECT max(sequence) FROM events").fetchone()
    for high_water in range(last + 1):
        check = Verification(log.ask, log.path)
        check.high_water = high_water
        assert [list(page) for page in check.pages() if page] == []
        assert check.events == high_water


def test_step_is_seen_as_its_events_say(log: Opened) -> None:
    """Whatever is seen by the stretch, one by one it is what the converter makes of each row."""
    seen, _ = log.ask(lambda reader: Auditor().look(reader, 0, 1024))
    stretches, _ = log.ask(lambda reader: Auditor().look_over(reader, 0, 1024))
    with long_way():
        expected, _ = log.ask(lambda reader: Auditor().look(reader, 0, 1024))
    assert [stored_in(one) for one in seen] == [stored_in(one) for one in expected]
    kinds = {type(event) for one in stretches if isinstance(one, audit.SeenStep) for event in one.events}
    assert kinds >= {streamed.StreamedTexts, PartStarted, PartFinished, ToolCallReady, Finished}


BRINGS: dict[str, ModelEvent] = {
    "one begins": PartStarted("one"),
    "one": PartDelta("one", "1"),
    "one goes on": PartDelta("one", "2"),
    "other": PartDelta("other", "3"),
    "options": PartDelta("one", "4", {"a": {"b": 1}}),
    "metadata": ResponseMetadata("id"),
    "end": Finished(FinishReason.STOP),
}


@given(st.lists(st.sampled_from(list(BRINGS.values())), min_size=1, max_size=8))
def test_events_of_a_step_stay_in_their_order(events: list[ModelEvent]) -> None:
    """Texts of a part are kept together as long as nothing comes between; every row has its own event."""
    invocation = Invocation.new("session")
    bodies = [encode_fact(ModelObserved("step", event)) for event in events]
    rows = [(at, 1, "model_observed", f"e{at}", 1, b"", b"", body, 1, 0, 0, None) for at, body in enumerate(bodies)]
    told: list[tuple[int, object]] = []
    at = 0
    while at < len(rows):
        stream, first = StepStream("step"), events[at]
        begun = stream.event_of(bodies[at])
        seen = audit.SeenStep([rows[at]], invocation, b"", stream, [first if begun is None else begun])
        at = seen.take(rows, at + 1)
        told += [(one.values[0], one.stored().event.fact) for one in seen.each()]
    assert told == [(at, ModelObserved("step", event)) for at, event in enumerate(events)]


def stored_in(seen: audit.Seen) -> object:
    return seen.stored() if isinstance(seen, audit.SeenObservation) else seen.stored  # type: ignore[union-attr]  # it is sound


@pytest.mark.parametrize("column", ["root_digest", "session_digest", "event_id", "recorded_at", "previous", "body"])
def test_change_in_the_middle_of_streamed_text_is_named_where_it_is(log: Opened, column: str) -> None:
    """Text is verified by the stretch; what is wrong with one of its events is said of that one."""
    deltas = [row[0] for row in log.connection.execute("SELECT sequence FROM events WHERE instr(body, 'part_delta')")]
    middle = next(at for at in deltas if {at - 1, at + 1} <= set(deltas))
    values = {"event_id": "other", "recorded_at": 7, "previous": 1}
    with log.changed() as connection:
        (body,) = connection.execute("SELECT body FROM events WHERE sequence = ?", (middle,)).fetchone()
        value = values.get(column, body.replace(b'"text":"', b'"text":"more ') if column == "body" else b"0" * 32)
        connection.execute(f"UPDATE events SET {column} = ? WHERE sequence = ?", (value, middle))
        found = log.verify()
    assert f"event {middle} does not" in found[0]
    assert not any(f"event {other} " in words for other in deltas if other != middle for words in found)


def test_page_that_is_read_again_is_verified_once(log: Opened) -> None:
    """A file that somebody began to write to while it was read is read again; nothing is counted twice."""
    expected = log.verify()
    ask = log.ask

    def twice(question: Callable[[Reader], T]) -> T:
        ask(question)
        return ask(question)

    log.ask = twice  # type: ignore[method-assign]
    assert log.verify() == expected


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE events SET root_digest = 7 WHERE sequence = 5",
        "UPDATE events SET session_digest = 'text' WHERE sequence = 5",
        "UPDATE events SET previous_fact = 'text' WHERE sequence = 5",
        "UPDATE events SET previous = x'00' WHERE sequence = 5",
    ],
)
def test_value_of_another_type_is_named(log: Opened, sql: str) -> None:
    """Whatever a column holds, `verify` says where, and goes on."""
    with log.changed() as connection:
        connection.execute(sql)
        found = log.verify()
    assert len(found) == 2
    assert "event 5 does not" in found[0]
