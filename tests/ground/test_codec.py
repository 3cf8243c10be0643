"""Values to canonical bytes and back: nothing lost, nothing let in, the same bytes everywhere."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio import facts
from maka_trio.errors import InvalidInput
from maka_trio.facts import codec
from maka_trio.facts.event import Fact
from tests import strategies

DIGEST = "sha256:" + "0" * 64

UNIONS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "fact": (Fact, strategies.FACTS),
    "invocation": (facts.Invocation, strategies.INVOCATIONS),
    "model step": (facts.ModelStep, strategies.MODEL_STEPS),
    "prompt message": (facts.PromptMessage, strategies.PROMPT_MESSAGES),
    "tool definition": (facts.ToolDefinition, strategies.TOOL_DEFINITIONS),
    "scope": (facts.Scope, strategies.SCOPES),
    "configuration": (facts.InvocationConfiguration, strategies.CONFIGURATIONS),
}
by_union = pytest.mark.parametrize(("kind", "values"), UNIONS.values(), ids=UNIONS)


def test_there_is_a_strategy_for_every_fact() -> None:
    """A new kind of fact cannot go untested."""
    assert set(strategies.FACTS_BY_KIND) == set(get_args(Fact))


@pytest.mark.parametrize("kind", strategies.FACTS_BY_KIND, ids=lambda kind: kind.kind)
@given(data=st.data())
def test_every_fact_comes_back_as_it_was(kind: type[Any], data: st.DataObject) -> None:
    """Bytes say what the value said, to the type of each number."""
    fact = data.draw(strategies.FACTS_BY_KIND[kind])
    body = codec.encode_fact(fact)
    again = codec.decode_fact(body)
    assert type(again) is kind
    assert again == fact
    assert codec.encode_fact(again) == body


@by_union
@given(data=st.data())
def test_every_other_value_comes_back_as_it_was(kind: Any, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """The same for what facts are made of and for prompts."""
    value = data.draw(values)
    body = codec.encode(value, kind)
    assert codec.decode(body, kind, what="value") == value
    assert codec.encode(codec.decode(body, kind, what="value"), kind) == body


@given(strategies.EVENTS)
def test_an_event_joined_from_its_parts_is_the_event_encoded_whole(event: facts.RuntimeEvent) -> None:
    """The log encodes a fact once and joins; that must be no form of its own."""
    assert codec.encode_event(event) == codec.encode(event, facts.RuntimeEvent)
    assert codec.decode_event(codec.encode_event(event)) == event


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(strategies.JSON_VALUES)
def test_canonical_bytes_do_not_depend_on_the_order_of_keys(value: Any) -> None:
    """Two dicts that are equal are one value."""
    assert codec.canonical(reordered(value)) == codec.canonical(value)


SAMPLE = """
from maka_trio import facts
from maka_trio.facts.codec import canonical, encode_fact, digest
from maka_trio.facts.prefix import chain_start
names = {"delta", "alpha", "echo", "bravo", "charlie"}
call = facts.ToolCallIdentity.provider("step", "call")
fact = facts.ToolDispatched("step:call", call, "put", {name: {n: 1.5 for n in names} for name in names})
print(digest(encode_fact(fact)), digest(canonical({n: None for n in names})), chain_start(facts.Session("s")).hex())
"""


def test_bytes_and_digests_are_the_same_in_every_process() -> None:
    """Hash seeds differ from process to process; what is written must not."""
    printed = set()
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", SAMPLE], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        printed.add(done.stdout)
    assert len(printed) == 1
    assert printed.pop().startswith("sha256:")


# --- what is let in ---------------------------------------------------------------------------------------


@by_union
@given(data=st.data())
def test_an_unknown_field_is_refused(kind: Any, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """A newer format is not read as an older one with something missing."""
    written = codec.unstructure(data.draw(values), kind)
    with pytest.raises(InvalidInput, match=r"^value: "):
        codec.structure({**written, "added_later": 1}, kind, what="value")


def objects_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if isinstance(value, dict) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += objects_in(item, (*path, key))
    return found


def with_replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, list):
        return [with_replaced(item, path[1:], new) if index == path[0] else item for index, item in enumerate(value)]
    return {key: with_replaced(item, path[1:], new) if key == path[0] else item for key, item in value.items()}


@pytest.mark.parametrize(
    "fact",
    [
        facts.InvocationOpened(
            facts.MessageOpening(
                facts.MessageInput("hi", quotes=(facts.Quote("q"),), parts=(facts.TextContent("p"),)),
                surface=facts.RequestSurface((facts.ToolDefinition("t", "d", True),)),
            ),
            facts.InvocationConfiguration(),
        ),
        facts.ModelRequested("s", "m", facts.Session("x"), 0, DIGEST, DIGEST, DIGEST),
        facts.ModelObserved("s", facts.ToolCallReady(facts.ModelToolCall("c", "n", None))),
        facts.ModelCompleted(
            "s",
            facts.ModelStep(
                (facts.TextPart(facts.TextKind.TEXT, "x"), facts.SourcePart(facts.UrlSource("i", "u"))),
                facts.FinishReason.STOP,
            ),
        ),
        facts.ToolSettled("o", facts.Succeeded(facts.RawResult(1, DIGEST), facts.TextOutput("x"))),
        facts.ToolRejected("o", facts.ToolCallIdentity.provider("s", "c"), "n", None, facts.ToolRejection.cancelled()),
        facts.ContextCheckpointRecorded(
            facts.ContextCheckpoint(facts.CheckpointMode.PRE_TURN, 1, DIGEST, "sum", "step")
        ),
        facts.InvocationEnded(facts.ContextCompactFinished(facts.Compacted("c"))),
    ],
    ids=lambda fact: fact.kind,
)
def test_an_unknown_field_is_refused_at_every_depth(fact: Any) -> None:
    """Each object of a fact is closed, however deep it lies."""
    written = codec.parse_json(codec.encode_fact(fact), what="fact")
    paths = [path for path in objects_in(written) if path[-1:] != ("provider_options",)]
    assert len(paths) > 1
    for path in paths:
        inner: Any = written
        for step in path:
            inner = inner[step]
        with pytest.raises(InvalidInput):
            codec.structure(with_replaced(written, path, {**inner, "added_later": 1}), Fact, what="fact")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Fact, {"kind": "tool_vanished", "operation_id": "o"}),
        (Fact, {"operation_id": "o"}),
        (Fact, {"kind": 7}),
        (Fact, {"kind": ["tool_settled"]}),
        (Fact, []),
        (Fact, "tool_settled"),
        (facts.PromptMessage, {"role": "developer", "text": "x"}),
        (facts.ModelEvent, {"kind": "part_exploded", "data": {}}),
        (facts.ModelEvent, {"kind": "part_finished", "data": {"id": "a"}, "more": 1}),
        (facts.ModelEvent, {"kind": "part_finished"}),
        (facts.ModelEvent, {"kind": {}, "data": {}}),
        (facts.ToolOutcome, {"kind": "cancelled"}),
        (facts.ToolOrigin, {"kind": "provider"}),
        (facts.Scope, {"kind": "galaxy"}),
        (facts.InvocationOutcome, {"kind": "failed", "class": "bad_luck"}),
        (facts.InvocationOutcome, {"kind": "failed", "failure_class": "step_limit"}),
        (facts.ModelStep, {"parts": [], "finish_reason": "content-filter", "usage": {}}),
        (facts.ToolRejection, {"kind": "bored"}),
    ],
    ids=repr,
)
def test_an_unknown_tag_is_refused(kind: Any, value: Any) -> None:
    """Whoever reads a log must not guess what a word it does not know may mean."""
    with pytest.raises(InvalidInput, match=r"^value: "):
        codec.structure(value, kind, what="value")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (facts.ModelUsage, {"input_tokens": True}),
        (facts.ModelUsage, {"input_tokens": 1.0}),
        (facts.ModelUsage, {"input_tokens": "1"}),
        (facts.ToolOutput, {"kind": "text", "text": 1}),
        (facts.ToolOutput, {"kind": "content", "parts": "ab"}),
        (facts.ToolOutput, {"kind": "content", "parts": {"kind": "text"}}),
        (facts.MessageInput, {"text": "x", "quotes": "", "parts": []}),
        (facts.ModelToolCall, {"id": "c", "name": "n", "input": {}, "provider_executed": 1}),
        (facts.ModelToolCall, {"id": "c", "name": "n", "input": {}, "provider_options": []}),
        (facts.ModelEvent, {"kind": "part_delta", "data": []}),
        (facts.ContentPart, {"kind": "media", "media_type": "image/png", "data": 5}),
        (facts.ContentPart, {"kind": "media", "media_type": "image/png", "data": "not base64!"}),
        (facts.ToolDefinition, {"name": "n", "description": "", "input_schema": "object"}),
        (facts.ToolDefinition, {"name": "n", "description": "", "input_schema": 1}),
        (facts.InvocationConfiguration, {"tool_mode": "direct", "tool_concurrency": "1"}),
        (facts.RuntimeEvent, {"id": "e", "recorded_at": 1.5, "invocation": {}, "fact": {}}),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused(kind: Any, value: Any) -> None:
    """Nothing is coerced: a digit is no number, a text no list of letters."""
    with pytest.raises(InvalidInput, match=r"^value: "):
        codec.structure(value, kind, what="value")


def test_a_missing_field_is_named() -> None:
    """The message says what to look for."""
    with pytest.raises(InvalidInput, match="'operation_id' is missing"):
        codec.decode_fact(b'{"kind":"tool_settled","outcome":{"kind":"failed","message":"x"}}')


def test_what_is_none_by_default_is_absent_and_null_means_the_same() -> None:
    """Both spellings read as one value and are written as one."""
    fact = facts.InvocationEnded(facts.Failed(facts.FailureClass.STEP_LIMIT))
    assert codec.encode_fact(fact) == b'{"kind":"invocation_ended","outcome":{"class":"step_limit","kind":"failed"}}'
    null = b'{"kind":"invocation_ended","outcome":{"class":"step_limit","kind":"failed","message":null}}'
    assert codec.decode_fact(null) == fact


@pytest.mark.parametrize(
    ("event", "written"),
    [
        (
            facts.PartDelta("p", "hi"),
            b'{"event":{"data":{"id":"p","text":"hi"},"kind":"part_delta"},"kind":"model_observed","step_id":"s"}',
        ),
        (
            facts.ToolCallReady(facts.ModelToolCall("c", "put", {"n": 1})),
            b'{"event":{"data":{"id":"c","input":{"n":1},"name":"put","provider_executed":false},'
            b'"kind":"tool_call"},"kind":"model_observed","step_id":"s"}',
        ),
    ],
)
def test_model_events_stand_beside_their_tag(event: facts.ModelEvent, written: bytes) -> None:
    """`{"kind": ..., "data": {...}}`, and a tool call's data is the call itself."""
    assert codec.encode_fact(facts.ModelObserved("s", event)) == written


@pytest.mark.parametrize(
    "fact",
    [
        facts.ToolDispatched("o", "no identity", "n", None),  # type: ignore[arg-type]
        facts.InvocationOpened("hello"),  # type: ignore[arg-type]
        facts.ModelObserved("s", facts.PartDelta("p", "\ud800")),
        facts.ModelRequested("s", object(), facts.Root(), 0, DIGEST, DIGEST, DIGEST),  # type: ignore[arg-type]
    ],
    ids=lambda fact: fact.kind,
)
def test_a_value_that_cannot_be_written_is_one_clear_error(fact: Any) -> None:
    """Whatever is wrong inside, the caller gets InvalidInput that names the fact."""
    with pytest.raises(InvalidInput, match=type(fact).__name__):
        codec.encode_fact(fact)


def test_every_class_of_facts_is_frozen() -> None:
    """Facts are evidence."""
    classes = [value for value in vars(facts).values() if isinstance(value, type) and attrs.has(value)]
    assert len(classes) > 60
    for cls in classes:
        assert cls.__setattr__ is not object.__setattr__, cls
        assert "__slots__" in vars(cls), cls
