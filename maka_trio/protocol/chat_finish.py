"""What the finish reason of a chat completions answer means."""

from __future__ import annotations

from maka_trio.dialect import Dialect
from maka_trio.errors import AdapterError, ModelError, ModelRefused, ProviderFailure
from maka_trio.facts.model import FinishReason
from maka_trio.protocol.payload import quoted


def meaning(reason: str, dialect: Dialect, *, replay_safe: bool) -> FinishReason:
    """What a stated reason means in a dialect.

    Raises:
        ModelRefused: the answer was filtered.
        ProviderFailure: the server says that it had trouble of its own.
        AdapterError: any other reason. The answer did not complete; the error names the reason.
    """
    name = reason.lower()
    if name in dialect.stop_reasons:
        return FinishReason.STOP
    if name in dialect.tool_reasons:
        return FinishReason.TOOL_CALLS
    if name in dialect.length_reasons:
        return FinishReason.LENGTH
    raise _incomplete(name, reason, dialect, replay_safe)


def fitting(stated: FinishReason, *, calls: bool, text: bool) -> FinishReason:
    """The reason that fits what was said: complete calls count as calls, whatever the server calls its end.

    Raises:
        AdapterError: the answer ended for calls, and holds neither calls nor text.
    """
    if stated is FinishReason.LENGTH:
        return stated
    if stated is FinishReason.TOOL_CALLS and not calls and not text:
        raise AdapterError("the answer ended for tool calls and holds none")
    return FinishReason.TOOL_CALLS if calls else FinishReason.STOP


def canonical(reason: FinishReason) -> str:
    """The vendor's own word for a reason."""
    return reason.value.replace("-", "_")


def _incomplete(name: str, reason: str, dialect: Dialect, replay_safe: bool) -> ModelError:
    text = f"the answer did not complete: finish reason {quoted(reason)}"
    if name in dialect.refused_reasons:
        return ModelRefused(text)
    if name in dialect.unavailable_reasons:
        return ProviderFailure(text, reason="provider_unavailable", replay_safe=replay_safe)
    if name == "function_call":
        return AdapterError(f"{text} is the form before tool calls, which is not supported")
    return AdapterError(text)
