"""Content blocks of an Anthropic answer while they stream: what each kind makes of its deltas.

A block is made by `open_block`, takes deltas, and is closed once. Blocks that only this vendor understands come out
as parts without text that carry the block, to be sent back as they came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.model import DocumentSource, ModelToolCall, Source, TextKind, UrlSource
from maka_trio.protocol.anthropic_messages import KEY
from maka_trio.protocol.hosted_calls import HostedCalls
from maka_trio.protocol.parts import AnswerParts
from maka_trio.protocol.payload import parse_arguments

Json = dict[str, JSON]


class Delta(msgspec.Struct, gc=False):
    """Any delta of a block or of the message; what one kind does not have is None."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Json | None = None
    content: JSON = None
    encrypted_content: JSON = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: JSON = None
    container: JSON = None


def own(**options: JSON) -> JsonObject:
    """Provider options of this protocol."""
    return {KEY: options}


class OpenBlock(ABC):
    """A block between its start and its stop."""

    kind: str

    def __init__(self, answer: AnswerParts, block: Json) -> None:
        self.kind = str(block["type"])
        self._answer = answer

    def delta(self, delta: Delta) -> None:
        """Take a delta. Kinds of delta that are not known are passed over, as the vendor asks clients to do."""
        match delta.type:
            case "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta" | "citations_delta":
                raise AdapterError(f"a {delta.type} inside a {excerpt(self.kind)} block")
            case _:
                pass

    @abstractmethod
    def close(self) -> None:
        """End the block and hand out what only its end makes."""


def open_block(answer: AnswerParts, hosted: HostedCalls, block: Json) -> OpenBlock:
    """Begin a block.

    Raises:
        AdapterError: the block lacks what its kind must have.
    """
    kind = block.get("type")
    match kind:
        case "text":
            return _Text(answer, block)
        case "thinking":
            return _Thinking(answer, block)
        case "redacted_thinking":
            return _Whole(answer, block, own(redacted_data=_text_field(block, "data")))
        case "tool_use":
            return _LocalCall(answer, block)
        case str() if kind.endswith("_tool_use"):
            return _HostedCall(answer, hosted, block)
        case str() if kind.endswith("_tool_result"):
            return _HostedResult(answer, hosted, block)
        case str():
            return _Opaque(answer, block)
        case _:
            raise AdapterError("a content block without a type")


def _text_field(block: Json, field: str) -> str:
    value = block.get(field)
    if not isinstance(value, str) or not value:
        raise AdapterError(f"a {block['type']} block without {field}")
    return value


# --- text -------------------------------------------------------------------------------------------------------


class _Text(OpenBlock):
    def __init__(self, answer: AnswerParts, block: Json) -> None:
        super().__init__(answer, block)
        self._part = answer.open_text(TextKind.TEXT)
        self._citations: list[JSON] = []
        text, citations = block.get("text"), block.get("citations")
        if isinstance(text, str):
            answer.text(self._part, text)
        for citation in citations if isinstance(citations, list) else ():
            if isinstance(citation, dict):
                self._cite(citation)

    def delta(self, delta: Delta) -> None:
        if delta.type == "text_delta":
            self._answer.text(self._part, delta.text or "")
        elif delta.type == "citations_delta":
            if delta.citation is not None:
                self._cite(delta.citation)
        else:
            super().delta(delta)

    def close(self) -> None:
        self._answer.close_text(self._part, own(citations=self._citations) if self._citations else None)

    def _cite(self, citation: Json) -> None:
        self._citations.append(citation)
        self._answer.reserve(len(msgspec.json.encode(citation)))
        source = _source(citation, f"{self._part}-source-{len(self._citations)}")
        if source is not None:
            self._answer.cite(source)


def _source(citation: Json, source_id: str) -> Source | None:
    url, title = citation.get("url"), citation.get("title") or citation.get("document_title")
    titled = title if isinstance(title, str) else None
    if isinstance(url, str) and url:
        return UrlSource(source_id, url, titled)
    if "document_index" in citation or "source" in citation:
        media_type = "application/pdf" if citation.get("type") == "page_location" else "text/plain"
        return DocumentSource(source_id, media_type, titled or "document")
    return None


class _Thinking(OpenBlock):
    def __init__(self, answer: AnswerParts, block: Json) -> None:
        super().__init__(answer, block)
        self._part = answer.open_text(TextKind.THINKING)
        text, signature = block.get("thinking"), block.get("signature")
        self._signature = signature if isinstance(signature, str) else ""
        if isinstance(text, str):
            answer.text(self._part, text)

    def delta(self, delta: Delta) -> None:
        if delta.type == "thinking_delta":
            self._answer.text(self._part, delta.thinking or "")
        elif delta.type == "signature_delta":
            self._signature = delta.signature or self._signature
        else:
            super().delta(delta)

    def close(self) -> None:
        self._answer.close_text(self._part, own(signature=self._signature) if self._signature else None)


# --- calls ------------------------------------------------------------------------------------------------------


class _Call(OpenBlock):
    """Gathers the input of a call: stated at the start, or streamed as JSON text."""

    def __init__(self, answer: AnswerParts, block: Json) -> None:
        super().__init__(answer, block)
        self.id = _text_field(block, "id")
        self.name = _text_field(block, "name")
        self._stated = block.get("input")
        self._pieces: list[str] = []

    def delta(self, delta: Delta) -> None:
        if delta.type == "input_json_delta":
            piece = delta.partial_json or ""
            self._answer.reserve(len(piece.encode()))
            self._pieces.append(piece)
        else:
            super().delta(delta)

    def input(self) -> JSON:
        streamed = "".join(self._pieces)
        if streamed.strip() or self._stated is None:
            return parse_arguments(streamed, self.name)
        return self._stated


class _LocalCall(_Call):
    def __init__(self, answer: AnswerParts, block: Json) -> None:
        super().__init__(answer, block)
        caller = block.get("caller")
        self._foreign = caller if isinstance(caller, dict) and caller.get("type") != "direct" else None

    def close(self) -> None:
        options = own(caller=self._foreign) if self._foreign else None
        self._answer.call(ModelToolCall(self.id, self.name, self.input(), options))


class _HostedCall(_Call):
    def __init__(self, answer: AnswerParts, hosted: HostedCalls, block: Json) -> None:
        super().__init__(answer, block)
        self._hosted = hosted
        self._rest = _without(block, "id", "name", "input")
        hosted.beginning()

    def close(self) -> None:
        self._hosted.call(self.id, self.name, self.input(), own(block=self._rest))


class _HostedResult(OpenBlock):
    def __init__(self, answer: AnswerParts, hosted: HostedCalls, block: Json) -> None:
        super().__init__(answer, block)
        self._hosted = hosted
        self._block = block
        self._call_id = _text_field(block, "tool_use_id")
        hosted.beginning()

    def close(self) -> None:
        content = self._block.get("content")
        self._hosted.result(
            self._call_id,
            content,
            is_error=_is_error(self._block, content),
            options=own(block=_without(self._block, "tool_use_id", "content")),
            default_name=self.kind.removesuffix("_tool_result"),
        )


def _is_error(block: Json, content: JSON) -> bool:
    stated = block.get("is_error")
    if stated is not None and not isinstance(stated, bool):
        raise AdapterError(f"is_error={excerpt(stated)} of a hosted result is not a bool")
    kind = content.get("type") if isinstance(content, Mapping) else None
    return bool(stated) or (isinstance(kind, str) and kind.endswith("_error"))


def _without(block: Json, *fields: str) -> Json:
    return {name: value for name, value in block.items() if name not in fields}


# --- what only the vendor understands ---------------------------------------------------------------------------


class _Whole(OpenBlock):
    """A block that is complete when it starts."""

    def __init__(self, answer: AnswerParts, block: Json, options: JsonObject) -> None:
        super().__init__(answer, block)
        self._part = answer.open_text(TextKind.THINKING, options)

    def close(self) -> None:
        self._answer.close_text(self._part)


class _Opaque(OpenBlock):
    """A block of a kind that has no meaning here, kept to be sent back."""

    def __init__(self, answer: AnswerParts, block: Json) -> None:
        super().__init__(answer, block)
        self._part = answer.open_text(TextKind.THINKING)
        self._block = dict(block)
        self._whole = True

    def delta(self, delta: Delta) -> None:
        if delta.type == f"{self.kind}_delta" and (delta.content is not None or delta.encrypted_content is not None):
            for field in ("content", "encrypted_content"):
                value = getattr(delta, field)
                if value is not None:
                    self._block[field] = value
        else:
            self._whole = False  # half a block must not be sent back as if it were one

    def close(self) -> None:
        self._answer.close_text(self._part, own(block=self._block) if self._whole else None)
