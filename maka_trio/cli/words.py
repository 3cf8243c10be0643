"""Facts in words: one line for a person of what each says. Knows nothing of screens or of other facts.

The words are bounded; what came from a model, a provider or a tool is escaped and quoted.
"""

from __future__ import annotations

import json
from typing import TypeAlias

from maka_trio.cli.escape import clip, one_line
from maka_trio.cli.screen import Look
from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import (
    BodyDeleted,
    ContextCheckpointRecorded,
    ExecutorCompleted,
    ExecutorObserved,
    ExecutorStarted,
    Fact,
    InvocationEnded,
    InvocationOpened,
    MessageImported,
    MessageSteered,
    ModelCompleted,
    ModelInterrupted,
    ModelObserved,
    ModelRequested,
    ToolDispatched,
    ToolNotified,
    ToolRejected,
    ToolResultArchived,
    ToolSettled,
)
from maka_trio.facts.json_value import JSON
from maka_trio.facts.message import ContentOutput, ErrorOutput, JsonOutput, TextContent, TextOutput, ToolOutput
from maka_trio.facts.model import (
    DocumentSource,
    Finished,
    ModelEvent,
    ModelToolCall,
    ModelUsage,
    PartDelta,
    PartFinished,
    PartStarted,
    ProviderToolResult,
    ResponseMetadata,
    Source,
    SourceCited,
    ToolCallReady,
)
from maka_trio.facts.opening import CodeOpening, ContinuationOpening, MessageOpening, RequestSurface
from maka_trio.facts.outcome import (
    Cancelled,
    Compacted,
    CompactionOutcome,
    Completed,
    ContextCompactFinished,
    EffectFailed,
    EffectUnknown,
    Failed,
    HandoffPaused,
    InterruptionStatus,
    InvocationOutcome,
    Succeeded,
    ToolOutcome,
)
from maka_trio.records import frozen

EXCERPT = 400
"""Columns of foreign text in one line, whatever the width of the terminal."""


@frozen
class Words:
    """One line: a mark, and the text beside it, both in one look."""

    mark: str
    text: str
    look: Look = Look.PLAIN


def excerpt(text: str) -> str:
    """Foreign text, escaped, on one line and bounded."""
    return clip(one_line(text[: EXCERPT + 1]), EXCERPT)


def quoted(text: str) -> str:
    """Foreign text as a quotation."""
    return f'"{excerpt(text)}"'


def json_excerpt(value: JSON) -> str:
    """A JSON value as people write it, escaped and bounded."""
    return excerpt(json.dumps(value, ensure_ascii=False))


def short(identity: str) -> str:
    """Enough of an id to tell it from others by eye."""
    return excerpt(identity[:8])


# --- facts --------------------------------------------------------------------------------------------------


def describe(fact: Fact, tool: str | None = None) -> Words:
    """A fact in words.

    Args:
        fact: the fact.
        tool: the name of the tool that a settlement belongs to; the fact itself names only the operation.
    """
    match fact:
        case InvocationOpened():
            return _opened(fact)
        case InvocationEnded():
            return ended(fact.outcome)
        case ModelRequested() | ModelCompleted() | ModelInterrupted():
            return _request(fact)
        case ModelObserved():
            return observed(fact.event)
        case ToolDispatched() | ToolSettled() | ToolRejected() | ToolNotified():
            return _tool(fact, tool)
        case _:
            return _other(fact)


def _opened(fact: InvocationOpened) -> Words:
    match fact.input:
        case MessageOpening() as opening:
            return Words("●", f"asked {quoted(opening.content.text)}{_offered(opening.surface)}", Look.USER)
        case ContinuationOpening() as opening:
            source = opening.claim.source
            goes_on = f"goes on from run {short(source.invocation.run_id)}, which ended at {source.high_water}"
            return Words("●", f"{goes_on}{_offered(opening.surface)}", Look.USER)
        case CodeOpening() as opening:
            return Words("●", f"program {quoted(opening.source)}", Look.USER)
        case other:
            return Words("●", f"opened by {other.kind}", Look.USER)


def _offered(surface: RequestSurface | None) -> str:
    tools = [definition.name for definition in surface.tools] if surface else []
    more = ", …" if len(tools) > 8 else ""
    return f"  (tools: {', '.join(map(excerpt, tools[:8]))}{more})" if tools else ""


def ended(outcome: InvocationOutcome) -> Words:
    """How a run ended."""
    match outcome:
        case Completed():
            return Words("●", "ended: completed", Look.GOOD)
        case Cancelled(source=source):
            return Words("●", f"ended: cancelled ({excerpt(source)})", Look.WARN)
        case Failed(failure_class=failure_class, message=message):
            because = f": {excerpt(message)}" if message else ""
            return Words("●", f"ended: failed, {failure_class.value}{because}", Look.BAD)
        case ContextCompactFinished(outcome=inner):
            return Words("●", f"ended: compaction {_compaction(inner)}", Look.GOOD)
        case HandoffPaused():
            return Words("●", "ended: paused for a successor", Look.WARN)


def _compaction(outcome: CompactionOutcome) -> str:
    return outcome.kind if isinstance(outcome, Compacted) else f"{outcome.kind}: {excerpt(outcome.reason)}"


_Request: TypeAlias = ModelRequested | ModelCompleted | ModelInterrupted


def _request(fact: _Request) -> Words:
    match fact:
        case ModelRequested():
            purpose = " for a summary" if fact.purpose is StepPurpose.SUMMARY else ""
            return Words("→", f"asks model {excerpt(fact.model_id)}{purpose}", Look.STRONG)
        case ModelCompleted(output=output):
            return Words("✓", f"step accepted: {finish(output.finish_reason.value, output.usage)}", Look.GOOD)
        case ModelInterrupted(status=status, diagnostic=diagnostic):
            look = Look.WARN if status is InterruptionStatus.CANCELLED else Look.BAD
            because = f": {excerpt(diagnostic)}" if diagnostic else ""
            return Words("✗", f"request interrupted: {status.value.replace('_', ' ')}{because}", look)


_Tool: TypeAlias = ToolDispatched | ToolSettled | ToolRejected | ToolNotified


def _tool(fact: _Tool, tool: str | None) -> Words:
    name = excerpt(tool) if tool is not None else f"operation {short(fact.operation_id)}"
    match fact:
        case ToolDispatched():
            return Words("▸", f"{excerpt(fact.name)} dispatched {json_excerpt(fact.input)}", Look.TOOL)
        case ToolRejected():
            reason = excerpt(str(fact.reason).removeprefix("tool call rejected: "))
            return Words("✗", f"{excerpt(fact.name)} rejected {json_excerpt(fact.input)}: {reason}", Look.WARN)
        case ToolNotified():
            return Words("·", f"{name} says {quoted(fact.text)}")
        case ToolSettled(outcome=outcome):
            return settled(name, outcome)


def settled(name: str, outcome: ToolOutcome) -> Words:
    """What became of an effect; `name` is shown as it is."""
    match outcome:
        case Succeeded(model_projection=projection):
            return Words("✓", f"{name} settled: {tool_output(projection)}", Look.GOOD)
        case EffectFailed(message=message):
            return Words("✗", f"{name} settled: failed: {excerpt(message)}", Look.BAD)
        case EffectUnknown(message=message):
            return Words("?", f"{name} settled: outcome unknown: {excerpt(message)}", Look.BAD)


def tool_output(output: ToolOutput) -> str:
    """What the model is shown of a result."""
    match output:
        case TextOutput(text=text):
            return quoted(text)
        case JsonOutput(value=value):
            return json_excerpt(value)
        case ErrorOutput(text=text):
            return f"error {quoted(text)}"
        case ContentOutput(parts=parts):
            shown = [quoted(p.text) if isinstance(p, TextContent) else f"[{excerpt(p.media_type)}]" for p in parts]
            return clip(" ".join(shown), EXCERPT)


def _other(fact: Fact) -> Words:
    match fact:
        case MessageSteered(message=message):
            return Words("●", f"user adds {quoted(message.text)}", Look.USER)
        case ContextCheckpointRecorded(checkpoint=checkpoint):
            return Words("✓", f"summary adopted: stands for all up to {checkpoint.covered_through}", Look.GOOD)
        case ToolResultArchived(placeholder=placeholder):
            return Words(
                "·", f"result of {excerpt(placeholder.tool_name)} archived: {placeholder.original_bytes} bytes"
            )
        case ExecutorStarted():
            return Words("→", "a foreign agent takes the turn", Look.STRONG)
        case ExecutorObserved(output=output):
            return Words("·", f"foreign agent: {json_excerpt(output)}", Look.MODEL)
        case ExecutorCompleted(text=text):
            return Words("✓", f"foreign agent answers {quoted(text)}", Look.MODEL)
        case MessageImported(source=source):
            return Words("·", f"message imported from {excerpt(source)}")
        case BodyDeleted():
            return _deleted(fact)
        case _:
            return Words("·", fact.kind)


def _deleted(fact: BodyDeleted) -> Words:
    what = " ".join(excerpt(one) for one in (fact.name, fact.model_id, fact.outcome) if one is not None)
    cost = usage_texts(fact.usage) if fact.usage is not None else []
    left = ", ".join([what, *cost] if what else cost)
    return Words("·", f"deleted: {fact.of_kind}{f' ({left})' if left else ''}, {fact.size} bytes", Look.FAINT)


# --- model events -------------------------------------------------------------------------------------------


def observed(event: ModelEvent) -> Words:
    """A stream event in words."""
    match event:
        case PartStarted(text_kind=kind):
            return Words("·", f"begins {kind.value}", Look.FAINT)
        case PartDelta(text=text):
            return Words("·", f"says {quoted(text)}", Look.MODEL)
        case PartFinished():
            return Words("·", "ends its part", Look.FAINT)
        case ToolCallReady(call=call):
            return Words("·", f"calls {call_text(call)}", Look.MODEL)
        case ProviderToolResult():
            failed = "error " if event.is_error else ""
            return Words("·", f"provider's {excerpt(event.name)} gave {failed}{json_excerpt(event.output)}", Look.MODEL)
        case SourceCited(source=source):
            return Words("·", f"cites {source_text(source)}", Look.MODEL)
        case ResponseMetadata():
            named = [excerpt(value) for value in (event.model, event.id) if value is not None]
            return Words("·", f"answers as {', '.join(named) or 'nobody in particular'}", Look.FAINT)
        case Finished():
            return Words("·", f"finishes: {finish(event.reason.value, event.usage)}", Look.FAINT)


def call_text(call: ModelToolCall) -> str:
    """A tool call, as a model wrote it."""
    where = " (at the provider)" if call.provider_executed else ""
    return f"{excerpt(call.name)} {json_excerpt(call.input)}{where}"


def source_text(source: Source) -> str:
    """A citation."""
    if isinstance(source, DocumentSource):
        return excerpt(source.title)
    return f"{excerpt(source.url)}{f' ({excerpt(source.title)})' if source.title else ''}"


def finish(reason: str, usage: ModelUsage) -> str:
    """Why an answer ended, and the tokens it is known to have cost."""
    return ", ".join([reason, *usage_texts(usage)])


def usage_texts(usage: ModelUsage) -> list[str]:
    """The counts that the provider stated."""
    counts = (
        (usage.input_tokens, "tokens in"),
        (usage.output_tokens, "out"),
        (usage.cache_read_tokens, "from cache"),
        (usage.cache_write_tokens, "to cache"),
        (usage.reasoning_tokens, "for reasoning"),
    )
    return [f"{count} {what}" for count, what in counts if count is not None]
