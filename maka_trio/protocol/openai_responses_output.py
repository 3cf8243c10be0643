"""Output items of a Responses answer while they stream: what each kind makes of its events.

An item is opened by `open_item`, takes the events of its kind, and is closed once with its final form, which says
the last word: whatever was not streamed is taken from there. Servers leave out any of the smaller events, so each
kind copes without them.
"""

from __future__ import annotations

from collections.abc import Mapping

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON
from maka_trio.facts.model import ModelToolCall, TextKind
from maka_trio.protocol.hosted_calls import HostedCalls
from maka_trio.protocol.openai_responses_client_items import client_call, is_client_item
from maka_trio.protocol.openai_responses_items import name_from_wire
from maka_trio.protocol.openai_responses_open_item import KEY, Json, OpenItem, own, text_of
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.protocol.openai_responses_texts import MessageItem, ReasoningItem
from maka_trio.protocol.parts import AnswerParts
from maka_trio.protocol.payload import parse_arguments


def open_item(answer: AnswerParts, hosted: HostedCalls, options: ResponsesOptions, item: Json) -> OpenItem:
    """Begin an item."""
    match item.get("type"):
        case "message":
            return MessageItem(answer, item, options)
        case "reasoning":
            return ReasoningItem(answer, item, options)
        case "function_call" | "custom_tool_call":
            return _FunctionCall(answer, item, options)
        case str() if is_client_item(item):
            return _ClientCall(answer, item)
        case "computer_call":
            raise AdapterError("the answer calls the vendor's computer tool, which cannot be answered here")
        case str() as kind if kind in _WITH_OUTPUT:
            return _HostedCall(answer, item, hosted)
        case str() as kind if kind in _OUTPUTS:
            return _HostedOutput(answer, item, hosted)
        case str() as kind if kind.endswith("_call"):
            return _HostedItem(answer, item, hosted)
        case str():
            return _OpaqueItem(answer, item)
        case _:
            raise AdapterError("an output item without a type")


# --- calls that are ours ----------------------------------------------------------------------------------------


class _FunctionCall(OpenItem):
    """A function call, or a custom call whose input is a text."""

    def __init__(self, answer: AnswerParts, item: Json, options: ResponsesOptions) -> None:
        super().__init__(answer, item)
        self.is_local_call = True
        self._stored = options.stored
        self._pieces: list[str] = []
        self._whole: str | None = None

    def arguments(self, piece: str) -> None:
        self._answer.reserve(len(piece.encode()))
        self._pieces.append(piece)

    def whole_arguments(self, text: str) -> None:
        self._whole = text

    def close(self, item: Json) -> None:
        name, call_id = text_of(item, "name") or text_of(self.item, "name"), self._call_id(item)
        if name is None:
            raise AdapterError("a function call without a name")
        field = "input" if self.kind == "custom_tool_call" else "arguments"
        stated = item.get(field)
        if isinstance(stated, Mapping):  # some servers parse it for us
            value: JSON = stated
        else:
            written = stated if isinstance(stated, str) and stated.strip() else self._streamed()
            value = written if self.kind == "custom_tool_call" else parse_arguments(written, name)
        self._answer.call(ModelToolCall(call_id, name_from_wire(name), value, own(self._noted(item))))

    def abandon(self) -> None:
        if self._whole is None:
            raise AdapterError("the answer ended inside the arguments of a call")
        self.close(self.item)

    def _call_id(self, item: Json) -> str:
        for known in (item, self.item):
            call_id = text_of(known, "call_id")
            if call_id:
                return call_id
        raise AdapterError("a function call without call_id")

    def _streamed(self) -> str:
        streamed = "".join(self._pieces)
        return self._whole if self._whole and self._whole.strip() else streamed

    def _noted(self, item: Json) -> Json:
        noted: Json = {}
        item_id, namespace, caller = text_of(item, "id"), text_of(item, "namespace"), item.get("caller")
        if self._stored and item_id:
            noted["item_id"] = item_id
        if namespace:
            noted["namespace"] = namespace
        if isinstance(caller, dict) and caller.get("type") != "direct":
            noted["caller"] = caller
        return noted


class _ClientCall(OpenItem):
    """A call of a tool that the vendor defines and the user's side executes."""

    def __init__(self, answer: AnswerParts, item: Json) -> None:
        super().__init__(answer, item)
        self.is_local_call = True

    def close(self, item: Json) -> None:
        self._answer.call(client_call(item, KEY))

    def abandon(self) -> None:
        raise AdapterError(f"the answer ended inside a {excerpt(self.kind)} item")


# --- calls that the provider executes ---------------------------------------------------------------------------

_WITH_OUTPUT = {"shell_call": "shell", "tool_search_call": "tool_search", "program": "program"}
"""Hosted calls whose output is an item of its own."""

_OUTPUTS = {"shell_call_output": "shell", "tool_search_output": "tool_search", "program_output": "program"}

_RESULTS = frozenset({"id", "type", "status", "output", "outputs", "result", "results", "error"})


class _Hosted(OpenItem):
    def __init__(self, answer: AnswerParts, item: Json, hosted: HostedCalls) -> None:
        super().__init__(answer, item)
        self._hosted = hosted
        hosted.beginning()


class _HostedItem(_Hosted):
    """A call that comes with its result in one item."""

    def __init__(self, answer: AnswerParts, item: Json, hosted: HostedCalls) -> None:
        super().__init__(answer, item, hosted)
        self._called = False

    def whole_arguments(self, text: str) -> None:
        """What is going to be executed is known before it is: noted at once, since it may have effects."""
        if not self._called:
            field = "code" if self.kind == "code_interpreter_call" else "arguments"
            self._call({**self.item, field: text})

    def close(self, item: Json) -> None:
        if not self._called:
            self._call(item)
        failed = item.get("status") in ("failed", "incomplete") or bool(item.get("error"))
        self._hosted.result(
            self._id(item), item, is_error=failed, options=own({"is_item": True}), default_name=self.kind
        )

    def _call(self, item: Json) -> None:
        self._called = True
        name = text_of(item, "name") or self.kind.removesuffix("_call")
        call_id = self._id(item)
        self._hosted.call(call_id, name, self._input(item), own({"item_id": call_id}))

    def _id(self, item: Json) -> str:
        call_id = text_of(self.item, "id") or text_of(item, "id")
        if call_id is None:
            raise AdapterError(f"a {excerpt(self.kind)} item without id")
        return call_id

    def _input(self, item: Json) -> JSON:
        arguments = item.get("arguments")
        if isinstance(arguments, str):
            return parse_arguments(arguments, self.kind)
        action = item.get("action")
        if isinstance(action, Mapping):
            return action
        return {name: value for name, value in item.items() if name not in _RESULTS}


class _HostedCall(_Hosted):
    """A call whose output comes as another item, perhaps in a later answer."""

    def close(self, item: Json) -> None:
        action = item.get("action") or item.get("arguments")
        value: JSON = action if isinstance(action, Mapping) else {"code": item.get("code")}
        call_id = text_of(item, "call_id") or text_of(item, "id") or ""
        self._hosted.call(call_id, _WITH_OUTPUT[self.kind], value, own({"item": item}))


class _HostedOutput(_Hosted):
    def close(self, item: Json) -> None:
        name = _OUTPUTS[self.kind]
        call_id = text_of(item, "call_id") or self._hosted.last_unanswered(name) or text_of(item, "id") or ""
        failed = item.get("status") == "incomplete"
        self._hosted.result(call_id, item, is_error=failed, options=own({"is_item": True}), default_name=name)


class _OpaqueItem(OpenItem):
    """An item of a kind that has no meaning here, kept to be sent back."""

    def __init__(self, answer: AnswerParts, item: Json) -> None:
        super().__init__(answer, item)
        answer.replay_safe = False

    def close(self, item: Json) -> None:
        self._answer.close_text(self._answer.open_text(TextKind.THINKING), own({"item": item}))
