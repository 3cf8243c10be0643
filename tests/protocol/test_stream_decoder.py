"""The promises that every streaming decoder keeps, whatever its protocol."""

from __future__ import annotations

import pytest

from maka_trio import limits
from maka_trio.errors import AdapterError, InvalidInput, ProviderFailure
from maka_trio.facts import Finished, FinishReason, ModelEvent, ModelUsage, PartDelta, TextKind
from maka_trio.protocol.sse import SseEvent
from maka_trio.protocol.stream_decoder import StreamDecoder
from tests.protocol.decoding import run


class Words(StreamDecoder):
    """A protocol in which every event is a word, `end` ends the answer, and some words are trouble."""

    def __init__(self) -> None:
        super().__init__()
        self.part = ""

    def on_event(self, event: SseEvent) -> None:
        match event.data.decode():
            case "end":
                self.answer.finish(FinishReason.STOP, ModelUsage())
            case "grace":
                self.in_grace = True
            case "invalid":
                raise InvalidInput("a value of ours refused it")
            case "deep":
                raise RecursionError("too deep")
            case word:
                self.part = self.part or self.answer.open_text(TextKind.TEXT)
                self.answer.text(self.part, word)


def body(*words: str) -> bytes:
    return b"".join(b"data: " + word.encode() + b"\n\n" for word in words)


def text(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, PartDelta))


def test_nothing_is_decoded_after_the_end() -> None:
    """Neither in the same read nor later, and closing is fine."""
    decoder = Words()
    events = decoder.feed(body("A", "end", "invalid"))
    assert isinstance(events[-1], Finished)
    assert decoder.finished
    assert decoder.feed(body("invalid")) == decoder.feed(b"\xff\n") == decoder.settle() == decoder.close() == []


@pytest.mark.parametrize("end", ["close", "settle"])
@pytest.mark.parametrize("words", [("A",), ("A", "grace"), ()])
def test_an_answer_that_did_not_end_is_truncated(words: tuple[str, ...], end: str) -> None:
    """Unless the protocol says otherwise; text leaves it safe to replay."""
    error = run(Words(), [body(*words)], end=end).error
    assert isinstance(error, ProviderFailure)
    assert (error.reason, error.replay_safe) == ("stream_truncated", True)


@pytest.mark.parametrize("trouble", ["invalid", "deep"])
def test_any_trouble_of_a_payload_is_a_model_error(trouble: str) -> None:
    """What our own values refuse is the provider's doing; events before it come first, and the fault stays."""
    decoder = Words()
    assert text(decoder.feed(body("A", trouble, "B"))) == "A"
    for later in (lambda: decoder.feed(body("C")), decoder.settle, decoder.close):
        with pytest.raises(AdapterError):
            later()


def test_a_framing_fault_in_the_same_read_waits_for_its_turn() -> None:
    """The next call raises it, one without bytes included."""
    decoder = Words()
    assert text(decoder.feed(body("A") + b"\xff\n")) == "A"
    with pytest.raises(AdapterError, match="UTF-8"):
        decoder.feed(b"")


def test_a_framing_fault_alone_is_raised_at_once() -> None:
    """Nothing came before it."""
    with pytest.raises(AdapterError, match="UTF-8"):
        Words().feed(b"\xff\n")


def test_text_that_passes_the_limit_of_an_answer_does_not_take_back_what_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit is met when the text of a read is put together."""
    monkeypatch.setattr(limits, "RESPONSE_BYTES", 20_000)
    decoder = Words()
    events = decoder.feed(body("x" * 30_000))
    assert text(events) == "x" * 2 * limits.DELTA_BYTES
    with pytest.raises(AdapterError, match="20000"):
        decoder.feed(b"")


def test_a_last_event_without_its_blank_line_is_decoded_when_the_body_closes() -> None:
    """If it is whole; here no word is a whole document, so only the end marker could be one."""
    decoder = Words()
    decoder.feed(body("A") + b"data: [1]")
    assert decoder.finished is False
    with pytest.raises(ProviderFailure):
        decoder.close()
