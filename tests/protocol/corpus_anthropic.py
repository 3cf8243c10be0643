"""The Anthropic part of the corpus."""

from __future__ import annotations

from typing import Any

from maka_trio.facts import ModelStep, ModelToolCall, TextKind
from maka_trio.protocol.hosted_calls import own_options
from tests.protocol.anthropic_events import decoder
from tests.protocol.corpus import Deviation, Protocol, texts_of
from tests.protocol.decoding import Outcome

_COMPARED = frozenset(
    {"text", "reasoning", "tool_calls", "server_tool_calls", "finish_reason", "stop_sequence", "usage", "model"}
)
"""Left out: `block_types`, since blocks without meaning here are parts without text; `notes`, which are about the
oracle; the wording of an error. The arguments of calls to remote servers (`mcp_tool_use`) are left out too: the
oracle is the SDK's stable surface, which does not add up the input of blocks that it does not know."""


def _view(outcome: Outcome) -> dict[str, Any]:
    step = outcome.done
    stated = own_options(step.provider_options, "anthropic")
    usage = step.usage
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    return {
        "text": "".join(part.text for part in texts_of(outcome, TextKind.TEXT)),
        "reasoning": "".join(part.text for part in texts_of(outcome, TextKind.THINKING)),
        "tool_calls": [{"id": c.id, "name": c.name, "arguments": c.input} for c in step.local_calls()],
        "server_tool_calls": _hosted(step) or "",
        "finish_reason": stated["stop_reason"],
        "stop_sequence": stated.get("stop_sequence", ""),
        # The SDK reports cached input apart; ours is the whole prompt.
        "usage": {
            "input": None if usage.input_tokens is None else usage.input_tokens - cached,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
            "reasoning": usage.reasoning_tokens,
        },
        "model": step.model,
    }


def _hosted(step: ModelStep) -> list[dict[str, Any]]:
    """The hosted calls that this answer made itself."""
    calls = [(call, _kind(call)) for call in step.tool_calls() if call.provider_executed]
    return [
        {"id": call.id, "name": call.name, "arguments": {} if kind == "mcp_tool_use" else call.input, "type": kind}
        for call, kind in calls
        if kind
    ]


def _kind(call: ModelToolCall) -> str:
    block = own_options(call.provider_options, "anthropic").get("block")
    return str(block["type"]) if isinstance(block, dict) else ""  # the call of an earlier answer has none


ANTHROPIC = Protocol(
    folder="anthropic",
    decoder=lambda name: decoder(),
    view=_view,
    compared=_COMPARED,
    deviations={
        "015-": Deviation("a refusal fails with a class of its own", error="ModelRefused"),
        "083-": Deviation("what follows a complete message changes nothing", accepted=True),
    },
)

PROTOCOLS = [ANTHROPIC]
