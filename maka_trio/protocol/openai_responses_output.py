"""Output items of a Responses answer while they stream: what each kind makes of its events.

An item is opened by `open_item`, takes the events of its kind, and is closed once with its final form, which says
the last word: whatever was not streamed is taken from there. Servers leave out any of the smaller events, so each
kind copes without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.model import DocumentSource, ModelToolCall, Source, TextKind, UrlSource
from maka_trio.protocol.hosted_calls import HostedCalls
from maka_trio.protocol.openai_responses_client_items import client_call, is_client_item
from maka_trio.protocol.openai_responses_items import KEY, name_from_wire
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.protocol.parts import AnswerParts
from maka_trio.protocol.payload import parse_arguments

Json = dict[str, JSON]


def own(options: Mapping[str, JSON]) -> JsonObject | None:
    """Provider options of this protocol; None if there is nothing to note."""
    return {KEY: options} if options else None


def text_of(value: Mapping[str, JSON], field: str) -> str | None:
    """A text of a payload; None where it is absent, empty or something else."""
    found = value.get(field)
    return found if isinstance(found, str) and found else None


class OpenItem(ABC):
    """An output item between `added` and `done`.

    A kind overrides what it takes. Texts in a kind that has none are malformed; anything else is passed over.
    """

    def __init__(self, answer: AnswerParts, item: Json) -> None:
        self.kind = str(item["type"])
        self.item = item
        self.is_local_call = False
        self._answer = answer

    def text(self, carrier: str, index: int, text: str) -> None:
        """More text of one of the item's contents: `text`, `refusal`, `summary` or (of reasoning) `content`."""
        raise AdapterError(f"{carrier} inside a {excerpt(self.kind)} item")

    def whole_text(self, carrier: str, index: int, text: str) -> None:
        """The whole text of a content, which may or may not have been streamed before."""
        raise AdapterError(f"{carrier} inside a {excerpt(self.kind)} item")

    def annotation(self, index: int, annotation: Json) -> None:  # noqa: B027
        """A citation in one of the item's contents."""

    def arguments(self, piece: str) -> None:  # noqa: B027
        """More of a call's arguments."""

    def whole_arguments(self, text: str) -> None:  # noqa: B027
        """All of a call's arguments."""

    @abstractmethod
    def close(self, item: Json) -> None:
        """The item is done; `item` is its final form."""

    def abandon(self) -> None:  # noqa: B027  # most kinds have nothing to give up
        """The answer ended and the item was not done: keep what there is of it.

        Raises:
            AdapterError: it is a call of ours, and not all of it is there.
        """


def open_item(answer: AnswerParts, hosted: HostedCalls, options: ResponsesOptions, item: Json) -> OpenItem:
    """Begin an item."""
    match item.get("type"):
        case "message":
            return _MessageItem(answer, item, options)
        case "reasoning":
            return _ReasoningItem(answer, item, options)
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


# --- what is said and thought -----------------------------------------------------------------------------------


class _Contents(OpenItem):
    """Items made of texts, each a part of its own."""

    text_kind: TextKind
    carriers: tuple[str, ...]

    def __init__(self, answer: AnswerParts, item: Json, options: ResponsesOptions) -> None:
        super().__init__(answer, item)
        self._options = options
        self._parts: dict[tuple[str, int], str] = {}
        self._spoken: set[str] = set()

    def text(self, carrier: str, index: int, text: str) -> None:
        part = self._part(carrier, index)
        if text:
            self._spoken.add(part)
            self._answer.text(part, text)

    def whole_text(self, carrier: str, index: int, text: str) -> None:
        if self._part(carrier, index) not in self._spoken:
            self.text(carrier, index, text)

    def _part(self, carrier: str, index: int) -> str:
        part = self._parts.get((carrier, index))
        if part is None:
            if carrier not in self.carriers:
                raise AdapterError(f"{carrier} inside a {excerpt(self.kind)} item")
            options = {"refusal": True} if carrier == "refusal" else {}
            part = self._parts[carrier, index] = self._answer.open_text(self.text_kind, own(options))
        return part


class _MessageItem(_Contents):
    text_kind = TextKind.TEXT
    carriers = ("text", "refusal")

    def __init__(self, answer: AnswerParts, item: Json, options: ResponsesOptions) -> None:
        super().__init__(answer, item, options)
        self._cited: dict[int, int] = {}

    def annotation(self, index: int, annotation: Json) -> None:
        self._cited[index] = self._cited.get(index, 0) + 1
        source = _source(annotation, f"{self._part('text', index)}-source-{self._cited[index]}")
        if source is not None:
            self._answer.cite(source)

    def close(self, item: Json) -> None:
        for index, content in enumerate(_objects(item.get("content"))):
            if content.get("type") == "refusal":
                self.whole_text("refusal", index, text_of(content, "refusal") or "")
            elif content.get("type") in ("output_text", "text"):
                self.whole_text("text", index, text_of(content, "text") or "")
                for annotation in _objects(content.get("annotations"))[self._cited.get(index, 0) :]:
                    self.annotation(index, annotation)
        self._close_parts(item)

    def abandon(self) -> None:
        self._close_parts(self.item)

    def _close_parts(self, item: Json) -> None:
        noted: Json = {}
        if self._options.stored and text_of(item, "id"):
            noted["item_id"] = item["id"]
        phase = text_of(item, "phase") or text_of(self.item, "phase")
        if phase:
            noted["phase"] = phase
        for part in self._parts.values():
            self._answer.close_text(part, own(noted))


class _ReasoningItem(_Contents):
    text_kind = TextKind.THINKING
    carriers = ("summary", "content")

    def close(self, item: Json) -> None:
        for carrier in ("summary", "content"):
            for index, content in enumerate(_objects(item.get(carrier))):
                self.whole_text(carrier, index, text_of(content, "text") or "")
        self._close_parts(text_of(item, "id"), text_of(item, "encrypted_content"))

    def abandon(self) -> None:
        self._close_parts(None, None)

    def _close_parts(self, item_id: str | None, encrypted: str | None) -> None:
        noted: Json = {}
        readable = self._options.replay_reasoning == "text" and bool(self._parts)
        if item_id and (encrypted or self._options.stored or readable):
            noted["item_id"] = item_id
            if encrypted:
                noted["sealed"] = True
        if noted and not self._parts:
            self._parts["", 0] = self._answer.open_text(TextKind.THINKING)
        sealed: Json = {"encrypted_content": encrypted} if noted and encrypted else {}
        for (carrier, _), part in self._parts.items():
            carried: Json = {"carrier": carrier} if noted and carrier else {}
            self._answer.close_text(part, own({**noted, **carried, **sealed}))
            sealed = {}


def _source(annotation: Json, source_id: str) -> Source | None:
    match annotation.get("type"):
        case "url_citation":
            url = text_of(annotation, "url")
            return UrlSource(source_id, url, text_of(annotation, "title")) if url else None
        case "file_citation" | "container_file_citation" | "file_path":
            name = text_of(annotation, "filename")
            title = name or text_of(annotation, "file_id") or "file"
            return DocumentSource(source_id, "application/octet-stream", title, name)
        case _:
            return None


def _objects(value: JSON) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


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
