"""Registrations and catalogs: what is refused, by name; what a catalog promises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from maka_trio import facts, limits
from maka_trio.errors import InvalidInput
from maka_trio.tools import (
    PreparedEffect,
    ToolCall,
    ToolCatalog,
    ToolNesting,
    ToolRegistration,
    ToolSemantics,
)
from tests.ids import shown
from tests.tools.scene import registration


async def handler(value: Any, call: ToolCall) -> None:
    pass


def plain(value: Any, call: ToolCall) -> None:
    pass


def plain_that_returns_a_coroutine(value: Any, call: ToolCall) -> Any:
    return handler(value, call)


async def generator(value: Any, call: ToolCall) -> Any:
    yield value


class CallableObject:
    async def __call__(self, value: Any, call: ToolCall) -> None:
        pass

    async def method(self, value: Any, call: ToolCall) -> None:
        pass


class Preparing:
    async def prepare(self, arguments: Any, call: ToolCall, /) -> PreparedEffect:
        raise AssertionError


class PreparingPlainly:
    def prepare(self, arguments: Any, call: ToolCall, /) -> None:
        pass


def definition(**changes: Any) -> facts.ToolDefinition:
    return attrs.evolve(facts.ToolDefinition("put", "Put it.", {"type": "object"}), **changes)


# --- one tool ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "usable",
    [
        handler,
        functools.partial(handler),
        CallableObject(),
        CallableObject().method,
        Preparing(),
    ],
    ids=["function", "partial", "object", "method", "prepared"],
)
def test_a_handler_is_anything_async(usable: Any) -> None:
    """A function, a partial, a method, an object, or one that prepares."""
    assert ToolRegistration(definition(), usable).name == "put"


@pytest.mark.parametrize(
    "unusable",
    [plain, plain_that_returns_a_coroutine, generator, lambda value, call: None, PreparingPlainly(), print],
    ids=["function", "returns a coroutine", "generator", "lambda", "plain prepare", "builtin"],
)
def test_a_handler_that_is_not_async_is_refused_by_name(unusable: Any) -> None:
    """The error names the tool and what to do."""
    with pytest.raises(InvalidInput, match=r"tool 'put' .*(async)"):
        ToolRegistration(definition(), unusable)


@pytest.mark.parametrize("unusable", [None, "put", 5, {}, CallableObject, Preparing], ids=shown)
def test_what_cannot_be_called_is_refused_by_name(unusable: Any) -> None:
    """A class is not its object."""
    with pytest.raises(InvalidInput, match=r"tool 'put' needs an async function"):
        ToolRegistration(definition(), unusable)


@pytest.mark.parametrize("unusable", [functools.partial(plain, "secret"), functools.partial(print, "secret")])
def test_what_a_handler_binds_does_not_show_in_the_error(unusable: Any) -> None:
    """A partial's repr would show it."""
    with pytest.raises(InvalidInput) as caught:
        ToolRegistration(definition(), unusable)
    assert "secret" not in str(caught.value)


def test_a_blocking_function_is_pointed_to_a_thread() -> None:
    """The usual reason for a plain function."""
    with pytest.raises(InvalidInput, match=r"trio\.to_thread\.run_sync"):
        ToolRegistration(definition(), plain)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["x" * 128, "é" * 64, "a.b-c_d", "Put"])
def test_a_name_has_at_most_128_bytes(name: str) -> None:
    """Whatever its letters."""
    assert registration(handler, name=name).name == name


@pytest.mark.parametrize("name", ["x" * 129, "é" * 64 + "x"])
def test_a_longer_name_is_refused(name: str) -> None:
    """With the limit."""
    with pytest.raises(InvalidInput, match="1 to 128"):
        registration(handler, name=name)


@pytest.mark.parametrize("name", ["exec", "wait", "code_cell", "invalid", "tool_search", "maka_tool_search"])
def test_a_reserved_name_is_refused(name: str) -> None:
    """The library keeps it for itself."""
    with pytest.raises(InvalidInput, match=f"{name!r} is reserved"):
        registration(handler, name=name)
    assert registration(handler, name=name, built_in=True).name == name


def test_a_tool_that_finishes_the_turn_is_direct_only() -> None:
    """A program cannot end the turn it runs in."""
    with pytest.raises(InvalidInput, match="'put' finishes the turn"):
        registration(handler, semantics=ToolSemantics.FINISH_TURN)
    registration(handler, semantics=ToolSemantics.FINISH_TURN, nesting=ToolNesting.DIRECT_ONLY)


@pytest.mark.parametrize(
    "schema", [{"type": "nothing"}, {"$ref": "http://127.0.0.1:9/x"}, {"pattern": "("}, {"$ref": "#/x"}]
)
def test_a_bad_schema_is_refused_by_name(schema: Any) -> None:
    """When the tool is registered."""
    with pytest.raises(InvalidInput, match="tool 'put': not a usable JSON Schema"):
        registration(handler, schema=schema)


@pytest.mark.parametrize(
    "changes", [{"definition": "put"}, {"nesting": "nestable"}, {"semantics": "parallel"}, {"definition": None}]
)
def test_a_registration_takes_values_of_its_types(changes: dict[str, Any]) -> None:
    """The text of an enum is not the enum."""
    given: dict[str, Any] = {"definition": definition(), "handler": handler}
    with pytest.raises(InvalidInput):
        ToolRegistration(**{**given, **changes})


def test_a_registration_does_not_change_with_the_schema_it_was_made_from() -> None:
    """What was compiled is what is advertised."""
    schema: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = registration(handler, schema=schema)
    schema["properties"]["n"]["type"] = "string"
    assert tool.definition.input_schema == {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert tool.schema.mismatch({"n": 1}) is None


def test_an_output_schema_is_documentation() -> None:
    """It is neither compiled nor asserted."""
    tool = ToolRegistration(definition(output_schema={"type": "no such type"}), handler)
    assert tool.definition.output_schema == {"type": "no such type"}


# --- the catalog ------------------------------------------------------------------------------------------


def named(*names: str, **options: Any) -> list[ToolRegistration]:
    return [registration(handler, name=name, **options) for name in names]


def test_a_catalog_is_sorted_by_name() -> None:
    """In whatever order the tools were given."""
    catalog = ToolCatalog(named("c", "a", "b"))
    assert [tool.name for tool in catalog] == ["a", "b", "c"]
    assert [one.name for one in catalog.definitions()] == ["a", "b", "c"]
    assert len(catalog) == 3


def test_a_catalog_finds_its_tools_by_name() -> None:
    """And nobody else's."""
    catalog = ToolCatalog(named("a", "b"))
    assert catalog.get("b") is catalog.registrations[1]
    assert catalog.get("c") is None
    assert "a" in catalog
    assert "c" not in catalog


def test_an_empty_catalog_is_a_catalog() -> None:
    """A run without tools has one."""
    assert len(ToolCatalog()) == len(ToolCatalog([])) == 0
    assert ToolCatalog().digest() == ToolCatalog([]).digest()


def test_two_tools_of_one_name_are_refused() -> None:
    """By that name."""
    with pytest.raises(InvalidInput, match="two tools have the name 'a'"):
        ToolCatalog(named("a", "b", "a"))


def test_128_tools_are_admitted_and_one_more_is_not() -> None:
    """With both numbers."""
    names = [f"tool{number}" for number in range(129)]
    assert len(ToolCatalog(named(*names[:128]))) == 128
    with pytest.raises(InvalidInput, match="129 tools; a catalog takes at most 128"):
        ToolCatalog(named(*names))


def test_definitions_have_a_mebibyte_together_and_no_byte_more() -> None:
    """Counted as the JSON that is sent."""
    empty = ToolRegistration(definition(description=""), handler)
    overhead = len(b'[{"description":"","input_schema":{"type":"object"},"name":"put"}]')
    room = limits.TOOL_DEFINITIONS_BYTES - overhead
    ToolCatalog([ToolRegistration(definition(description="x" * room), handler)])
    with pytest.raises(InvalidInput, match=str(limits.TOOL_DEFINITIONS_BYTES)):
        ToolCatalog([ToolRegistration(definition(description="x" * (room + 1)), handler)])
    with pytest.raises(InvalidInput, match=str(limits.TOOL_DEFINITIONS_BYTES)):
        ToolCatalog([empty, registration(handler, name="b", schema={"description": "x" * room})])


@pytest.mark.parametrize("given", [None, 5, ["put"], [handler], [definition()], "put"], ids=shown)
def test_a_catalog_takes_registrations(given: Any) -> None:
    """Nothing that could become one."""
    with pytest.raises(InvalidInput):
        ToolCatalog(given)


def test_filters_make_new_catalogs() -> None:
    """The old one stays whole."""
    catalog = ToolCatalog([*named("a", "b"), *named("d", nesting=ToolNesting.DIRECT_ONLY)])
    assert [tool.name for tool in catalog.nested()] == ["a", "b"]
    assert [tool.name for tool in catalog.excluding("a", "nobody")] == ["b", "d"]
    assert [tool.name for tool in catalog] == ["a", "b", "d"]


@pytest.mark.parametrize(
    "change", [lambda catalog: setattr(catalog, "registrations", ()), lambda catalog: catalog.__delattr__("_by_name")]
)
def test_a_catalog_does_not_change(change: Callable[[ToolCatalog], object]) -> None:
    """It is captured by requests that are made later."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        change(ToolCatalog(named("a")))


def test_the_digest_names_what_a_model_is_told() -> None:
    """Name, description and schemas; neither the order they were given in nor what runs behind them."""
    first = ToolCatalog(named("a", "b"))
    assert first.digest() == ToolCatalog(named("b", "a")).digest()
    assert first.digest() == ToolCatalog([registration(Preparing(), name=name) for name in "ab"]).digest()
    others = [
        ToolCatalog(named("a")),
        ToolCatalog(named("a", "c")),
        ToolCatalog([*named("a"), registration(handler, name="b", schema={})]),
        ToolCatalog([*named("a"), ToolRegistration(definition(name="b", input_schema=True), handler)]),
    ]
    assert first.digest() not in [other.digest() for other in others]
    assert first.digest().startswith("sha256:")
