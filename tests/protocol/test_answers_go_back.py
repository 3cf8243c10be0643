"""Every recorded answer can be sent back: the next request of its conversation is one the provider accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maka_trio.facts.model import ModelStep
from maka_trio.protocol.hosted_calls import own_options
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.protocol.pauses import is_paused
from tests.protocol import corpus_chat
from tests.protocol.recordings import FOLDERS, body_after, recordings, step_of

STORED = ResponsesOptions(store=True).provider_options()
PLAIN = ResponsesOptions(replay_reasoning="text").provider_options()

ALL = [stream for folder in FOLDERS for stream in recordings(folder)]

__test__ = bool(ALL)  # collected only where the corpus lies


@pytest.mark.parametrize("stream", ALL)
def test_a_recorded_answer_goes_back(stream: Path) -> None:
    """Its calls answered, with and without another word of the user."""
    variants = [{}, STORED, PLAIN] if stream.parent.name == "openai_responses" else [{}]
    for options in variants:
        step = step_of(stream, options)
        if step is not None:
            body_after(stream, step, options, going_on=True)
            if step.local_calls():
                body_after(stream, step, options, going_on=False)


@pytest.mark.parametrize("stream", recordings("anthropic"))
def test_anthropic_blocks_go_back_as_they_came(stream: Path) -> None:
    """Signatures, citations, search results and all.

    A direct caller goes without saying, and a text of white space alone would be refused: both stay out.
    """
    step = step_of(stream, {})
    if step is None:
        return
    sent = body_after(stream, step, {}, going_on=not _unfinished(step))["messages"][1]["content"]
    assert sent == [_expected(block) for block in _blocks(stream) if _goes_back(block, step)]


@pytest.mark.parametrize("stream", recordings("openai_responses"))
def test_stored_responses_items_go_back_as_they_came(stream: Path) -> None:
    """Reasoning and the vendor's own items whole; messages and calls with all that says what they are."""
    step = step_of(stream, STORED)
    if step is None or step.finish_reason == "length":
        return
    sent = body_after(stream, step, STORED, going_on=not _unfinished(step))["input"]
    recorded = [_identity(item) for item in _items(stream) if _says_something(item)]
    assert [_identity(item) for item in sent[1 : len(recorded) + 1]] == recorded


# --- what the recordings hold -----------------------------------------------------------------------------------


def _events(stream: Path) -> list[dict[str, Any]]:
    lines = stream.read_text(encoding="utf-8").splitlines()
    payloads = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    return [json.loads(payload) for payload in payloads if payload.startswith("{")]


def _blocks(stream: Path) -> list[dict[str, Any]]:
    """The content blocks of a recording, put together from its deltas."""
    blocks: dict[int, dict[str, Any]] = {}
    written: dict[int, str] = {}
    for event in _events(stream):
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                blocks[index] = block
            case {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}:
                block = blocks[index]
                if kind == "input_json_delta":
                    written[index] = written.get(index, "") + delta["partial_json"]
                elif kind == "citations_delta":
                    block["citations"] = [*(block.get("citations") or []), delta["citation"]]
                elif kind in ("text_delta", "thinking_delta"):
                    field = kind.removesuffix("_delta")
                    block[field] += delta[field]
                else:
                    block |= delta
    for index, arguments in written.items():
        blocks[index]["input"] = json.loads(arguments or "{}")
    return [blocks[index] for index in sorted(blocks)]


def _expected(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use" and block.get("caller", {}).get("type") == "direct":
        return {name: value for name, value in block.items() if name != "caller"}
    if block["type"] == "text" and not block.get("citations"):
        return {"type": "text", "text": block["text"]}
    return block


def _goes_back(block: dict[str, Any], step: ModelStep) -> bool:
    """A result of an earlier answer stays out here, where the prompt does not hold that answer."""
    if block["type"] == "text" and not block["text"].strip():
        return False
    continued = {c.id for c in step.tool_calls() if own_options(c.provider_options, "anthropic").get("continued")}
    return block.get("tool_use_id") not in continued


def _unfinished(step: ModelStep) -> bool:
    """Whether the next word is ours: a call to be answered, or a turn to be continued."""
    return bool(step.local_calls()) or is_paused(step)


def _items(stream: Path) -> list[dict[str, Any]]:
    done = [event for event in _events(stream) if event["type"] == "response.output_item.done"]
    return [event["item"] for event in sorted(done, key=lambda event: event["output_index"])]


def _says_something(item: dict[str, Any]) -> bool:
    """An empty message is not sent back; the output of an earlier program has lost its call here."""
    contents = [content.get("text") or content.get("refusal") for content in item.get("content", [])]
    return item["type"] != "program_output" and (item["type"] != "message" or any(contents))


def _identity(item: dict[str, Any]) -> dict[str, Any]:
    """What of an item says what it is."""
    match item.get("type", "message"):
        case "message":
            content = item["content"]
            texts = [content] if isinstance(content, str) else [c.get("text", c.get("refusal")) for c in content]
            return {"texts": texts, "phase": item.get("phase")}
        case "function_call":
            arguments = json.loads(item["arguments"] or "{}")
            return {"name": item["name"], "call_id": item["call_id"], "arguments": arguments}
        case "custom_tool_call":  # its tool is not declared here, so it goes back as a function call
            return {"name": item["name"], "call_id": item["call_id"], "arguments": item["input"]}
        case "reasoning":
            return {"summary": item["summary"], "encrypted_content": item.get("encrypted_content")}
        case _:
            return item


def test_the_compatible_recordings_are_those_of_the_corpus() -> None:
    """The generic dialect is the one that the corpus is decoded with."""
    assert corpus_chat.OPENAI_COMPATIBLE.folder in FOLDERS
