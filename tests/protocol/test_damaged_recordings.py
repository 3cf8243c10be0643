"""Recorded streams that were cut or damaged: never a step out of half an answer, never anything but our errors.

`decoding.run` builds the step with the same rules as the engine, so a decoder that made events out of order would
show here, too.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from maka_trio import limits
from maka_trio.errors import ModelError, ProviderFailure
from maka_trio.facts.message import Message
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from tests.protocol.corpus import CORPUS
from tests.protocol.decoding import Outcome, run

FOLDERS = {
    "openai_chat": ProviderKind.OPENAI_CHAT_COMPLETIONS,
    "openai_compatible": ProviderKind.OPENAI_COMPATIBLE,
    "openai_responses": ProviderKind.OPENAI_RESPONSES,
    "anthropic": ProviderKind.ANTHROPIC,
}
ENDS = {
    "openai_chat": rb'"finish_reason": ?"[^"]|\[DONE\]',
    "openai_compatible": rb'"finish_reason": ?"[^"]|\[DONE\]',
    "anthropic": rb'"type": ?"message_stop"',
    "openai_responses": rb'"type": ?"response\.(completed|incomplete|failed)"',
}
"""What the first event holds that may end an answer."""

WHOLE = {folder: sorted((CORPUS / "streams" / folder).glob("*.sse")) for folder in FOLDERS}
ENDING = [stream for folder in ENDS for stream in WHOLE[folder]]

__test__ = bool(ENDING)  # collected only where the corpus lies


def decoded(folder: str, *pieces: bytes) -> Outcome:
    kind = FOLDERS[folder]
    name = "generic" if kind is ProviderKind.OPENAI_COMPATIBLE else None
    provider = ProviderConfig(kind, "model-x", "https://api.test/v1", ApiKey("secret"), name=name)
    return run(adapter_for(provider).decoder(ModelRequest(provider, [Message.user("Hi.")])), pieces)


def named(stream: Path) -> str:
    return f"{stream.parent.name}/{stream.stem[:40]}"


# --- cut --------------------------------------------------------------------------------------------------------


def boundaries(body: bytes, folder: str) -> list[int]:
    """Where events end, before the one that ends the answer: all of them, or some of very many."""
    end = re.search(ENDS[folder], body)
    limit = max(body.rfind(b"\n", 0, end.start()), 0) if end else len(body)
    found = [match.end() for match in re.finditer(rb"\r?\n\r?\n", body[:limit])]
    return found if len(found) < 60 else found[:: len(found) // 40] + found[-20:]


@pytest.mark.parametrize("stream", ENDING, ids=named)
def test_an_answer_that_was_cut_is_never_a_step(stream: Path) -> None:
    """At every event boundary and at random bytes. Whatever calls it held, nobody may run them."""
    folder, body = stream.parent.name, stream.read_bytes()
    places = boundaries(body, folder)
    chance = random.Random(len(body))
    places += [chance.randrange(places[-1]) for _ in range(20)] if places else []
    for place in places:
        outcome = decoded(folder, body[:place])
        assert outcome.error is not None, place
        if isinstance(outcome.error, ProviderFailure) and outcome.error.reason == "stream_truncated":
            assert outcome.error.replay_safe == outcome.replay_safe


# --- damaged ----------------------------------------------------------------------------------------------------

_SCALAR = re.compile(rb'(?<=:)\s*("(?:[^"\\]|\\.)*"|-?\d+|true|false|null|\[\]|\{\})')
_VALUES = [b"null", b"-1", b"1.5", b'""', b'"x"', b"[]", b"{}", b"[null]", b'{"type":null}', b"true", b"1e400"]


def flipped(body: bytes, chance: random.Random) -> bytes:
    """One byte is another."""
    at = chance.randrange(len(body))
    return body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]


def shortened(body: bytes, chance: random.Random) -> bytes:
    """A stretch is missing."""
    at = chance.randrange(len(body))
    return body[:at] + body[at + chance.randrange(1, 400) :]


def shuffled(body: bytes, chance: random.Random) -> bytes:
    """Two events stand in each other's place, one is missing, or one is there twice."""
    events = re.split(rb"(?<=\n\n)", body)
    first, second = chance.randrange(len(events)), chance.randrange(len(events))
    match chance.randrange(3):
        case 0:
            events[first], events[second] = events[second], events[first]
        case 1:
            del events[first]
        case _:
            events.insert(second, events[first])
    return b"".join(events)


def replaced(body: bytes, chance: random.Random) -> bytes:
    """A value in the JSON is another one, of any type."""
    values = list(_SCALAR.finditer(body))
    if not values:
        return body
    value = chance.choice(values)
    return body[: value.start(1)] + chance.choice(_VALUES) + body[value.end(1) :]


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [flipped, shortened, shuffled, replaced, replaced]


FUZZ_SECONDS = float(os.environ.get("MAKA_TRIO_FUZZ_SECONDS", "60"))
"""How long the slow job damages the recordings of one folder."""

HANG_SECONDS = 20
"""One answer decodes in milliseconds. Whatever takes this long does not end."""

ROOM_BYTES = 64 * limits.MIB
"""What thousands of damaged answers, of 20,000 bytes each, may leave behind."""


def damaged(body: bytes, chance: random.Random) -> bytes:
    """The front of a recording with one to three damages."""
    body = body[:20_000]
    for _ in range(chance.randrange(1, 4)):
        body = chance.choice(DAMAGES)(body, chance) or b"\n"
    return body


def check_damaged(folder: str, body: bytes, chance: random.Random) -> None:
    """A step or one of our errors, which is no longer than a person reads."""
    at = chance.randrange(len(body))
    outcome = decoded(folder, body[:at], body[at:])
    assert outcome.error is None or isinstance(outcome.error, ModelError)
    assert len(str(outcome.error)) < 20_000


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_damaged_answer_is_a_step_or_one_of_our_errors(folder: str) -> None:
    """No exception of a parser, no event that a step would refuse, no error as long as the answer."""
    chance = random.Random(folder)
    for stream in WHOLE[folder][::4]:
        for _ in range(15):
            check_damaged(folder, damaged(stream.read_bytes(), chance), chance)


@contextmanager
def no_hang(what: str) -> Iterator[None]:
    """Fails the test where one answer does not end."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"decoding does not end: {what}")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_answers_damaged_at_length_are_steps_or_our_errors(folder: str) -> None:
    """The same for all recordings, other damages each time, for as long as there is: no hang, no growing memory."""
    recordings = [stream.read_bytes() for stream in WHOLE[folder]]
    until, idle = time.monotonic() + FUZZ_SECONDS, resident_bytes()
    seed = time.time_ns()
    while time.monotonic() < until:
        seed += 1
        chance = random.Random(seed)
        body = damaged(chance.choice(recordings), chance)
        try:
            with no_hang(f"seed {seed}"):
                check_damaged(folder, body, chance)
        except Exception as error:
            error.add_note(f"{folder}, seed {seed}")
            raise
    assert resident_bytes() < idle + ROOM_BYTES
