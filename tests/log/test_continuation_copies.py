"""Logs with continuations as evidence: verified, moved, and found out where something in them is not true."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio

from maka_trio.cli.log_file import LogFile
from maka_trio.errors import InvalidInput, StepLimit
from maka_trio.facts import ContinuationClaim, ContinuationOpening, InvocationOpened, RuntimeEvent
from maka_trio.facts.codec import decode_fact, encode_event, encode_fact
from maka_trio.facts.prefix import chain_next, chain_start, chain_text
from maka_trio.facts.scope import Session
from maka_trio.log.bundle import End, Header, Line, encode_end, read_lines
from maka_trio.log.schema import open_reader
from maka_trio.log.transfer import Export, import_bundle
from maka_trio.log.verification import Verification
from tests.engine.going_on import end_of, go_on, last_run, stopped
from tests.engine.scene import scene
from tests.log.test_log_verification import rechain

WRONG = "sha256:" + "f" * 64


async def told(folder: Path) -> None:
    """Two sessions; in one a stopped run, a sibling, a continuation that stops, another session's run, and the next."""
    async with scene(folder) as it:
        source = await stopped(it)
        it.provider.say("aside")
        await it.engine.run(it.input("sibling"))
        it.provider.call_tools(("echo", {"n": 2}, "c1"))
        with pytest.raises(StepLimit):
            await it.engine.run(go_on(it, source, max_steps=1))
        source = await end_of(it, await last_run(it))
        it.provider.say("elsewhere")
        await it.engine.run(it.input(session="other"))
        it.provider.say("the answer")
        await it.engine.run(go_on(it, source))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("continuations")
    trio.run(told, folder)
    return folder / "log.sqlite"


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "log.sqlite"
    copy.write_bytes(template.read_bytes())
    return copy


def verify(path: Path, session_id: str | None = None) -> list[str]:
    log = LogFile(path)
    return [str(found) for found in Verification(log.read, log.path, session_id).violations()]


def continued(path: Path) -> list[tuple[str, str]]:
    """Which run continues which, by the columns."""
    with closing(open_reader(path)) as connection:
        return connection.execute(
            "SELECT own.run_id, source.run_id FROM invocations AS own JOIN invocations AS source "
            "ON source.id = own.continues ORDER BY own.opened"
        ).fetchall()


def claims(path: Path) -> list[tuple[int, InvocationOpened]]:
    """Sequence and fact of each continuation's opening."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT sequence, body FROM events WHERE kind = 'invocation_opened'").fetchall()
    facts = [(sequence, decode_fact(body)) for sequence, body in rows]
    return [
        (sequence, fact)
        for sequence, fact in facts
        if isinstance(fact, InvocationOpened) and isinstance(fact.input, ContinuationOpening)
    ]


# --- verified ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", [None, "session", "other"])
def test_a_log_with_continuations_verifies(path: Path, session_id: str | None) -> None:
    """As a whole and session by session."""
    assert verify(path, session_id) == []


def with_base(claim: ContinuationClaim) -> ContinuationClaim:
    return attrs.evolve(claim, base=attrs.evolve(claim.base, digest=WRONG))


def with_replay(claim: ContinuationClaim) -> ContinuationClaim:
    return attrs.evolve(claim, replay_digest=WRONG)


def with_source(claim: ContinuationClaim) -> ContinuationClaim:
    return attrs.evolve(claim, source=attrs.evolve(claim.source, digest=WRONG))


LIES = pytest.mark.parametrize(
    ("lie", "words"),
    [
        (with_base, "the lineage of run"),
        (with_replay, "what run"),
        (with_source, "has another digest than is claimed of it"),
    ],
    ids=["base", "replay", "source"],
)


def changed(fact: InvocationOpened, lie: Callable[[ContinuationClaim], ContinuationClaim]) -> InvocationOpened:
    assert isinstance(fact.input, ContinuationOpening)
    return attrs.evolve(fact, input=attrs.evolve(fact.input, claim=lie(fact.input.claim)))


@LIES
def test_a_false_claim_is_found(path: Path, lie: Callable[[ContinuationClaim], ContinuationClaim], words: str) -> None:
    """Although every digest of the log has been made to fit."""
    sequence, fact = claims(path)[-1]
    with closing(sqlite3.connect(path)) as connection:
        body = encode_fact(changed(fact, lie))
        connection.execute("UPDATE events SET body = ? WHERE sequence = ?", (body, sequence))
        rechain(connection)
        connection.commit()
    found = [line for line in verify(path) if f"law 9 at sequence {sequence}:" in line]
    assert any(words in line for line in found)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE invocations SET continues = NULL WHERE continues IS NOT NULL",
        "UPDATE invocations SET continues = 2 WHERE id = (SELECT max(id) FROM invocations)",
        "UPDATE invocations SET continues = 1 WHERE id = 2",
    ],
    ids=["nothing", "another", "where there is none"],
)
def test_a_run_that_is_filed_wrong_is_found(path: Path, sql: str) -> None:
    """The column says what the opening says, no more and no less."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX invocations_by_source")
        connection.execute(sql)
        connection.commit()
    assert any("continuation of another run" in line for line in verify(path))


# --- moved ------------------------------------------------------------------------------------------------


def lines_of(path: Path, session_id: str | None = None) -> list[bytes]:
    log = LogFile(path)
    export = Export(log.read, log.path, session_id)
    lines = list(export.lines())
    assert export.damaged == []
    return lines


@pytest.mark.parametrize("session_id", [None, "session"])
async def test_a_moved_log_knows_what_continues_what(path: Path, tmp_path: Path, session_id: str | None) -> None:
    """The copy verifies, is the same, and a run in it is still continued once."""
    copy = tmp_path / "moved" / "log.sqlite"
    copy.parent.mkdir()
    import_bundle(iter(lines_of(path, session_id)), copy)
    assert continued(copy) == continued(path)
    assert verify(copy) == []
    assert lines_of(copy, session_id) == lines_of(path, session_id)
    async with scene(copy.parent) as it:
        first = (await it.events())[0].event.invocation
        with pytest.raises(Exception, match="continued once"):
            await it.engine.check_continuation(go_on(it, await end_of(it, first)))


@LIES
def test_a_bundle_with_a_false_claim_is_refused(
    path: Path, tmp_path: Path, lie: Callable[[ContinuationClaim], ContinuationClaim], words: str
) -> None:
    """Although the bundle fits in itself; nothing is left of it."""
    copy = tmp_path / "copy.sqlite"
    sequence, _ = claims(path)[-1]

    def change(event: RuntimeEvent) -> RuntimeEvent:
        return attrs.evolve(event, fact=changed(event.fact, lie))  # type: ignore[arg-type]

    with pytest.raises(InvalidInput, match="claim"):
        import_bundle(iter(rewritten(lines_of(path), sequence, change)), copy)
    assert not copy.exists()


def test_an_unchanged_bundle_is_rewritten_as_it_was(path: Path) -> None:
    """What the tests above change is the claim alone."""
    lines = lines_of(path)
    assert rewritten(lines, claims(path)[-1][0], lambda event: event) == lines


def rewritten(lines: list[bytes], sequence: int, change: Callable[[RuntimeEvent], RuntimeEvent]) -> list[bytes]:
    """The bundle with one event changed, and every digest after it made to fit."""
    chains: dict[str, bytes] = {}
    made: list[bytes] = []
    for item in read_lines(iter(lines)):
        match item:
            case Header():
                made.append(item.encode() + b"\n")
            case Line():
                event = change(item.event) if item.sequence == sequence else item.event
                session = event.invocation.session_id
                before = chains.get(session, chain_start(Session(session)))
                chains[session] = chain_next(before, item.sequence, encode_event(event))
                line = attrs.evolve(item, event=event, digest=chain_text(chains[session]))
                made.append(line.encode() + b"\n")
            case End():
                ends = tuple(attrs.evolve(end, digest=chain_text(chains[end.session_id])) for end in item.sessions)
                seen = f"sha256:{hashlib.sha256(b''.join(made)).hexdigest()}"
                made.append(encode_end(attrs.evolve(item, sessions=ends, digest=seen)) + b"\n")
    return made


async def test_a_backup_knows_what_continues_what(path: Path, tmp_path: Path) -> None:
    """It is a log of its own."""
    copy = tmp_path / "backup.sqlite"
    async with scene(path.parent) as it:
        await it.log.backup(copy)
    assert continued(copy) == continued(path)
    assert verify(copy) == []
