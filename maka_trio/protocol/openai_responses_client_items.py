"""Output items that are calls of the vendor's own tools which the user's side executes.

The vendor defines a shell, a patch tool, a client-side tool search and approvals of remote tools; the model calls
them with items of their own kind, and their answers have a kind of their own, too. Here they are local calls under
plain names: a registered tool of that name answers them, and without one they are rejected like any other.
"""

from __future__ import annotations

from collections.abc import Mapping

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON
from maka_trio.facts.message import ErrorOutput, JsonOutput, ToolOutput
from maka_trio.facts.model import ModelToolCall
from maka_trio.protocol.openai_responses_content import Item, output_text
from maka_trio.protocol.payload import parse_arguments

_NAMES = {
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "tool_search_call": "tool_search",
    "mcp_approval_request": "mcp_approval",
}


def is_client_item(item: Mapping[str, JSON]) -> bool:
    """Whether an output item waits for the user's side."""
    kind = item.get("type")
    if kind == "shell_call":
        environment = item.get("environment")
        return not isinstance(environment, Mapping) or environment.get("type") == "local"
    if kind == "tool_search_call":
        return item.get("execution") == "client"
    return isinstance(kind, str) and kind in _NAMES


def client_call(item: Mapping[str, JSON], key: str) -> ModelToolCall:
    """The local call that an item stands for.

    Raises:
        AdapterError: the item has no id.
    """
    kind = str(item["type"])
    call_id = item.get("call_id") or item.get("id")
    if not isinstance(call_id, str):
        raise AdapterError(f"a {excerpt(kind)} item without call_id")
    return ModelToolCall(call_id, _NAMES[kind], _input(kind, item), {key: {"item": dict(item)}})


def _input(kind: str, item: Mapping[str, JSON]) -> JSON:
    match kind:
        case "apply_patch_call":
            return item.get("operation") or {}
        case "tool_search_call":
            return item.get("arguments") or {}
        case "mcp_approval_request":
            arguments = parse_arguments(str(item.get("arguments") or ""), str(item.get("name")))
            return {"server_label": item.get("server_label"), "name": item.get("name"), "arguments": arguments}
        case _:
            return item.get("action") or {}


def answer_client_item(item: Mapping[str, JSON], output: ToolOutput) -> Item:
    """The item that answers such a call."""
    failed = isinstance(output, ErrorOutput)
    value = output.value if isinstance(output, JsonOutput) and isinstance(output.value, Mapping) else {}
    call_id = item.get("call_id") or item.get("id")
    match item.get("type"):
        case "local_shell_call":
            return {"type": "local_shell_call_output", "id": call_id, "output": output_text(output)}
        case "shell_call":
            return {"type": "shell_call_output", "call_id": call_id, "output": _shell_output(value, output, failed)}
        case "apply_patch_call":
            status = "failed" if failed else "completed"
            return {
                "type": "apply_patch_call_output",
                "call_id": call_id,
                "status": status,
                "output": output_text(output),
            }
        case "tool_search_call":
            found = value.get("tools")
            return {
                "type": "tool_search_output",
                "call_id": call_id,
                "execution": "client",
                "status": "completed",
                "tools": found if isinstance(found, list) else [],
            }
        case _:
            return _approval(item, value, output)


def _shell_output(value: Mapping[str, JSON], output: ToolOutput, failed: bool) -> JSON:
    stated = value.get("output")
    if isinstance(stated, list):
        return stated
    outcome: JSON = {"type": "exit", "exit_code": 1 if failed else 0}
    text = output_text(output)
    return [{"stdout": "" if failed else text, "stderr": text if failed else "", "outcome": outcome}]


def _approval(item: Mapping[str, JSON], value: Mapping[str, JSON], output: ToolOutput) -> Item:
    """Only a tool that says `{"approve": true}` approves; a rejection or anything else is a no."""
    approved = value.get("approve") is True
    answer: Item = {"type": "mcp_approval_response", "approval_request_id": item.get("id"), "approve": approved}
    if not approved:
        answer["reason"] = output_text(output)
    return answer
