"""The chat completions parts of the corpus."""

from __future__ import annotations

from typing import Any

from maka_trio.facts import TextKind
from maka_trio.protocol.adapter import Decoder
from tests.protocol.chat_wire import decoder
from tests.protocol.corpus import Deviation, Protocol, reason_of, texts_of
from tests.protocol.decoding import Outcome

_COMPARED = frozenset({"text", "reasoning", "refusal", "tool_calls", "finish_reason", "usage", "model"})
"""Left out: `other_choices`, since a step is one answer; `usage_source` and `notes`, which are about the oracle; the
wording of an error."""


def _view(key: str) -> Any:
    def view(outcome: Outcome) -> dict[str, Any]:
        step = outcome.done
        said = texts_of(outcome, TextKind.TEXT)
        usage = step.usage
        return {
            "text": "".join(part.text for part in said if not part.provider_options),
            "reasoning": "".join(part.text for part in texts_of(outcome, TextKind.THINKING)),
            "refusal": "".join(part.text for part in said if part.provider_options),
            "tool_calls": [{"id": c.id, "name": c.name, "arguments": c.input} for c in step.tool_calls()],
            "finish_reason": reason_of(outcome, key),
            "usage": {
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "cache_read": usage.cache_read_tokens,
                "reasoning": usage.reasoning_tokens,
            },
            "model": step.model,
        }

    return view


def _compatible(name: str) -> Decoder:
    """Every recording is decoded as a generic server's: no name of a vendor is needed to read its answer."""
    return decoder("generic")


OPENAI_CHAT = Protocol(
    folder="openai_chat",
    decoder=lambda name: decoder(),
    view=_view("openai"),
    compared=_COMPARED,
    deviations={
        "016-": Deviation("arguments that the output limit cut short void the answer", error="AdapterError"),
    },
)

OPENAI_COMPATIBLE = Protocol(
    folder="openai_compatible",
    decoder=_compatible,
    view=_view("generic"),
    compared=_COMPARED,
    deviations={
        "023-": Deviation(
            "empty arguments are an empty object",
            {
                "tool_calls": [
                    {"id": "toolu_bdrk_01Ngtosq8eCQHW1UGyB3vF8n", "name": "get_current_date2", "arguments": {}}
                ]
            },
        ),
        "031-": Deviation(
            "a call without an id is given one made from its position",
            {"tool_calls": [{"id": "call_0", "name": "return_bool", "arguments": {"value": True}}]},
        ),
        "099-": Deviation("an end marker without a finish reason needs text", error="ProviderFailure"),
        "108-": Deviation("an end marker after text is a natural end", {"finish_reason": "stop"}),
    },
)

PROTOCOLS = [OPENAI_CHAT, OPENAI_COMPATIBLE]
