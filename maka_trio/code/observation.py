"""What `exec` and `wait` tell the model of a cell, within the budget it asked for. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from maka_trio.code.outcome import ProgramResult, ProgramValue, result_json
from maka_trio.facts.codec import canonical
from maka_trio.facts.json_value import JSON

TOKEN_BYTES: Final = 4
"""Bytes of text that are counted as one token: a common rule of thumb, on the cautious side for code and JSON."""


class CellState(StrEnum):
    """Where a cell is."""

    RUNNING = "running"
    COMPLETED = "completed"
    TERMINATED = "terminated"


def observation(
    cell_id: str,
    state: CellState,
    content: str,
    *,
    tokens: int,
    result: ProgramResult | None = None,
    tool_calls: int = 0,
) -> JSON:
    """A cell as the model is shown it.

    Args:
        cell_id: names it to `wait`.
        state: where it is.
        content: what it wrote since it was last looked at.
        tokens: what content and value may take together, and the content at least a quarter of it; what is left out
            is said.
        result: how it ended.
        tool_calls: calls of tools it has made.
    """
    budget = tokens * TOKEN_BYTES
    shown: dict[str, JSON] = {"cell_id": cell_id, "state": state.value}
    entry, used = (None, 0) if result is None else _shown_result(result, tool_calls, budget - budget // 4)
    shown["content"] = [{"kind": "text", "text": shortened(content, budget - used)}] if content else []
    if entry is not None:
        shown["result"] = entry
    return shown


def _shown_result(result: ProgramResult, tool_calls: int, budget: int) -> tuple[JSON, int]:
    entry = result_json(result, tool_calls)
    if not isinstance(result, ProgramValue):
        return entry, 0  # short by itself
    text = canonical(result.value).decode()
    size = len(text.encode())
    if size > budget:
        del entry["value"]
        entry["value_shortened"] = shortened(text, budget)
    return entry, min(size, budget)


def shortened(text: str, limit: int) -> str:
    """A text of about `limit` bytes: its beginning and its end, and between them how much is left out."""
    data = text.encode()
    if len(data) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    first = data[:head].decode(errors="ignore")
    last = data[len(data) - tail :].decode(errors="ignore") if tail else ""
    return f"{first}\n[... {len(data) - head - tail} bytes left out ...]\n{last}"
