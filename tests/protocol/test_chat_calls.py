"""Tool calls of chat completions: how their pieces are put together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio import limits
from maka_trio.errors import AdapterError
from maka_trio.facts import FinishReason, ToolCallReady
from maka_trio.protocol.chat_calls import CallAssembler
from maka_trio.protocol.chat_chunk import CallDelta, Function
from tests.protocol.chat_wire import ABSENT, DONE, STOP, TOOL_CALLS, call, calls, chunk, decoded, decoder, quickly

Calls = list[tuple[str, str, Any]]

BOTH = pytest.mark.parametrize("name", [None, "generic"])


def made(*body: bytes, name: str | None = None) -> Calls:
    step = decoded(*body, TOOL_CALLS, DONE, name=name).done
    assert step.finish_reason is FinishReason.TOOL_CALLS
    return [(c.id, c.name, c.input) for c in step.tool_calls()]


def refused(*body: bytes, name: str | None = None) -> str:
    error = decoded(*body, TOOL_CALLS, DONE, name=name).error
    assert isinstance(error, AdapterError), error
    return str(error)


F_THEN_G: Calls = [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]


@BOTH
@pytest.mark.parametrize(
    "body",
    [
        # as the vendor sends them, one after the other and interleaved
        [calls(call(0, "a", "f", "")), calls(call(0, arguments='{"x":1}')), calls(call(1, "b", "g", '{"y":2}'))],
        [
            calls(call(0, "a", "f", '{"x"'), call(1, "b", "g", '{"y"')),
            calls(call(0, arguments=":1}"), call(1, arguments=":2}")),
        ],
        [
            calls(call(0, "a", "f", '{"x"')),
            calls(call(1, "b", "g", '{"y"')),
            calls(call(0, arguments=":1}")),
            calls(call(1, arguments=":2}")),
        ],
        # the second index before the first
        [calls(call(1, "b", "g", '{"y":2}')), calls(call(0, "a", "f", '{"x":1}'))],
        # one index for both
        [calls(call(0, "a", "f", '{"x":1}')), calls(call(0, "b", "g", '{"y":2}'))],
        [calls(call(0, "a", "f", '{"x":1}')), calls(call(0, "b", "g", "")), calls(call(0, arguments='{"y":2}'))],
        [calls(call(0, "a", "f", '{"x":1}'), call(0, "b", "g", '{"y":2}'))],
        # no index
        [calls(call(ABSENT, "a", "f", '{"x":1}'), call(ABSENT, "b", "g", '{"y":2}'))],
        [calls(call(ABSENT, "a", "f", '{"x":1}')), calls(call(ABSENT, "b", "g", '{"y":2}'))],
        [
            calls(call(None, "a", "f", '{"x"')),
            calls(call(None, arguments=":1}")),
            calls(call(None, "b", "g", '{"y":2}')),
        ],
        [
            calls(call(ABSENT, "a", "f", '{"x"'), call(ABSENT, "b", "g", '{"y"')),
            calls(call(ABSENT, "a", arguments=":1}")),
            calls(call(ABSENT, "b", arguments=":2}")),
        ],
        [
            calls(call(ABSENT, "a", "f", '{"x":')),
            calls(call(ABSENT, "a", arguments="1}"), call(ABSENT, "b", "g", '{"y":2}')),
        ],
        # id and name again on every piece
        [calls(call(0, "a", "f", '{"x"')), calls(call(0, "a", "f", ":1}")), calls(call(1, "b", "g", '{"y":2}'))],
        # empty and null ids and names on later pieces
        [
            calls(call(0, "a", "f", '{"x"')),
            calls(call(0, "", "", ":1}")),
            calls(call(1, "b", "g", '{"y":2}')),
            calls(call(1, None, None, None)),
        ],
        # the name after the id, and the arguments as an object
        [
            calls(call(0, "a")),
            calls(call(0, name="f")),
            calls(call(0, arguments={"x": 1})),
            calls(call(1, "b", "g", '{"y":2}')),
        ],
    ],
)
def test_pieces_of_two_calls_are_two_calls(body: list[bytes], name: str | None) -> None:
    """Every way in which servers have been seen to send them."""
    assert made(*body, name=name) == F_THEN_G


@BOTH
def test_a_piece_without_index_and_id_continues_the_open_call(name: str | None) -> None:
    """And is refused where no call is open."""
    body = calls(call(0, "a", "f", '{"x"')), calls(call(ABSENT, arguments=":1}"))
    assert made(*body, name=name) == F_THEN_G[:1]
    assert "no call" in refused(calls(call(ABSENT, arguments="{}")), name=name)
    assert "no call" in refused(calls(call(0, arguments="{}")), name=name)


@BOTH
def test_another_name_under_one_id_is_refused(name: str | None) -> None:
    """The same again is ignored; a call does not turn into another one."""
    message = refused(calls(call(0, "a", "f", "{}")), calls(call(0, "a", "g", "")), name=name)
    assert "'f'" in message
    assert "'g'" in message


@pytest.mark.parametrize("nothing", ["", None, ABSENT])
@pytest.mark.parametrize(
    "pieces",
    [
        lambda no: [calls(call(0, no, "f", "{}"), call(1, no, "g", "{}"))],
        lambda no: [calls(call(0, no, "f", "{}")), calls(call(1, no, "g", "{}"))],
        lambda no: [calls(call(0, no, "f", "{}")), calls(call(0, no, "g", "{}"))],
        lambda no: [calls(call(ABSENT, no, "f", "{}")), calls(call(ABSENT, no, "g", "{}"))],
        lambda no: [calls(call(0, no, "f", "{")), calls(call(0, no, "f", "}")), calls(call(1, no, "g", "{}"))],
    ],
)
def test_calls_without_ids_are_named_by_their_position(nothing: Any, pieces: Any) -> None:
    """Compatible servers leave ids out; the made ones are the same for a replay. The vendor never does."""
    body = pieces(nothing)
    assert made(*body, name="generic") == [("call_0", "f", {}), ("call_1", "g", {})]
    assert made(*body, name="generic") == made(*body, name="generic")
    assert "without an id" in refused(*body)


def test_the_same_tool_called_twice_without_ids_is_two_calls() -> None:
    """Nothing can follow arguments that are complete."""
    body = [calls(call(0, "", "f", '{"n":1}')), calls(call(0, "", "f", '{"n":2}'))]
    assert made(*body, name="generic") == [("call_0", "f", {"n": 1}), ("call_1", "f", {"n": 2})]


def test_an_id_that_comes_late_belongs_to_its_call() -> None:
    """The first piece had none."""
    body = [calls(call(0, None, "f", '{"n"')), calls(call(0, "a", None, ":1}"))]
    assert made(*body) == [("a", "f", {"n": 1})]


def test_ids_that_repeat_in_one_answer_are_made_unique() -> None:
    """A made id never takes one that the server gave."""
    body = calls(call(0, "x", "f", "{}"), call(1, "x", "g", "{}"), call(2, "call_1", "h", "{}"))
    assert made(body, name="generic") == [("x", "f", {}), ("call_1_", "g", {}), ("call_1", "h", {})]
    assert "two tool calls" in refused(body)


@BOTH
@pytest.mark.parametrize("nothing", ["", None, ABSENT, " \n", "null"])
def test_a_call_without_arguments_has_an_empty_object(nothing: Any, name: str | None) -> None:
    """Then its schema decides."""
    assert made(calls(call(0, "a", "now", nothing)), name=name) == [("a", "now", {})]


@BOTH
@pytest.mark.parametrize(("arguments", "value"), [('"{\\"n\\":1}"', '{"n":1}'), ("[1]", [1]), ("5", 5), ("true", True)])
def test_arguments_that_are_no_object_are_passed_on(arguments: str, value: Any, name: str | None) -> None:
    """Valid JSON of the wrong type is for the tool's schema to refuse."""
    assert made(calls(call(0, "a", "put", arguments)), name=name) == [("a", "put", value)]


@BOTH
@pytest.mark.parametrize(
    "arguments", ['{"n":', '{"n":NaN}', '{"n":1}{"n":2}', "{'n':1}", '{"t":"\\ud800"}', "[" * 200 + "]" * 200]
)
def test_arguments_that_are_no_json_void_the_answer(arguments: str, name: str | None) -> None:
    """Nothing is repaired, and no call of the answer comes through."""
    outcome = quickly(calls(call(0, "a", "f", "{}"), call(1, "b", "put", arguments)), TOOL_CALLS, DONE, name=name)
    assert isinstance(outcome.error, AdapterError)
    assert "'put'" in str(outcome.error)


@pytest.mark.parametrize("arguments", [[1], 5, True])
def test_arguments_that_are_neither_text_nor_object_are_refused(arguments: Any) -> None:
    """No server is known to send them."""
    assert "neither" in refused(calls(call(0, "a", "f", arguments)))
    assert "neither" in refused(calls(call(0, "a", "f", "{}")), calls(call(0, arguments={"n": 1})))


def test_a_call_without_a_name_is_refused() -> None:
    """It cannot be run or answered."""
    assert "without a name" in refused(calls(call(0, "a", "", "{}")), name="generic")


def test_a_call_of_a_kind_that_was_not_offered_is_refused() -> None:
    """Custom tools are another feature."""
    piece = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    assert "'custom'" in refused(calls(piece))


def test_calls_come_out_when_the_answer_is_complete_and_not_before() -> None:
    """A later chunk may still belong to them."""
    reader = decoder()
    assert not any(isinstance(e, ToolCallReady) for e in reader.feed(calls(call(0, "a", "f", "{}")) + TOOL_CALLS))
    assert [e.call.id for e in reader.feed(DONE) if isinstance(e, ToolCallReady)] == ["a"]


def test_call_intent_is_no_output_yet_and_no_barrier() -> None:
    """Until the answer ends it may be asked for again."""
    reader = decoder()
    reader.feed(calls(call(0, "a", "f", '{"n":')))
    assert reader.replay_safe


def test_what_a_server_ties_to_a_call_is_kept_with_it() -> None:
    """Extra content, such as a signature, goes back with the call."""
    piece = {**call(0, "a", "f", "{}"), "extra_content": {"google": {"thought_signature": "s"}}}
    step = decoded(calls(piece), TOOL_CALLS, DONE, name="gemini").done
    assert step.tool_calls()[0].provider_options == {
        "gemini": {"extra_content": {"google": {"thought_signature": "s"}}}
    }


def test_arguments_without_end_pass_the_limit_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted as they come, not when they are parsed."""
    monkeypatch.setattr(limits, "RESPONSE_BYTES", 50_000)
    reader = decoder()
    reader.feed(calls(call(0, "a", "f", "")))
    with pytest.raises(AdapterError, match="50000"):
        for _ in range(100):
            reader.feed(calls(call(0, arguments="x" * 1000)))


@BOTH
@pytest.mark.parametrize("finish", [STOP, TOOL_CALLS])
def test_complete_calls_count_as_calls_whatever_the_reason_says(finish: bytes, name: str | None) -> None:
    """The reason as the server stated it is kept where it differs."""
    step = decoded(calls(call(0, "a", "f", "{}")), finish, DONE, name=name).done
    assert step.finish_reason is FinishReason.TOOL_CALLS
    kept = {name or "openai": {"finish_reason": "stop"}} if finish is STOP else None
    assert step.provider_options == kept


@BOTH
def test_calls_of_an_answer_that_hit_its_limit_are_kept_if_they_are_whole(name: str | None) -> None:
    """The engine rejects them; half a call voids the answer."""
    whole = decoded(calls(call(0, "a", "put", '{"n":1}')), chunk({}, "length"), DONE, name=name).done
    assert whole.finish_reason is FinishReason.LENGTH
    assert [c.input for c in whole.tool_calls()] == [{"n": 1}]
    cut = decoded(calls(call(0, "a", "put", '{"n":')), chunk({}, "length"), DONE, name=name)
    assert isinstance(cut.error, AdapterError)


@given(
    st.lists(
        st.tuples(st.sampled_from("fgh"), st.dictionaries(st.text(max_size=3), st.integers(), max_size=3)),
        min_size=1,
        max_size=5,
    ),
    st.randoms(use_true_random=False),
)
def test_indexed_pieces_in_any_order_between_calls_make_the_same_calls(made_by: Any, random: Any) -> None:
    """Pieces of one call keep their order; those of others may come between them."""
    texts = [json.dumps(value) for _, value in made_by]
    at = [0] * len(texts)
    assembler = CallAssembler(generated_ids=False, key="k")
    for index, (name, _) in enumerate(made_by):
        assembler.add([CallDelta(index, f"id{index}", "function", Function(name, ""))])
    while open_calls := [index for index, text in enumerate(texts) if at[index] < len(text)]:
        index = random.choice(open_calls)
        size = random.randrange(1, 5)
        assembler.add([CallDelta(index, function=Function(None, texts[index][at[index] : at[index] + size]))])
        at[index] += size
    assert [(c.id, c.name, c.input) for c in assembler.finish()] == [
        (f"id{index}", name, value) for index, (name, value) in enumerate(made_by)
    ]
