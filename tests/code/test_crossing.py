"""What a program hands over, and what its value is shown as: bounded in parts and levels, whatever it is."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from maka_trio.code.value import VALUE_DEPTH, VALUE_NODES, crossed
from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import check_json
from tests.code.cell import run, value_of
from tests.code.code_scene import code_scene
from tests.engine.scene import echo, registration

MANY = VALUE_NODES - 10


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "payload",
    [
        json.dumps([0] * (VALUE_NODES - 1)),
        json.dumps([[]] * (VALUE_NODES - 1)),
        json.dumps({"k" * 8 + str(n): n for n in range(VALUE_NODES - 1)}),
        json.dumps([",[{" * 100_000, '"\\,[']),
        nested(VALUE_DEPTH),
    ],
    ids=["numbers", "lists", "members", "a text that looks like many", "levels"],
)
def test_what_is_within_the_bounds_crosses_as_it_is(payload: str) -> None:
    """Marks in texts are not parts."""
    assert crossed(payload, "it") == json.loads(payload)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (json.dumps([0] * VALUE_NODES), "more than 10000 JSON values"),
        (json.dumps([[]] * VALUE_NODES), "more than 10000 JSON values"),
        (json.dumps([[]] * 260_000), "more than 10000 JSON values"),
        ('"\\' * 200_000 + ",[" * 100_000, "JSON"),
        (nested(VALUE_DEPTH + 4), "deeper"),
        ("[1, 2", "JSON"),
    ],
    ids=["numbers", "lists", "a megabyte of lists", "unended texts", "levels", "no JSON"],
)
def test_what_is_more_is_refused(payload: str, words: str) -> None:
    """By the first thing that is too much."""
    with pytest.raises(InvalidInput, match=words):
        crossed(payload, "it")


@pytest.mark.parametrize(
    "program",
    [
        "{(10 ** 5000,): 1}",
        "class A: pass\na = A()\na.n = 10 ** 5000\na",
    ],
)
async def test_a_value_that_does_not_print_is_shown_by_its_kind(program: str) -> None:
    """The program ended well, and its end says so."""
    assert "cannot be shown" in json.dumps(value_of(await run(program)))


async def test_a_value_of_thousands_of_levels_is_shown_in_part_or_by_its_kind() -> None:
    """How many levels print is not the same in every Python."""
    shown = value_of(await run("class A: pass\na = A()\nx = 1\nfor i in range(3000): x = [x]\na.x = x\na"))
    assert isinstance(shown, str)
    assert "MontyClassProxy" in shown
    assert "cannot be shown" in shown or shown.endswith("[[[...")


@pytest.mark.parametrize("levels", [60, 100, 1000])
async def test_leaving_with_a_value_of_too_many_levels_is_an_error_that_a_program_can_catch(
    levels: int, tmp_path: Path
) -> None:
    """The value would be shown to nobody."""
    program = (
        f"x = []\nfor i in range({levels}): x = [x]\ntry:\n  exit(x)\nexcept RuntimeError as e:\n  print('caught')"
    )
    async with code_scene(tmp_path) as it:
        it.script(program)
        it.provider.say("done")
        await it.engine.run(it.input())
        (told,) = it.answers()
        assert told["result"]["ok"] is True
        assert told["content"] == [{"kind": "text", "text": "caught\n"}]


PROGRAMS = [
    f"await echo([0] * {MANY})",
    f"await echo([[]] * {MANY})",
    "await echo([[]] * 260_000)",
    "await echo([0] * 340_000)",
    f"import asyncio\nawait asyncio.gather(*[echo([0] * {MANY}) for i in range(8)])",
    "store('a', [0] * 340_000)",
    f"text([0] * {MANY})",
    f"[0] * {MANY}",
    f"exit([0] * {MANY})",
]


async def longest_stretch(run: Callable[[], Awaitable[object]]) -> float:
    """The most processor time that the trio thread spends between two passes while this runs."""
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await trio.lowlevel.checkpoint()
            longest = max(longest, time.thread_time() - before)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        await run()
        nursery.cancel_scope.cancel()
    return longest


def one_copy() -> float:
    """Processor time for one copy of a value of as many parts as may cross: the measure of a machine."""
    value = [[]] * MANY
    taken = []
    for _ in range(5):
        before = time.thread_time()
        check_json(value, what="it")
        taken.append(time.thread_time() - before)
    return max(taken)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_no_program_holds_up_the_loop(program: str, tmp_path: Path) -> None:
    """Whatever crosses, journal and schema included, is the work of a few copies at a time, and not of hundreds."""
    async with code_scene(tmp_path) as it:
        for _ in range(2):  # the first makes classes and loads modules
            it.script(program)
            it.provider.say("done")
            stretch = await longest_stretch(lambda: it.engine.run(it.input(registration("echo", echo))))
        assert stretch < 30 * one_copy()
