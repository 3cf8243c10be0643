"""The vendor's own tools on the Responses wire: those it runs itself, and those it leaves to us."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from maka_trio.errors import ProviderFailure
from maka_trio.facts.message import (
    AssistantMessage,
    ErrorOutput,
    JsonOutput,
    Message,
    PromptMessage,
    TextOutput,
    ToolOutput,
)
from maka_trio.facts.model import FinishReason, ModelStep, TextPart, ToolCallPart, ToolCallReady, ToolResultPart
from maka_trio.protocol.hosted_calls import DEFERRED_OUTPUT
from maka_trio.protocol.openai_responses import OpenAIResponses
from maka_trio.request import ModelRequest
from tests.protocol.decoding import run
from tests.protocol.responses_events import (
    PROVIDER,
    added,
    called,
    created,
    decoder,
    done,
    ended,
    event,
    said,
    thinking,
)
from tests.protocol.wire_histories import sent_back
from tests.protocol.wire_rules import check_responses
from tests.protocol.wire_streams import outcome_of

DOWN = ended("failed", error={"code": "server_error", "message": "x"})


def step_of(*events: bytes) -> ModelStep:
    return outcome_of(decoder, b"".join(events)).done


def wire(prompt: Sequence[PromptMessage]) -> list[dict[str, Any]]:
    """The input of a request, which passes the strict checker."""
    raw = OpenAIResponses().encode(ModelRequest(PROVIDER, prompt)).body
    check_responses(raw)
    return list(json.loads(raw)["input"])


def between(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What stands between the first and the last message of the user."""
    assert items[0]["role"] == items[-1]["role"] == "user"
    return items[1:-1]


# --- run by the provider ----------------------------------------------------------------------------------------

SELF_CONTAINED = {
    "web_search_call": ({"action": {"type": "search", "query": "x"}}, "web_search", {"type": "search", "query": "x"}),
    "file_search_call": ({"queries": ["x"], "results": None}, "file_search", {"queries": ["x"]}),
    "code_interpreter_call": (
        {"code": "1+1", "container_id": "cntr", "outputs": []},
        "code_interpreter",
        {"code": "1+1", "container_id": "cntr"},
    ),
    "image_generation_call": (
        {"result": "iVBOR", "revised_prompt": "a cat"},
        "image_generation",
        {"revised_prompt": "a cat"},
    ),
    "mcp_call": (
        {"name": "ask", "server_label": "wiki", "arguments": '{"q":1}', "output": "42", "error": None},
        "ask",
        {"q": 1},
    ),
}


@pytest.mark.parametrize("kind", SELF_CONTAINED)
def test_a_hosted_item_is_a_call_with_its_result(kind: str) -> None:
    """Nothing of it is ours to run, and the item goes back as it came."""
    fields, name, value = SELF_CONTAINED[kind]
    item = {"type": kind, "id": "i_0", "status": "completed", **fields}
    step = step_of(created(), added(0, kind), done(0, kind, status="completed", **fields), said(1, "A"), ended())
    assert step.local_calls() == ()
    assert step.finish_reason is FinishReason.STOP
    called_part, answered, _ = step.parts
    assert isinstance(called_part, ToolCallPart)
    assert (called_part.call.id, called_part.call.name, called_part.call.input) == ("i_0", name, value)
    assert called_part.call.provider_executed
    assert isinstance(answered, ToolResultPart)
    assert (answered.output, answered.is_error) == (item, False)
    assert between(wire(sent_back(step))) == [item, {"role": "assistant", "content": "A"}]


@pytest.mark.parametrize("fields", [{"status": "failed"}, {"status": "completed", "error": {"code": 1}}])
def test_a_hosted_item_that_failed_is_an_error_result(fields: dict[str, Any]) -> None:
    """By status or by its error."""
    step = step_of(done(0, "mcp_call", name="ask", arguments="{}", **fields), ended())
    assert isinstance(step.parts[1], ToolResultPart)
    assert step.parts[1].is_error


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("mcp_call", event("mcp_call_arguments.done", 0, arguments='{"amount":5}')),
        ("code_interpreter_call", event("code_interpreter_call_code.done", 0, code="pay()")),
    ],
)
def test_what_may_have_effects_is_told_before_it_ends(kind: str, told: bytes) -> None:
    """A stream that breaks while a remote tool works leaves evidence that it was called."""
    outcome = outcome_of(decoder, created() + added(0, kind, name="pay") + told + DOWN)
    assert isinstance(outcome.error, ProviderFailure)
    assert outcome.error.replay_safe is False
    calls = [seen.call for seen in outcome.events if isinstance(seen, ToolCallReady)]
    assert len(calls) == 1
    assert calls[0].provider_executed


@pytest.mark.parametrize("kind", ["web_search_call", "program", "shell_call_output", "hologram"])
def test_the_start_of_a_hosted_item_is_a_barrier(kind: str) -> None:
    """Sending the request again could do it twice."""
    error = outcome_of(decoder, added(0, kind) + DOWN).error
    assert isinstance(error, ProviderFailure)
    assert error.replay_safe is False


def test_a_hosted_shell_has_its_output_in_an_item_of_its_own() -> None:
    """Paired by call id; both items go back."""
    ran = {"call_id": "c1", "action": {"commands": ["ls"]}, "environment": {"type": "container_reference"}}
    output = {"call_id": "c1", "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}
    step = step_of(done(0, "shell_call", **ran), done(1, "shell_call_output", **output), said(2, "A"), ended())
    assert step.tool_calls()[0].input == {"commands": ["ls"]}
    assert step.local_calls() == ()
    back = between(wire(sent_back(step)))
    assert back[:2] == [
        {"type": "shell_call", "id": "i_0", **ran},
        {"type": "shell_call_output", "id": "i_1", **output},
    ]


def test_a_hosted_search_for_tools_names_no_call() -> None:
    """Its output belongs to the latest search."""
    searched = done(0, "tool_search_call", call_id=None, execution="server", arguments={"paths": ["a"]})
    found = done(1, "tool_search_output", call_id=None, execution="server", tools=[])
    step = step_of(searched, found, called(2, "c1", "a", "{}"), ended())
    assert [call.name for call in step.tool_calls()] == ["tool_search", "a"]
    assert [call.id for call in step.local_calls()] == ["c1"]


@pytest.mark.parametrize("kind", ["compaction", "mcp_list_tools", "hologram"])
def test_an_item_of_another_kind_is_kept_to_be_sent_back(kind: str) -> None:
    """A compaction or a list of remote tools is no answer, and must return unchanged."""
    step = step_of(created(), added(0, kind), done(0, kind, payload="+/=="), said(1, "A"), ended())
    part = step.parts[0]
    assert isinstance(part, TextPart)
    assert part.text == ""
    assert part.provider_options == {"openai": {"item": {"type": kind, "id": "i_0", "payload": "+/=="}}}
    raw = OpenAIResponses().encode(ModelRequest(PROVIDER, sent_back(step))).body
    assert json.loads(raw)["input"][1] == {"type": kind, "id": "i_0", "payload": "+/=="}


# --- over several answers ---------------------------------------------------------------------------------------


def test_a_program_that_calls_our_function_waits_for_the_answer() -> None:
    """The program has no output until ours is there, and the next answer brings it."""
    caller = {"type": "program", "caller_id": "c0"}
    program = {"call_id": "c0", "code": "get()", "fingerprint": "f+/="}
    waiting = step_of(
        created(),
        thinking(0, encrypted_content="g"),
        done(1, "program", **program),
        called(2, "c1", "get", "{}", caller=caller),
        ended(),
    )
    assert waiting.parts[-1] == ToolResultPart(
        "c0", "program", DEFERRED_OUTPUT, provider_options={"openai": {"deferred": True}}
    )
    prompt = [Message.user("Run."), AssistantMessage(waiting.parts), Message.tool("c1", "get", TextOutput("42"))]
    sent = wire(prompt)
    assert [item.get("type") for item in sent] == [
        None,
        "reasoning",
        "program",
        "function_call",
        "function_call_output",
    ]
    assert sent[2] == {"type": "program", "id": "i_1", **program}
    assert sent[3]["caller"] == sent[4]["caller"] == caller

    output = done(0, "program_output", call_id="c0", result="42", status="completed")
    after = run(
        OpenAIResponses().decoder(ModelRequest(PROVIDER, prompt)), [created() + output + said(1, "42") + ended()]
    ).done
    assert after.tool_calls()[0].input == {"code": "get()"}
    full = wire([*prompt, AssistantMessage(after.parts), Message.user("Thanks.")])
    assert [item.get("type") for item in full[4:]] == ["function_call_output", "program_output", None, None]


def test_a_program_that_was_given_up_takes_its_caller_with_it() -> None:
    """The user went on: our call stays with its answer, the program stays out."""
    caller = {"type": "program", "caller_id": "c0"}
    waiting = step_of(
        done(0, "program", call_id="c0", code="get()", fingerprint="f"),
        called(1, "c1", "get", "{}", caller=caller),
        ended(),
    )
    back = between(wire(sent_back(waiting)))
    assert [item["type"] for item in back] == ["function_call", "function_call_output"]
    assert all("caller" not in item for item in back)


# --- left to us -------------------------------------------------------------------------------------------------

SHELL = {"call_id": "c1", "action": {"commands": ["ls"]}}
EXIT_0 = {"type": "exit", "exit_code": 0}

CLIENT: dict[str, tuple[str, dict[str, Any], str, Any, ToolOutput, dict[str, Any]]] = {
    "local shell": (
        "local_shell_call",
        {"call_id": "c1", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        "local_shell",
        {"type": "exec", "command": ["ls"], "env": {}},
        TextOutput("a b"),
        {"type": "local_shell_call_output", "id": "c1", "output": "a b"},
    ),
    "shell": (
        "shell_call",
        SHELL,
        "shell",
        {"commands": ["ls"]},
        TextOutput("a b"),
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [{"stdout": "a b", "stderr": "", "outcome": EXIT_0}],
        },
    ),
    "shell with its own output": (
        "shell_call",
        {**SHELL, "environment": {"type": "local"}},
        "shell",
        {"commands": ["ls"]},
        JsonOutput({"output": [{"stdout": "x", "stderr": "y", "outcome": {"type": "timeout"}}]}),
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [{"stdout": "x", "stderr": "y", "outcome": {"type": "timeout"}}],
        },
    ),
    "shell rejected": (
        "shell_call",
        SHELL,
        "shell",
        {"commands": ["ls"]},
        ErrorOutput("not available"),
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [{"stdout": "", "stderr": "not available", "outcome": {"type": "exit", "exit_code": 1}}],
        },
    ),
    "patch": (
        "apply_patch_call",
        {"call_id": "c1", "operation": {"type": "delete_file", "path": "a"}},
        "apply_patch",
        {"type": "delete_file", "path": "a"},
        TextOutput("ok"),
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "ok"},
    ),
    "patch rejected": (
        "apply_patch_call",
        {"call_id": "c1", "operation": {"type": "delete_file", "path": "a"}},
        "apply_patch",
        {"type": "delete_file", "path": "a"},
        ErrorOutput("no"),
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed", "output": "no"},
    ),
    "tool search": (
        "tool_search_call",
        {"call_id": "c1", "execution": "client", "arguments": {"q": "x"}},
        "tool_search",
        {"q": "x"},
        ErrorOutput("no"),
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "status": "completed", "tools": []},
    ),
    "approval": (
        "mcp_approval_request",
        {"name": "pay", "server_label": "bank", "arguments": '{"amount":5}'},
        "mcp_approval",
        {"server_label": "bank", "name": "pay", "arguments": {"amount": 5}},
        JsonOutput({"approve": True}),
        {"type": "mcp_approval_response", "approval_request_id": "i_0", "approve": True},
    ),
    "approval refused": (
        "mcp_approval_request",
        {"name": "pay", "server_label": "bank", "arguments": "{}"},
        "mcp_approval",
        {"server_label": "bank", "name": "pay", "arguments": {}},
        ErrorOutput("The tool is not available."),
        {
            "type": "mcp_approval_response",
            "approval_request_id": "i_0",
            "approve": False,
            "reason": "The tool is not available.",
        },
    ),
}


@pytest.mark.parametrize("name", CLIENT)
def test_a_tool_of_the_vendor_that_we_run_is_a_local_call(name: str) -> None:
    """It is called under a plain name, and its answer goes back in the form the vendor gives it."""
    kind, fields, tool, value, output, answer = CLIENT[name]
    step = step_of(created(), added(0, kind, **fields), done(0, kind, **fields), ended())
    assert step.finish_reason is FinishReason.TOOL_CALLS
    (call,) = step.local_calls()
    assert (call.name, call.input) == (tool, value)
    items = wire([Message.user("x"), AssistantMessage(step.parts), Message.tool(call.id, call.name, output)])
    assert items[1:] == [{"type": kind, "id": "i_0", **fields}, answer]


@pytest.mark.parametrize("said_yes", [TextOutput("true"), JsonOutput(True), JsonOutput({"approve": "true"})])
def test_only_a_plain_yes_approves(said_yes: ToolOutput) -> None:
    """A remote effect is not let through by something that looks like consent."""
    step = step_of(done(0, "mcp_approval_request", name="pay", arguments="{}"), ended())
    (call,) = step.local_calls()
    items = wire([Message.user("x"), AssistantMessage(step.parts), Message.tool(call.id, call.name, said_yes)])
    assert items[-1]["approve"] is False
