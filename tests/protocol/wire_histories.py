"""Prompts that a run can produce, to be encoded for each protocol.

The answers in them are what a model of some provider said; `PNG` and `PDF` are just bytes, nobody opens them.
"""

from __future__ import annotations

from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.message import (
    AssistantMessage,
    ContentOutput,
    ErrorOutput,
    JsonOutput,
    MediaContent,
    Message,
    PromptMessage,
    TextContent,
    TextOutput,
)
from maka_trio.facts.model import (
    ModelStep,
    ModelToolCall,
    SourcePart,
    TextKind,
    TextPart,
    ToolCallPart,
    UrlSource,
)
from maka_trio.facts.opening import ToolDefinition

PNG = MediaContent("image/png", data=b"\x89PNG\r\n\x1a\n")
PDF = MediaContent("application/pdf", data=b"%PDF", filename="paper.pdf")
WAV = MediaContent("audio/wav", data=b"RIFF-secret-bytes")

PUT = ToolDefinition(
    "put",
    "Stores a number.",
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False},
)
LOOK = ToolDefinition("look", "Shows something.", {"properties": {"at": {"type": "string"}}})
TOOLS = (PUT, LOOK)


def call(call_id: str, name: str = "put", value: JSON = None, options: JsonObject | None = None) -> ToolCallPart:
    """A local call as a part."""
    return ToolCallPart(ModelToolCall(call_id, name, {"n": 1} if value is None else value, options))


def said(text: str, options: JsonObject | None = None) -> TextPart:
    """Text as a part."""
    return TextPart(TextKind.TEXT, text, options)


def thought(text: str, options: JsonObject | None = None) -> TextPart:
    """Thinking as a part."""
    return TextPart(TextKind.THINKING, text, options)


def parallel_calls() -> list[PromptMessage]:
    """Three calls that finished 3, 1, 2; one rejected, one failed, one with media; then the user goes on."""
    return [
        Message.system("Be brief."),
        Message.user("Go."),
        Message.assistant([said("I will."), call("c1"), call("c2", "look", {"at": "sky"}), call("c3")]),
        Message.tool("c3", "put", ErrorOutput("The call was cancelled.")),
        Message.tool("c1", "put", JsonOutput({"stored": [1, None, True]})),
        Message.tool("c2", "look", ContentOutput((TextContent("the sky"), PNG, PDF, WAV))),
        Message.user("And now?"),
    ]


def repeated_ids() -> list[PromptMessage]:
    """A provider that counts its calls from zero in every step, and says nothing besides."""
    step: list[PromptMessage] = []
    for number in range(3):
        step += [
            Message.assistant([call("call_0", value={"n": number}), call("call_1")]),
            Message.tool("call_0", "put", TextOutput(f"result {number}")),
            Message.tool("call_1", "put", TextOutput("")),
        ]
    return [Message.user("Count."), *step]


def media_message() -> list[PromptMessage]:
    """A user message of everything a user can send."""
    url = MediaContent("image/jpeg", url="https://files.test/cat.jpg", detail="low")
    report = MediaContent("application/pdf", url="https://files.test/report.pdf")
    notes = MediaContent("text/plain", data=b"notes \xe2\x82\xac", filename="notes.txt")
    drawing = MediaContent("image/svg+xml", data=b"<svg/>")
    return [Message.user([TextContent("See:"), PNG, url, PDF, report, notes, WAV, drawing, TextContent(" ")])]


def stranger() -> list[PromptMessage]:
    """What other providers made: ids and names this wire does not take, thinking, hosted calls, odd arguments."""
    elsewhere = ModelToolCall("ws:1", "web_search", {"q": "x"}, {"other": {"item": 1}}, provider_executed=True)
    return [
        Message.system("One."),
        Message.system(" "),
        Message.user("Hello."),
        Message.system("Two."),
        Message.user("Still there?"),
        Message.assistant(
            [
                thought("in secret", {"other": {"signature": "s"}}),
                ToolCallPart(elsewhere),
                said("  \n"),
                call("functions.put:0", "functions.put now", "not an object"),
                call("x" * 300, value=[1]),
                SourcePart(UrlSource("s", "https://a.test")),
            ]
        ),
        Message.tool("functions.put:0", "functions.put now", ErrorOutput("")),
        Message.tool("x" * 300, "put", ContentOutput((WAV,))),
        Message.assistant([thought("no signature")]),
        Message.user("Well?"),
    ]


def sent_back(step: ModelStep, *, going_on: bool = True) -> list[PromptMessage]:
    """The prompt after a step: its calls answered, the last of them with an error."""
    calls = step.local_calls()
    answers = [
        Message.tool(made.id, made.name, ErrorOutput("failed") if made is calls[-1] else TextOutput("done"))
        for made in calls
    ]
    more = [Message.user("Go on.")] if going_on else []
    return [Message.user("Hi."), AssistantMessage(step.parts), *answers, *more]


HISTORIES = {
    "parallel calls": parallel_calls,
    "repeated ids": repeated_ids,
    "media": media_message,
    "stranger": stranger,
}
