"""A prompt taken apart into turns, with each call beside its answer and an id that the wire accepts.

Histories hold results in the order they came in, ids that a provider uses again in every step, ids that another
provider made. Wires want each call answered once, in call order, before anything else is said, and most want ids
that are unique and of a narrow alphabet. This file settles both once; what a turn looks like on a wire, it does
not know.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.message import AssistantMessage, PromptMessage, SystemMessage, ToolMessage, UserMessage
from maka_trio.facts.model import ModelPart, ToolCallPart
from maka_trio.records import frozen

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


@frozen
class AssistantTurn:
    """What the model said, and the answers to its local calls in call order, one each.

    `wire_ids` has the id that each local call and its answer carry on the wire.
    """

    parts: tuple[ModelPart, ...]
    answers: tuple[ToolMessage, ...]
    wire_ids: Mapping[str, str]


Turn = SystemMessage | UserMessage | AssistantTurn


def wire_name(name: str, length: int = 64) -> str:
    """A tool name that a wire accepts, for calls in a history: models and other providers invent the rest."""
    return _FOREIGN.sub("_", name)[:length] or "_"


def turns(
    prompt: Sequence[PromptMessage],
    *,
    id_length: int,
    any_characters: bool = False,
    ids: WireIds | None = None,
) -> tuple[Turn, ...]:
    """The turns of a prompt; ids on the wire have at most `id_length` characters.

    With `any_characters` an id keeps what it is made of, for wires that do not mind and models that do.
    What was said between a call and its answer comes after the answers. With the `ids` that a prompt was given, what
    follows it is taken apart as if it stood behind it; where a prompt ends, every call in it is answered.

    Raises:
        InvalidInput: a call without an answer, an answer without a call, or two for one.
    """
    found: list[Turn] = []
    ids = ids or WireIds(id_length, any_characters=any_characters)
    open_turn: _OpenTurn | None = None
    for message in prompt:
        match message:
            case AssistantMessage():
                if open_turn is not None:
                    found.extend(open_turn.close())
                open_turn = _OpenTurn(message, ids)
            case ToolMessage():
                if open_turn is None:
                    raise InvalidInput(f"the prompt answers call {excerpt(message.call_id)}, which nobody made")
                open_turn.answer(message)
            case _ if open_turn is not None:
                open_turn.afterwards.append(message)
            case _:
                found.append(message)
    if open_turn is not None:
        found.extend(open_turn.close())
    return tuple(found)


class _OpenTurn:
    """An assistant message whose answers are being collected."""

    def __init__(self, message: AssistantMessage, ids: WireIds) -> None:
        self.parts = message.parts
        self.afterwards: list[Turn] = []
        self._answers: dict[str, ToolMessage | None] = {}
        for call in (part.call for part in message.parts if isinstance(part, ToolCallPart)):
            if call.provider_executed:
                ids.taken[call.id] = None
            elif call.id in self._answers:
                raise InvalidInput(f"the prompt has two calls with the id {excerpt(call.id)} in one message")
            else:
                self._answers[call.id] = None
        self.wire_ids = ids.claim(self._answers)

    def answer(self, message: ToolMessage) -> None:
        if message.call_id not in self._answers:
            raise InvalidInput(
                f"the prompt answers call {excerpt(message.call_id)}, which the message before it does not make"
            )
        if self._answers[message.call_id] is not None:
            raise InvalidInput(f"the prompt answers call {excerpt(message.call_id)} twice")
        self._answers[message.call_id] = message

    def close(self) -> list[Turn]:
        answers = tuple(answer for answer in self._answers.values() if answer is not None)
        if len(answers) != len(self._answers):
            missing = next(call_id for call_id, answer in self._answers.items() if answer is None)
            raise InvalidInput(f"the prompt leaves call {excerpt(missing)} without an answer")
        return [AssistantTurn(self.parts, answers, self.wire_ids), *self.afterwards]


class WireIds:
    """Ids given so far. The same prompt gets the same ids, so a prompt that grows keeps those it had."""

    def __init__(self, length: int, *, any_characters: bool = False) -> None:
        self.taken: dict[str, None] = {}  # often none, and an empty set weighs three times as much
        self.length = length
        self._any_characters = any_characters

    def claim(self, call_ids: Iterable[str]) -> dict[str, str]:
        """The wire id of each call of a message."""
        return {call_id: self._free(call_id) for call_id in call_ids}

    def _free(self, call_id: str) -> str:
        wanted = call_id if self._any_characters else _FOREIGN.sub("_", call_id)
        if len(wanted) > self.length:
            wanted = f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"
        candidate, count = wanted, 1
        while candidate in self.taken:
            count += 1
            suffix = f"_{count}"
            candidate = wanted[: self.length - len(suffix)] + suffix
        self.taken[candidate] = None
        return candidate
