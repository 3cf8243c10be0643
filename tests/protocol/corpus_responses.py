"""The OpenAI Responses part of the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from maka_trio.facts import ModelStep, TextKind, TextPart, ToolCallPart, ToolResultPart
from maka_trio.protocol.hosted_calls import own_options
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from tests.protocol.corpus import Protocol, texts_of
from tests.protocol.decoding import Outcome
from tests.protocol.responses_events import decoder

_COMPARED = frozenset(
    {
        "text",
        "refusal",
        "tool_calls",
        "server_tool_calls",
        "finish_reason",
        "incomplete_reason",
        "usage",
        "model",
    }
)
"""Left out: `item_types`, since several items may be one part and the other way round; `notes`, which are about the
oracle; the wording of an error. What the vendor leaves to the user's side (a local shell, an approval) is a call
of ours and an item without meaning to the oracle: the views are compared by the items behind them.

Summaries and plain reasoning are both thinking, and only what may go back notes which it was, so they are compared
where everything is noted."""


def _view(outcome: Outcome) -> dict[str, Any]:
    step = outcome.done
    stated = own_options(step.provider_options, "openai")
    said = texts_of(outcome, TextKind.TEXT)
    functions = [call for call in step.local_calls() if not _item(call.provider_options)]
    return {
        "text": "".join(part.text for part in said if not _is_refusal(part)),
        "reasoning": _thought(outcome, "summary"),
        "reasoning_text": _thought(outcome, "content"),
        "refusal": "".join(part.text for part in said if _is_refusal(part)),
        "tool_calls": [{"id": c.id, "name": c.name, "arguments": c.input} for c in functions],
        "server_tool_calls": [
            {"id": item["id"], "type": item["type"], "name": item.get("name")} for item in _items(step)
        ]
        or "",
        "finish_reason": stated["status"],
        "incomplete_reason": stated.get("incomplete_reason", ""),
        "usage": {
            "input": step.usage.input_tokens,
            "output": step.usage.output_tokens,
            "cache_read": step.usage.cache_read_tokens,
            "reasoning": step.usage.reasoning_tokens,
        },
        "model": step.model,
    }


def _thought(outcome: Outcome, carrier: str) -> str:
    parts = texts_of(outcome, TextKind.THINKING)
    return "".join(
        part.text for part in parts if own_options(part.provider_options, "openai").get("carrier") == carrier
    )


def _item(options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    item = own_options(options, "openai").get("item")
    return item if isinstance(item, Mapping) else None


def _is_refusal(part: TextPart) -> bool:
    return bool(own_options(part.provider_options, "openai").get("refusal"))


def _items(step: ModelStep) -> Iterator[Mapping[str, Any]]:
    """The items of the vendor's own kinds, in the order they came."""
    for part in step.parts:
        if isinstance(part, ToolResultPart):
            if own_options(part.provider_options, "openai").get("is_item") and isinstance(part.output, Mapping):
                yield part.output
        elif isinstance(part, (TextPart, ToolCallPart)):
            options = part.call.provider_options if isinstance(part, ToolCallPart) else part.provider_options
            item = _item(options)
            if item is not None:
                yield item


OPENAI_RESPONSES = Protocol(
    folder="openai_responses",
    decoder=lambda name: decoder(),
    view=_view,
    compared=_COMPARED,
)

OPENAI_RESPONSES_REPLAYED = Protocol(
    folder="openai_responses",
    decoder=lambda name: decoder(ResponsesOptions(store=True, replay_reasoning="text")),
    view=_view,
    compared=_COMPARED | {"reasoning", "reasoning_text"},
)
"""The same with everything noted that can be: notes change nothing of what is said."""

PROTOCOLS = [OPENAI_RESPONSES, OPENAI_RESPONSES_REPLAYED]
