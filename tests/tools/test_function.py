"""`@tool`: a typed async function becomes a tool, and is called with its own types."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import attrs
import pytest
import trio

from maka_trio import facts
from maka_trio.errors import InvalidInput, ToolFailed
from maka_trio.tools import (
    ToolCall,
    ToolImage,
    ToolNesting,
    ToolRegistration,
    ToolSemantics,
    ToolText,
    tool,
)
from maka_trio.tools.output import RESULT_LOST_TEXT
from tests.ids import shown
from tests.tools.scene import STEP, Scene


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def _positive(instance: object, attribute: Any, value: int) -> None:
    if value <= 0:
        raise ValueError(f"{attribute.name} must be positive")


@attrs.frozen
class Item:
    name: str
    count: int = attrs.field(default=1, validator=_positive)
    inside: list[Item] = attrs.field(factory=list)


@dataclasses.dataclass
class Place:
    shelf: int
    colour: Colour = Colour.RED


@attrs.define
class MutableItem:
    count: int


class Options(TypedDict):
    deep: bool
    limit: NotRequired[int]


async def run(registration: ToolRegistration, arguments: Any) -> Any:
    """The last fact of one call of a tool."""
    call = facts.ModelToolCall("c1", registration.name, arguments)
    return await Scene().journal.execute(STEP, call, registration)


async def result_of(registration: ToolRegistration, arguments: Any) -> Any:
    settled = await run(registration, arguments)
    assert isinstance(settled, facts.ToolSettled), settled
    assert isinstance(settled.outcome, facts.Succeeded), settled.outcome
    projection = settled.outcome.model_projection
    return projection.text if isinstance(projection, facts.TextOutput) else projection.value  # type: ignore[union-attr]


# --- the tool ---------------------------------------------------------------------------------------------


def test_a_function_gives_name_description_and_schema() -> None:
    """From its signature and its docstring."""

    @tool
    async def put(path: str, count: int = 1, *, call: ToolCall) -> None:
        """Put it somewhere.

        Args:
            path: where
            count: how often
            call: not told to the model
        """

    assert isinstance(put, ToolRegistration)
    assert put.definition == facts.ToolDefinition(
        "put",
        "Put it somewhere.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "where"},
                "count": {"type": "integer", "description": "how often", "default": 1},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    )
    assert (put.nesting, put.semantics) == (ToolNesting.NESTABLE, ToolSemantics.PARALLEL)


def test_the_decorator_takes_what_a_registration_takes() -> None:
    """What is given goes before what is derived."""

    @tool(name="store", description="Store.", nesting=ToolNesting.DIRECT_ONLY, semantics=ToolSemantics.FINISH_TURN)
    async def put() -> None:
        """Another text."""

    assert (put.name, put.definition.description) == ("store", "Store.")
    assert (put.nesting, put.semantics) == (ToolNesting.DIRECT_ONLY, ToolSemantics.FINISH_TURN)


def test_a_function_without_docstring_or_arguments_is_a_tool() -> None:
    """There is only less to tell."""

    @tool
    async def ping() -> str:
        return "pong"

    assert ping.definition.description == ""
    assert ping.definition.input_schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


async def test_a_method_is_a_tool_of_its_object() -> None:
    """Bound, so `self` is no argument."""

    class Shelf:
        def __init__(self) -> None:
            self.held: list[str] = []

        async def put(self, name: str) -> int:
            """Put it on the shelf."""
            self.held.append(name)
            return len(self.held)

    shelf = Shelf()
    assert await result_of(tool(shelf.put), {"name": "cup"}) == 1
    assert shelf.held == ["cup"]


async def test_a_partial_is_a_tool_once_it_has_a_name() -> None:
    """What it binds is not the model's to say."""

    async def put(token: str, name: str, *, shelf: int) -> list[Any]:
        """Put it.

        Args:
            token: whose shelf
            name: what
            shelf: where
        """
        return [token, name, shelf]

    partial = functools.partial(put, "secret", shelf=3)
    registration = tool(name="put")(partial)
    assert registration.definition.description == "Put it."
    assert registration.definition.input_schema == {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "what"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert await result_of(registration, {"name": "cup"}) == ["secret", "cup", 3]
    assert (await run(registration, {"name": "cup", "shelf": 4})).kind == "tool_rejected"
    with pytest.raises(InvalidInput, match="name=") as caught:
        tool(partial)
    assert "secret" not in str(caught.value)


# --- the arguments ----------------------------------------------------------------------------------------


async def test_arguments_arrive_as_what_the_signature_says() -> None:
    """Classes, enums, tuples, sets, unions, and the call; what is left out has its default."""
    seen: dict[str, Any] = {}

    @tool
    async def put(
        item: Item,
        place: Place,
        colours: set[Colour],
        pair: tuple[int, str],
        either: Item | str | None,
        size: Literal["s", "l"],
        options: Options,
        weight: float,
        table: dict[str, list[int]],
        call: ToolCall,
        anything: Any = None,
        note: Annotated[str | None, "free text"] = "none",
    ) -> None:
        seen.update(locals())

    await result_of(
        put,
        {
            "item": {"name": "cup", "inside": [{"name": "spoon", "count": 2}]},
            "place": {"shelf": 3, "colour": "blue"},
            "colours": ["red", "blue"],
            "pair": [1, "a"],
            "either": {"name": "lid"},
            "size": "l",
            "options": {"deep": True},
            "weight": 2,
            "table": {"a": [1]},
            "anything": {"x": [1]},
        },
    )
    call = seen.pop("call")
    assert isinstance(call, ToolCall)
    assert call.name == "put"
    del seen["seen"]
    assert seen == {
        "item": Item("cup", 1, [Item("spoon", 2)]),
        "place": Place(3, Colour.BLUE),
        "colours": {Colour.RED, Colour.BLUE},
        "pair": (1, "a"),
        "either": Item("lid"),
        "size": "l",
        "options": {"deep": True},
        "weight": 2.0,
        "table": {"a": [1]},
        "anything": {"x": [1]},
        "note": "none",
    }
    assert type(seen["weight"]) is float


@pytest.mark.parametrize(
    ("value", "expected"),
    [("x", "x"), (5, 5), (5.5, 5.5), (True, True), (None, None), ([1], [1]), ({"name": "a"}, Item("a"))],
    ids=shown,
)
async def test_a_union_takes_the_member_that_fits(value: Any, expected: Any) -> None:
    """A text is no list of letters, True no 1, and 5 no 5.0."""
    seen = []

    @tool
    async def put(value: list[str | int] | str | float | int | bool | Item | None) -> None:
        seen.append(value)

    await result_of(put, {"value": value})
    assert seen == [expected]
    assert type(seen[0]) is type(expected)


async def test_an_integer_may_be_written_with_a_point() -> None:
    """JSON has one kind of number; 2.0 arrives as 2."""
    seen = []

    @tool
    async def put(count: int) -> None:
        seen.append(count)

    await result_of(put, {"count": 2.0})
    assert type(seen[0]) is int


@pytest.mark.parametrize(
    "arguments",
    [{}, {"item": {}}, {"item": {"name": 5}}, {"item": {"name": "a"}, "more": 1}, {"item": {"name": "a", "x": 1}}, []],
    ids=shown,
)
async def test_arguments_that_do_not_fit_are_refused_by_the_schema(arguments: Any) -> None:
    """Unknown names are refused too: a misspelt option must not be ignored."""

    @tool
    async def put(item: Item) -> None:
        raise AssertionError("called")

    rejected = await run(put, arguments)
    assert rejected.reason.kind is facts.RejectionKind.INVALID_INPUT
    assert facts.SCHEMA_MISMATCH_TEXT in rejected.reason.message


async def test_a_value_that_only_its_class_refuses_is_invalid_input_and_no_failed_effect() -> None:
    """It is found before the dispatch, and the model is told which argument and why."""

    @tool
    async def put(item: Item) -> None:
        raise AssertionError("called")

    rejected = await run(put, {"item": {"name": "cup", "count": 0}})
    assert rejected.kind == "tool_rejected"
    assert rejected.reason.kind is facts.RejectionKind.INVALID_INPUT
    assert "item" in rejected.reason.message
    assert "count must be positive" in rejected.reason.message


async def test_each_call_has_arguments_of_its_own() -> None:
    """A function may change what it was given, also a default that JSON stated."""
    seen = []

    @tool
    async def put(names: list[str]) -> None:
        names.append("more")
        seen.append(names)

    arguments = {"names": ["a"]}
    await result_of(put, arguments)
    await result_of(put, arguments)
    assert seen == [["a", "more"], ["a", "more"]]
    assert arguments == {"names": ["a"]}


async def test_types_of_the_function_that_encloses_it_are_found() -> None:
    """Annotations are texts here, and these classes stand in no module."""

    @attrs.frozen
    class Local:
        item: Item
        other: Local | None = None

    @tool
    async def bare(value: Local) -> int:
        return value.item.count

    @tool(name="named")
    async def with_name(value: Local) -> int:
        return value.item.count

    for registration in (bare, with_name):
        assert await result_of(registration, {"value": {"item": {"name": "a", "count": 7}, "other": None}}) == 7


# --- the result -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "text"),
        (None, None),
        ([1, 2], [1, 2]),
        (Item("cup"), {"name": "cup", "count": 1, "inside": []}),
        ([Item("cup", 2)], [{"name": "cup", "count": 2, "inside": []}]),
        (Place(1, Colour.BLUE), {"shelf": 1, "colour": "blue"}),
        ({"at": Place(1)}, {"at": {"shelf": 1, "colour": "red"}}),
        (Colour.RED, "red"),
        ({3}, [3]),
        ((1, "a"), [1, "a"]),
        (ToolText("hi"), {"kind": "text", "text": "hi"}),
    ],
    ids=shown,
)
async def test_a_result_is_json_again(value: Any, shown: Any) -> None:
    """Made of classes or of JSON, or a form that says how it is to be shown."""

    @tool
    async def get() -> Any:
        return value

    assert await result_of(get, {}) == shown


async def test_a_function_may_return_an_image() -> None:
    """As any handler may."""

    @tool
    async def draw() -> ToolImage:
        return ToolImage(b"GIF89a")

    settled = await run(draw, {})
    assert settled.outcome.artifacts[0].media_type == "image/gif"


@pytest.mark.parametrize("value", [object(), b"x", {"a": object()}], ids=shown)
async def test_a_result_that_is_no_json_is_lost(value: Any) -> None:
    """The effect is done, and the settlement says what is wrong with its result."""

    @tool
    async def get() -> Any:
        return value

    settled = await run(get, {})
    assert settled.outcome.message.startswith(RESULT_LOST_TEXT)


async def test_a_result_whose_class_cannot_be_taken_apart_is_lost() -> None:
    """That fault, too, comes after the effect."""

    @tool
    async def get() -> Any:
        item = MutableItem(1)
        del item.count
        return item

    settled = await run(get, {})
    assert isinstance(settled.outcome, facts.EffectFailed)
    assert settled.outcome.message.startswith(RESULT_LOST_TEXT)


async def test_what_a_function_raises_is_settled_as_for_any_handler() -> None:
    """The arguments were fine; the effect failed."""

    @tool
    async def put() -> None:
        await trio.lowlevel.checkpoint()
        raise ToolFailed("the shelf is full")

    settled = await run(put, {})
    assert settled.outcome == facts.EffectFailed("the shelf is full")


# --- what is no tool --------------------------------------------------------------------------------------


def test_a_plain_function_is_refused_and_told_what_to_do() -> None:
    """It would block every other task."""

    def put(path: str) -> None:
        pass

    with pytest.raises(InvalidInput, match=r"tool 'put': .*trio\.to_thread\.run_sync"):
        tool(put)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="tool 'store': "):
        tool(name="store")(put)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["put", 5, object()], ids=shown)
def test_what_is_no_function_is_refused(given: Any) -> None:
    """Also a name that was given in the wrong place."""
    with pytest.raises(InvalidInput, match="tool"):
        tool(given)


async def unannotated(path) -> None:  # type: ignore[no-untyped-def]
    pass


async def unknown_type(data: bytes) -> None:
    pass


async def unresolved(data: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    pass


async def many(*paths: str) -> None:
    pass


async def keywords(**options: str) -> None:
    pass


async def by_place(path: str, /) -> None:
    pass


async def bad_keys(table: dict[int, str]) -> None:
    pass


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unannotated, "'path' has no annotation"),
        (unknown_type, "bytes"),
        (unresolved, "Nowhere"),
        (many, "'paths' cannot be given by its name"),
        (keywords, "'options' cannot be given by its name"),
        (by_place, "'path' cannot be given by its name"),
        (bad_keys, "keys of a JSON object"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_signature_that_json_cannot_fill_is_refused_by_name(function: Any, words: str) -> None:
    """The error names the tool and the argument."""
    with pytest.raises(InvalidInput, match=f"tool '{function.__name__}': .*{words}"):
        tool(function)


def test_a_name_that_a_catalog_refuses_is_refused_here() -> None:
    """The same rules for every tool."""
    with pytest.raises(InvalidInput, match="reserved"):

        @tool(name="exec")
        async def put() -> None:
            pass
