"""What a model is told of programs: names, declarations, the manual; and the pure parts behind a cell."""

from __future__ import annotations

import keyword
import threading
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.code.cell_limits import CellLimits
from maka_trio.code.content import Content
from maka_trio.code.declarations import declaration
from maka_trio.code.executor import CodeExecutor
from maka_trio.code.manual import exec_definition
from maka_trio.code.names import HELPERS, function_names
from maka_trio.code.observation import CellState, observation, shortened
from maka_trio.code.outcome import ProgramError, ProgramFault, ProgramValue
from maka_trio.code.store import SessionStore
from maka_trio.code.turnstile import Turnstile
from maka_trio.errors import InvalidInput
from maka_trio.facts.opening import ToolDefinition
from maka_trio.tools import ToolCatalog
from tests.code.cell import fault_of, run, value_of
from tests.engine.scene import echo, registration

# --- names ------------------------------------------------------------------------------------------------

NAMES = [
    (["fetch"], {"fetch": "fetch"}),
    (["fetch.page", "fetch-page", "fetch_page"], {"fetch_page": "fetch_page"}),
    (["print", "list", "json", "class", "text", "exit"], {"print": "print_", "class": "class_", "text": "text_"}),
    (["9lives", "é", "___", "_hidden"], {"9lives": "tool_9lives"}),
]


@pytest.mark.parametrize(("tools", "some"), NAMES)
def test_every_tool_has_a_function_name_of_its_own(tools: list[str], some: dict[str, str]) -> None:
    """One that stands keeps it; the others get what is nearest."""
    names = function_names(tools)
    assert len(set(names.values())) == len(tools)
    assert some.items() <= names.items()


@given(st.lists(st.text(min_size=1, max_size=12), max_size=12, unique=True))
def test_function_names_are_identifiers_that_nothing_else_has(tools: list[str]) -> None:
    """Whatever tools are called; and the same for the same tools in any order."""
    names = function_names(tools)
    assert set(names) == set(tools)
    assert len(set(names.values())) == len(tools)
    for name in names.values():
        assert name.isascii()
        assert name.isidentifier()
        assert not keyword.iskeyword(name)
        assert name not in HELPERS
    assert names == function_names(reversed(tools))


# --- declarations -----------------------------------------------------------------------------------------

SCHEMAS: list[tuple[Any, str]] = [
    (True, "input: Any, /"),
    ({"type": "string"}, "input: str, /"),
    ({"type": "object", "properties": {}}, ""),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, "*, a: int"),
    (
        {"type": "object", "properties": {"o": {"type": "number", "default": 1.5}, "r": {}}, "required": ["r"]},
        "*, r: Any, o: float = 1.5",
    ),
    ({"type": "object", "properties": {"a": {"enum": ["x", 1]}}}, "*, a: Literal['x', 1] = ..."),
    ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, "*, a: str | None = ..."),
    (
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "boolean"}}}},
        "*, a: list[bool] = ...",
    ),
    (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"const": 3}}},
        "*, a: Literal[3] = ...",
    ),
    (
        {"type": "object", "properties": {"a": {"properties": {"x": {"type": "null"}, "y": {}}, "required": ["x"]}}},
        '*, a: {"x": None, "y"?: Any} = ...',
    ),
    ({"type": "object", "properties": {"not-a-name": {}}}, 'input: {"not-a-name"?: Any}, /'),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, "input: dict[str, int], /"),
    ({"anyOf": [{"type": "string"}, {"type": "string"}, {"type": "integer"}]}, "input: str | int, /"),
    ({"$ref": "#"}, "input: Any, /"),
    ({"$ref": "https://example.org/x"}, "input: Any, /"),
    ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, "*, a: Any = ..."),
]


@pytest.mark.parametrize(("schema", "parameters"), SCHEMAS)
def test_a_schema_is_declared_as_parameters(schema: Any, parameters: str) -> None:
    """Types as far as there are any; what cannot be said is Any, and no reference leads anywhere for ever."""
    text = declaration("f", ToolDefinition("t", "Does.\nThings.", schema, {"type": "array"}))
    assert text == f"async def f({parameters}) -> list: ...\n    # Does.\n    # Things."


def test_declarations_are_bounded_however_large_a_schema_is() -> None:
    """What is cut is still in the schema, against which a call is checked."""
    wide = {"type": "object", "properties": {f"p{n}": {"enum": ["x" * 500] * 50} for n in range(5)}}
    assert len(declaration("f", ToolDefinition("t", "d" * 100_000, wide))) < 10_000


# --- the manual -------------------------------------------------------------------------------------------


def test_tools_that_do_not_fit_into_the_manual_are_named() -> None:
    """And are found by `tools` in a program."""
    tools = ToolCatalog([registration(f"tool{n:03}", echo, schema={"type": "object"}) for n in range(100)])
    small = exec_definition(tools, CellLimits()).description
    assert "async def tool099" in small
    described = [registration(f"tool{n:03}", echo, schema={"type": "object", "title": "x" * 10}) for n in range(120)]
    long = [attrs.evolve(tool, definition=attrs.evolve(tool.definition, description="d" * 900)) for tool in described]
    text = exec_definition(ToolCatalog(long), CellLimits()).description
    assert len(text) < 60_000
    assert "async def tool000" in text
    assert "async def tool119" not in text
    assert "tool119" in text


HAS = [
    "def f(a, *b, c=1, **d): return a\nf(1)",
    "def outer():\n  n = 0\n  def inner():\n    nonlocal n\n    n += 1\n    return n\n  return inner\nouter()()",
    "def twice(f):\n  def g(x): return f(f(x))\n  return g\n@twice\ndef inc(x): return x + 1\ninc(1)",
    "class P:\n  def __init__(self, x): self.x = x\n  def get(self): return self.x\nP(3).get()",
    "from dataclasses import dataclass\n@dataclass\nclass P:\n  x: int\nP(3).x",
    "match {'a': 1}:\n  case {'a': x}: y = x\ny",
    "try:\n  1 / 0\nexcept ZeroDivisionError as e:\n  r = str(e)\nfinally:\n  pass\nr",
    "[x for x in range(3) if x], {x for x in [1]}, {x: x for x in [1]}",
    "f'{1 + 1:>4} {[1]!r}'",
    "async def f(): return 1\nimport asyncio\nawait asyncio.gather(f(), f())",
    "import base64, bisect, collections, copy, datetime, decimal, functools\n1",
    "import hashlib, itertools, json, math, random, re, time\n1",
]
LACKS = [
    "class A(Exception): pass\nA()",
    "def g(): yield 1\nlist(g())",
    "x = 1\ndel x",
    "class A:\n  @property\n  def x(self): return 1\nA().x",
    "class A:\n  @staticmethod\n  def x(): return 1\nA.x()",
    "import asyncio\nasyncio.create_task",
    "import asyncio\nasyncio.wait_for",
    "import uuid",
    "import subprocess",
    "async def f():\n  async with 1: pass",
    "try: pass\nexcept* ValueError: pass",
]


@pytest.mark.parametrize("program", HAS)
async def test_the_manual_says_what_the_language_has(program: str) -> None:
    """It was tried."""
    assert value_of(await run(program)) is not None


@pytest.mark.parametrize("program", LACKS)
async def test_the_manual_says_what_the_language_lacks(program: str) -> None:
    """A version of the interpreter that has it wants another manual."""
    assert fault_of(await run(program)) in (ProgramFault.PARSE_ERROR, ProgramFault.EXECUTION_ERROR)


# --- observations -----------------------------------------------------------------------------------------


def test_an_observation_keeps_to_its_budget() -> None:
    """Content and value together; content has at least a quarter."""
    told: Any = observation(
        "c", CellState.COMPLETED, "x" * 10_000, tokens=100, result=ProgramValue(["y" * 10_000]), tool_calls=3
    )
    assert len(told["content"][0]["text"]) < 200
    assert len(told["result"]["value_shortened"]) < 400
    assert "value" not in told["result"]
    whole: Any = observation("c", CellState.COMPLETED, "", tokens=100, result=ProgramValue(None), tool_calls=0)
    assert whole == {
        "cell_id": "c",
        "state": "completed",
        "content": [],
        "result": {"ok": True, "value": None, "toolCalls": 0},
    }
    failed: Any = observation("c", CellState.COMPLETED, "", tokens=64, result=ProgramError.over("too much"))
    assert failed["result"]["error"] == {"kind": "limit_exceeded", "message": "too much"}


@given(st.text(max_size=300), st.integers(min_value=1, max_value=200))
def test_a_shortened_text_says_how_much_is_missing(text: str, limit: int) -> None:
    """And stays whole where it fits."""
    short = shortened(text, limit)
    if len(text.encode()) <= limit:
        assert short == text
    else:
        assert "left out" in short
        assert len(short.encode()) <= limit + 60


# --- content, store, turnstile ----------------------------------------------------------------------------


def test_content_is_taken_once_and_kept_whole() -> None:
    """Also while another thread writes; lone surrogates become text that can be stored."""
    content = Content(100_000)
    threads = [threading.Thread(target=lambda: [content.write("ab") for _ in range(1000)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    taken = ""
    while any(thread.is_alive() for thread in threads):
        taken += content.take()
    assert taken + content.take() == content.whole() == "ab" * 3000
    assert content.write("\ud800")
    assert content.take() == "\\ud800"
    assert not content.write("x" * 100_000)
    assert content.take() == ""


def test_a_store_forgets_the_session_that_was_left_alone_longest() -> None:
    """And refuses what one session may not keep, leaving what it kept."""
    store = SessionStore(session_bytes=100, total_bytes=250)
    for session in ("a", "b"):
        store.put(session, "k", "x" * 80)
    assert store.get("a", "k") == "x" * 80
    for session in ("c", "d"):
        store.put(session, "k", "x" * 80)
    assert [store.get(session, "k") is None for session in "abcd"] == [False, True, False, False]
    with pytest.raises(InvalidInput, match="at most 100"):
        store.put("d", "more", "x" * 80)
    assert store.get("d", "k") == "x" * 80
    store.put("d", "k", None)
    assert store.get("d", "k", 5) == 5
    with pytest.raises(InvalidInput, match="str"):
        store.put("d", 3, 1)  # type: ignore[arg-type]


async def test_a_turnstile_lets_an_exclusive_one_in_alone(autojump_clock: Any) -> None:
    """First come, first served; a cancelled waiter leaves no trace."""
    turnstile, inside, seen = Turnstile(), 0, []

    async def go(name: str, exclusive: bool) -> None:
        nonlocal inside
        async with turnstile.passed(exclusive=exclusive):
            inside += 1
            seen.append((name, inside))
            await trio.sleep(1)
            inside -= 1

    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(go, name, False)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.5):
            await go("cancelled", True)
        nursery.start_soon(go, "x", True)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(go, "c", False)
    assert sorted(seen[:2]) in ([("a", 1), ("b", 2)], [("a", 2), ("b", 1)])
    assert seen[2:] == [("x", 1), ("c", 1)]


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"concurrency": True}, {"live_cells": 5000}, {"limits": 3}])
def test_an_executor_refuses_settings_that_are_none(settings: dict[str, Any]) -> None:
    """The error names value and limit."""
    with pytest.raises(InvalidInput, match=next(iter(settings)) if "limits" not in settings else "CellLimits"):
        CodeExecutor(**settings)


@pytest.mark.parametrize(
    "settings",
    [{"execution_seconds": 0}, {"memory_bytes": 1000}, {"tool_calls": -1}, {"timers": 1.5}, {"sleep_seconds": "1"}],
)
def test_limits_refuse_what_is_none(settings: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidInput, match=next(iter(settings))):
        CellLimits(**settings)
