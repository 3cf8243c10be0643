"""Values that no caller should give: each is one error of the tree, short, and it names what was wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maka_trio import (
    CellLimits,
    ChatOptions,
    CodeExecutor,
    Dialect,
    Message,
    MessageWork,
    RetryPolicy,
    StepBuilder,
    facts,
)
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from tests.engine.scene import Scene, scene

LONG = 10**5000
DEEP: Any = []
for _ in range(3000):
    DEEP = [DEEP]

VALUES: list[tuple[Callable[[], object], str]] = [
    (lambda: MessageWork("x", max_steps=LONG), "max_steps"),
    (lambda: MessageWork("x", max_steps=DEEP), "max_steps"),
    (lambda: CellLimits(tool_calls=LONG), "tool_calls"),
    (lambda: CellLimits(execution_seconds=LONG), "execution_seconds"),
    (lambda: CellLimits(execution_seconds="x" * 100_000), "execution_seconds"),  # type: ignore[arg-type]
    (lambda: CodeExecutor(concurrency=LONG), "concurrency"),
    (lambda: CodeExecutor(store=5), "store"),  # type: ignore[arg-type]
    (lambda: CodeExecutor(interpreters=5), "interpreters"),  # type: ignore[arg-type]
    (lambda: ChatOptions(temperature=LONG), "temperature"),
    (lambda: ChatOptions(temperature=math.nan), "temperature"),
    (lambda: Message.user(None), "NoneType"),  # type: ignore[arg-type]
    (lambda: Message.assistant(5), "int"),  # type: ignore[arg-type]
    (lambda: Message.assistant([1]), "int"),  # type: ignore[list-item]
    (lambda: Message.tool(1, "name", "x"), "call_id"),  # type: ignore[arg-type]
    (lambda: Message.tool("c1", 2, "x"), "name"),  # type: ignore[arg-type]
    (lambda: facts.MediaContent("image/png", data="text"), "bytes"),  # type: ignore[arg-type]
    (lambda: StepBuilder(5), "step_id"),  # type: ignore[arg-type]
    (lambda: StepBuilder(""), "step_id"),
    (lambda: Dialect(stop_reasons=None), "None"),  # type: ignore[arg-type]
    (lambda: Dialect(stop_reasons=[1]), "1"),  # type: ignore[arg-type]
    (lambda: facts.EventWrite(None), "RuntimeEvent"),  # type: ignore[arg-type]
    (lambda: RetryPolicy(retries="x"), "retries"),  # type: ignore[arg-type]
    (lambda: RetryPolicy(retries=-1), "retries"),
    (lambda: RetryPolicy(base=math.nan), "base"),
    (lambda: RetryPolicy(longest=-5), "longest"),
    (lambda: RetryPolicy(honoured=math.inf), "honoured"),
    (lambda: RetryPolicy(jitter=True), "jitter"),
]


@pytest.mark.parametrize(("make", "names"), VALUES)
def test_a_bad_value_is_refused_by_name_and_in_few_words(make: Callable[[], object], names: str) -> None:
    """Whatever its size or its depth."""
    with pytest.raises(InvalidInput, match=names) as caught:
        make()
    assert len(str(caught.value)) < 400


PARTS: list[tuple[Callable[[Scene], object], str]] = [
    (lambda it: type(it.engine)(it.log, it.models, retry="x"), "retry"),  # type: ignore[arg-type]
    (lambda it: type(it.engine)(it.log, it.models, message_bytes="x"), "message_bytes"),  # type: ignore[arg-type]
    (lambda it: type(it.engine)(it.log, it.models, message_bytes=0), "message_bytes"),
    (lambda it: it.models.with_adapters(5), "int"),  # type: ignore[arg-type]
    (lambda it: it.log.follow(2**63), "after"),
    (lambda it: it.log.follow(LONG), "after"),
]


@pytest.mark.parametrize(("make", "names"), PARTS)
async def test_what_cannot_be_made_of_good_parts_is_refused(
    make: Callable[[Scene], object], names: str, tmp_path: Path
) -> None:
    """At once, and not by the first run or event."""
    async with scene(tmp_path) as it:
        with pytest.raises(InvalidInput, match=names):
            make(it)


async def test_no_waiting_for_what_is_no_session(tmp_path: Path) -> None:
    """`wait_idle` takes a session's id."""
    async with scene(tmp_path) as it:
        with pytest.raises(InvalidInput, match="session_id"):
            await it.engine.wait_idle([1])  # type: ignore[arg-type]


async def test_a_path_that_no_file_system_can_hold_is_refused(tmp_path: Path) -> None:
    """A lone surrogate is in no file name."""
    async with scene(tmp_path) as it:
        with pytest.raises(InvalidInput, match="path"):
            await it.log.backup("\ud800")
        with pytest.raises(InvalidInput, match="path"):
            async with type(it.log).open("\ud800"):
                pass


class Nameless:
    def __repr__(self) -> str:
        raise RuntimeError("no")


SHOWN = [LONG, -LONG, {(LONG,): 1}, DEEP, list(range(1000)), "x" * 1000, b"y" * 1000, Nameless()]


@pytest.mark.parametrize("value", SHOWN, ids=map(str, range(len(SHOWN))))  # pytest would show them, too
def test_any_value_has_a_short_excerpt(value: object) -> None:
    """Errors show values, and must not fail over them."""
    assert 0 < len(excerpt(value)) <= 100
