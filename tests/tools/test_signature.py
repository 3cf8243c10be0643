"""Python types as JSON Schemas."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, TypeVar, Union

import attrs
import pytest

from maka_trio.errors import InvalidInput
from maka_trio.facts import JSON
from maka_trio.tools.schema import Schema
from maka_trio.tools.signature import Field, SchemaWriter
from tests.ids import shown

UserId = NewType("UserId", int)
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)


@attrs.frozen
class Point:
    """A place.

    Attributes:
        x: to the right
        y: upwards
    """

    x: int
    y: float = 0.0
    tags: list[str] = attrs.field(factory=list)
    hidden: int = attrs.field(init=False, default=0)


@attrs.frozen
class Node:
    value: Point
    next: Node | None = None


@dataclasses.dataclass
class Line:
    start: Point
    end: Point
    name: str | None = None
    notes: list[str] = dataclasses.field(default_factory=list)


class Options(TypedDict):
    deep: bool
    limit: NotRequired[Annotated[int, "at most so many"]]


class Unannotated:
    pass


STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, STRING),
        (int, INTEGER),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (type(None), {"type": "null"}),
        (Any, {}),
        (object, {}),
        (JSON, {}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "a", None], {"enum": [1, "a", None]}),
        (Literal[Colour.RED], {"type": "string", "enum": ["red"]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": INTEGER}),
        (collections.abc.Sequence[str], {"type": "array", "items": STRING}),
        (set[int], {"type": "array", "items": INTEGER, "uniqueItems": True}),
        (frozenset[int], {"type": "array", "items": INTEGER, "uniqueItems": True}),
        (tuple, {"type": "array"}),
        (tuple[int, ...], {"type": "array", "items": INTEGER}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2},
        ),
        (tuple[()], {"type": "array"}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (collections.abc.Mapping[str, str], {"type": "object", "additionalProperties": STRING}),
        (Optional[int], {"anyOf": [INTEGER, {"type": "null"}]}),  # noqa: UP045 - the older spelling is read as well
        (int | None, {"anyOf": [INTEGER, {"type": "null"}]}),
        (Union[int, str], {"anyOf": [INTEGER, STRING]}),  # noqa: UP007 - the older spelling is read as well
        (UserId, INTEGER),
        (Annotated[int, "how many"], {**INTEGER, "description": "how many"}),
        (Annotated[int, 5, object()], INTEGER),
        (list[Annotated[int, "one"]], {"type": "array", "items": {**INTEGER, "description": "one"}}),
    ],
    ids=shown,
)  # fmt: skip
def test_a_type_has_its_schema(kind: Any, schema: dict[str, Any]) -> None:
    """Every schema is one that compiles."""
    written = SchemaWriter().document(kind)
    assert written == schema
    Schema(written)


@pytest.mark.parametrize(
    "kind",
    [
        bytes, complex, datetime.datetime, type, Unannotated, T, Odd, dict[int, str], list[bytes], "str", 5,
        collections.abc.Callable[[int], str], Literal[b"x"], int | bytes,
    ],
    ids=shown,
)  # fmt: skip
def test_a_type_without_one_form_in_json_is_refused(kind: Any) -> None:
    """Rather than guessed at."""
    with pytest.raises(InvalidInput):
        SchemaWriter().document(kind)


def test_a_class_with_fields_is_an_object_of_its_own() -> None:
    """What has a default may be left out, docs describe, nothing else is admitted, `init=False` is not asked for."""
    assert SchemaWriter().document(Point) == {
        "$ref": "#/$defs/Point",
        "$defs": {
            "Point": {
                "type": "object",
                "properties": {
                    "x": {**INTEGER, "description": "to the right"},
                    "y": {"type": "number", "description": "upwards", "default": 0.0},
                    "tags": {"type": "array", "items": STRING},
                },
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    }


def test_dataclasses_and_typed_dicts_are_objects_too() -> None:
    """With the same rules."""
    line: Any = SchemaWriter().document(Line)["$defs"]
    assert line["Line"]["required"] == ["start", "end"]
    assert line["Line"]["properties"]["start"] == {"$ref": "#/$defs/Point"}
    assert line["Line"]["properties"]["notes"] == {"type": "array", "items": STRING}
    options: Any = SchemaWriter().document(Options)["$defs"]
    assert options["Options"]["required"] == ["deep"]
    assert options["Options"]["properties"]["limit"] == {**INTEGER, "description": "at most so many"}


def test_a_class_may_contain_itself() -> None:
    """It stands once, and is referred to."""
    written: Any = SchemaWriter().document(Node)
    assert set(written["$defs"]) == {"Node", "Point"}
    schema = Schema(written)
    assert schema.mismatch({"value": {"x": 1}, "next": {"value": {"x": 2}}}) is None
    assert schema.mismatch({"value": {"x": 1}, "next": {"value": 2}})
    assert schema.mismatch({"value": {"x": 1}, "other": 2})


def test_two_classes_of_one_name_stay_apart() -> None:
    """The second is numbered."""

    def make(kind: Any) -> Any:
        return attrs.make_class("Same", {"a": attrs.field(type=kind)})

    either: Any = Union[make(int), make(str)]  # noqa: UP007 - made of values, not of names
    written: Any = SchemaWriter().document(dict[str, either])
    assert written["$defs"]["Same"]["properties"]["a"] == INTEGER
    assert written["$defs"]["Same2"]["properties"]["a"] == STRING
    assert written["additionalProperties"]["anyOf"] == [{"$ref": "#/$defs/Same"}, {"$ref": "#/$defs/Same2"}]


def test_members_are_described_and_have_defaults() -> None:
    """A default that JSON can show is shown; the type's own description goes before the given one."""
    fields = [
        Field("a", int, True, description="first"),
        Field("b", Annotated[int, "own"], False, 5, "given"),
        Field("c", Point, False, Point(1)),
        Field("d", float, False, float("inf")),
        Field("e", int | None, False, None),
    ]
    written: Any = SchemaWriter().object_document(fields)
    properties = written["properties"]
    assert properties["a"] == {**INTEGER, "description": "first"}
    assert properties["b"] == {**INTEGER, "description": "own", "default": 5}
    assert properties["c"] == {"$ref": "#/$defs/Point"}
    assert properties["d"] == {"type": "number"}
    assert properties["e"]["default"] is None
    assert written["required"] == ["a"]


def test_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    """The error names the class and what is missing."""
    nowhere: Any = "Nowhere"
    broken = attrs.make_class("Broken", {"a": attrs.field(type=nowhere)})
    with pytest.raises(InvalidInput, match=r"Broken.*Nowhere"):
        SchemaWriter().document(broken)


def test_a_field_without_annotation_is_refused() -> None:
    """There is nothing to tell the model."""
    broken = attrs.make_class("Broken", ["a"])
    with pytest.raises(InvalidInput, match=r"'a' of Broken has no annotation"):
        SchemaWriter().document(broken)
