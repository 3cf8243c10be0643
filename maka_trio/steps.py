"""`StepBuilder`: stream events in, one validated `ModelStep` out (semantics 4.4).

The builder trusts no adapter. Any violation poisons it for good: a stream that broke a rule once has no step.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from maka_trio import limits
from maka_trio.errors import AdapterError, InvalidInput
from maka_trio.facts.bounds import check_identity, excerpt, utf8_size
from maka_trio.facts.codec import canonical
from maka_trio.facts.identity import provider_operation_id
from maka_trio.facts.json_value import JsonObject, merge_options
from maka_trio.facts.model import (
    Finished,
    ModelEvent,
    ModelPart,
    ModelStep,
    ModelToolCall,
    PartDelta,
    PartFinished,
    PartStarted,
    ProviderToolResult,
    ResponseMetadata,
    SourceCited,
    SourcePart,
    TextKind,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolResultPart,
)
from maka_trio.records import define


@define
class _OpenText:
    text_kind: TextKind
    provider_options: JsonObject | None
    pieces: list[str] = attrs.field(factory=list)
    finished: bool = False

    def part(self) -> TextPart:
        return TextPart(self.text_kind, "".join(self.pieces), self.provider_options)


class StepBuilder:
    """Builds one step.

    Args:
        step_id: the step the events belong to. Given, each local call is checked to make an operation id of at
            most `limits.IDENTITY_BYTES` and a name of at most `limits.MODEL_TOOL_NAME_BYTES`, and all calls together
            to be at most `limits.STEP_CALLS` with inputs of `limits.STEP_INPUT_BYTES`.
    """

    def __init__(self, step_id: str | None = None) -> None:
        if step_id is not None:
            check_identity(step_id, "step_id")
        self._step_id = step_id
        self._parts: list[_OpenText | ModelPart] = []
        self._texts: dict[str, _OpenText] = {}
        self._calls: dict[str, ModelToolCall] = {}
        self._input_bytes = 0
        self._answered: dict[str, None] = {}  # few or none, and an empty set weighs three times as much
        self._metadata = ResponseMetadata()
        self._finished: Finished | None = None
        self._fault: str | None = None

    def push(self, event: ModelEvent) -> None:
        """Take the next event.

        Raises:
            AdapterError: the event may not come here. The builder refuses everything from then on.
        """
        if self._fault is not None:
            raise AdapterError(f"the step is void: {self._fault}")
        if self._finished is not None:
            raise self._void(f"{event.kind} after the response finished")
        match event:
            case PartDelta():
                part = self._open(event.id, "delta")
                part.pieces.append(event.text)
                if event.provider_options:
                    part.provider_options = merge_options(part.provider_options, event.provider_options)
            case PartStarted():
                if event.id in self._texts:
                    raise self._void(f"part {excerpt(event.id)} starts twice")
                self._texts[event.id] = started = _OpenText(event.text_kind, event.provider_options)
                self._parts.append(started)
            case PartFinished():
                part = self._open(event.id, "end")
                part.provider_options = merge_options(part.provider_options, event.provider_options)
                part.finished = True
            case ToolCallReady():
                self._accept_call(event.call)
            case ProviderToolResult():
                self._accept_result(event)
            case SourceCited():
                self._parts.append(SourcePart(event.source, event.provider_options))
            case ResponseMetadata():
                self._metadata = ResponseMetadata(
                    event.id if event.id is not None else self._metadata.id,
                    event.model if event.model is not None else self._metadata.model,
                    event.timestamp if event.timestamp is not None else self._metadata.timestamp,
                )
            case Finished():
                self._accept_finish(event)
            case _:
                raise self._void(f"{excerpt(event)} is no model event")

    def push_texts(self, part_id: str, texts: Sequence[str]) -> None:
        """Take deltas of text and nothing else, as `push` would one by one. Raises as it does."""
        part = self._texts.get(part_id)
        if part is None or part.finished or self._finished is not None or self._fault is not None:
            for text in texts:
                self.push(PartDelta(part_id, text))  # which says what is wrong
        else:
            part.pieces += texts

    def finish(self) -> ModelStep:
        """The whole step.

        Raises:
            AdapterError: the response did not finish, or broke a rule before.
        """
        if self._fault is not None:
            raise AdapterError(f"the step is void: {self._fault}")
        if self._finished is None:
            raise self._void("the response did not finish")
        return ModelStep(
            parts=tuple(part.part() if isinstance(part, _OpenText) else part for part in self._parts),
            finish_reason=self._finished.reason,
            usage=self._finished.usage,
            provider_options=self._finished.provider_options,
            response_id=self._metadata.id,
            model=self._metadata.model,
            timestamp=self._metadata.timestamp,
        )

    def _void(self, fault: str) -> AdapterError:
        self._fault = fault
        return AdapterError(fault)

    def _open(self, part_id: str, what: str) -> _OpenText:
        part = self._texts.get(part_id)
        if part is None or part.finished:
            raise self._void(f"{what} for part {excerpt(part_id)}, which is not open")
        return part

    def _accept_call(self, call: ModelToolCall) -> None:
        if call.id in self._calls:
            raise self._void(f"two calls have the id {excerpt(call.id)}")
        if not call.id or not call.name:
            raise self._void("a call without id or name")
        if self._step_id is not None:
            operation_id = provider_operation_id(self._step_id, call.id)
            self._check_size("an operation id", operation_id, limits.IDENTITY_BYTES)
            self._check_size("a tool name", call.name, limits.MODEL_TOOL_NAME_BYTES)
            self._check_room(call)
        self._calls[call.id] = call
        self._parts.append(ToolCallPart(call))

    def _check_room(self, call: ModelToolCall) -> None:
        """More calls than can be answered, or be read again, are refused as they come: no step is made of them."""
        if len(self._calls) == limits.STEP_CALLS:
            raise self._void(f"the step has more than {limits.STEP_CALLS} tool calls, which is the limit")
        self._input_bytes += len(canonical(call.input))
        if self._input_bytes > limits.STEP_INPUT_BYTES:
            raise self._void(
                f"the inputs of the step's {len(self._calls) + 1} tool calls have {self._input_bytes} bytes; the limit "
                f"is {limits.STEP_INPUT_BYTES}"
            )

    def _check_size(self, what: str, text: str, limit: int) -> None:
        try:
            size = utf8_size(text, what)
        except InvalidInput as error:
            raise self._void(str(error)) from None
        if size > limit:
            raise self._void(f"{what} has {size} bytes; the limit is {limit}")

    def _accept_result(self, event: ProviderToolResult) -> None:
        call = self._calls.get(event.id)
        if call is None or not call.provider_executed or call.name != event.name:
            raise self._void(f"a provider result for {excerpt(event.id)}, which the provider did not call so")
        if event.id in self._answered:
            raise self._void(f"two provider results for {excerpt(event.id)}")
        self._answered[event.id] = None
        self._parts.append(ToolResultPart(event.id, event.name, event.output, event.is_error, event.provider_options))

    def _accept_finish(self, event: Finished) -> None:
        still_open = [part_id for part_id, part in self._texts.items() if not part.finished]
        if still_open:
            raise self._void(f"the response finished while part {excerpt(still_open[0])} is open")
        unanswered = [c.id for c in self._calls.values() if c.provider_executed and c.id not in self._answered]
        if unanswered:
            raise self._void(f"the response finished without the result of provider call {excerpt(unanswered[0])}")
        self._finished = event
