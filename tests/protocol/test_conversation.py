"""Prompts as turns: pairing, order, and ids that a wire accepts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.errors import InvalidInput
from maka_trio.facts.message import Message, PromptMessage, UserMessage
from maka_trio.facts.model import ModelToolCall, ToolCallPart
from maka_trio.protocol.conversation import AssistantTurn, turns, wire_name
from tests.protocol.wire_histories import call, parallel_calls, repeated_ids, said


def assistant_turns(prompt: list[PromptMessage], *, id_length: int = 64) -> list[AssistantTurn]:
    return [turn for turn in turns(prompt, id_length=id_length) if isinstance(turn, AssistantTurn)]


def test_answers_stand_with_their_calls_in_call_order() -> None:
    """They came in as they finished."""
    (turn,) = assistant_turns(parallel_calls())
    assert [answer.call_id for answer in turn.answers] == ["c1", "c2", "c3"]


def test_what_is_said_in_between_comes_after_the_answers() -> None:
    """And nothing that is said is lost."""
    prompt = [Message.assistant([call("a")]), Message.user("1"), Message.tool("a", "put", "x"), Message.user("2")]
    kinds = [type(turn) for turn in turns(prompt, id_length=64)]
    assert kinds == [AssistantTurn, UserMessage, UserMessage]


def test_an_id_used_again_belongs_to_the_step_it_was_made_in() -> None:
    """Pairing is by place; the wire gets another id."""
    texts = [[answer.output for answer in turn.answers] for turn in assistant_turns(repeated_ids())]
    assert [str(answers[0]) for answers in texts] == [f"TextOutput(text='result {n}')" for n in range(3)]
    ids = [turn.wire_ids["call_0"] for turn in assistant_turns(repeated_ids())]
    assert ids == ["call_0", "call_0_2", "call_0_3"]


def test_an_id_never_takes_that_of_a_hosted_call() -> None:
    """The provider's own ids cannot be renamed."""
    hosted = ToolCallPart(ModelToolCall("x", "search", {}, provider_executed=True))
    turn = assistant_turns([Message.assistant([hosted, call("x")]), Message.tool("x", "put", "1")])[0]
    assert turn.wire_ids == {"x": "x_2"}


@given(st.lists(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=3, unique=True), max_size=6))
def test_wire_ids_are_short_plain_unique_and_stable(steps: list[list[str]]) -> None:
    """Whatever ids providers make, and however the history grows."""
    prompt: list[PromptMessage] = []
    before: list[dict[str, str]] = []
    for ids in steps:
        prompt += [Message.assistant([said("x"), *map(call, ids)]), *(Message.tool(i, "put", "r") for i in ids)]
        given_ids = [dict(turn.wire_ids) for turn in assistant_turns(prompt, id_length=40)]
        assert given_ids[: len(before)] == before
        before = given_ids
    flat = [wire_id for turn in before for wire_id in turn.values()]
    assert len(set(flat)) == len(flat)
    assert all(1 <= len(wire_id) <= 40 and wire_id.isascii() for wire_id in flat)


@pytest.mark.parametrize(
    "prompt",
    [
        [Message.assistant([call("a")])],
        [Message.tool("a", "put", "x")],
        [Message.assistant("x"), Message.tool("a", "put", "x")],
        [Message.assistant([call("a")]), *[Message.tool("a", "put", "x")] * 2],
        [Message.assistant([call("a"), call("a")]), Message.tool("a", "put", "x")],
        [Message.assistant([call("a")]), Message.assistant("x"), Message.tool("a", "put", "x")],
    ],
)
def test_what_does_not_pair_is_refused(prompt: list[PromptMessage]) -> None:
    """A missing answer is not made up, a stray one not dropped."""
    with pytest.raises(InvalidInput, match="'a'"):
        turns(prompt, id_length=64)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("put", "put"), ("functions.put now", "functions_put_now"), ("€" * 100, "_" * 64), ("", "_")],
)
def test_a_name_in_a_history_is_one_a_wire_accepts(name: str, expected: str) -> None:
    """Models and other providers invent names that no wire takes."""
    assert wire_name(name) == expected
