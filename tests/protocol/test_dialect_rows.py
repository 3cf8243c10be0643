"""Each known server of the table: what it is asked, and which reasoning it is sent back, one row each."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest

from maka_trio.facts.message import Message
from maka_trio.protocol.dialects import DIALECTS, GENERIC, OPENAI
from maka_trio.protocol.registry import adapter_for
from maka_trio.request import ModelRequest
from tests.protocol.chat_wire import DONE, STOP, TOOL_CALLS, call, calls, chunk, provider, quickly
from tests.protocol.wire_histories import call as called
from tests.protocol.wire_histories import said, thought

DETAIL = {"type": "reasoning.text", "text": "new", "signature": "sealed"}
TEXT_PART = {"type": "text", "text": "I will."}


@attrs.frozen
class Row:
    """What a server is to find in a conversation of two turns, of which the second is in its tool loop.

    Args:
        old: what the finished turn carries besides its text.
        new: what the turn carries whose call was just answered.
        usage_asked: the request asks for usage in the stream.
        nine: call ids are nine letters and digits.
        content: the content of the new turn, where it is not its plain text.
    """

    old: dict[str, Any] = attrs.field(factory=dict)
    new: dict[str, Any] = attrs.field(factory=dict)
    usage_asked: bool = True
    nine: bool = False
    content: Any = "I will."


NOTHING = Row()
ALWAYS = Row({"reasoning_content": "old"}, {"reasoning_content": "new"})
IN_THE_LOOP = Row({}, {"reasoning_content": "new"})
SHORT_KEY = Row({"reasoning": "old"}, {"reasoning": "new"})

ROWS: dict[str, Row] = {
    "alibaba": IN_THE_LOOP,
    "azure": NOTHING,
    "cerebras": SHORT_KEY,
    "dashscope": IN_THE_LOOP,
    "databricks": NOTHING,
    "deepseek": IN_THE_LOOP,
    "gemini": NOTHING,
    "github-copilot": NOTHING,
    "google": NOTHING,
    "groq": SHORT_KEY,
    "huggingface": NOTHING,
    "kimi": ALWAYS,
    "mistral": Row(
        usage_asked=False,
        nine=True,
        content=[{"type": "thinking", "thinking": [{"type": "text", "text": "new"}]}, TEXT_PART],
    ),
    "moonshot": ALWAYS,
    "moonshotai": ALWAYS,
    "ollama": SHORT_KEY,
    "openrouter": Row({"reasoning": "old"}, {"reasoning_details": [DETAIL]}),
    "perplexity": NOTHING,
    "qwen": IN_THE_LOOP,
    "together": NOTHING,
    "vllm": SHORT_KEY,
    "xai": NOTHING,
    # a server of no known name, and the vendor
    "my-server": ALWAYS,
    "": NOTHING,
}
EVERY_ROW = pytest.mark.parametrize("name", sorted(ROWS))


def asked(name: str) -> dict[str, Any]:
    """The body of a request whose conversation has a finished turn, and one in the tool loop."""
    kept = {name: {"reasoning_details": [DETAIL]}} if name else None
    prompt = [
        Message.user("First."),
        Message.assistant([thought("old"), said("Done.")]),
        Message.user("Second."),
        Message.assistant([thought("new", kept), said("I will."), called("call-1")]),
        Message.tool("call-1", "put", "stored"),
    ]
    config = provider(name or None)
    encoded: dict[str, Any] = json.loads(adapter_for(config).encode(ModelRequest(config, prompt)).body)
    return encoded


def test_every_server_of_the_table_has_its_row() -> None:
    """One that joins the table says here what it stands for."""
    assert set(ROWS) - {"my-server", ""} == set(DIALECTS)


@EVERY_ROW
def test_reasoning_goes_back_as_the_server_wants_it(name: str) -> None:
    """Under its key, in the turns that it takes it in, and nowhere else."""
    row = ROWS[name]
    _, old, _, new, _ = asked(name)["messages"]
    call_ = new.pop("tool_calls")
    assert len(call_) == 1
    if name == "mistral":
        assert old["content"] == [
            {"type": "thinking", "thinking": [{"type": "text", "text": "old"}]},
            {"type": "text", "text": "Done."},
        ]
    else:
        assert old == {"role": "assistant", "content": "Done.", **row.old}
    assert new == {"role": "assistant", "content": row.content, **row.new}


@EVERY_ROW
def test_usage_is_asked_for_where_the_server_takes_the_question(name: str) -> None:
    """And stated usage is read either way."""
    sent = asked(name)
    assert ("stream_options" in sent) == ROWS[name].usage_asked
    body = (chunk({"content": "A"}), chunk({}, "stop", usage={"prompt_tokens": 4, "completion_tokens": 3}), DONE)
    assert quickly(*body, name=name or None).done.usage.output_tokens == 3


@EVERY_ROW
def test_call_ids_have_the_form_the_server_insists_on(name: str) -> None:
    """The answer names the same id as the call."""
    messages = asked(name)["messages"]
    (sent,) = messages[3]["tool_calls"]
    assert messages[4]["tool_call_id"] == sent["id"]
    assert bool(re.fullmatch(r"[A-Za-z0-9]{9}", sent["id"])) == ROWS[name].nine
    assert ROWS[name].nine or sent["id"] == "call-1"


@EVERY_ROW
def test_what_compatible_servers_get_away_with_the_vendor_does_not(name: str) -> None:
    """Comments as payloads, calls without ids, an end without a reason, synonyms of a natural end."""
    server = name or None
    lenient = server is not None
    commented = quickly(b"data: : WORKING\n\n", chunk({"content": "A"}), STOP, DONE, name=server)
    unnamed = quickly(calls(call(0, "", "f", "{}")), TOOL_CALLS, DONE, name=server)
    unstated = quickly(chunk({"content": "A"}), DONE, name=server)
    synonym = quickly(chunk({"content": "A"}), chunk({}, "end_turn"), DONE, name=server)
    for outcome in (commented, unnamed, unstated, synonym):
        assert (outcome.error is None) == lenient


@EVERY_ROW
@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_is_read_under_every_name_it_has(name: str, key: str) -> None:
    """Whichever the server takes back, it is thinking when it comes and never text."""
    step = quickly(chunk({key: "hm"}), chunk({"content": "A"}), STOP, DONE, name=name or None).done
    assert step.text() == "A"
    assert [getattr(part, "text", None) for part in step.parts] == ["hm", "A"]


def test_the_two_that_have_no_name() -> None:
    """The vendor and the unknown server are rows like the others."""
    assert OPENAI.reasoning_key is None
    assert GENERIC.reasoning_replay == "always"
