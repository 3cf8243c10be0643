"""Media of a user's message: the event says which bytes they are, so nobody can put others in their place."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from maka_trio.errors import InvalidInput
from maka_trio.facts import EventWrite, Invocation, MessageInput, MessageOpening, MessageSteered
from maka_trio.facts.codec import digest
from maka_trio.facts.message import MediaContent, TextContent, UserMessage
from maka_trio.log.store import Store
from tests.engine.scene import scene
from tests.log.deletion_story import STAYS, violations
from tests.log.log_story import event, opened, picture, put, tell

OTHER = b"\x89PNG\r\n\x1a\nanother picture"


def swap_pictures(path: Path) -> None:
    """Put another picture in the place of each of a session, with its digest, so that the row agrees with itself."""
    with closing(sqlite3.connect(path)) as connection:
        changed = connection.execute(
            "UPDATE artifacts SET data = ?, digest = ? WHERE session = (SELECT id FROM sessions WHERE session_id = ?)",
            (OTHER, digest(OTHER), STAYS),
        )
        assert changed.rowcount > 0
        connection.commit()


def test_a_picture_that_was_swapped_is_found(two_sessions: Path) -> None:
    """By the event that names it, whatever its row says."""
    swap_pictures(two_sessions)
    found = violations(two_sessions)
    assert {one.law for one in found} == {9}
    assert all("artifact" in one.words and "does not verify" in one.words for one in found)
    assert len(found) == 3


async def test_a_picture_that_was_swapped_is_not_sent(two_sessions: Path) -> None:
    """The model is told that there was one, and is not shown another."""
    swap_pictures(two_sessions)
    async with scene(two_sessions.parent) as it:
        it.provider.say("I see")
        question = UserMessage((TextContent("and this?"), MediaContent("image/png", b"\x89PNG\r\n\x1a\nnew")))
        await it.engine.run(it.input(question, session=STAYS, supports_vision=True))
        (request,) = it.provider.requests
    contents = [message["content"] for message in request.body["messages"] if isinstance(message["content"], list)]
    parts = [part for content in contents for part in content]
    assert sum(part["type"] == "image_url" for part in parts) == 1
    assert sum(part.get("text") == "[image/png left out: damaged]" for part in parts) == 3


def test_a_message_is_written_with_the_picture_that_it_names(tmp_path: Path) -> None:
    """Another one of the same id is refused."""
    store = Store.open(tmp_path / "log.db")
    invocation, shown = Invocation.new("session"), picture("a1", OTHER)
    content = MediaContent("image/png", artifact="a1", digest=digest(b"something else"))
    facts = (
        opened(MessageOpening(MessageInput("see", parts=(content,)))),
        MessageSteered(MessageInput("see", parts=(content,))),
    )
    for fact in facts:
        with pytest.raises(InvalidInput, match="'a1' is not the bytes that its message names"):
            put(store, EventWrite(event(invocation, fact), artifacts=(shown,)))
    right = attrs.evolve(content, digest=shown.ref.digest)
    fact = opened(MessageOpening(MessageInput("see", parts=(right,))))
    put(store, EventWrite(event(invocation, fact), artifacts=(shown,)))
    tell(store, invocation, MessageSteered(MessageInput("see it again", parts=(right,))))
    store.close()


@pytest.mark.parametrize("carried", [{"data": b"x"}, {"url": "https://x"}])
def test_only_an_artifact_has_a_digest(carried: dict[str, object]) -> None:
    """Bytes need none, and a URL may serve others tomorrow."""
    with pytest.raises(InvalidInput, match="digest"):
        MediaContent("image/png", digest=digest(b"x"), **carried)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="digest"):
        MediaContent("image/png", artifact="a", digest="sha256:x")
