"""Servers that speak chat completions, as data: what each does its own way.

An entry stands for something that its server insists on or refuses. A server that is not listed is spoken to as
`GENERIC`; a user who knows better gives `ProviderConfig(dialect=...)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from maka_trio.dialect import Dialect
from maka_trio.request import ProviderConfig, ProviderKind

OPENAI: Final = Dialect(
    reasoning_key=None,
    finish="required",
    generated_ids=False,
    comment_payloads=False,
    whole_messages=False,
    stop_reasons=["stop"],
    tool_reasons=["tool_calls"],
    length_reasons=["length", "model_context_window_exceeded"],
    refused_reasons=["content_filter"],
    unavailable_reasons=[],
)
"""The vendor itself. It takes no reasoning back and refuses keys it does not know."""

GENERIC: Final = Dialect()
"""A compatible server of no known name."""

_PLAIN: Final = Dialect(reasoning_replay="never")

DIALECTS: Final[Mapping[str, Dialect]] = {
    # Refuses an unknown key in a message, and takes `reasoning`.
    "groq": Dialect(reasoning_key="reasoning"),
    "cerebras": Dialect(reasoning_key="reasoning"),
    "ollama": Dialect(reasoning_key="reasoning"),
    "vllm": Dialect(reasoning_key="reasoning"),
    # Wants the reasoning of the calls it is still answering, and ignores or refuses that of earlier turns.
    "deepseek": Dialect(reasoning_replay="tool_loop"),
    "alibaba": Dialect(reasoning_replay="tool_loop"),
    "dashscope": Dialect(reasoning_replay="tool_loop"),
    "qwen": Dialect(reasoning_replay="tool_loop"),
    # Refuses a call in any turn whose reasoning did not come back.
    "moonshot": GENERIC,
    "moonshotai": GENERIC,
    "kimi": GENERIC,
    # Signed or encrypted reasoning of the models behind it, as structured as it came.
    "openrouter": Dialect(reasoning_key="reasoning_details"),
    # Thinking is a part of the content; ids must be nine letters and digits; states usage unasked.
    "mistral": Dialect(reasoning_key="content", stream_usage=False, nine_character_ids=True),
    # Take no reasoning back.
    "azure": _PLAIN,
    "databricks": _PLAIN,
    "gemini": _PLAIN,
    "github-copilot": _PLAIN,
    "google": _PLAIN,
    "huggingface": _PLAIN,
    "perplexity": _PLAIN,
    "together": _PLAIN,
    "xai": _PLAIN,
}
"""By `ProviderConfig.name`, lower case."""


def dialect_of(provider: ProviderConfig) -> Dialect:
    """The dialect a chat provider is spoken to in: its own if it is given one, else that of its name."""
    if provider.kind is ProviderKind.OPENAI_CHAT_COMPLETIONS:
        return OPENAI
    if provider.dialect is not None:
        return provider.dialect
    return DIALECTS.get((provider.name or "").lower(), GENERIC)
