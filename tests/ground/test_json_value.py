"""What is JSON, and what is not."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
from hypothesis import given

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.codec import canonical, parse_json
from maka_trio.facts.json_value import check_json, merge_options
from tests.ids import shown
from tests.strategies import JSON_OBJECTS, JSON_VALUES


class Colour(str, enum.Enum):  # noqa: UP042 - the older spelling is the one whose str() is its name
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(JSON_VALUES)
def test_a_json_value_is_copied_as_it_is(value: Any) -> None:
    """The copy has the same canonical bytes."""
    assert canonical(check_json(value, what="value")) == canonical(value)


def test_the_copy_shares_nothing_that_can_change() -> None:
    """A handler that changes its input changes its own."""
    value = {"a": [1, {"b": 2}]}
    copy: Any = check_json(value, what="value")
    copy["a"][1]["b"] = 3
    copy["a"].append(4)
    assert value == {"a": [1, {"b": 2}]}


def test_tuples_are_arrays_and_enums_are_their_values() -> None:
    """What Python writes otherwise than JSON does comes out as JSON has it."""
    value = check_json({"t": (1, 2), Colour.RED: Colour.RED, "s": Size.BIG}, what="value")
    assert canonical(value) == b'{"red":"red","s":3,"t":[1,2]}'


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, b"x", {1}, object(), {1: 2}, {None: 1}, [math.nan], {"a": {"b": math.inf}}],
    ids=shown,
)
def test_what_is_not_json_is_refused(value: object) -> None:
    """NaN is not null, and bytes are not text."""
    with pytest.raises(InvalidInput, match=r"^value: "):
        check_json(value, what="value")


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"\ud800": 1}])
def test_a_lone_surrogate_is_refused(value: object) -> None:
    """UTF-8 cannot carry it, so neither can the log."""
    with pytest.raises(InvalidInput, match="surrogate"):
        check_json(value, what="value")


def test_nesting_is_admitted_at_the_limit_and_refused_one_past() -> None:
    """The default is the limit of a fact's JSON; a caller may give a smaller one."""
    check_json(nested(limits.JSON_DEPTH), what="value")
    with pytest.raises(InvalidInput, match=f"deeper than {limits.JSON_DEPTH}"):
        check_json(nested(limits.JSON_DEPTH + 1), what="value")
    check_json(nested(2), what="value", depth=2)
    with pytest.raises(InvalidInput, match="deeper than 2"):
        check_json(nested(3), what="value", depth=2)


def test_values_are_counted_up_to_the_limit() -> None:
    """Containers count as well as what is in them."""
    check_json([1, {"a": 2}], what="value", nodes=4)
    with pytest.raises(InvalidInput, match=r"more than \d+ JSON values"):
        check_json([1, {"a": 2}], what="value", nodes=3)


def test_a_value_that_contains_itself_is_refused() -> None:
    """A circle is only very deep nesting; one that doubles at each level is stopped by the count."""
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidInput, match="deeper"):
        check_json(circle, what="value")
    doubled: Any = []
    for _ in range(60):
        doubled = [doubled, doubled]
    with pytest.raises(InvalidInput, match=r"more than \d+ JSON values"):
        check_json(doubled, what="value", nodes=10_000)


def test_an_integer_is_admitted_up_to_what_can_be_read_back() -> None:
    """Python refuses to write or read more digits than the limit."""
    largest = 10**limits.JSON_INTEGER_DIGITS - 1
    assert parse_json(canonical(check_json(largest, what="value")), what="value") == largest
    for value in (largest + 1, -largest - 1):
        with pytest.raises(InvalidInput, match="digits"):
            check_json(value, what="value")


@given(JSON_OBJECTS, JSON_OBJECTS)
def test_merging_options_keeps_every_leaf_and_lets_the_later_win(old: Any, new: Any) -> None:
    """No key is lost, and what is new stands."""
    merged: Any = merge_options(old, new)
    assert set(merged) == set(old) | set(new)
    for key, value in new.items():
        if not (isinstance(value, dict) and isinstance(old.get(key), dict)):
            assert merged[key] is value


def test_merging_goes_into_objects_and_replaces_at_the_leaf() -> None:
    """A signature at a part's end replaces the one at its start and leaves its siblings alone."""
    start: dict[str, Any] = {"anthropic": {"signature": "a", "kind": "thinking"}, "other": 1}
    end = {"anthropic": {"signature": "b"}}
    assert merge_options(start, end) == {"anthropic": {"signature": "b", "kind": "thinking"}, "other": 1}
    assert start["anthropic"] == {"signature": "a", "kind": "thinking"}


@pytest.mark.parametrize(("old", "new", "merged"), [(None, None, None), ({}, None, {}), (None, {"a": 1}, {"a": 1})])
def test_merging_with_nothing_is_the_other(old: Any, new: Any, merged: Any) -> None:
    """Absent options change nothing."""
    assert merge_options(old, new) == merged


@pytest.mark.parametrize(
    "document",
    ["NaN", "Infinity", '{"a":1}{"a":2}', "", "{", "'a'", '"\\ud800"', "[1,]", "1e400", "[" * 100_000],
    ids=lambda document: document[:20],
)
def test_what_no_json_reader_should_take_is_refused(document: str) -> None:
    """One document, of JSON and nothing else."""
    with pytest.raises(InvalidInput, match=r"^arguments is not JSON: "):
        parse_json(document, what="arguments")


def test_a_document_that_is_not_utf8_is_refused() -> None:
    """Bytes are not guessed at."""
    with pytest.raises(InvalidInput, match="not JSON"):
        parse_json(b'"\xff"', what="body")
