"""Schemas of tools: every draft, no network, nothing asserted or filled in that JSON Schema leaves open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maka_trio.errors import InvalidInput
from maka_trio.tools.schema import Schema, pointer
from tests.ids import shown

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


# --- what a value may be ----------------------------------------------------------------------------------


@pytest.mark.parametrize("draft", [None, *DRAFTS])
def test_every_draft_is_known_by_its_schema(draft: str | None) -> None:
    """And without one it is the newest."""
    schema: dict[str, Any] = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    compiled = Schema({"$schema": draft, **schema} if draft else schema)
    assert compiled.mismatch({"n": 1}) is None
    assert compiled.mismatch({"n": "1"})
    assert compiled.mismatch({})


def test_a_keyword_means_what_its_draft_says() -> None:
    """`exclusiveMaximum` was a flag once, and `prefixItems` a list of `items`."""
    old = Schema({"$schema": DRAFTS[0], "maximum": 3, "exclusiveMaximum": True})
    new = Schema({"$schema": DRAFTS[4], "exclusiveMaximum": 3})
    assert old.mismatch(3)
    assert new.mismatch(3)
    assert old.mismatch(2) is new.mismatch(2) is None
    assert Schema({"$schema": DRAFTS[2], "items": [{"type": "string"}]}).mismatch([1])
    assert Schema({"prefixItems": [{"type": "string"}]}).mismatch([1])


@pytest.mark.parametrize("value", [{}, [1], "text", 1, None])
def test_boolean_schemas_admit_everything_or_nothing(value: Any) -> None:
    """True and False are schemas."""
    assert Schema(True).mismatch(value) is None
    assert Schema(False).mismatch(value) == "at the top (falseSchema)"


@pytest.mark.parametrize("value", ['{"n":1}', [1], None, 5, True])
def test_arguments_of_another_type_than_object_do_not_match(value: Any) -> None:
    """A text that holds JSON is not parsed a second time."""
    assert Schema({"type": "object"}).mismatch(value) == "at the top (type)"


def test_nothing_is_coerced() -> None:
    """A number in a text is a text; only 1.0 is an integer as well, as JSON Schema has it."""
    compiled = Schema({"properties": {"n": {"type": "integer"}, "b": {"type": "boolean"}}})
    for value in ({"n": "1"}, {"n": True}, {"n": 1.5}, {"b": 1}, {"b": "true"}, {"n": None}):
        assert compiled.mismatch(value)
    assert compiled.mismatch({"n": 1.0}) is None
    assert compiled.mismatch({"n": 2**80}) is None


def test_defaults_are_not_filled_in() -> None:
    """The value is looked at and left alone."""
    value: dict[str, Any] = {}
    assert Schema({"properties": {"n": {"default": 1}}}).mismatch(value) is None
    assert value == {}


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    "keyword",
    [
        {"format": "email"},
        {"format": "date-time"},
        {"format": "uuid"},
        {"contentEncoding": "base64"},
        {"contentMediaType": "application/json"},
    ],
    ids=shown,
)
def test_formats_and_encodings_are_notes(draft: str, keyword: dict[str, Any]) -> None:
    """No draft of ours asserts them."""
    assert Schema({"$schema": draft, **keyword}).mismatch("{no such thing!") is None


def test_a_schema_may_refer_to_itself() -> None:
    """Inside its own document, recursion included, also by its own id."""
    tree = Schema(
        {
            "$id": "https://example.org/tree.json",
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
            "$ref": "tree.json#/$defs/node",
        }
    )
    assert tree.mismatch({"next": {"next": {}}}) is None
    assert tree.mismatch({"next": {"next": 5}}) == "at '/next/next' (type)"


def test_a_schema_that_goes_in_circles_ends() -> None:
    """Two references to each other admit everything."""
    circle: dict[str, Any] = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    assert Schema(circle).mismatch(1) is None


def test_a_compiled_schema_does_not_change_with_its_source() -> None:
    """It was compiled once."""
    source: dict[str, Any] = {"type": "object"}
    compiled = Schema(source)
    source["type"] = "string"
    assert compiled.mismatch({}) is None


# --- where a value fails ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"l": [1, "x"]}, "at '/l/1' (type)"),
        ({"p": {}}, "at '/p/path' (required)"),
        ({"a/b~c": 1}, "at '/a~1b~0c' (type)"),
        ({"p": {"path": "x", "other": 1}}, "at '/p' (additionalProperties)"),
        ({"e": "c"}, "at '/e' (enum)"),
    ],
)
def test_a_mismatch_says_where_and_which_keyword(value: Any, where: str) -> None:
    """A missing member is pointed at where it should be."""
    schema = Schema(
        {
            "properties": {
                "l": {"items": {"type": "integer"}},
                "p": {"required": ["path"], "additionalProperties": False, "properties": {"path": True}},
                "a/b~c": {"type": "string"},
                "e": {"enum": ["a", "b"]},
            }
        }
    )
    assert schema.mismatch(value) == where


def test_a_mismatch_repeats_no_value_and_is_bounded() -> None:
    """Keys are a model's words: escaped and cut. Values are not shown at all."""
    schema = Schema({"additionalProperties": {"additionalProperties": {"type": "integer"}}})
    text = schema.mismatch({"\x1b[31m" + "k" * 5000: {"inner": "hunter2"}})
    assert text is not None
    assert len(text) < 200
    assert "hunter2" not in text
    assert "\x1b" not in text


def test_only_the_first_fault_is_looked_for() -> None:
    """A model that sends a hundred thousand wrong values does not keep the loop busy with each of them."""
    assert Schema({"items": {"type": "string"}}).mismatch(list(range(100_000))) == "at '/0' (type)"


@pytest.mark.parametrize("value", [10**4000, -(10**4000), 1e308, 2**64], ids=["long", "negative", "float", "wide"])
def test_numbers_of_any_size_can_be_checked(value: Any) -> None:
    """They are compared, not converted."""
    assert Schema({"type": "number", "minimum": 5, "maximum": 6}).mismatch(value)
    assert Schema({"type": "number"}).mismatch(value) is None


def test_a_pointer_to_the_whole_value_says_so() -> None:
    """An empty text would not."""
    assert pointer([]) == "the top"
    assert pointer(["a", 0]) == "'/a/0'"


# --- what is no schema ------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [None, "object", 5, [], [{"type": "object"}]], ids=shown)
def test_only_objects_and_bools_are_schemas(schema: Any) -> None:
    """The error names the type."""
    with pytest.raises(InvalidInput, match=type(schema).__name__):
        Schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"properties": []},
        {"required": "path"},
        {"pattern": "("},
        {"minimum": "1"},
        {"$ref": "#/$defs/nobody"},
        {"$ref": 5},
        {"$schema": "https://example.org/my-draft"},
        {"$schema": "http://json-schema.org/draft-03/schema#"},
        {"$schema": 7},
        {"type": object()},
        {1: {}},
        {"const": "\ud800"},
        {"pattern": "(x{1000}){1000}"},
    ],
    ids=shown,
)
def test_what_does_not_compile_is_one_clear_error(schema: Any) -> None:
    """Whatever the library behind it raises."""
    with pytest.raises(InvalidInput, match="not a usable JSON Schema"):
        Schema(schema)


def test_a_schema_too_deep_to_compile_is_refused() -> None:
    """With the same error."""
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"not": deep}
    with pytest.raises(InvalidInput, match="not a usable JSON Schema"):
        Schema(deep)


@pytest.mark.parametrize("where", ["root", "property", "unused definition", "beside an id"])
@pytest.mark.parametrize("target", ["http", "file", "relative"])
def test_a_reference_that_leads_outside_is_refused_and_not_followed(
    where: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the network nor a file is touched: the file exists, and the host would have to be looked up."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text("{}")
    reference = {
        "http": "http://127.0.0.1:9/other.json",
        "file": (tmp_path / "other.json").as_uri(),
        "relative": "other.json",
    }[target]
    schema: Any = {
        "root": {"$ref": reference},
        "property": {"properties": {"p": {"$ref": reference}}},
        "unused definition": {"$defs": {"d": {"$ref": reference}}},
        "beside an id": {"$id": tmp_path.as_uri() + "/", "allOf": [{"$ref": reference}]},
    }[where]
    with pytest.raises(InvalidInput, match="not a usable JSON Schema"):
        Schema(schema)


def test_a_reference_as_a_value_is_no_reference() -> None:
    """In `enum` and as the name of a property it is data."""
    outside = {"$ref": "http://127.0.0.1:9/x"}
    assert Schema({"enum": [outside]}).mismatch(outside) is None
    assert Schema({"properties": {"$ref": {"type": "string"}}}).mismatch({"$ref": 1})


# --- patterns ---------------------------------------------------------------------------------------------

UNDECIDED = "^(?:(x+x+)+(?=z)|x+)$"
"""Matches any row of x, after work that doubles with every x."""


@pytest.mark.parametrize(
    ("schema", "as_value"),
    [
        ({"pattern": UNDECIDED}, lambda text: text),
        ({"patternProperties": {UNDECIDED: True}, "additionalProperties": False}, lambda text: {text: 1}),
        ({"propertyNames": {"pattern": UNDECIDED}}, lambda text: {text: 1}),
    ],
    ids=["value", "pattern of names", "names"],
)
def test_a_pattern_that_goes_back_and_forth_gives_up(schema: Any, as_value: Callable[[str], Any]) -> None:
    """A text that would match after more work than the bound allows does not match, however long it is."""
    compiled = Schema(schema)
    assert compiled.mismatch(as_value("x" * 12)) is None
    assert compiled.mismatch(as_value("x" * 19))
    assert compiled.mismatch(as_value("x" * 5000))


def test_patterns_may_look_around_and_back() -> None:
    """The bound is on work, not on what a pattern may say."""
    schema = Schema({"pattern": r"^(?=.*\d)(\w)\1+$"})
    assert schema.mismatch("11") is None
    assert schema.mismatch("aa")
