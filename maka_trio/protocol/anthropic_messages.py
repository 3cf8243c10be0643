"""Turns of a conversation as Anthropic messages.

The protocol wants user and assistant in turn, the results of all calls of one assistant message in the one user
message that follows, in call order and before anything else. Blocks that only Anthropic can make (thinking with
its signature, hosted calls and their results) go back as they came, and only if they came from it.

A hosted call can be without its result when a message ends: the provider paused, or a local call has to be
answered first. It goes back only while it is still waited for (`hosted_calls`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import JSON
from maka_trio.facts.message import PromptMessage, SystemMessage, UserMessage
from maka_trio.facts.model import ModelToolCall, TextKind, TextPart, ToolCallPart, ToolResultPart
from maka_trio.protocol.anthropic_content import Block, content_blocks, result_block, text_block
from maka_trio.protocol.conversation import AssistantTurn, Turn, WireIds, turns, wire_name
from maka_trio.protocol.hosted_calls import (
    calls_waited_for,
    deferred_calls,
    has_hosted_calls,
    orphaned_results,
    own_options,
)
from maka_trio.protocol.json_list import JsonList
from maka_trio.request import PromptMemo

KEY = "anthropic"
"""Whose provider options these are."""

NAME_LENGTH = 128
"""Characters of a tool name."""

_ID_LENGTH = 64
_NEWEST = 2
_THOUGHTS = ("thinking", "redacted_thinking")

Message = dict[str, JSON]


class Conversation:
    """A prompt as messages, in which nobody speaks twice in a row.

    What nothing that comes later can change is kept as JSON, so that a prompt that grows has each turn encoded once.

    Attributes:
        system: the system messages.
        tools_called: the names of local tools that were called, as they are on the wire.
        hosted: the provider executed something, so what goes back of it depends on how the conversation goes on.
    """

    def __init__(self) -> None:
        self.system: list[str] = []
        self.tools_called: set[str] = set()
        self.hosted = False
        self._ids = WireIds(_ID_LENGTH)
        self._settled = JsonList()
        self._said: list[tuple[str, list[Block]]] = []

    @classmethod
    def read(cls, prompt: tuple[PromptMessage, ...], memo: PromptMemo, *, citations: bool) -> Conversation:
        """The conversation of a prompt. What the memo knows of it is not encoded again.

        Raises:
            InvalidInput: a call without its answer, or an answer without its call.
        """
        known, conversation = memo.take(citations, prompt)
        conversation = conversation or cls()
        conversation._extend(turns(prompt[known:], id_length=_ID_LENGTH, ids=conversation._ids), citations=citations)
        if not conversation.hosted:
            memo.keep(citations, prompt, conversation)
        return conversation

    def newest(self) -> list[Message]:
        """The end of it, with the two newest user messages; the caller may change it, and hands it to `raw`.

        Raises:
            InvalidInput: the conversation says nothing, or does not begin with the user.
        """
        said = [(role, [*blocks]) for role, blocks in self._said]
        _end_answer(said)
        if not self._settled and (not said or said[0][0] != "user"):
            raise InvalidInput("an Anthropic conversation begins with a user message that is not blank")
        role, blocks = said[-1]
        if role == "assistant" and blocks[-1]["type"] == "text":
            # The turn is paused, and a conversation must not end in white space.
            blocks[-1] = {**blocks[-1], "text": str(blocks[-1]["text"]).rstrip()}
        return [{"role": role, "content": blocks} for role, blocks in said]

    def raw(self, newest: Sequence[Message]) -> msgspec.Raw:
        """The `messages` of a request, of which these are the newest."""
        return self._settled.raw(newest)

    def _extend(self, added: Sequence[Turn], *, citations: bool) -> None:
        self.hosted = has_hosted_calls(added)
        self.system += [turn.text for turn in added if isinstance(turn, SystemMessage) and turn.text.strip()]
        spoken = [turn for turn in added if not isinstance(turn, SystemMessage)]
        waited_for, orphaned = calls_waited_for(spoken, KEY), orphaned_results(spoken, KEY)
        for turn in spoken:
            match turn:
                case AssistantTurn():
                    self.tools_called |= _tools_called(turn)
                    self._say("assistant", _assistant_blocks(turn, waited_for, orphaned))
                    self._say("user", [result_block(answer, turn.wire_ids[answer.call_id]) for answer in turn.answers])
                case UserMessage():
                    self._say("user", content_blocks(turn.content, citations=citations))
        self._settle()

    def _say(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        if role == "user":
            _end_answer(self._said)
        if self._said and self._said[-1][0] == role:
            self._said[-1][1].extend(blocks)
        else:
            self._said.append((role, blocks))

    def _settle(self) -> None:
        """Encode what is older than the two newest user messages, one of which may be continued, and both marked."""
        asked = [at for at, (role, _) in enumerate(self._said) if role == "user"]
        if len(asked) > _NEWEST and (self._settled or self._said[0][0] == "user"):
            older, self._said = self._said[: asked[-_NEWEST]], self._said[asked[-_NEWEST] :]
            self._settled.extend([{"role": role, "content": blocks} for role, blocks in older])


def _end_answer(said: list[tuple[str, list[Block]]]) -> None:
    """Take off thinking that led nowhere: the protocol refuses it at the end of the assistant's message."""
    if not said or said[-1][0] != "assistant":
        return
    blocks = said[-1][1]
    while blocks and blocks[-1]["type"] in _THOUGHTS:
        blocks.pop()
    if not blocks:
        said.pop()


# --- what the model said --------------------------------------------------------------------------------------


def _tools_called(turn: AssistantTurn) -> set[str]:
    calls = [part.call for part in turn.parts if isinstance(part, ToolCallPart)]
    return {wire_name(call.name, NAME_LENGTH) for call in calls if not call.provider_executed}


def _assistant_blocks(turn: AssistantTurn, waited_for: frozenset[str], orphaned: frozenset[str]) -> list[Block]:
    dropped = deferred_calls(turn, KEY) - waited_for
    blocks = []
    for part in turn.parts:
        match part:
            case TextPart():
                block = _said(part)
            case ToolCallPart(call=call) if call.provider_executed:
                block = None if call.id in dropped else _hosted_call(call)
            case ToolCallPart(call=call):
                block = _local_call(call, turn.wire_ids[call.id], dropped)
            case ToolResultPart():
                block = None if part.id in orphaned else _hosted_result(part)
            case _:
                block = None  # citations are kept for people
        if block is not None:
            blocks.append(block)
    return blocks


def _said(part: TextPart) -> Block | None:
    options = own_options(part.provider_options, KEY)
    opaque = options.get("block")
    if isinstance(opaque, Mapping):
        return dict(opaque)
    if part.text_kind is TextKind.TEXT:
        block = text_block(part.text)
        if block is not None and options.get("citations"):
            block["citations"] = options["citations"]
        return block
    if "redacted_data" in options:
        return {"type": "redacted_thinking", "data": options["redacted_data"]}
    if "signature" in options:
        return {"type": "thinking", "thinking": part.text, "signature": options["signature"]}
    return None  # thought elsewhere: without its signature it would be refused


def _local_call(call: ModelToolCall, wire_id: str, dropped: frozenset[str]) -> Block:
    # The protocol takes objects only. Whatever else a model wrote was rejected, and the rejection explains it.
    arguments = call.input if isinstance(call.input, Mapping) else {"value": call.input}
    block: Block = {"type": "tool_use", "id": wire_id, "name": wire_name(call.name, NAME_LENGTH), "input": arguments}
    caller = own_options(call.provider_options, KEY).get("caller")
    if isinstance(caller, Mapping) and caller.get("tool_id") not in dropped:
        block["caller"] = caller
    return block


def _hosted_call(call: ModelToolCall) -> Block | None:
    rest = own_options(call.provider_options, KEY).get("block")
    if not isinstance(rest, Mapping):
        return None  # another provider's, or said in an earlier message
    return {**rest, "id": call.id, "name": call.name, "input": call.input}


def _hosted_result(part: ToolResultPart) -> Block | None:
    rest = own_options(part.provider_options, KEY).get("block")
    if not isinstance(rest, Mapping):
        return None
    return {**rest, "tool_use_id": part.id, "content": part.output}
