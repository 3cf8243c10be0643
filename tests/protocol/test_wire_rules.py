"""The wire checkers refuse what the vendors refuse. A checker that lets everything through proves nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.protocol.wire_rules import check_chat, check_messages, check_responses

Body = dict[str, Any]


def chat() -> Body:
    """A sound chat body with two calls."""
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ("a", "b")]
    return {
        "model": "m",
        "stream": True,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": ""},
            {"role": "user", "content": [{"type": "text", "text": "v"}]},
        ],
    }


def messages() -> Body:
    """A sound Anthropic body with two calls, a hosted one and thinking."""
    return {
        "model": "m",
        "max_tokens": 4096,
        "stream": True,
        "system": "s",
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "u"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": "s"},
                    {"type": "server_tool_use", "id": "h", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "h", "content": []},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "b"},
                    {"type": "text", "text": "v"},
                ],
            },
        ],
    }


def responses() -> Body:
    """A sound Responses body with reasoning and two calls."""
    return {
        "model": "m",
        "stream": True,
        "store": False,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
        "input": [
            {"role": "user", "content": "u"},
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call_output", "call_id": "b", "output": ""},
            {"role": "user", "content": [{"type": "input_text", "text": "v"}]},
        ],
    }


def swapped(field: str, first: int, second: int) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        items = body[field]
        items[first], items[second] = items[second], items[first]

    return change


def without(field: str, at: int) -> Callable[[Body], None]:
    return lambda body: body[field].pop(at)


def doubled(field: str, at: int) -> Callable[[Body], None]:
    return lambda body: body[field].insert(at, copy.deepcopy(body[field][at]))


def put(*path: Any) -> Callable[[Body], None]:
    """Set the last of the path at the place that the rest of it names."""

    def change(body: Body) -> None:
        place: Any = body
        for key in path[:-2]:
            place = place[key]
        place[path[-2]] = path[-1]

    return change


CHAT = {
    "no answer": without("messages", 4),
    "answers out of order": swapped("messages", 3, 4),
    "answered twice": doubled("messages", 4),
    "user between call and answer": swapped("messages", 4, 5),
    "answer without call": without("messages", 2),
    "empty assistant": put("messages", 2, {"role": "assistant", "content": None}),
    "empty tool calls": put("messages", 2, "tool_calls", []),
    "empty user": put("messages", 1, "content", ""),
    "empty part": put("messages", 5, "content", [{"type": "text", "text": ""}]),
    "unknown role": put("messages", 1, "role", "robot"),
    "arguments not JSON": put("messages", 2, "tool_calls", 0, "function", "arguments", "{"),
    "arguments an object": put("messages", 2, "tool_calls", 0, "function", "arguments", {}),
    "bad name": put("messages", 2, "tool_calls", 0, "function", "name", "a.b"),
    "one id twice": put("messages", 2, "tool_calls", 1, "id", "a"),
    "tool content no text": put("messages", 3, "content", {"a": 1}),
    "no parameters": put("tools", 0, "function", "parameters", {}),
    "empty tools": put("tools", []),
    "no stream": put("stream", False),
}

MESSAGES = {
    "first not user": without("messages", 0),
    "two of one role": doubled("messages", 0),
    "no answers": without("messages", 2),
    "one answer missing": put("messages", 2, "content", [{"type": "tool_result", "tool_use_id": "a"}]),
    "text before results": lambda body: body["messages"][2]["content"].insert(0, {"type": "text", "text": "x"}),
    "results out of order": lambda body: body["messages"][2]["content"].insert(
        0, body["messages"][2]["content"].pop(1)
    ),
    "blank text": put("messages", 2, "content", 2, "text", " "),
    "blank system": put("system", " "),
    "empty content": put("messages", 0, "content", []),
    "error without content": put("messages", 2, "content", 1, "is_error", True),
    "thinking unsigned": put("messages", 1, "content", 0, "signature", ""),
    "ends in thinking": lambda body: body["messages"][1]["content"].append(body["messages"][1]["content"][0]),
    "input no object": put("messages", 1, "content", 3, "input", []),
    "bad id": put("messages", 1, "content", 3, "id", "a:b"),
    "one id twice": put("messages", 1, "content", 4, "id", "a"),
    "hosted without result": lambda body: (
        body["messages"][1]["content"].pop(2),
        body["messages"].extend([{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]),
    ),
    "hosted result without call": lambda body: body["messages"][1]["content"].pop(1),
    "user goes on without hosted result": lambda body: body["messages"][1]["content"].pop(2),
    "user block of assistant": put("messages", 1, "content", 0, {"type": "image", "source": {}}),
    "no tools": lambda body: body.pop("tools"),
    "schema no object": put("tools", 0, "input_schema", {"type": "string"}),
    "two tools of one name": doubled("tools", 0),
    "choice names no tool": put("tool_choice", {"type": "tool", "name": "g"}),
    "forced choice with thinking": put("tool_choice", {"type": "any"}),
    "budget too large": put("max_tokens", 1024),
    "no max_tokens": put("max_tokens", None),
    "mark on thinking": put("messages", 1, "content", 0, "cache_control", {"type": "ephemeral"}),
    "five marks": lambda body: [
        block.update(cache_control={"type": "ephemeral"})
        for block in (*body["messages"][1]["content"][1:], *body["messages"][2]["content"], body["tools"][0])
    ],
    "ends in space": lambda body: body["messages"].append({"role": "assistant", "content": "x "}),
}

RESPONSES = {
    "no output": without("input", 5),
    "outputs out of order": swapped("input", 4, 5),
    "output twice": doubled("input", 5),
    "user before output": swapped("input", 5, 6),
    "output without call": without("input", 3),
    "output of another kind": put("input", 5, "type", "custom_tool_call_output"),
    "reasoning for nothing": lambda body: body["input"].insert(1, body["input"].pop(0)),
    "unsealed reasoning": put("input", 1, "encrypted_content", None),
    "arguments no text": put("input", 2, "arguments", {}),
    "arguments not JSON": put("input", 2, "arguments", ""),
    "long call id": put("input", 2, "call_id", "x" * 65),
    "one id twice": put("input", 3, "call_id", "a"),
    "unknown item": put("input", 1, {"type": "hologram"}),
    "user says output": put("input", 6, "content", [{"type": "output_text", "text": "x"}]),
    "blank text": put("input", 0, "content", " "),
    "empty input": put("input", []),
    "vendor's name": put("tools", 0, "name", "tool_search"),
    "no strict": lambda body: body["tools"][0].pop("strict"),
    "choice names no tool": put("tool_choice", {"type": "function", "name": "g"}),
    "image without detail": put("input", 6, "content", [{"type": "input_image", "image_url": "u"}]),
    "two items of one id": lambda body: [item.update(id="x") for item in body["input"][2:4]],
    "previous response": put("previous_response_id", "r"),
}

WIRES: dict[str, tuple[Callable[[], Body], Callable[[Any], None], dict[str, Callable[[Body], Any]]]] = {
    "chat": (chat, check_chat, CHAT),
    "messages": (messages, check_messages, MESSAGES),
    "responses": (responses, check_responses, RESPONSES),
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_sound_body_passes_as_value_and_as_bytes(wire: str) -> None:
    """The changes below start from it."""
    make, check, _ = WIRES[wire]
    check(make())
    check(json.dumps(make()).encode())


@pytest.mark.parametrize(
    ("wire", "fault"), [(wire, fault) for wire, (_, _, faults) in WIRES.items() for fault in faults]
)
def test_a_fault_is_found(wire: str, fault: str) -> None:
    """Each is one that a vendor answers with a 400."""
    make, check, faults = WIRES[wire]
    body = make()
    faults[fault](body)
    with pytest.raises(AssertionError) as caught:
        check(body)
    assert str(caught.value)


@pytest.mark.parametrize("raw", [b'{"model":"m","model":"n"}', b'{"model":NaN}', b"[]"])
@pytest.mark.parametrize("wire", WIRES)
def test_bytes_must_be_strict_json(wire: str, raw: bytes) -> None:
    """A repeated key or NaN is read differently by different servers."""
    with pytest.raises(AssertionError):
        WIRES[wire][1](raw)
