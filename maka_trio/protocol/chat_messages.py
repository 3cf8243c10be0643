"""Turns of a conversation as chat messages.

Each tool result is a `tool` message, in call order and before anything else is said. A `tool` message carries text
alone, so the media of a whole group of results follow it in one user message, each under the label that stands in
its result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import attrs
import msgspec

from maka_trio import limits
from maka_trio.dialect import Dialect
from maka_trio.facts.json_value import JSON
from maka_trio.facts.message import (
    ContentOutput,
    ErrorOutput,
    JsonOutput,
    MediaContent,
    PromptMessage,
    SystemMessage,
    TextContent,
    TextOutput,
    ToolMessage,
    UserMessage,
)
from maka_trio.facts.model import ModelToolCall, TextKind, TextPart, ToolCallPart
from maka_trio.protocol.chat_parts import content_part, text_part, user_content
from maka_trio.protocol.conversation import AssistantTurn, Turn, WireIds, turns, wire_name
from maka_trio.protocol.hosted_calls import own_options
from maka_trio.protocol.json_list import JsonList
from maka_trio.records import define
from maka_trio.request import PromptMemo

Message = dict[str, JSON]

_VENDOR_ID_LENGTH = 40
"""The vendor refuses longer call ids, which others make."""

_NINE = re.compile(r"[A-Za-z0-9]{9}")


@define
class _Encoded:
    """The beginning of a prompt: the ids that its calls have on the wire, and its messages as JSON."""

    ids: WireIds
    messages: JsonList = attrs.field(factory=JsonList)


class ChatMessages:
    """Encodes a prompt for one server.

    Args:
        dialect: the ways of the server.
        key: under which key the server's own marks stand in provider options.
        strict: the server is the vendor itself.
        tools: names that the request offers, and so are fine as they are.
    """

    def __init__(self, dialect: Dialect, key: str, *, strict: bool, tools: Sequence[str]) -> None:
        self._dialect = dialect
        self._key = key
        self._strict = strict
        self._tools = tools
        self._settings = (dialect, key, strict, tools)

    def encode(self, prompt: tuple[PromptMessage, ...], memo: PromptMemo) -> msgspec.Raw:
        """The `messages` of a request, as JSON. What the memo knows of the prompt is not encoded again.

        Raises:
            InvalidInput: a call without its answer, or an answer without its call; media that is still in the log.
        """
        known, kept = memo.take(self._settings, prompt)
        id_length = _VENDOR_ID_LENGTH if self._strict else limits.TOOL_CALL_ID_BYTES
        encoded: _Encoded = kept or _Encoded(WireIds(id_length, any_characters=True))
        encoded.messages.extend(self._messages(prompt[known:], encoded.ids))
        if self._dialect.reasoning_replay != "tool_loop":  # what was thought goes away when the user speaks again
            memo.keep(self._settings, prompt, encoded)
        return encoded.messages.raw()

    def _messages(self, prompt: Sequence[PromptMessage], ids: WireIds) -> list[Message]:
        conversation = turns(prompt, id_length=ids.length, ids=ids)
        last_user = max((at for at, turn in enumerate(conversation) if isinstance(turn, UserMessage)), default=-1)
        messages: list[Message] = []
        for at, turn in enumerate(conversation):
            messages += self._turn(turn, in_tool_loop=at > last_user)
        return messages

    def _turn(self, turn: Turn, *, in_tool_loop: bool) -> list[Message]:
        match turn:
            case SystemMessage(text=text):
                return [{"role": "system", "content": text}]
            case UserMessage(content=content):
                return [{"role": "user", "content": user_content(content, strict=self._strict)}]
            case AssistantTurn():
                return [*self._assistant(turn, in_tool_loop=in_tool_loop), *self._answers(turn)]

    # --- what the model said -----------------------------------------------------------------------------

    def _assistant(self, turn: AssistantTurn, *, in_tool_loop: bool) -> list[Message]:
        said = [part for part in turn.parts if isinstance(part, TextPart)]
        text = "".join(part.text for part in said if part.text_kind is TextKind.TEXT and not self._is_refusal(part))
        refusal = "".join(part.text for part in said if self._is_refusal(part))
        calls = [
            self._call(part.call, turn.wire_ids[part.call.id])
            for part in turn.parts
            if isinstance(part, ToolCallPart) and not part.call.provider_executed
        ]
        message: Message = {"role": "assistant", "content": text or (None if calls or refusal else "")}
        if refusal:
            message["refusal"] = refusal
        if calls:
            message["tool_calls"] = calls
        thought = [part for part in said if part.text_kind is TextKind.THINKING]
        replay = self._dialect.reasoning_replay
        if thought and (replay == "always" or (replay == "tool_loop" and in_tool_loop)):
            self._add_reasoning(message, thought)
        return [message] if len(message) > 2 or message["content"] else []

    def _is_refusal(self, part: TextPart) -> bool:
        """Whether a text goes back as a refusal. Only the vendor has a place for it; elsewhere it is text."""
        return self._strict and bool(own_options(part.provider_options, self._key).get("refusal"))

    def _call(self, call: ModelToolCall, wire_id: str) -> JSON:
        name = call.name if call.name in self._tools else wire_name(call.name)
        function: JSON = {"name": name, "arguments": msgspec.json.encode(call.input).decode()}
        encoded: dict[str, JSON] = {"id": self._wire_id(wire_id), "type": "function", "function": function}
        extra = own_options(call.provider_options, self._key).get("extra_content")
        if extra:
            encoded["extra_content"] = extra
        return encoded

    def _wire_id(self, wire_id: str) -> str:
        if not self._dialect.nine_character_ids or _NINE.fullmatch(wire_id):
            return wire_id
        return hashlib.sha256(wire_id.encode()).hexdigest()[:9]

    def _add_reasoning(self, message: Message, thought: Sequence[TextPart]) -> None:
        text = "".join(part.text for part in thought)
        match self._dialect.reasoning_key:
            case None:
                return
            case "reasoning_details":
                details = [detail for part in thought for detail in self._details(part)]
                message.update({"reasoning_details": details} if details else {"reasoning": text} if text else {})
            case "content" if text:
                thinking: JSON = {"type": "thinking", "thinking": [text_part(text)]}
                said = message["content"]
                message["content"] = [thinking, *([text_part(said)] if isinstance(said, str) and said else [])]
            case key if text:
                message[key] = text

    def _details(self, part: TextPart) -> Sequence[JSON]:
        details = own_options(part.provider_options, self._key).get("reasoning_details")
        return details if isinstance(details, list) else ()

    # --- what the tools answered -------------------------------------------------------------------------

    def _answers(self, turn: AssistantTurn) -> list[Message]:
        messages: list[Message] = []
        media: list[JSON] = []
        for answer in turn.answers:
            label = _label(answer, len(messages) + 1)
            shown = _media(answer)
            call_id = self._wire_id(turn.wire_ids[answer.call_id])
            messages.append({"role": "tool", "tool_call_id": call_id, "content": _answer(answer, label)})
            if shown:
                media += [text_part(label), *(content_part(part, strict=self._strict) for part in shown)]
        return [*messages, {"role": "user", "content": media}] if media else messages


def _media(answer: ToolMessage) -> list[MediaContent]:
    parts = answer.output.parts if isinstance(answer.output, ContentOutput) else ()
    return [part for part in parts if isinstance(part, MediaContent)]


def _label(answer: ToolMessage, position: int) -> str:
    return f"[media returned by {answer.name}, result {position}]"


def _answer(answer: ToolMessage, label: str) -> str:
    """The text of a result: texts and errors as they are, JSON as JSON text."""
    match answer.output:
        case TextOutput(text=text) | ErrorOutput(text=text):
            return text
        case JsonOutput(value=value):
            return msgspec.json.encode(value).decode()
        case ContentOutput(parts=parts):
            texts = [part.text for part in parts if isinstance(part, TextContent)]
            return "\n".join([*texts, label] if _media(answer) else texts)
