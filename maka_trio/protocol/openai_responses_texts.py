"""Output items of a Responses answer that are made of texts: messages and reasoning."""

from __future__ import annotations

import zlib

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.model import DocumentSource, Source, TextKind, UrlSource
from maka_trio.protocol.openai_responses_open_item import Json, OpenItem, objects, own, text_of
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.protocol.parts import AnswerParts


class _Said:
    """How far a text was streamed: its length and a checksum, which is less than the text itself."""

    __slots__ = ("_check", "_length")

    def __init__(self) -> None:
        self._length = self._check = 0

    def add(self, text: str) -> None:
        self._length += len(text)
        self._check = zlib.crc32(text.encode(), self._check)

    def rest_of(self, whole: str) -> str:
        """What is missing of the whole; nothing where the whole is no continuation, or left out."""
        if len(whole) <= self._length or zlib.crc32(whole[: self._length].encode()) != self._check:
            return ""
        return whole[self._length :]


class _Contents(OpenItem):
    """Items made of texts, each a part of its own.

    A final form may go on where the stream of a text stopped, and the rest is taken from there. One that says
    something else changes nothing: what was shown cannot be taken back.
    """

    text_kind: TextKind
    carriers: tuple[str, ...]

    def __init__(self, answer: AnswerParts, item: Json, options: ResponsesOptions) -> None:
        super().__init__(answer, item)
        self._options = options
        self._parts: dict[tuple[str, int], str] = {}
        self._said: dict[str, _Said] = {}

    def text(self, carrier: str, index: int, text: str) -> None:
        part = self._part(carrier, index)
        if text:
            self._said[part].add(text)
            self._answer.text(part, text)

    def whole_text(self, carrier: str, index: int, text: str) -> None:
        part = self._part(carrier, index)
        self.text(carrier, index, self._said[part].rest_of(text))

    def _part(self, carrier: str, index: int) -> str:
        part = self._parts.get((carrier, index))
        if part is None:
            if carrier not in self.carriers:
                raise AdapterError(f"{carrier} inside a {excerpt(self.kind)} item")
            options = {"refusal": True} if carrier == "refusal" else {}
            part = self._parts[carrier, index] = self._answer.open_text(self.text_kind, own(options))
            self._said[part] = _Said()
        return part


class MessageItem(_Contents):
    """What the model says: texts and refusals, with what they cite."""

    text_kind = TextKind.TEXT
    carriers = ("text", "refusal")

    def __init__(self, answer: AnswerParts, item: Json, options: ResponsesOptions) -> None:
        super().__init__(answer, item, options)
        self._cited: dict[int, int] = {}

    def annotation(self, index: int, annotation: Json) -> None:
        """Cite a source of one of the texts."""
        self._cited[index] = self._cited.get(index, 0) + 1
        source = _source(annotation, f"{self._part('text', index)}-source-{self._cited[index]}")
        if source is not None:
            self._answer.cite(source)

    def close(self, item: Json) -> None:
        """Take what was not streamed, and close each text."""
        for index, content in enumerate(objects(item.get("content"))):
            if content.get("type") == "refusal":
                self.whole_text("refusal", index, text_of(content, "refusal") or "")
            elif content.get("type") in ("output_text", "text"):
                self.whole_text("text", index, text_of(content, "text") or "")
                for annotation in objects(content.get("annotations"))[self._cited.get(index, 0) :]:
                    self.annotation(index, annotation)
        self._close_parts(item)

    def abandon(self) -> None:
        """Keep what was said."""
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


class ReasoningItem(_Contents):
    """What the model thinks: summaries, and plain reasoning where a server shows it."""

    text_kind = TextKind.THINKING
    carriers = ("summary", "content")

    def close(self, item: Json) -> None:
        """Take what was not streamed, and close each text, with what may go back sealed."""
        for carrier in ("summary", "content"):
            for index, content in enumerate(objects(item.get(carrier))):
                self.whole_text(carrier, index, text_of(content, "text") or "")
        self._close_parts(text_of(item, "id"), text_of(item, "encrypted_content"))

    def abandon(self) -> None:
        """Keep what was thought; unsealed, it does not go back."""
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
