"""Calls that the provider executes, paired with their results, in one answer.

A step holds each hosted call with its result. Providers do not always put both into one answer: a turn that is
paused, or that waits for a local call, ends before the result, and the result opens a later answer. So at the end
of an answer a call without a result is given one that says `deferred`, and a result of an earlier call brings the
call along, marked `continued`. Neither mark goes back to the provider; each protocol's encoder reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.message import AssistantMessage, PromptMessage
from maka_trio.facts.model import ModelPart, ModelToolCall, ProviderToolResult, ToolCallPart, ToolResultPart
from maka_trio.protocol.conversation import AssistantTurn, Turn
from maka_trio.protocol.parts import AnswerParts

DEFERRED_OUTPUT: JsonObject = {"status": "deferred"}
"""Stands for a result that the provider did not give in the answer that made the call."""


class HostedCalls:
    """The hosted calls of one answer.

    Args:
        answer: where events go.
        key: the protocol's key in provider options.
        prompt: what was asked; where a result of an earlier answer finds its call.
    """

    def __init__(self, answer: AnswerParts, key: str, prompt: Iterable[PromptMessage]) -> None:
        self._answer = answer
        self._key = key
        self._prompt = prompt
        self._names: dict[str, str] = {}
        self._unanswered: dict[str, None] = {}

    def beginning(self) -> None:
        """The provider has begun to execute something: the request may not be sent again as if nothing happened."""
        self._answer.replay_safe = False

    def call(self, call_id: str, name: str, value: JSON, options: JsonObject | None) -> None:
        """A call is complete."""
        self._answer.call(ModelToolCall(call_id, name, value, options, provider_executed=True))
        self._names[call_id] = name
        self._unanswered[call_id] = None

    def result(
        self,
        call_id: str,
        output: JSON,
        *,
        is_error: bool,
        options: JsonObject | None,
        default_name: str,
    ) -> None:
        """A result is complete.

        Raises:
            AdapterError: the call has one already.
        """
        if call_id not in self._names:
            self._continue(call_id, default_name)
        if call_id not in self._unanswered:
            raise AdapterError(f"hosted call {excerpt(call_id)} has two results")
        del self._unanswered[call_id]
        self._answer.provider_result(
            ProviderToolResult(call_id, self._names[call_id], output, is_error=is_error, provider_options=options)
        )

    def last_unanswered(self, name: str) -> str | None:
        """The latest call of a tool that has no result yet, for results that name no call."""
        return next((call_id for call_id in reversed(self._unanswered) if self._names[call_id] == name), None)

    def defer_rest(self) -> None:
        """The answer ends: give each call without result one that says so."""
        for call_id in tuple(self._unanswered):
            self.result(
                call_id,
                DEFERRED_OUTPUT,
                is_error=False,
                options={self._key: {"deferred": True}},
                default_name="",
            )

    def _continue(self, call_id: str, default_name: str) -> None:
        earlier = self._earlier(call_id)
        name = earlier.name if earlier is not None else default_name
        value = earlier.input if earlier is not None else {}
        self.call(call_id, name, value, {self._key: {"continued": True}})

    def _earlier(self, call_id: str) -> ModelToolCall | None:
        for message in self._prompt:
            for part in message.parts if isinstance(message, AssistantMessage) else ():
                if isinstance(part, ToolCallPart) and part.call.id == call_id and part.call.provider_executed:
                    return part.call
        return None


# --- for encoders -----------------------------------------------------------------------------------------------


def own_options(value: Mapping[str, JSON] | None, key: str) -> Mapping[str, JSON]:
    """What a protocol noted on a part or call; empty for what another protocol made."""
    noted = (value or {}).get(key)
    return noted if isinstance(noted, Mapping) else {}


def is_continued(part: ModelPart, key: str) -> bool:
    """Whether a part repeats the call of an earlier answer, whose result follows."""
    return isinstance(part, ToolCallPart) and bool(own_options(part.call.provider_options, key).get("continued"))


def has_hosted_calls(turns: Iterable[Turn]) -> bool:
    """Whether the provider executed anything; else no turn looks different for what comes after it."""
    return any(
        isinstance(part, ToolResultPart) or (isinstance(part, ToolCallPart) and part.call.provider_executed)
        for turn in turns
        if isinstance(turn, AssistantTurn)
        for part in turn.parts
    )


def deferred_calls(turn: AssistantTurn, key: str) -> frozenset[str]:
    """The hosted calls of a turn whose results had not come when their answer ended."""
    return frozenset(
        part.id
        for part in turn.parts
        if isinstance(part, ToolResultPart) and own_options(part.provider_options, key).get("deferred")
    )


def calls_waited_for(turns: Sequence[Turn], key: str) -> frozenset[str]:
    """Deferred calls that belong on the wire: answered by a later message, or still to be answered.

    Once the conversation has gone on without the result, the provider would refuse the call.
    """
    continued = frozenset(
        part.call.id
        for turn in turns
        if isinstance(turn, AssistantTurn)
        for part in turn.parts
        if isinstance(part, ToolCallPart) and is_continued(part, key)
    )
    last = turns[-1] if turns else None
    return continued | deferred_calls(last, key) if isinstance(last, AssistantTurn) else continued


def orphaned_results(turns: Sequence[Turn], key: str) -> frozenset[str]:
    """Hosted calls that a turn continues although no earlier turn makes them: the history does not go back so far.

    Their results answer nothing on the wire, and would be refused.
    """
    made: set[str] = set()
    orphaned: set[str] = set()
    for part in (part for turn in turns if isinstance(turn, AssistantTurn) for part in turn.parts):
        if isinstance(part, ToolCallPart) and part.call.provider_executed:
            if not is_continued(part, key):
                made.add(part.call.id)
            elif part.call.id not in made:
                orphaned.add(part.call.id)
    return frozenset(orphaned)
