"""Whatever is changed in a bundle is refused, also by somebody who makes the digest of the bundle fit again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import trio

from maka_trio.cli.log_file import LogFile
from maka_trio.errors import CommitRejected, InvalidInput
from maka_trio.facts import EventWrite, Invocation, MessageInput, MessageOpening, MessageSteered, Session
from maka_trio.facts.codec import canonical
from maka_trio.facts.message import MediaContent, TextContent, UserMessage
from maka_trio.log import queries
from maka_trio.log.store import Store
from maka_trio.log.transfer import Export, import_bundle
from maka_trio.log.verification import Verification
from tests.engine.scene import echo, registration, scene
from tests.log.log_story import COMPLETED, event, opened, picture, put, reader, shown, tell

PNG = b"\x89PNG\r\n\x1a\n1"
Bundle = list[dict[str, Any]]


async def _tell_a_turn(folder: Path) -> None:
    async with scene(folder) as it:
        it.provider.call_tools(("echo", {"a": 1}, "c1"))
        it.provider.say("done")
        question = UserMessage((TextContent("hi"), MediaContent("image/png", PNG)))
        await it.engine.run(it.input(question, tools=[registration("echo", echo)], request_fingerprint="order"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The lines of a turn with a picture and a result."""
    folder = tmp_path_factory.mktemp("bundle")
    trio.run(_tell_a_turn, folder)
    log = LogFile(folder / "log.sqlite")
    return [json.loads(line) for line in Export(log.read, log.path).lines()]


def sealed(bundle: Bundle) -> Iterator[bytes]:
    """The bundle as it is written, with an end that covers it."""
    lines = [canonical(line) + b"\n" for line in bundle[:-1]]
    end = deepcopy(bundle[-1])
    if isinstance(end.get("end"), dict):
        end["end"]["digest"] = f"sha256:{hashlib.sha256(b''.join(lines)).hexdigest()}"
    return iter([*lines, canonical(end) + b"\n"])


def places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of everything in some JSON, what holds other things included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*at, key)
        yield from places(one, (*at, key))


def other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1")
        case list():
            return value * 2 or [1]
        case dict():
            return {**value, "more": 1}
        case _:
            return "x"


def change(holder: Any, key: Any) -> None:
    holder[key] = other(holder[key])


def leave_out(holder: Any, key: Any) -> None:
    del holder[key]


def empty(holder: Any, key: Any) -> None:
    holder[key] = None if holder[key] is not None else 0


@pytest.mark.parametrize("edit", [change, leave_out, pytest.param(empty, marks=pytest.mark.slow)])
def test_any_changed_part_is_refused(bundle: Bundle, tmp_path: Path, edit: Callable[[Any, Any], None]) -> None:
    """Each part of each line, changed, taken out or emptied, by itself; there is then no log."""
    tried = 0
    for number, line in enumerate(bundle):
        for place in places(line):
            if place == ("end", "digest"):
                continue  # which is made to fit
            changed = [*bundle[:number], deepcopy(line), *bundle[number + 1 :]]
            holder: Any = changed[number]
            for key in place[:-1]:
                holder = holder[key]
            edit(holder, place[-1])
            with pytest.raises(InvalidInput):
                import_bundle(sealed(changed), tmp_path / "copy.db")
            assert not (tmp_path / "copy.db").exists(), place
            tried += 1
    assert tried > 250


@pytest.mark.parametrize("number", [0, -1, 2**63, 10**40, 1.5])
def test_a_number_that_no_log_has_is_refused(bundle: Bundle, tmp_path: Path, number: float) -> None:
    """As a sequence, as a time, and where the end counts."""
    for line, place in ((1, ("sequence",)), (1, ("event", "recorded_at")), (-1, ("end", "events"))):
        changed = deepcopy(bundle)
        holder: Any = changed[line]
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = number
        with pytest.raises(InvalidInput):
            import_bundle(sealed(changed), tmp_path / "copy.db")


def test_the_bundle_itself_is_taken(bundle: Bundle, tmp_path: Path) -> None:
    """Else the others would prove nothing."""
    import_bundle(sealed(bundle), tmp_path / "copy.db")
    log = LogFile(tmp_path / "copy.db")
    assert list(Verification(log.read, log.path).violations()) == []


# --- media at an append ---------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "log.db")
    yield store
    store.close()


def naming(media: MediaContent) -> MessageInput:
    return MessageInput("see", parts=(media,))


def named(media_type: str = "image/png", digest: str | None = picture().ref.digest) -> MediaContent:
    return MediaContent(media_type, artifact="a1", digest=digest)


BAD = {
    "of another type": named("image/gif"),
    "with other bytes": named(digest="sha256:" + "0" * 64),
    "of another id": MediaContent("image/png", artifact="a2", digest=picture().ref.digest),
}


@pytest.mark.parametrize("media", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("stored", [True, False])
def test_a_message_names_media_as_they_are(store: Store, media: MediaContent, stored: bool) -> None:
    """Those that come with it, and those that its session has."""
    if stored:
        put(store, shown(Invocation("session", "t", "r", "i"), picture()))
        tell(store, Invocation("session", "t", "r", "i"), COMPLETED)
    invocation = Invocation.new("session")
    brought = () if stored else (picture(),)
    fact = opened(MessageOpening(naming(media)))
    with pytest.raises(CommitRejected if stored else InvalidInput) as caught:
        put(store, EventWrite(event(invocation, fact), artifacts=brought))
    assert not stored or caught.value.reason == "media"  # type: ignore[union-attr]
    tell(store, invocation, opened())
    with pytest.raises(CommitRejected if stored else InvalidInput):
        put(store, EventWrite(event(invocation, MessageSteered(naming(media), "m1")), artifacts=brought))
    assert store.root.high_water == (3 if stored else 1)


def test_media_that_are_nowhere_are_refused(store: Store) -> None:
    """Neither with the message nor in the session, though another session has them."""
    put(store, shown(Invocation.new("other"), picture()))
    invocation = Invocation.new("session")
    with pytest.raises(CommitRejected, match="neither brought") as caught:
        put(store, event(invocation, opened(MessageOpening(naming(named())))))
    assert caught.value.reason == "media"
    tell(store, invocation, opened())
    with pytest.raises(CommitRejected, match="neither brought"):
        put(store, event(invocation, MessageSteered(naming(named(digest=None)), "m1")))
    assert queries.head(reader(store), Session("session")).high_water == 2


def test_media_of_an_earlier_message_may_be_named_again(store: Store) -> None:
    """By the next one, in the same batch or later, with their digest or without."""
    invocation = Invocation.new("session")
    again = event(invocation, MessageSteered(naming(named()), "m1"))
    put(store, shown(invocation, picture()), again)
    put(store, event(invocation, MessageSteered(naming(named(digest=None)), "m2")))
    assert put(store, again) == [2]
    assert store.root.high_water == 3


def test_nothing_is_stored_that_no_fact_names(store: Store) -> None:
    """An artifact beside a message that does not name it, beside a fact that has none, or twice."""
    invocation = Invocation.new("session")
    for write in (
        EventWrite(event(invocation, opened()), artifacts=(picture(),)),
        EventWrite(event(invocation, COMPLETED), artifacts=(picture(),)),
        shown(invocation, picture(), picture()),
    ):
        with pytest.raises(InvalidInput, match="'a1' is none that the"):
            put(store, write)
    assert store.root.high_water == 0
