"""What single facts are told as: a user's message, an outcome, a notice. Of order and pairing nothing is known here."""

from __future__ import annotations

from collections.abc import Sequence

from maka_trio.facts.message import ContentPart, ErrorOutput, MediaContent, TextContent, ToolOutput
from maka_trio.facts.opening import MessageInput
from maka_trio.facts.outcome import EffectFailed, EffectUnknown, Succeeded, ToolOutcome
from maka_trio.records import frozen

OUTCOME_UNKNOWN_TEXT = (
    "outcome_unknown: the call was started and then lost; its effect may or may not have happened. "
    "Check the current state before doing it again."
)
"""What the model is told of a call whose effect nobody can confirm."""

NOTICE_OPERATIONS = 64
"""Unknown operations that the notice lists by name; more are counted."""


@frozen
class UnknownOperation:
    """An effect that an earlier run left without a settlement."""

    operation_id: str
    name: str


def outcome_output(outcome: ToolOutcome) -> ToolOutput:
    """What the model reads of a settled call."""
    match outcome:
        case Succeeded(model_projection=projection):
            return projection
        case EffectFailed(message=message) | EffectUnknown(message=message):
            return ErrorOutput(message)


def submitted(content: MessageInput) -> tuple[ContentPart, ...]:
    """A user's message, with what it quotes before it."""
    parts = content.parts or (TextContent(content.text),)
    if not content.quotes:
        return parts
    quoted = "\n\n".join(
        "\n".join(f"> {line}" for line in quote.text.splitlines()) + (f"\n({quote.label})" if quote.label else "")
        for quote in content.quotes
    )
    return (TextContent(quoted), *parts)


def steered(message: MessageInput) -> tuple[ContentPart, ...]:
    """An envelope, so that what the user adds in the middle of a turn is not mistaken for a tool's output."""
    envelope = f"The user adds the following to the running turn.\n<user_query>\n{message.text}\n</user_query>"
    return (TextContent(envelope), *(part for part in message.parts if isinstance(part, MediaContent)))


def unknown_notice(unknown: Sequence[UnknownOperation]) -> str:
    """What the system prompt adds where an earlier run left effects unconfirmed."""
    lines = [f"- {operation.name} ({operation.operation_id})" for operation in unknown[:NOTICE_OPERATIONS]]
    if len(unknown) > NOTICE_OPERATIONS:
        lines.append(f"- and {len(unknown) - NOTICE_OPERATIONS} more")
    return (
        "An earlier run of this session was interrupted while these tool calls were in progress. Their effects are "
        "possible but unconfirmed. Check the current state before you repeat any of them:\n" + "\n".join(lines)
    )
