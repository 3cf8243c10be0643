"""A tool never runs from an answer that said anywhere that it was cut, filtered or failed, whatever else it said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maka_trio import facts
from maka_trio.errors import AdapterError, MakaError, ModelIncomplete, ModelRefused
from maka_trio.request import ProviderKind
from tests.engine.scene import registration, scene

CHAT, COMPATIBLE = ProviderKind.OPENAI_CHAT_COMPLETIONS, ProviderKind.OPENAI_COMPATIBLE
ANTHROPIC, RESPONSES = ProviderKind.ANTHROPIC, ProviderKind.OPENAI_RESPONSES


def data(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def chat(*reasons: str, **beside: Any) -> bytes:
    """One call, then these finish reasons, the last with something beside it."""
    function = {"name": "put", "arguments": '{"n":1}'}
    delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    chunks = [{"id": "r", "choices": [{"index": 0, "delta": delta}]}]
    chunks += [{"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]} for reason in reasons]
    chunks[-1] |= beside
    return b"".join(map(data, chunks)) + b"data: [DONE]\n\n"


def message(*reasons: str, early: str | None = None) -> bytes:
    """One call, then these stop reasons."""
    start = {"id": "m", "model": "c", "stop_reason": early, "usage": {"input_tokens": 3, "output_tokens": 1}}
    block = {"type": "tool_use", "id": "c1", "name": "put", "input": {"n": 1}}
    events: list[Any] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
    ]
    events += [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}} for reason in reasons]
    return b"".join(map(data, [*events, {"type": "message_stop"}]))


def response(kind: str = "response.completed", item_status: str = "completed", **fields: Any) -> bytes:
    """One call, then this end, whose response is complete but for these fields."""
    item = {"type": "function_call", "id": "f", "call_id": "c1", "name": "put", "arguments": '{"n":1}'}
    item["status"] = item_status
    last = {"id": "r", "model": "m", "status": "completed", "output": [item], **fields}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    return data(done) + data({"type": kind, "response": last})


CUT = [
    pytest.param(CHAT, chat("length", "stop"), id="chat: length, stop"),
    pytest.param(CHAT, chat("length", "tool_calls"), id="chat: length, tool_calls"),
    pytest.param(CHAT, chat("tool_calls", "length"), id="chat: tool_calls, length"),
    pytest.param(COMPATIBLE, chat("max_tokens", "eos"), id="compatible: max_tokens, eos"),
    pytest.param(COMPATIBLE, chat("stop", "max_tokens"), id="compatible: stop, max_tokens"),
    pytest.param(ANTHROPIC, message("max_tokens", "tool_use"), id="anthropic: max_tokens, tool_use"),
    pytest.param(ANTHROPIC, message("end_turn", "max_tokens"), id="anthropic: end_turn, max_tokens"),
    pytest.param(ANTHROPIC, message("tool_use", early="max_tokens"), id="anthropic: max_tokens at the start"),
    pytest.param(
        RESPONSES,
        response("response.incomplete", incomplete_details={"reason": "max_output_tokens"}),
        id="responses: incomplete event, completed status",
    ),
    pytest.param(
        RESPONSES, response(incomplete_details={"reason": "max_output_tokens"}), id="responses: incomplete details"
    ),
    pytest.param(RESPONSES, response(item_status="incomplete"), id="responses: incomplete item"),
]

FAILED = [
    pytest.param(CHAT, chat("error", "stop"), AdapterError, id="chat: error, stop"),
    pytest.param(CHAT, chat("stop", "error"), AdapterError, id="chat: stop, error"),
    pytest.param(CHAT, chat("stop", error={"message": "no", "code": 400}), AdapterError, id="chat: error object"),
    pytest.param(CHAT, chat("content_filter", "stop"), ModelRefused, id="chat: filter, stop"),
    pytest.param(CHAT, chat("stop", "content_filter"), ModelRefused, id="chat: stop, filter"),
    pytest.param(COMPATIBLE, chat("stop", x_groq={"error": "boom"}), AdapterError, id="compatible: error beside"),
    pytest.param(COMPATIBLE, chat("safety", "tool_calls"), ModelRefused, id="compatible: safety, tool_calls"),
    pytest.param(ANTHROPIC, message("refusal", "tool_use"), ModelRefused, id="anthropic: refusal, tool_use"),
    pytest.param(ANTHROPIC, message("tool_use", "refusal"), ModelRefused, id="anthropic: tool_use, refusal"),
    pytest.param(ANTHROPIC, message("odd", "tool_use"), AdapterError, id="anthropic: odd, tool_use"),
    pytest.param(RESPONSES, response("response.failed"), AdapterError, id="responses: failed event"),
    pytest.param(RESPONSES, response("response.cancelled"), AdapterError, id="responses: cancelled event"),
    pytest.param(RESPONSES, response("response.incomplete"), AdapterError, id="responses: incomplete, no reason"),
    pytest.param(RESPONSES, response(status="cancelled"), AdapterError, id="responses: cancelled status"),
    pytest.param(RESPONSES, response(error={"code": "x", "message": "no"}), AdapterError, id="responses: error"),
    pytest.param(RESPONSES, response(item_status="failed"), AdapterError, id="responses: failed item"),
    pytest.param(
        RESPONSES,
        response(incomplete_details={"reason": "content_filter"}),
        ModelRefused,
        id="responses: filtered, completed",
    ),
]


async def run(path: Path, kind: ProviderKind, body: bytes) -> tuple[MakaError, list[Any], list[Any]]:
    """How a run ends whose only answer is this body, what the tool was given, and the facts."""
    given: list[Any] = []

    async def put(value: Any, call: Any) -> Any:
        given.append(value)
        return {}

    async with scene(path) as it:
        it.provider.raw_sse(body)
        it.provider.say("a step after the tool")
        with pytest.raises(MakaError) as caught:
            await it.engine.run(it.input(tools=[registration("put", put)], kind=kind))
        return caught.value, given, await it.facts()


@pytest.mark.parametrize(("kind", "body"), CUT)
async def test_a_cut_answer_stays_cut(tmp_path: Path, kind: ProviderKind, body: bytes) -> None:
    """Its step and the refusal of its call are one commit, and the run ends as one that reached the output limit."""
    error, given, seen = await run(tmp_path, kind, body)
    assert type(error) is ModelIncomplete
    assert not given
    assert [fact.kind for fact in seen] == [
        "invocation_opened",
        "model_requested",
        "model_completed",
        "tool_rejected",
        "invocation_ended",
    ]
    assert seen[2].output.finish_reason is facts.FinishReason.LENGTH
    assert seen[3].reason.kind == "preparation_failed"


@pytest.mark.parametrize(("kind", "body", "expected"), FAILED)
async def test_a_failed_answer_stays_failed(
    tmp_path: Path, kind: ProviderKind, body: bytes, expected: type[MakaError]
) -> None:
    """It makes no step, so there is no call of it to run or to refuse."""
    error, given, seen = await run(tmp_path, kind, body)
    assert type(error) is expected
    assert not given
    assert [fact.kind for fact in seen] == [
        "invocation_opened",
        "model_requested",
        "model_interrupted",
        "invocation_ended",
    ]


COMPLETE = [
    pytest.param(CHAT, chat("tool_calls", "stop"), id="chat"),
    pytest.param(COMPATIBLE, chat("stop", "eos"), id="compatible"),
    pytest.param(ANTHROPIC, message("tool_use", "end_turn"), id="anthropic"),
    pytest.param(RESPONSES, response("response.done", item_status="in_progress"), id="responses"),
]


@pytest.mark.parametrize(("kind", "body"), COMPLETE)
async def test_good_words_of_any_kind_run_the_tool(tmp_path: Path, kind: ProviderKind, body: bytes) -> None:
    """The same bodies without a bad word, so that the others refuse for what they say."""
    given: list[Any] = []

    async def put(value: Any, call: Any) -> Any:
        given.append(value)
        return {}

    async with scene(tmp_path) as it:
        it.provider.raw_sse(body)
        it.provider.say("done")
        await it.engine.run(it.input(tools=[registration("put", put)], kind=kind))
    assert given == [{"n": 1}]
