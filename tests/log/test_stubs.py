"""What is left of a body: as many bytes, which say what was done and spent, and whether they were changed."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio import facts
from maka_trio.errors import InvalidInput
from maka_trio.facts.codec import encode_fact, encode_invocation, parse_json
from maka_trio.log.prepared import prepare
from maka_trio.log.stub import Place, holds, is_stub, make_stub, read_stub
from tests import strategies

IDENTITY = encode_invocation(facts.Invocation.new("session"))
WRITTEN = {kind: values for kind, values in strategies.FACTS_BY_KIND.items() if kind is not facts.BodyDeleted}


def place_of(fact: Any) -> Place:
    operation = facts.event.indexed_operation_id(fact)
    return Place(7, 5, 3, fact.kind, "event", 1_700_000_000_000, operation, b"r" * 32, b"s" * 32, IDENTITY)


def stub_of(fact: Any) -> tuple[Place, bytes]:
    place = place_of(fact)
    return place, make_stub(place, fact, len(encode_fact(fact)))


def left_of(fact: Any) -> facts.BodyDeleted:
    place, stub = stub_of(fact)
    return read_stub(place.kind, place.root_digest, place.session_digest, stub)


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.kind)
@given(data=st.data())
def test_every_stub_has_the_length_of_what_it_replaces(kind: type[Any], data: st.DataObject) -> None:
    """So it is written in its place. It says which fact it was, under what it is indexed, and what its digests are."""
    fact = data.draw(WRITTEN[kind])
    place, stub = stub_of(fact)
    assert len(stub) == len(encode_fact(fact))
    assert is_stub(stub)
    assert holds(place, stub)
    left = left_of(fact)
    assert (left.of_kind, left.size) == (fact.kind, len(stub))
    assert left.operation_id == place.operation_id
    assert (left.root_digest, left.session_digest) == (f"sha256:{'72' * 32}", f"sha256:{'73' * 32}")


REJECTED = facts.ToolRejected(
    "o",
    facts.ToolCallIdentity("c", facts.Standalone()),
    "put",
    {"x": "said"},
    facts.ToolRejection.policy_denied("said"),
)
STEP = facts.ModelStep((), facts.FinishReason.STOP, facts.ModelUsage(5, 0), model="m-2")
RAW = facts.RawResult(4, "sha256:" + "0" * 64)


@pytest.mark.parametrize(
    ("fact", "account"),
    [
        (facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("said"))), {}),
        (facts.ModelObserved("s", facts.PartDelta("p", "said")), {}),
        (facts.ModelCompleted("s", STEP), {"model_id": "m-2", "usage": facts.ModelUsage(5, 0)}),
        (facts.ModelCompleted("s", attrs.evolve(STEP, usage=facts.ModelUsage(), model=None)), {}),
        (facts.ModelInterrupted("s", facts.InterruptionStatus.TIMED_OUT, "said"), {"outcome": "timed_out"}),
        (REJECTED, {"name": "put", "outcome": "policy_denied"}),
        (facts.ToolSettled("o", facts.EffectFailed("said")), {"outcome": "failed"}),
        (facts.ToolSettled("o", facts.Succeeded(RAW, facts.TextOutput("said"))), {"outcome": "succeeded"}),
        (facts.MessageSteered(facts.MessageInput("said")), {}),
        (facts.InvocationEnded(facts.Cancelled("said")), {"outcome": "cancelled"}),
        (
            facts.InvocationEnded(facts.Failed(facts.FailureClass.MODEL_PROVIDER, "said")),
            {"outcome": "failed:model_provider"},
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_the_account_and_nothing_that_was_said(fact: Any, account: dict[str, Any]) -> None:
    """Usage and model of a step, name and outcome of a tool, outcome of a run."""
    _, stub = stub_of(fact)
    left = left_of(fact)
    assert b"said" not in stub
    for name in ("name", "outcome", "model_id", "usage"):
        assert getattr(left, name) == account.get(name)


@given(data=st.data())
def test_a_stub_that_was_changed_does_not_hold(data: st.DataObject) -> None:
    """Neither its own bytes nor anything that its row says beside it."""
    fact = REJECTED
    place, stub = stub_of(fact)
    if data.draw(st.booleans()):
        number = data.draw(st.integers(1, len(stub.rstrip()) - 1))
        changed = bytearray(stub)
        changed[number] ^= data.draw(st.integers(1, 255))
        assert not holds(place, bytes(changed))
    else:
        name = data.draw(st.sampled_from(Place._fields))
        value: Any = getattr(place, name)
        other = value + 1 if isinstance(value, int) else value + value[:1]
        assert not holds(place._replace(**{name: other}), stub)
    assert not holds(place, stub + b" ")


@pytest.mark.parametrize("size", [0, 1, 18, 30])
def test_what_could_not_be_read_leaves_nothing_to_read(size: int) -> None:
    """A damaged body goes like the others; what is left says at most its size."""
    place = place_of(facts.InvocationEnded(facts.Completed()))
    stub = make_stub(place, None, size)
    assert len(stub) == size
    if size < 19:
        assert stub.strip(b"\0") == b""
    else:
        assert read_stub(place.kind, place.root_digest, place.session_digest, stub).outcome is None


def test_no_json_is_taken_for_a_stub() -> None:
    """And no stub for JSON."""
    assert not is_stub(b'{"kind":"body_deleted"}')
    assert not is_stub(b"")
    with pytest.raises(InvalidInput):
        parse_json(stub_of(REJECTED)[1], what="a body")


def test_a_stub_cannot_be_written_as_a_fact() -> None:
    """Only a deletion leaves one."""
    left = left_of(REJECTED)
    with pytest.raises(InvalidInput, match="body_deleted"):
        prepare(facts.RuntimeEvent.new(facts.Invocation.new("session"), left))
