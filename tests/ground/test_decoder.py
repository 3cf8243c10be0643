"""Facts read in one go are what the converter makes of the same bytes, or are left to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio import facts
from maka_trio.errors import InvalidInput
from maka_trio.facts import decoder
from maka_trio.facts.codec import decode, decode_fact, encode_fact
from maka_trio.facts.decoder import _Shapes, read_fact, usual_fact
from maka_trio.facts.event import Fact
from tests import strategies

DIGEST = "sha256:" + "0" * 64
CALL = facts.ModelToolCall("c", "put", {"deep": [1.5, None, {"a": "\u00e9"}], "n": 2**70})
NAMED = facts.ToolCallIdentity.provider("s", "c")

USUAL: dict[str, Fact] = {
    "opened": facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("hi"))),
    "opened with all": facts.InvocationOpened(
        facts.MessageOpening(
            facts.MessageInput("hi", "shown", (facts.Quote("q", "l"),), (facts.TextContent("p"),)),
            "fingerprint",
            ("one",),
            True,
            facts.RequestSurface(
                (facts.ToolDefinition("t", "d", {"type": "object"}, {}),), {"openai": {"a": 1}}, 7, True
            ),
        ),
        facts.InvocationConfiguration(facts.ToolMode.CODE, "be brief", "/tmp", 3),
    ),
    "requested": facts.ModelRequested("s", "m", facts.Session("x"), 0, DIGEST, DIGEST, DIGEST),
    "requested with all": facts.ModelRequested(
        *("s", "m", facts.Session("x"), 2**60, DIGEST, DIGEST, DIGEST, facts.StepPurpose.SUMMARY, "checkpoint"),
        facts.ModelRequestContext("p", 1, 2, 3),
        DIGEST,
        facts.RequestSurface((facts.ToolDefinition("t", "d", False),)),
    ),
    "interrupted": facts.ModelInterrupted("s", facts.InterruptionStatus.TIMED_OUT, "late"),
    "completed": facts.ModelCompleted(
        "s",
        facts.ModelStep(
            (facts.TextPart(facts.TextKind.THINKING, "x", {"anthropic": {"s": "t"}}), facts.ToolCallPart(CALL)),
            facts.FinishReason.TOOL_CALLS,
            facts.ModelUsage(1, 2, 0, None, 5),
            {"p": {}},
            "id",
            "model",
            12,
        ),
    ),
    "dispatched": facts.ToolDispatched("o", NAMED, "put", CALL.input),
    "settled": facts.ToolSettled("o", facts.Succeeded(facts.RawResult(1, DIGEST), facts.JsonOutput(CALL.input))),
    "settled with media": facts.ToolSettled(
        "o",
        facts.Succeeded(
            facts.RawResult(1, DIGEST), facts.TextOutput("x"), (facts.ArtifactRef("a", "image/png", 3, DIGEST),)
        ),
    ),
    "failed": facts.ToolSettled("o", facts.EffectFailed("no")),
    "unknown": facts.ToolSettled("o", facts.EffectUnknown("who knows")),
    "rejected": facts.ToolRejected("o", NAMED, "put", None, facts.ToolRejection.invalid_input("no")),
    "ended": facts.InvocationEnded(facts.Completed()),
    "ended failed": facts.InvocationEnded(facts.Failed(facts.FailureClass.STEP_LIMIT, "too many")),
    "ended cancelled": facts.InvocationEnded(facts.Cancelled("user")),
}
by_name = pytest.mark.parametrize("name", USUAL)


def agrees(body: bytes, kind: str) -> bool:
    """Whether it is read in one go. Then the converter reads the same value, to the type of each number."""
    found = usual_fact(body, kind)
    if found is not None:
        careful = decode(body, Fact, what="fact")
        assert found == careful
        assert encode_fact(found) == encode_fact(careful)
    return found is not None


@by_name
def test_a_usual_fact_is_read_in_one_go(name: str) -> None:
    """Every field that it may have included."""
    assert agrees(encode_fact(USUAL[name]), USUAL[name].kind)


@given(strategies.FACTS)
def test_any_fact_is_the_same_in_one_go(fact: Fact) -> None:
    """Or is left to the converter."""
    agrees(encode_fact(fact), fact.kind)


@given(strategies.FACTS, st.sampled_from(list(USUAL.values())))
def test_a_fact_filed_as_another_is_left_to_the_converter(fact: Fact, other: Fact) -> None:
    """What a row says of its kind is no evidence."""
    assert type(fact) is type(other) or usual_fact(encode_fact(fact), other.kind) is None


@by_name
@given(data=st.data())
def test_changed_bytes_are_the_same_in_one_go(name: str, data: st.DataObject) -> None:
    """A byte changed, put in or taken out: nothing is read that the converter would refuse, or read otherwise."""
    body = encode_fact(USUAL[name])
    at = data.draw(st.integers(0, len(body) - 1))
    put = data.draw(st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b",", b"}", b"{", b" ", b"1", b"null", b"-"]))
    agrees(body[:at] + put + body[at + data.draw(st.integers(0, 4)) :], USUAL[name].kind)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with a key or index into it."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for item in value.values() for place in places(item)]
    if isinstance(value, list):
        return [(value, at) for at in range(len(value))] + [place for item in value for place in places(item)]
    return []


@by_name
@given(data=st.data())
def test_another_value_anywhere_is_the_same_in_one_go(name: str, data: st.DataObject) -> None:
    """Of another type, beyond a limit, under another key, missing, or one too many."""
    written = json.loads(encode_fact(USUAL[name]))
    holder, key = data.draw(st.sampled_from(places(written)))
    value = data.draw(
        st.sampled_from(
            [None, True, 0, 1, -1, 1.0, 2**80, "", "x", "x" * 5000, "sha256:", [], {}, ["x"], {"kind": "text"}]
        )
        | strategies.JSON_VALUES
    )
    if isinstance(holder, dict) and data.draw(st.booleans()):
        holder[data.draw(st.sampled_from(["more", "kind", "text", "input"]))] = value
    elif isinstance(holder, dict) and data.draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = value
    agrees(json.dumps(written).encode(), USUAL[name].kind)


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"x","kind":"invocation_ended","outcome":{"kind":"completed"}}',
        b'{"kind":"invocation_ended","kind":"x","outcome":{"kind":"completed"}}',
        b'{"kind":"invocation_ended","outcome":{"kind":"failed","kind":"completed"}}',
        b'{"kind":"invocation_ended","outcome":{"class":1,"class":"step_limit","kind":"failed"}}',
        b'{"kind":"invocation_ended","outcome":{"class":"step_limit","class":1,"kind":"failed"}}',
        b'{"kind":"invocation_ended","outcome":{"failure_class":"step_limit","kind":"failed"}}',
        b'{"kind":"invocation_ended"}',
        b'{"outcome":{"kind":"completed"}}',
        b'{"kind":"","outcome":{"kind":"completed"}}',
        b'{"kind":""}',
        b'{"kind":"invocation_ended","outcome":{}}',
        b'{"kind":"invocation_ended","outcome":{"kind":""}}',
        b'"invocation_ended"',
        b"[" * 5000,
        b"",
    ],
)
def test_odd_bytes_are_the_same_in_one_go(body: bytes) -> None:
    """Keys twice, a field by another name, nothing at all."""
    try:
        careful: object = decode(body, Fact, what="fact")
    except InvalidInput:
        careful = None
    assert usual_fact(body, "invocation_ended") in (None, careful)


class Watched(dict[Any, Any]):
    """Shapes as another thread finds them: at any moment after they are put there."""

    def __init__(self, shapes: _Shapes) -> None:
        self._of = shapes
        self.seen: list[bool] = []

    def __setitem__(self, key: Any, shape: Any) -> None:
        super().__setitem__(key, shape)
        self.seen.append(shape in self._of._makers)


def test_a_shape_that_another_thread_can_find_is_whole() -> None:
    """Else that thread, which reads its first facts at the same time, takes the struct for the value."""
    shapes = _Shapes()
    watched = shapes._shapes = Watched(shapes)
    for kind in (facts.InvocationOpened, facts.ToolSettled):
        shapes.of(kind, tagged=True)
    assert watched.seen == [True] * len(watched)
    assert len(watched) > 2


# --- which of the two -------------------------------------------------------------------------------------


def test_the_first_few_of_a_kind_are_the_converters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape is made only for a kind of which there are many; what is read is the same."""
    careful: list[bytes] = []

    def decode_carefully(body: bytes) -> Fact:
        careful.append(body)
        return decode_fact(body)

    monkeypatch.setattr(decoder, "_FEW", 3)
    monkeypatch.setattr(decoder, "_met", dict.fromkeys(decoder._met, 0))
    monkeypatch.setattr(decoder, "decode_fact", decode_carefully)
    fact, other = USUAL["settled"], USUAL["dispatched"]
    body = encode_fact(fact)
    assert [read_fact(body, fact.kind) for _ in range(10)] == [fact] * 10
    assert careful == [body] * 3
    assert read_fact(encode_fact(other), other.kind) == other
    assert len(careful) == 4


@pytest.mark.parametrize("met", [0, 10_000])
@by_name
def test_a_fact_is_read_whatever_was_read_before(name: str, met: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Early or late, the same value; also where the row says another kind, and where there is no fact."""
    monkeypatch.setattr(decoder, "_met", dict.fromkeys(decoder._met, met))
    fact = USUAL[name]
    body = encode_fact(fact)
    assert read_fact(body, fact.kind) == fact
    assert read_fact(body, "tool_notified") == read_fact(body, "invocation_ended") == fact
    with pytest.raises(InvalidInput):
        read_fact(body[:-1], fact.kind)
    with pytest.raises(InvalidInput):
        read_fact(body[:-1] + b',"more":1}', fact.kind)
