"""Turns of a conversation as Responses input items.

Each call item is answered by an output item of its own kind, in call order, before the user speaks again. Items
that only the provider can make (reasoning, hosted calls, compactions) go back as they came, and only if they came
from this protocol. The ids of messages and calls matter only to a provider that stores responses, which pairs them
with the reasoning before them and refuses one without the other: they go back beside their reasoning or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import msgspec

from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import JSON
from maka_trio.facts.message import PromptMessage, SystemMessage, ToolMessage
from maka_trio.facts.model import ModelToolCall, TextKind, TextPart, ToolCallPart, ToolResultPart
from maka_trio.protocol.conversation import AssistantTurn, Turn, WireIds, turns, wire_name
from maka_trio.protocol.hosted_calls import (
    calls_waited_for,
    deferred_calls,
    has_hosted_calls,
    orphaned_results,
    own_options,
)
from maka_trio.protocol.json_list import JsonList
from maka_trio.protocol.openai_responses_client_items import answer_client_item
from maka_trio.protocol.openai_responses_content import Item, output_value, user_content
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.records import define, frozen
from maka_trio.request import PromptMemo

KEY = ResponsesOptions.KEY

_ID_LENGTH = 64
_RENAMED = {"tool_search": "maka_tool_search"}
_RENAMED_BACK = {wire: name for name, wire in _RENAMED.items()}


def name_on_wire(name: str) -> str:
    """A function's name on this wire, where the vendor has tools of its own."""
    return _RENAMED.get(name, name)


def name_from_wire(name: str) -> str:
    """The name a tool was registered under."""
    return _RENAMED_BACK.get(name, name)


@define
class _Encoded:
    """The beginning of a prompt: the ids that its calls have on the wire, and its items as JSON."""

    ids: WireIds = attrs.field(factory=lambda: WireIds(_ID_LENGTH))
    items: JsonList = attrs.field(factory=JsonList)


def encode_input(
    prompt: tuple[PromptMessage, ...],
    memo: PromptMemo,
    options: ResponsesOptions,
    freeform: frozenset[str],
    system_role: str,
    *,
    skip: int,
) -> msgspec.Raw:
    """The `input` of a request, as JSON. What the memo knows of the prompt is not encoded again.

    Args:
        prompt: all of it.
        memo: of the conversation.
        options: of the request.
        freeform: the tools whose input is a text.
        system_role: the role of a system message.
        skip: how many messages at its beginning are said elsewhere in the body.

    Raises:
        InvalidInput: a call without its answer, or an answer without its call; nothing is said at all.
    """
    settings = (options, freeform, system_role)
    known, encoded = memo.take(settings, prompt)
    encoded = encoded or _Encoded()
    conversation = turns(prompt[max(known, skip) :], id_length=_ID_LENGTH, ids=encoded.ids)
    encoded.items.extend(_items(conversation, options, freeform, system_role))
    if not encoded.items:
        raise InvalidInput("a Responses request needs a message that is not blank")
    if not has_hosted_calls(conversation):  # else how it goes on decides what goes back of them
        memo.keep(settings, prompt, encoded)
    return encoded.items.raw()


def _items(
    conversation: Sequence[Turn], options: ResponsesOptions, freeform: frozenset[str], system_role: str
) -> list[Item]:
    items: list[Item] = []
    spoken = [turn for turn in conversation if not isinstance(turn, SystemMessage)]
    context = _Context(options, freeform, calls_waited_for(spoken, KEY), orphaned_results(spoken, KEY))
    for turn in conversation:
        match turn:
            case AssistantTurn():
                encoder = _TurnEncoder(turn, context)
                items += [*encoder.said(), *encoder.answers()]
            case SystemMessage(text=text):
                items += [{"role": system_role, "content": text}] if text.strip() else []
            case _:
                content = user_content(turn.content)
                items += [{"role": "user", "content": content}] if content else []
    return items


@frozen
class _Context:
    """What a turn must know of the request around it."""

    options: ResponsesOptions
    freeform: frozenset[str]
    waited_for: frozenset[str]
    orphaned: frozenset[str]


class _TurnEncoder:
    """One assistant turn."""

    def __init__(self, turn: AssistantTurn, context: _Context) -> None:
        self._turn = turn
        self._options = options = context.options
        self._freeform = context.freeform
        self._orphaned = context.orphaned
        self._dropped = deferred_calls(turn, KEY) - context.waited_for
        self._calls = {part.call.id: part.call for part in turn.parts if isinstance(part, ToolCallPart)}
        reasoning = [part for part in turn.parts if isinstance(part, TextPart) and _is_reasoning(part)]
        self._ids = options.stored and bool(reasoning) and all(map(self._goes_back, reasoning))
        self._items: list[Item] = []

    def said(self) -> list[Item]:
        """What the model said, thought and called."""
        for part in self._turn.parts:
            match part:
                case TextPart(text_kind=TextKind.THINKING):
                    self._thought(part)
                case TextPart():
                    self._text(part)
                case ToolCallPart(call=call) if call.provider_executed:
                    self._hosted_call(call)
                case ToolCallPart(call=call):
                    self._items.append(self._local_call(call))
                case ToolResultPart():
                    self._hosted_result(part)
                case _:
                    pass  # citations are kept for people
        while self._items and self._items[-1].get("type") == "reasoning":
            self._items.pop()  # thought for something that never came, and refused without it
        return self._items

    def answers(self) -> list[Item]:
        """The outputs of the local calls, in call order."""
        return [self._answer(self._calls[answer.call_id], answer) for answer in self._turn.answers]

    # --- what was said -------------------------------------------------------------------------------------

    def _text(self, part: TextPart) -> None:
        if not part.text.strip():
            return
        noted = own_options(part.provider_options, KEY)
        phase: Item = {"phase": noted["phase"]} if "phase" in noted else {}
        item_id = noted.get("item_id") if self._ids else None
        if item_id is None:
            self._items.append({"role": "assistant", "content": part.text, **phase})
            return
        content: Item = {"type": "output_text", "text": part.text, "annotations": []}
        if noted.get("refusal"):
            content = {"type": "refusal", "refusal": part.text}
        last = self._items[-1] if self._items else {}
        if last.get("type") == "message" and last.get("id") == item_id:
            last["content"] = [*_list(last["content"]), content]
            return
        self._items.append(
            {
                "type": "message",
                "role": "assistant",
                "id": item_id,
                "status": "completed",
                "content": [content],
                **phase,
            }
        )

    # --- what was thought ----------------------------------------------------------------------------------

    def _thought(self, part: TextPart) -> None:
        noted = own_options(part.provider_options, KEY)
        opaque = noted.get("item")
        if isinstance(opaque, Mapping):
            self._items.append(dict(opaque))
        elif _is_reasoning(part) and self._goes_back(part):
            self._reasoning(noted, part.text)

    def _reasoning(self, noted: Mapping[str, JSON], text: str) -> None:
        last = self._items[-1] if self._items else {}
        if last.get("type") != "reasoning" or last.get("id") != noted["item_id"]:
            last = {"type": "reasoning", "id": noted["item_id"], "summary": []}
            self._items.append(last)
        if noted.get("encrypted_content"):
            last["encrypted_content"] = noted["encrypted_content"]
        if noted.get("carrier") == "summary":
            last["summary"] = [*_list(last["summary"]), {"type": "summary_text", "text": text}]
        elif noted.get("carrier") == "content" and self._options.replay_reasoning == "text":
            last["content"] = [*_list(last.get("content")), {"type": "reasoning_text", "text": text}]

    def _goes_back(self, part: TextPart) -> bool:
        """Whether a part of earlier reasoning of this protocol goes back."""
        sealed = "sealed" in own_options(part.provider_options, KEY)
        match self._options.replay_reasoning:
            case "never":
                return False
            case "text":
                return True
            case _:
                return sealed or self._options.stored

    # --- what was called -----------------------------------------------------------------------------------

    def _local_call(self, call: ModelToolCall) -> Item:
        noted = own_options(call.provider_options, KEY)
        client = noted.get("item")
        if isinstance(client, Mapping):
            return dict(client)
        item: Item = {"call_id": self._turn.wire_ids[call.id], "name": wire_name(name_on_wire(call.name))}
        if self._is_freeform(call):
            item = {"type": "custom_tool_call", **item, "input": call.input}
        else:
            item = {"type": "function_call", **item, "arguments": msgspec.json.encode(call.input).decode()}
        if self._ids and "item_id" in noted:
            item["id"] = noted["item_id"]
        if "namespace" in noted:
            item["namespace"] = noted["namespace"]
        return item | self._caller(noted)

    def _hosted_call(self, call: ModelToolCall) -> None:
        noted = own_options(call.provider_options, KEY)
        item = noted.get("item")
        if isinstance(item, Mapping) and call.id not in self._dropped:
            self._items.append(dict(item))

    def _hosted_result(self, part: ToolResultPart) -> None:
        is_item = own_options(part.provider_options, KEY).get("is_item")
        if is_item and isinstance(part.output, Mapping) and part.id not in self._orphaned:
            self._items.append(dict(part.output))

    def _answer(self, call: ModelToolCall, answer: ToolMessage) -> Item:
        noted = own_options(call.provider_options, KEY)
        client = noted.get("item")
        if isinstance(client, Mapping):
            return answer_client_item(client, answer.output)
        kind = "custom_tool_call_output" if self._is_freeform(call) else "function_call_output"
        output = output_value(answer.output)
        return {"type": kind, "call_id": self._turn.wire_ids[call.id], "output": output} | self._caller(noted)

    def _is_freeform(self, call: ModelToolCall) -> bool:
        return call.name in self._freeform and isinstance(call.input, str)

    def _caller(self, noted: Mapping[str, JSON]) -> Item:
        caller = noted.get("caller")
        if isinstance(caller, Mapping) and caller.get("caller_id") not in self._dropped:
            return {"caller": caller}
        return {}


def _is_reasoning(part: TextPart) -> bool:
    return part.text_kind is TextKind.THINKING and "item_id" in own_options(part.provider_options, KEY)


def _list(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, list) else []
