"""Decodes the answer of a chat completions server, streamed or whole (semantics 4.5, 4.7).

An answer is complete once its finish reason is known and nothing more can be said of it: usage came with the reason
or after it, `[DONE]` came, or the transport gave up waiting. Until then trailing usage may still come, and some
servers send more text. Counts are totals of which the last one stated counts, of those stated until then: an answer
whose reason and usage are known is complete, and nobody waits to see whether its server has yet another count.

Of several finish reasons the worst counts: an answer that was cut once stays cut, and one that says it was filtered
or failed, in a reason or in an error anywhere beside it, makes no step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from maka_trio import limits
from maka_trio.dialect import Dialect
from maka_trio.errors import AdapterError, ModelError
from maka_trio.facts.json_value import JsonObject
from maka_trio.facts.model import FinishReason, ModelEvent, TextKind, UrlSource
from maka_trio.protocol.chat_calls import CallAssembler
from maka_trio.protocol.chat_chunk import CHUNK_DECODER, Choice, Chunk, Delta
from maka_trio.protocol.chat_content import Piece, content_pieces, reasoning_text
from maka_trio.protocol.chat_finish import canonical, fitting, meaning
from maka_trio.protocol.chat_reasoning import ReasoningDetails
from maka_trio.protocol.chat_usage import ChatUsage
from maka_trio.protocol.failures import CHAT_RULES, classify_error
from maka_trio.protocol.payload import quoted
from maka_trio.protocol.sse import SseEvent
from maka_trio.protocol.stream_decoder import StreamDecoder

_DONE: Final = b"[DONE]"
_BRACKET: Final = _DONE[0]


class ChatDecoder(StreamDecoder):
    """The answer to one request.

    Args:
        dialect: the ways of the server.
        key: under which key its own marks stand in provider options.
    """

    def __init__(self, dialect: Dialect, key: str) -> None:
        super().__init__()
        self._dialect = dialect
        self._key = key
        self._calls = CallAssembler(generated_ids=dialect.generated_ids, key=key)
        self._details = ReasoningDetails(kept=dialect.reasoning_key == "reasoning_details")
        self._usage = ChatUsage()
        self._reason: str | None = None  # as it was stated
        self._stated = FinishReason.STOP
        self._part = ""  # the open text part
        self._part_is: Piece | None = None
        self._said = False  # some text that is no thinking
        self._whole: Delta | None = None
        self._source_ids = itertools.count()
        self._id: object = None
        self._model: object = None

    # --- StreamDecoder -----------------------------------------------------------------------------------

    def on_event(self, event: SseEvent) -> None:
        """Decode one payload."""
        if event.data[0] == _BRACKET and event.data.strip() == _DONE:
            self._on_done()
            return
        try:
            chunk = CHUNK_DECODER.decode(event.data)
        except (msgspec.MsgspecError, RecursionError) as error:
            if not self._is_comment(event.data):
                raise self._malformed(error, event.data, event.offset) from None
            return
        if chunk.error or event.name == "error" or _is_error(chunk):
            raise self._stated_error(event.data)
        self._on_chunk(chunk)

    def on_end(self) -> None:
        """The body ended, or the grace is over. A finish reason is enough; usage is what was stated so far."""
        if self._reason is None:
            raise self.truncated()
        self._complete()

    # --- a whole completion ------------------------------------------------------------------------------

    def document(self, body: bytes) -> list[ModelEvent]:
        """The events of a plain JSON completion. Nothing follows it, so it is complete or an error."""
        try:
            chunk = CHUNK_DECODER.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._malformed(error, body, None) from None
        if chunk.error or _is_error(chunk):
            raise self._stated_error(body)
        if not chunk.choices:
            raise AdapterError(f"the answer is no completion: {quoted(body)}")
        for choice in chunk.choices:
            choice.delta, choice.message = choice.message or choice.delta, None
        self._on_chunk(chunk)
        if not self.finished:
            self._on_done()
        return self.answer.take()

    # --- one payload -------------------------------------------------------------------------------------

    def _on_chunk(self, chunk: Chunk) -> None:
        if chunk.id != self._id or chunk.model != self._model:
            self._on_metadata(chunk)
        for choice in chunk.choices or ():
            if not choice.index:
                self._on_choice(choice)
        if isinstance(chunk.x_groq, dict):
            self._on_groq(chunk.x_groq, chunk.usage)
        elif chunk.usage is not None:
            self._on_usage(chunk.usage)

    def _on_groq(self, stated: dict[str, Any], usage: object) -> None:
        """What one server says beside its chunks: an error that stopped the answer, and usage."""
        if stated.get("error"):
            raise self._classified(stated)
        if usage is not None:
            self._on_usage(usage)
        elif stated.get("usage"):
            self._on_usage(stated["usage"])

    def _on_metadata(self, chunk: Chunk) -> None:
        self._id, self._model = chunk.id, chunk.model
        self.answer.metadata(_word(chunk.id), _word(chunk.model), _seconds(chunk.created))

    def _on_choice(self, choice: Choice) -> None:
        if choice.error:
            raise self._classified({"error": choice.error})
        if choice.delta is not None:
            self._on_delta(choice.delta)
        if choice.message is not None and self._dialect.whole_messages:
            self._whole = choice.message
        if choice.finish_reason:
            self._on_reason(choice.finish_reason)

    def _on_delta(self, delta: Delta) -> None:
        if delta.reasoning_content or delta.reasoning or delta.reasoning_text or delta.reasoning_details:
            self._on_reasoning(delta)
        content = delta.content
        if isinstance(content, str):
            if content:
                self._say(Piece.TEXT, content)
        elif content:
            for piece, text in content_pieces(content):
                self._say(piece, text)
        if delta.tool_calls or delta.function_call or delta.refusal or delta.annotations:
            self._on_rarer(delta)

    def _on_reasoning(self, delta: Delta) -> None:
        text = reasoning_text(delta)
        if text:
            self._say(Piece.THINKING, text)
        if isinstance(delta.reasoning_details, list):
            self.answer.reserve(self._details.add(delta.reasoning_details))

    def _on_rarer(self, delta: Delta) -> None:
        if delta.refusal and isinstance(delta.refusal, str):
            self._say(Piece.REFUSAL, delta.refusal)
        if delta.tool_calls:
            self.answer.reserve(self._calls.add(delta.tool_calls))
        elif delta.function_call:
            raise AdapterError("the answer uses function_call, the form before tool calls, which is not supported")
        if isinstance(delta.annotations, list):
            self._cite(delta.annotations)

    def _say(self, piece: Piece, text: str) -> None:
        if self._part_is is not piece:
            self._close_part()
            thinking = piece is Piece.THINKING
            options: JsonObject | None = {self._key: {"refusal": True}} if piece is Piece.REFUSAL else None
            self._part = self.answer.open_text(TextKind.THINKING if thinking else TextKind.TEXT, options)
            self._part_is = piece
            self._said |= not thinking
        self.answer.text(self._part, text)

    def _close_part(self) -> None:
        if self._part_is is not None:
            details = self._details.take() if self._part_is is Piece.THINKING else None
            self.answer.close_text(self._part, self._own(reasoning_details=details) if details else None)
            self._part_is = None

    def _cite(self, annotations: Iterable[object]) -> None:
        for annotation in annotations:
            cited = annotation.get("url_citation") if isinstance(annotation, dict) else None
            if isinstance(cited, dict) and isinstance(cited.get("url"), str):
                title = cited.get("title")
                source_id = f"source-{next(self._source_ids)}"
                self.answer.cite(UrlSource(source_id, cited["url"], title if isinstance(title, str) else None))

    def _on_usage(self, usage: object) -> None:
        if self._usage.state(usage) and self._reason is not None:
            self._complete()

    # --- the end -----------------------------------------------------------------------------------------

    def _on_reason(self, reason: str) -> None:
        if self._reason == reason:
            return
        stated = meaning(reason, self._dialect, replay_safe=self.replay_safe)
        if self._stated is not FinishReason.LENGTH:  # what was cut once is not made whole by a later word
            self._stated, self._reason = stated, reason
        self.in_grace = True

    def _on_done(self) -> None:
        if self._reason is None:
            self._take_whole()
            if not self._may_end_unstated():
                raise self.truncated()
        self._complete()

    def _may_end_unstated(self) -> bool:
        """Whether the end marker may stand for a finish reason that was never stated."""
        match self._dialect.finish:
            case "required":
                return False
            case "text_optional":
                return self._said and not self._calls
            case "optional":
                return self._said or bool(self._calls)

    def _take_whole(self) -> None:
        """Take the whole message that stood beside deltas, if those said nothing."""
        if self._whole is not None and not self.answer.observed_output and not self._calls:
            self._on_delta(self._whole)
        self._whole = None

    def _complete(self) -> None:
        self._take_whole()
        self._close_part()
        self._keep_late_details()
        calls = self._calls.finish()
        for call in calls:
            self.answer.call(call)
        self.in_grace = False
        reason = fitting(self._stated, calls=bool(calls), text=self._said)
        odd = self._reason is not None and self._reason != canonical(reason)
        self.answer.finish(reason, self._usage.total(), self._own(finish_reason=self._reason) if odd else None)

    def _keep_late_details(self) -> None:
        details = self._details.take()
        if details:
            part = self.answer.open_text(TextKind.THINKING)
            self.answer.close_text(part, self._own(reasoning_details=details))

    def _own(self, **marks: Any) -> JsonObject:
        return {self._key: marks}

    # --- faults ------------------------------------------------------------------------------------------

    def _is_comment(self, data: bytes) -> bool:
        return self._dialect.comment_payloads and (data.startswith(b":") or not data.strip())

    def _stated_error(self, data: bytes) -> ModelError:
        try:
            value = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:  # fields that nobody typed were never looked at
            return self._malformed(error, data, None)
        return self._classified(value)

    def _classified(self, value: object) -> ModelError:
        return classify_error(value, CHAT_RULES, replay_safe=self.replay_safe, observed_output=self.observed_output)

    def _malformed(self, error: Exception, data: bytes, offset: int | None) -> ModelError:
        """The error of a payload that is no chunk; some servers state their errors in a list or as bare text."""
        try:
            value = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            value = None
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, dict) and first.get("error"):
            return self._classified(first)
        where = "" if offset is None else f" at byte {offset}"
        return AdapterError(
            f"the answer{where} is not what the protocol allows: {error}: {quoted(data)}", offset=offset
        )


def _word(value: object) -> str | None:
    return value if value and isinstance(value, str) else None


def _seconds(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and 0 < value <= limits.MAX_OUTPUT_TOKENS else None


def _is_error(chunk: Chunk) -> bool:
    return chunk.choices is None and "error" in (chunk.object, chunk.type)
