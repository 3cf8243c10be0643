"""Streamed text read by its short way is what the converter makes of the same bytes, or is left to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.errors import AdapterError, InvalidInput
from maka_trio.facts import (
    Finished,
    FinishReason,
    ModelObserved,
    ModelToolCall,
    ModelUsage,
    PartDelta,
    PartFinished,
    PartStarted,
    TextKind,
    ToolCallReady,
)
from maka_trio.facts.codec import decode, decode_fact, encode_fact
from maka_trio.facts.event import Fact
from maka_trio.facts.streamed import StepStream, StreamedText, StreamedTexts, short_observation
from maka_trio.steps import StepBuilder
from tests import strategies

BODY = encode_fact(ModelObserved("step", PartDelta("part", 'say "hi" \u00e9\U0001f600\n')))


def either_way(body: bytes) -> tuple[object, object]:
    """The fact by `decode_fact` and by the converter alone; the class of the error where there is none."""

    def tried(read: Any) -> object:
        try:
            return read()
        except InvalidInput:
            return InvalidInput

    return tried(lambda: decode_fact(body)), tried(lambda: decode(body, Fact, what="fact"))


@given(strategies.IDS, strategies.IDS, strategies.TEXT)
def test_streamed_text_is_taken_by_the_short_way(step_id: str, part_id: str, text: str) -> None:
    """Whatever the ids and the text are, escapes and all."""
    fact = ModelObserved(step_id, PartDelta(part_id, text))
    found = short_observation(encode_fact(fact))
    assert isinstance(found, StreamedText)
    assert (found.step_id, found.part_id, found.text, found.fact()) == (step_id, part_id, text, fact)


@given(strategies.FACTS)
def test_any_fact_is_the_same_either_way(fact: Fact) -> None:
    """Nothing else is taken for streamed text."""
    one, other = either_way(encode_fact(fact))
    assert one == other == fact
    assert type(one) is type(other)


@given(st.data())
def test_changed_bytes_are_the_same_either_way(data: st.DataObject) -> None:
    """A byte changed, put in or taken out: either both read the same fact, or both refuse."""
    one, other = either_way(changed_body(data, BODY))
    assert one == other


def stream_of(step_id: str, part_id: str, text: str = "") -> StepStream:
    """A step of which a delta of text was read."""
    stream = StepStream(step_id)
    assert stream.event_of(encode_fact(ModelObserved(step_id, PartDelta(part_id, text)))) == StreamedTexts(
        part_id, [text]
    )
    return stream


@given(strategies.IDS, strategies.IDS, strategies.TEXT, strategies.TEXT)
def test_stream_takes_every_delta_of_its_part(step_id: str, part_id: str, text: str, other: str) -> None:
    """Whatever the ids and the texts are; what the other delta said does not matter."""
    body = encode_fact(ModelObserved(step_id, PartDelta(part_id, text)))
    assert stream_of(step_id, part_id, other).text_of(body) == text
    assert short_observation(body) == StreamedText(step_id, part_id, text)


@given(st.data())
def test_stream_takes_nothing_else(data: st.DataObject) -> None:
    """A byte changed, put in or taken out: what a stream still takes is what the converter reads of it."""
    body = changed_body(data, BODY)
    text = stream_of("step", "part").text_of(body)
    assert text is None or decode(body, Fact, what="fact") == ModelObserved("step", PartDelta("part", text))


@pytest.mark.parametrize(
    "other",
    [
        ModelObserved("other", PartDelta("part", "text")),
        ModelObserved("step", PartDelta("other", "text")),
        ModelObserved("step", PartDelta("part", "text", {"a": {"b": 1}})),
        ModelObserved("step", PartStarted("part")),
    ],
    ids=["another step", "another part", "options", "another event"],
)
def test_stream_leaves_what_is_of_another(other: ModelObserved) -> None:
    """Another step, another part, or more than text."""
    assert stream_of("step", "part").text_of(encode_fact(other)) is None


def test_stream_goes_on_with_the_part_that_spoke_last() -> None:
    """Text of another part begins that part; nothing is taken for text before there was any."""
    one, other = (encode_fact(ModelObserved("step", PartDelta(part, "text"))) for part in ("one", "other"))
    stream = StepStream("step")
    assert stream.text_of(one) is None
    for body, part, before in ((one, "one", other), (other, "other", one)):
        assert stream.event_of(body) == StreamedTexts(part, ["text"])
        assert (stream.text_of(body), stream.text_of(before)) == ("text", None)


OFTEN: dict[str, ModelObserved] = {
    "start": ModelObserved("step", PartStarted("part", TextKind.THINKING)),
    "end": ModelObserved("step", PartFinished("part")),
    "finish": ModelObserved("step", Finished(FinishReason.LENGTH, ModelUsage(1, 2))),
    "call": ModelObserved("step", ToolCallReady(ModelToolCall("call", "tool", {"step_id": [1.5, None]}))),
}


def changed_body(data: st.DataObject, body: bytes) -> bytes:
    """With a byte changed, put in or taken out somewhere."""
    at = data.draw(st.integers(0, len(body) - 1))
    others = [b'"', b"\\", b",", b"}", b"{", b" ", b"}}", b"\xff", b"\\ud800"]
    put = data.draw(st.binary(max_size=2) | st.sampled_from(others))
    return body[:at] + put + body[at + data.draw(st.integers(0, 2)) :]


@pytest.mark.parametrize("name", OFTEN)
@given(data=st.data())
def test_changed_bytes_of_an_event_said_before_are_the_same_either_way(name: str, data: st.DataObject) -> None:
    """An event that was read before is known by its bytes, and by nothing less."""
    body = encode_fact(OFTEN[name])
    assert short_observation(body) == short_observation(body) == OFTEN[name]
    one, other = either_way(changed_body(data, body))
    assert one == other


@given(st.sampled_from([*OFTEN.values(), ModelObserved("step", PartDelta("part", "text"))]), st.data())
def test_stream_takes_an_event_for_what_it_is(fact: ModelObserved, data: st.DataObject) -> None:
    """As it is, or changed somewhere: what a stream takes of its step is what the converter reads of it."""
    stream = stream_of("step", "part")
    body = changed_body(data, encode_fact(fact))
    for one in (encode_fact(fact), body):
        event = stream.event_of(one)
        if isinstance(event, StreamedTexts):
            assert len(event.texts) == 1
            event = PartDelta(event.part_id, event.texts[0])
        assert event is not None or one is body
        assert event is None or decode(one, Fact, what="fact") == ModelObserved("step", event)


@given(strategies.IDS.filter(lambda step_id: step_id != "step"))
def test_stream_takes_no_event_of_another_step(step_id: str) -> None:
    """However its id is like the other, and whether or not the event was read before."""
    for fact in OFTEN.values():
        assert StepStream("step").event_of(encode_fact(fact)) == fact.event
        assert StepStream(step_id).event_of(encode_fact(fact)) is None


def test_event_within_an_event_is_not_taken_for_the_end_of_it() -> None:
    """What a call is given may look like the rest of an observation."""
    inner = {"event": {}, "kind": "model_observed", "step_id": "other"}
    fact = ModelObserved("step", ToolCallReady(ModelToolCall("call", "tool", inner)))
    assert short_observation(encode_fact(fact)) == fact
    cut = encode_fact(fact).replace(b',"kind":"tool_call"},"kind":"model_observed","step_id":"step"', b"")
    one, other = either_way(cut)
    assert one == other == InvalidInput


DELTA: dict[str, Any] = {
    "event": {"data": {"id": "part", "text": "text"}, "kind": "part_delta"},
    "kind": "model_observed",
    "step_id": "step",
}


def changed(*at: str, value: object) -> bytes:
    delta = json.loads(json.dumps(DELTA))
    holder = delta
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = value
    return json.dumps(delta, separators=(",", ":")).encode()


OTHERS: dict[str, bytes] = {
    "no step id": changed("step_id", value=""),
    "a long step id": changed("step_id", value="s" * 5000),
    "a step id of many bytes": changed("step_id", value="\U0001f600" * 1025),
    "as many as may be": changed("step_id", value="\U0001f600" * 1024),
    "a number for a step": changed("step_id", value=1),
    "a number for a text": changed("event", "data", "text", value=1),
    "another field": changed("more", value=1),
    "another field of the event": changed("event", "more", value=1),
    "another field of the data": changed("event", "data", "more", value=1),
    "options": changed("event", "data", "provider_options", value={"a": 1}),
    "no options": changed("event", "data", "provider_options", value=None),
    "another kind": changed("kind", value="model_completed"),
    "another kind of event": changed("event", "kind", value="part_started"),
    "a key twice": BODY.replace(b'"kind":"model_observed"', b'"kind":"x","kind":"model_observed"'),
    "a key twice, the other way": BODY.replace(b'"step_id":', b'"step_id":1,"step_id":'),
    "a text twice": BODY.replace(b'"text":', b'"text":"other","text":'),
    "spaces": BODY.replace(b":", b": "),
    "a second document": BODY + BODY,
    "a lone surrogate": BODY.replace(b"say", b"\\ud83d"),
    "no utf-8": BODY.replace(b"say", b"\xff\xfe"),
    "nothing": b"",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_resembles_streamed_text_is_the_same_either_way(name: str) -> None:
    """The short way takes nothing that the converter would refuse, and refuses nothing itself."""
    one, other = either_way(OTHERS[name])
    assert one == other


@pytest.mark.parametrize(
    "before",
    [[], [PartStarted("p")], [PartStarted("p"), PartFinished("p")], [PartDelta("p", "void")]],
    ids=["nothing", "an open part", "a closed part", "a fault"],
)
def test_a_builder_takes_text_as_it_takes_the_event(before: list[Any]) -> None:
    """The same parts, or the same refusal in the same words."""

    def tell(push: Any) -> object:
        builder = StepBuilder("step")
        words = []
        for event in before:
            try:
                builder.push(event)
            except AdapterError as error:
                words.append(str(error))
        try:
            push(builder)
        except AdapterError as error:
            words.append(str(error))
        return words, builder._fault, [text.pieces for text in builder._texts.values()]

    assert tell(lambda builder: builder.push_texts("p", ("x", "y"))) == tell(
        lambda builder: [builder.push(PartDelta("p", text)) for text in ("x", "y")]
    )
