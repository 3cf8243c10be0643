"""What decoders build their events with: ids, deltas, limits, barriers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio import limits
from maka_trio.errors import AdapterError
from maka_trio.facts import (
    Finished,
    FinishReason,
    ModelEvent,
    ModelToolCall,
    ModelUsage,
    PartDelta,
    PartFinished,
    PartStarted,
    ProviderToolResult,
    ResponseMetadata,
    SourceCited,
    TextKind,
    ToolCallReady,
    UrlSource,
)
from maka_trio.facts.model import is_replay_barrier
from maka_trio.protocol.parts import AnswerParts, split_text
from maka_trio.steps import StepBuilder


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, PartDelta))


@given(st.text(max_size=200), st.integers(min_value=4, max_value=64))
def test_pieces_of_a_text_join_to_it_and_none_passes_the_limit(text: str, limit: int) -> None:
    """Splitting loses nothing and cuts between characters."""
    pieces = split_text(text, limit)
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= limit for piece in pieces)


@pytest.mark.parametrize("unit", ["a", "é", "字", "🙂"])
def test_pieces_are_as_long_as_the_limit_lets_them(unit: str) -> None:
    """Only the last piece may be short by more than one character."""
    pieces = split_text(unit * 20_000)
    size = len(unit.encode())
    assert all(limits.DELTA_BYTES - size < len(piece.encode()) <= limits.DELTA_BYTES for piece in pieces[:-1])


def test_text_of_one_part_between_two_takes_is_one_delta() -> None:
    """Adjacent text is joined, and never kept beyond `take`."""
    answer = AnswerParts()
    part = answer.open_text(TextKind.TEXT)
    for word in ("a", "", "b", "c"):
        answer.text(part, word)
    assert answer.take() == [PartStarted(part, TextKind.TEXT), PartDelta(part, "abc")]
    answer.text(part, "d")
    assert answer.take() == [PartDelta(part, "d")]
    assert answer.take() == []


def test_interleaved_parts_keep_the_order_of_their_text() -> None:
    """A delta of another part ends the run before it."""
    answer = AnswerParts()
    thought, said = answer.open_text(TextKind.THINKING), answer.open_text(TextKind.TEXT)
    assert thought != said
    for part, text in ((thought, "1"), (said, "2"), (said, "3"), (thought, "4")):
        answer.text(part, text)
    answer.close_texts()
    texts = [(event.id, event.text) for event in answer.take() if isinstance(event, PartDelta)]
    assert texts == [(thought, "1"), (said, "23"), (thought, "4")]


def test_options_of_a_text_that_must_be_cut_stand_on_its_first_piece() -> None:
    """Provider options travel once; a delta with options is no part of the run around it."""
    answer = AnswerParts()
    part = answer.open_text(TextKind.TEXT)
    answer.text(part, "before")
    answer.text(part, "x" * (limits.DELTA_BYTES + 1), {"p": {"a": 1}})
    answer.text(part, "after")
    deltas = [event for event in answer.take() if isinstance(event, PartDelta)]
    assert [delta.provider_options for delta in deltas] == [None, {"p": {"a": 1}}, None, None]
    assert text_of(list(deltas)) == "before" + "x" * (limits.DELTA_BYTES + 1) + "after"


def test_options_without_text_travel_alone() -> None:
    """A signature may come by itself."""
    answer = AnswerParts()
    part = answer.open_text(TextKind.THINKING)
    answer.text(part, "", {"p": {"signature": "s"}})
    assert answer.take()[1:] == [PartDelta(part, "", {"p": {"signature": "s"}})]


@pytest.mark.parametrize("use", ["text", "close_text"])
def test_a_part_that_is_not_open_is_refused(use: str) -> None:
    """Neither text nor an end for a part that ended or never began."""
    answer = AnswerParts()
    part = answer.open_text(TextKind.TEXT)
    answer.close_text(part)
    with pytest.raises(AdapterError, match="not open"):
        answer.text(part, "late") if use == "text" else answer.close_text(part)


def test_two_calls_with_one_id_are_refused() -> None:
    """Their results could not be told apart."""
    answer = AnswerParts()
    answer.call(ModelToolCall("a", "f", {}))
    with pytest.raises(AdapterError, match="'a'"):
        answer.call(ModelToolCall("a", "g", {}))


def test_metadata_is_said_once_and_again_only_where_it_changes() -> None:
    """Chunks repeat it; it is no part of the answer."""
    answer = AnswerParts()
    for _ in range(3):
        answer.metadata("r1", "m", None)
    answer.metadata("r1", None, 5)
    answer.metadata(None, None, None)
    assert answer.take() == [ResponseMetadata("r1", "m", None), ResponseMetadata("r1", "m", 5)]
    assert not answer.observed_output
    assert answer.replay_safe


def test_the_end_closes_what_is_open_and_is_accepted_by_the_builder() -> None:
    """A decoder may finish without closing its parts."""
    answer = AnswerParts()
    answer.text(answer.open_text(TextKind.TEXT), "hello")
    answer.cite(UrlSource("s", "http://127.0.0.1/"))
    answer.call(ModelToolCall("a", "f", {"n": 1}))
    answer.finish(FinishReason.TOOL_CALLS, ModelUsage(1, 2))
    builder = StepBuilder()
    for event in answer.take():
        builder.push(event)
    assert builder.finish().text() == "hello"
    assert answer.finished


OPTIONS = {"p": {"signature": "s"}}


@pytest.mark.parametrize(
    ("event", "barrier"),
    [
        (PartStarted("p"), False),
        (PartStarted("p", provider_options=OPTIONS), True),
        (PartDelta("p", "t"), False),
        (PartDelta("p", "t", OPTIONS), True),
        (PartFinished("p"), False),
        (PartFinished("p", {}), False),
        (PartFinished("p", OPTIONS), True),
        (ToolCallReady(ModelToolCall("a", "f", {})), False),
        (ToolCallReady(ModelToolCall("a", "f", {}, OPTIONS)), True),
        (ToolCallReady(ModelToolCall("a", "f", {}, provider_executed=True)), True),
        (ProviderToolResult("a", "f", None), True),
        (SourceCited(UrlSource("s", "u")), False),
        (ResponseMetadata("r"), False),
        (Finished(FinishReason.STOP), True),
    ],
)
def test_what_the_provider_did_or_signed_is_a_replay_barrier(event: ModelEvent, barrier: bool) -> None:
    """Text and calls that are ours to dispatch are none."""
    assert is_replay_barrier(event) is barrier


def test_a_barrier_among_the_parts_shows_on_the_answer() -> None:
    """Text leaves an answer safe to ask for again, a signed part does not."""
    answer = AnswerParts()
    part = answer.open_text(TextKind.THINKING)
    answer.text(part, "hm")
    assert (answer.replay_safe, answer.observed_output) == (True, True)
    answer.close_text(part, OPTIONS)
    assert not answer.replay_safe


def test_one_event_over_the_limit_is_refused_by_its_name() -> None:
    """Arguments of eight MiB are no call."""
    answer = AnswerParts()
    with pytest.raises(AdapterError, match=rf"tool_call.*{limits.WIRE_EVENT_BYTES}"):
        answer.call(ModelToolCall("a", "f", {"x": "y" * limits.WIRE_EVENT_BYTES}))


def test_an_answer_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything counts as it would be encoded, what is kept for later included."""
    monkeypatch.setattr(limits, "RESPONSE_BYTES", 10_000)
    answer = AnswerParts()
    part = answer.open_text(TextKind.TEXT)
    with pytest.raises(AdapterError, match="10000"):
        for _ in range(20):
            answer.text(part, '"' * 300)  # six hundred bytes when encoded
            answer.take()
    kept = AnswerParts()
    with pytest.raises(AdapterError, match="10000"):
        for _ in range(20):
            kept.reserve(600)
