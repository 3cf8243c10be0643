"""What the three vendors document of a request, as checks of a request body.

`check_chat`, `check_messages` and `check_responses` raise AssertionError with the reason. They are written from the
vendors' documents, not from our encoders, and stricter than some servers: one that passes here is accepted anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANTHROPIC_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ANTHROPIC_ID = re.compile(r"[A-Za-z0-9_-]+")


def _require(condition: object, reason: str) -> None:
    if not condition:
        raise AssertionError(reason)


def _decoded(body: Mapping[str, Any] | bytes) -> Mapping[str, Any]:
    """The body as an object; its bytes must be strict JSON with no repeated key."""
    if not isinstance(body, bytes):
        return body

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        _require(len({key for key, _ in items}) == len(items), f"a key is repeated in {items!r:.200}")
        return dict(items)

    def constant(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    decoded = json.loads(body.decode(), object_pairs_hook=pairs, parse_constant=constant)
    _require(isinstance(decoded, dict), "the body is an object")
    return dict(decoded)


def _text(value: object, what: str) -> None:
    _require(isinstance(value, str) and value.strip(), f"{what} is a text that is not blank, not {value!r:.80}")


def _arguments(value: object, what: str) -> None:
    _require(isinstance(value, str), f"{what} are JSON text, not {value!r:.80}")
    try:
        json.loads(str(value))
    except ValueError as error:
        raise AssertionError(f"{what} are not JSON: {error}") from None


def _object_schema(schema: object, what: str) -> None:
    _require(isinstance(schema, Mapping) and schema.get("type") == "object", f"{what} is a schema of type object")


def _unique(values: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for value in values:
        _require(value not in seen, f"{what} {value!r} occurs twice")
        seen.add(value)


def _common(body: Mapping[str, Any]) -> None:
    _text(body.get("model"), "model")
    _require(body.get("stream") is True, "stream is true")
    _require("tools" not in body or body["tools"], "tools is left out when there are none")
    _require("tool_choice" not in body or body.get("tools"), "tool_choice needs tools")


# --- chat completions -------------------------------------------------------------------------------------------

_CHAT_USER_PARTS = {"text", "image_url", "input_audio", "file"}


def check_chat(body: Mapping[str, Any] | bytes) -> None:
    """Chat completions: each tool call is answered once, in order, directly after the message that makes it."""
    body = _decoded(body)
    _common(body)
    _require(body.get("messages"), "messages is not empty")
    waiting: list[str] = []
    for message in body["messages"]:
        role = message.get("role")
        if role == "tool":
            _require(waiting, f"a tool message answers {message.get('tool_call_id')!r}, which is not open")
            expected = waiting.pop(0)
            _require(
                message.get("tool_call_id") == expected,
                f"{message.get('tool_call_id')!r} is answered where {expected!r} is next",
            )
            _require(isinstance(message.get("content"), str), "a tool message has text content")
            continue
        _require(not waiting, f"a {role} message comes before the answer to {waiting[:1]!r}")
        if role == "assistant":
            waiting = _chat_assistant(message)
        elif role in ("system", "developer"):
            _require(message.get("content"), f"{role} content is not empty")
        else:
            _require(role == "user", f"{role!r} is no role")
            _chat_user(message.get("content"))
    _require(not waiting, f"call {waiting[:1]!r} has no answer")
    for tool in body.get("tools", []):
        if tool.get("type") == "function":
            _require(_NAME.fullmatch(tool["function"]["name"]), f"{tool['function']['name']!r} is a function name")
            _object_schema(tool["function"].get("parameters"), "parameters")


def _chat_assistant(message: Mapping[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    _require("tool_calls" not in message or calls, "tool_calls is left out when there are none")
    content = message.get("content")
    _require(calls or content or message.get("refusal"), "an assistant message says or calls something")
    _require(content is None or isinstance(content, str) or content, "assistant content is text or parts")
    for call in calls or []:
        _require(call.get("type") == "function", "a call is a function call")
        _text(call.get("id"), "call id")
        _require(_NAME.fullmatch(call["function"]["name"]), f"{call['function']['name']!r} is a function name")
        _arguments(call["function"].get("arguments"), "arguments")
    ids = [call["id"] for call in calls or []]
    _unique(ids, "call id")
    return ids


def _chat_user(content: object) -> None:
    _require(content and isinstance(content, (str, list)), "user content is text or a list of parts, not empty")
    if isinstance(content, str):
        return
    assert isinstance(content, list)
    for part in content:
        _require(part.get("type") in _CHAT_USER_PARTS, f"{part.get('type')!r} is a user part")
        if part["type"] == "text":
            _require(part.get("text"), "a text part has a text")


# --- Anthropic messages -----------------------------------------------------------------------------------------

_ASSISTANT_BLOCKS = {
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    "mcp_tool_use",
    "compaction",
    "container_upload",
}
_USER_BLOCKS = {"text", "image", "document", "tool_result", "search_result", "container_upload"}
_IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}


def check_messages(body: Mapping[str, Any] | bytes) -> None:
    """Anthropic messages: user and assistant in turn, results first in the message after their calls."""
    body = _decoded(body)
    _common(body)
    _require(type(body.get("max_tokens")) is int and body["max_tokens"] >= 1, "max_tokens is a positive integer")
    messages = body.get("messages")
    _require(messages, "messages is not empty")
    for number, message in enumerate(messages):
        role = "assistant" if number % 2 else "user"
        _require(message.get("role") == role, f"message {number} is of the {role}, not {message.get('role')!r}")
        _blocks_sound(message)
    if "system" in body:
        _system_sound(body["system"])
    _calls_answered(messages)
    _hosted_calls_answered(messages)
    _anthropic_tools(body)
    _cache_marks(body)
    _thinking(body)


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _is_hosted_result(block: Mapping[str, Any]) -> bool:
    kind = str(block["type"])
    return kind.endswith("_tool_result") and kind != "tool_result"


def _blocks_sound(message: Mapping[str, Any]) -> None:
    _require(message.get("content"), "a message has content")
    allowed = _USER_BLOCKS if message["role"] == "user" else _ASSISTANT_BLOCKS
    final = _blocks(message)[-1].get("type")
    _require(final not in ("thinking", "redacted_thinking"), "a message does not end in thinking")
    for block in _blocks(message):
        kind = block.get("type")
        hosted = message["role"] == "assistant" and _is_hosted_result(block)
        _require(kind in allowed or hosted, f"{kind!r} is a block of the {message['role']}")
        match kind:
            case "text":
                _text(block.get("text"), "a text block")
            case "thinking":
                _require(isinstance(block.get("thinking"), str), "a thinking block has its text")
                _text(block.get("signature"), "a signature")
            case "redacted_thinking":
                _text(block.get("data"), "redacted thinking")
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                _require(_ANTHROPIC_ID.fullmatch(block["id"]), f"{block['id']!r} is a call id")
                _require(_ANTHROPIC_NAME.fullmatch(block["name"]), f"{block['name']!r} is a tool name")
                _require(isinstance(block.get("input"), Mapping), "the input of a call is an object")
            case "tool_result":
                _result_sound(block)
            case "image":
                _image_sound(block["source"])
            case _:
                pass


def _result_sound(block: Mapping[str, Any]) -> None:
    content = block.get("content")
    _require(content or not block.get("is_error"), "an error result has content")
    if isinstance(content, list):
        for part in content:
            _require(part["type"] in ("text", "image", "document", "search_result"), f"{part['type']!r} in a result")
            if part["type"] == "text":
                _text(part.get("text"), "a text block of a result")
    else:
        _require(content is None or isinstance(content, str), "the content of a result is text or blocks")


def _image_sound(source: Mapping[str, Any]) -> None:
    if source["type"] == "base64":
        _require(source["media_type"] in _IMAGES, f"{source['media_type']!r} is an image type")
        _text(source.get("data"), "image data")
    else:
        _require(source["type"] == "url" and source.get("url"), "an image is base64 or a URL")


def _system_sound(system: object) -> None:
    if isinstance(system, str):
        _text(system, "system")
        return
    _require(isinstance(system, list) and system, "system is text or blocks")
    assert isinstance(system, list)
    for block in system:
        _require(block.get("type") == "text", "a system block is text")
        _text(block.get("text"), "a system block")


def _calls_answered(messages: list[Mapping[str, Any]]) -> None:
    called: list[str] = []
    for number, message in enumerate(messages):
        blocks = _blocks(message)
        if message["role"] == "assistant":
            called = [block["id"] for block in blocks if block["type"] == "tool_use"]
            _require(not called or number + 1 < len(messages), f"call {called[:1]!r} has no answer")
            continue
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        _require(answered == called, f"calls {called!r} are answered by {answered!r}")
        first = [block["type"] for block in blocks[: len(answered)]]
        _require(first == ["tool_result"] * len(answered), "results come before anything else in their message")
        called = []
    uses = [b["id"] for m in messages for b in _blocks(m) if b["type"] in ("tool_use", "server_tool_use")]
    _unique(uses, "call id")


def _hosted_calls_answered(messages: list[Mapping[str, Any]]) -> None:
    """A hosted call is answered by a block of its own kind, later; only in the last assistant message it may wait."""
    waiting: list[str] = []
    known: set[str] = set()
    last = max((n for n, m in enumerate(messages) if m["role"] == "assistant"), default=0)
    for number, message in enumerate(messages):
        for block in _blocks(message):
            if block["type"] in ("server_tool_use", "mcp_tool_use"):
                waiting.append(block["id"])
                known.add(block["id"])
            elif _is_hosted_result(block):
                _require(block["tool_use_id"] in waiting, f"hosted result for {block['tool_use_id']!r}")
                waiting.remove(block["tool_use_id"])
            elif number > last and block["type"] != "tool_result":
                _require(not waiting, f"hosted call {waiting[:1]!r} has no result, and the user goes on")
        if number < last and message["role"] == "user" and waiting:
            only = all(block["type"] == "tool_result" for block in _blocks(message))
            _require(only, f"hosted call {waiting[:1]!r} has no result, and the user goes on")
    tail = messages[last:]
    here = {block["id"] for block in _blocks(tail[0]) if block["type"] in ("server_tool_use", "mcp_tool_use")}
    _require(set(waiting) <= here, f"hosted calls {waiting!r} have no result")
    callers = [b["caller"] for m in messages for b in _blocks(m) if b["type"] == "tool_use" and "caller" in b]
    for caller in callers:
        _require(caller["type"] == "direct" or caller["tool_id"] in known, f"caller {caller!r} is a hosted call")
    if messages[-1]["role"] == "assistant":
        final = _blocks(messages[-1])[-1]
        _require(
            final["type"] != "text" or final["text"] == final["text"].rstrip(),
            "a last message of the assistant does not end in white space",
        )


def _anthropic_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools", [])
    for tool in tools:
        if tool.get("type", "custom") == "custom":
            _require(_ANTHROPIC_NAME.fullmatch(tool["name"]), f"{tool['name']!r} is a tool name")
            _object_schema(tool.get("input_schema"), "input_schema")
    names = [tool["name"] for tool in tools if "name" in tool]
    _unique(names, "tool")
    choice = body.get("tool_choice", {"type": "auto"})
    _require(choice["type"] in ("auto", "any", "tool", "none"), f"{choice!r} is a tool choice")
    _require(choice["type"] != "tool" or choice["name"] in names, f"{choice!r} names a tool")
    used = any(block["type"] == "tool_use" for message in body["messages"] for block in _blocks(message))
    _require(tools or not used, "a history with calls needs tools")


def _cache_marks(body: Mapping[str, Any]) -> None:
    system = body.get("system", [])
    places = [*body.get("tools", []), *(system if isinstance(system, list) else [])]
    places += [block for message in body["messages"] for block in _blocks(message)]
    marked = [block for block in places if "cache_control" in block]
    _require(len(marked) <= 4, f"{len(marked)} cache marks; the limit is 4")
    for block in marked:
        _require(block["cache_control"]["type"] == "ephemeral", "a cache mark is ephemeral")
        _require(block.get("type") not in ("thinking", "redacted_thinking"), "no cache mark on thinking")


def _thinking(body: Mapping[str, Any]) -> None:
    thinking = body.get("thinking", {"type": "disabled"})
    if thinking["type"] != "enabled":
        return
    budget = thinking["budget_tokens"]
    _require(1024 <= budget < body["max_tokens"], "the thinking budget is at least 1024 and below max_tokens")
    _require(body.get("temperature", 1) == 1 and "top_k" not in body, "thinking excludes temperature and top_k")
    choice = body.get("tool_choice", {"type": "auto"})["type"]
    _require(choice in ("auto", "none"), "thinking excludes a forced tool choice")


# --- OpenAI responses -------------------------------------------------------------------------------------------

_ANSWERS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
    "program": "program_output",
}
_OUR_ITEMS = {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_approval_response"}
_SELF_CONTAINED = {
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "compaction",
}


def check_responses(body: Mapping[str, Any] | bytes) -> None:
    """OpenAI responses: each call item has one output item, in call order, before anything new is said."""
    body = _decoded(body)
    _common(body)
    _require(isinstance(body.get("input"), list) and body["input"], "input is a list with items")
    if "instructions" in body:
        _text(body["instructions"], "instructions")
    if body.get("store") is False:
        _require("previous_response_id" not in body, "nothing is stored that could be continued")
    items: list[Mapping[str, Any]] = body["input"]
    for number, item in enumerate(items):
        _item_sound(item, stored=body.get("store") is not False)
        if item.get("type") == "reasoning":
            following = items[number + 1] if number + 1 < len(items) else {"role": "user"}
            ours = following.get("role") in ("user", "system", "developer") or following.get("type") in _OUR_ITEMS
            _require(not ours, "a reasoning item is followed by what it was thought for")
    _items_answered(items)
    _unique([item["id"] for item in items if item.get("id")], "item id")
    _responses_tools(body)


def _item_sound(item: Mapping[str, Any], *, stored: bool) -> None:
    kind = item.get("type", "message")
    match kind:
        case "message":
            _message_sound(item)
        case "function_call":
            _call_sound(item)
            _arguments(item.get("arguments"), "arguments")
        case "custom_tool_call":
            _call_sound(item)
            _require(isinstance(item.get("input"), str), "the input of a custom call is text")
        case "function_call_output" | "custom_tool_call_output":
            _output_sound(item.get("output"))
        case "reasoning":
            _text(item.get("id"), "a reasoning item's id")
            _require(isinstance(item.get("summary"), list), "a reasoning item has a summary list")
            readable = item.get("encrypted_content") or item.get("content") or item["summary"]
            _require(stored or readable, "an unstored reasoning item carries its content")
        case _:
            known = kind in _SELF_CONTAINED or kind in _ANSWERS or kind in _ANSWERS.values()
            _require(known, f"{kind!r} is an input item")


def _call_sound(item: Mapping[str, Any]) -> None:
    _text(item.get("call_id"), "call_id")
    _require(len(item["call_id"]) <= 64, f"call_id {item['call_id']!r} has at most 64 characters")
    _require(_NAME.fullmatch(item["name"]), f"{item['name']!r} is a function name")


def _message_sound(item: Mapping[str, Any]) -> None:
    role = item.get("role")
    _require(role in ("user", "assistant", "system", "developer"), f"{role!r} is a role")
    content = item.get("content")
    if isinstance(content, str):
        _text(content, f"{role} content")
        return
    _require(isinstance(content, list) and content, f"{role} content is text or parts")
    assert isinstance(content, list)
    allowed = {"output_text", "refusal"} if role == "assistant" else {"input_text", "input_image", "input_file"}
    for part in content:
        _require(part["type"] in allowed, f"{part['type']!r} is a part of the {role}")
        if part["type"] in ("input_text", "output_text"):
            _text(part.get("text"), "a text part")
        if part["type"] == "input_image":
            _text(part.get("image_url"), "image_url")
            _require(part.get("detail") in ("auto", "low", "high", "original"), "an image has a detail")
    if role == "assistant":
        _require(item.get("id") and item.get("status"), "assistant parts come with id and status")


def _output_sound(output: object) -> None:
    if isinstance(output, str):
        return
    _require(isinstance(output, list) and output, "an output is text or parts")
    assert isinstance(output, list)
    for part in output:
        _require(part["type"] in ("input_text", "input_image", "input_file"), f"{part['type']!r} in an output")
        if part["type"] == "input_text":
            _text(part.get("text"), "a text part")


def _call_id(item: Mapping[str, Any]) -> str:
    if item.get("execution") == "server":
        return ""  # the vendor's own search for tools has no call id: its output follows it
    keys = ("approval_request_id", "call_id", "id")
    return next((str(item[key]) for key in keys if item.get(key)), "")


def _items_answered(items: list[Mapping[str, Any]]) -> None:
    waiting: list[tuple[str, str]] = []
    outputs = set(_ANSWERS.values())
    local = {"function_call_output", "custom_tool_call_output"}
    for item in items:
        kind = item.get("type", "message")
        if kind in _ANSWERS:
            waiting.append((_ANSWERS[kind], _call_id(item)))
        elif kind in outputs:
            answer = (kind, _call_id(item))
            _require(answer in waiting, f"{kind} answers {answer[1]!r}, which is not open")
            earlier = [entry for entry in waiting[: waiting.index(answer)] if entry[0] in local]
            _require(kind not in local or not earlier, f"{answer[1]!r} is answered before {earlier!r}")
            waiting.remove(answer)
        elif kind == "message" and item.get("role") != "assistant":
            _require(not waiting, f"a message comes before the output of {waiting[:1]!r}")
    # Only a program may still wait, namely for the outputs that this request brings.
    left = [entry for entry in waiting if entry[0] != "program_output"]
    _require(not left, f"call {left[:1]!r} has no output")
    calls = [_call_id(item) for item in items if item.get("type") in _ANSWERS and _call_id(item)]
    _unique(calls, "call id")


def _responses_tools(body: Mapping[str, Any]) -> None:
    names = []
    for tool in body.get("tools", []):
        if tool["type"] in ("function", "custom"):
            _require(_NAME.fullmatch(tool["name"]), f"{tool['name']!r} is a tool name")
            _require(tool["name"] != "tool_search", "tool_search is a tool of the vendor")
            names.append(tool["name"])
        if tool["type"] == "function":
            _object_schema(tool.get("parameters"), "parameters")
            _require("strict" in tool, "strict is stated, since its default differs between endpoints")
    _unique(names, "tool")
    choice = body.get("tool_choice", "auto")
    if isinstance(choice, Mapping) and choice.get("type") in ("function", "custom"):
        _require(choice.get("name") in names, f"{choice!r} names a tool")
