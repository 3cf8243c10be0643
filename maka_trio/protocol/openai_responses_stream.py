"""Responses answers: a stream of response events, or a whole response, to model events.

Items are told apart by their place in the output; their ids are not trusted, since some servers write another one
in every event. A server may leave out `event:` lines and any event but the last: what was not streamed is taken
from the final response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from maka_trio.errors import AdapterError, ModelError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON
from maka_trio.facts.model import FinishReason, ModelEvent, ModelUsage
from maka_trio.protocol.failures import RESPONSES_RULES, classify_error
from maka_trio.protocol.hosted_calls import HostedCalls
from maka_trio.protocol.openai_responses_ending import FAILED, Ending
from maka_trio.protocol.openai_responses_open_item import Json, OpenItem, objects, text_of
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.protocol.openai_responses_output import open_item
from maka_trio.protocol.payload import check_depth, parse_payload, quoted, token_count
from maka_trio.protocol.sse import SseEvent
from maka_trio.protocol.stream_decoder import StreamDecoder
from maka_trio.request import ModelRequest

KEY = ResponsesOptions.KEY


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: JSON = None
    text: str | None = None
    refusal: str | None = None
    arguments: JSON = None
    input: str | None = None
    code: JSON = None
    item: Json | None = None
    part: Json | None = None
    annotation: Json | None = None
    response: Json | None = None
    error: JSON = None


_EVENTS = msgspec.json.Decoder(_Event)
_ANY = msgspec.json.Decoder(Any)

_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "content",
}
_TEXTS = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.reasoning_summary_text.done": "summary",
    "response.reasoning_text.done": "content",
}
_PIECES = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_WHOLE_ARGUMENTS = frozenset(
    {
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.done",
        "response.mcp_call_arguments.done",
        "response.code_interpreter_call_code.done",
    }
)
_ENDS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": FAILED,
    "response.cancelled": "cancelled",
    "response.done": "completed",
}

_LAST_SECOND = 2**53
"""A larger number is no time that anybody means."""


class ResponsesDecoder(StreamDecoder):
    """Decodes one answer of the Responses API."""

    def __init__(self, request: ModelRequest, options: ResponsesOptions) -> None:
        super().__init__()
        self._options = options
        self._hosted = HostedCalls(self.answer, KEY, request.prompt)
        self._items: dict[int | str, OpenItem] = {}
        self._last: int | str = 0
        self._seen: set[int | str] = set()
        self._local_calls = False
        self._ending = Ending()

    # --- events --------------------------------------------------------------------------------------------

    def on_event(self, event: SseEvent) -> None:
        """Decode one event."""
        if event.data.strip() == b"[DONE]":
            raise self.truncated()
        payload = parse_payload(_EVENTS, event.data, event.offset)
        kind = payload.type or event.name
        if kind in _DELTAS:
            self._text(payload, _DELTAS[kind])
        elif kind in _PIECES:
            self._item(payload).arguments(payload.delta if isinstance(payload.delta, str) else "")
        elif kind in _TEXTS:
            self._whole_text(payload, _TEXTS[kind])
        elif kind in _WHOLE_ARGUMENTS:
            self._whole_arguments(payload)
        elif "error" in (kind, event.name) or payload.error:
            raise self._error(parse_payload(_ANY, event.data, event.offset))
        elif kind in _ENDS:
            response = payload.response
            if response is None:
                raise AdapterError(f"{excerpt(kind)} without response: {quoted(event.data)}")
            check_depth(response, event.data.decode(), "the response")
            self._end(response, *(_ENDS[word] for word in (kind, event.name) if word in _ENDS))
        else:
            self._structure(kind, payload, event.data)

    def document(self, body: bytes) -> list[ModelEvent]:
        """The events of a whole response that came instead of a stream."""
        response = parse_payload(_ANY, body)
        if isinstance(response, dict) and response.get("error"):
            raise self._error(response)
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise AdapterError(f"the answer is no response: {quoted(body)}")
        check_depth(response, body.decode(), "the response")
        self._end(response)
        return self.answer.take()

    def _structure(self, kind: str, payload: _Event, data: bytes) -> None:
        match kind:
            case "response.output_item.added" | "response.output_item.done" if payload.item is not None:
                check_depth(payload.item, data.decode(), "an output item")
                key = self._key(payload)
                if kind.endswith(".added"):
                    self._open(key, payload.item)
                else:
                    self._close(key, payload.item)
            case "response.content_part.added" if payload.part is not None:
                self._content_part(payload, payload.part)
            case "response.output_text.annotation.added" if payload.annotation is not None:
                self._item(payload).annotation(payload.content_index or 0, payload.annotation)
            case "response.created" | "response.in_progress" | "response.queued":
                self._begin(payload.response or {})
            case _:
                pass  # heartbeats, progress of hosted tools, and whatever the vendor adds

    # --- items ---------------------------------------------------------------------------------------------

    def _key(self, payload: _Event) -> int | str:
        if payload.output_index is not None:
            return payload.output_index
        item_id = payload.item_id or (text_of(payload.item, "id") if payload.item else None)
        return item_id or self._last

    def _item(self, payload: _Event) -> OpenItem:
        item = self._items.get(self._key(payload))
        if item is None:
            raise AdapterError(f"{payload.type} for output item {excerpt(self._key(payload))}, which is not open")
        return item

    def _open(self, key: int | str, item: Json) -> OpenItem:
        if key in self._items or key in self._seen:
            raise AdapterError(f"output item {excerpt(key)} starts twice")
        self._last = key
        self._ending.hear_item(item)
        opened = self._items[key] = open_item(self.answer, self._hosted, self._options, item)
        return opened

    def _close(self, key: int | str, item: Json) -> None:
        opened = self._items.get(key) or self._open(key, item)
        if item.get("type") != opened.kind:
            raise AdapterError(f"a {excerpt(opened.kind)} item is done as {excerpt(item.get('type'))}")
        del self._items[key]
        self._ending.hear_item(item)
        self._note_seen(key, item)
        self._local_calls = self._local_calls or opened.is_local_call
        opened.close(item)

    def _note_seen(self, key: int | str, item: Json) -> None:
        self._seen.add(key)
        self._seen.update(known for known in (text_of(item, "id"), text_of(item, "call_id")) if known)

    # --- texts and arguments -------------------------------------------------------------------------------

    def _text(self, payload: _Event, carrier: str) -> None:
        if isinstance(payload.delta, str):
            self._text_item(payload, carrier).text(carrier, _index(payload, carrier), payload.delta)

    def _whole_text(self, payload: _Event, carrier: str) -> None:
        text = payload.refusal if carrier == "refusal" else payload.text
        if text and self._key(payload) not in self._seen:
            self._text_item(payload, carrier).whole_text(carrier, _index(payload, carrier), text)

    def _text_item(self, payload: _Event, carrier: str) -> OpenItem:
        """The item of a text. One that was not announced is what its text says; a call could not be known so."""
        key = self._key(payload)
        if key in self._items or key in self._seen:
            return self._item(payload)
        return self._open(key, {"type": "message" if carrier in ("text", "refusal") else "reasoning"})

    def _whole_arguments(self, payload: _Event) -> None:
        stated = payload.arguments if payload.arguments is not None else payload.input or payload.code
        if isinstance(stated, str) and self._key(payload) not in self._seen:
            self._item(payload).whole_arguments(stated)

    def _content_part(self, payload: _Event, part: Json) -> None:
        """Opens a text that may stay empty, so that it keeps its place."""
        carrier = {"output_text": "text", "refusal": "refusal", "reasoning_text": "content"}.get(str(part.get("type")))
        if carrier is not None:
            self._text_item(payload, carrier).text(carrier, payload.content_index or 0, "")

    # --- the response --------------------------------------------------------------------------------------

    def _begin(self, response: Json) -> None:
        self._describe(response)
        self._ending.hear_early(response)
        self._raise_failure(response)

    def _describe(self, response: Json) -> None:
        self.answer.metadata(text_of(response, "id"), text_of(response, "model"), _seconds(response.get("created_at")))

    def _end(self, response: Json, *words: str) -> None:
        self._describe(response)
        self._ending.hear(response, *words)
        self._raise_failure(response)
        for final in objects(response.get("output")):
            self._ending.hear_item(final)
        reason, raw = self._ending.reason()
        self._take_unstreamed(response.get("output"))
        for key, item in tuple(self._items.items()):
            del self._items[key]
            item.abandon()
            self._local_calls = self._local_calls or item.is_local_call
        if reason is FinishReason.STOP and self._local_calls:
            reason = FinishReason.TOOL_CALLS
        self._hosted.defer_rest()
        self.answer.finish(reason, _usage(response.get("usage")), {KEY: raw})

    def _raise_failure(self, response: Json) -> None:
        if self._ending.has_failed or response.get("error"):
            raise self._error({**response, "status": FAILED})

    def _take_unstreamed(self, output: JSON) -> None:
        """Items of the final response that no event closed."""
        for index, item in enumerate(output if isinstance(output, list) else ()):
            if not isinstance(item, dict):
                continue
            known = {index, text_of(item, "id"), text_of(item, "call_id")}
            if not known & self._seen:
                self._close(next((key for key in (index, text_of(item, "id")) if key in self._items), index), item)

    def _error(self, payload: Mapping[str, JSON]) -> ModelError:
        return classify_error(
            payload, RESPONSES_RULES, replay_safe=self.replay_safe, observed_output=self.observed_output
        )


def _seconds(value: JSON) -> int | None:
    """A time of the provider's clock; anything that cannot be one is none."""
    return int(value) if isinstance(value, (int, float)) and 1 < value < _LAST_SECOND else None


def _index(payload: _Event, carrier: str) -> int:
    return (payload.summary_index if carrier == "summary" else payload.content_index) or 0


def _usage(usage: JSON) -> ModelUsage:
    if not isinstance(usage, Mapping):
        return ModelUsage()
    prompt, answer = _details(usage, "input_tokens_details"), _details(usage, "output_tokens_details")
    return ModelUsage(
        input_tokens=token_count(usage.get("input_tokens"), "input_tokens"),
        output_tokens=token_count(usage.get("output_tokens"), "output_tokens"),
        cache_read_tokens=token_count(prompt.get("cached_tokens"), "cached_tokens"),
        cache_write_tokens=token_count(prompt.get("cache_write_tokens"), "cache_write_tokens"),
        reasoning_tokens=token_count(answer.get("reasoning_tokens"), "reasoning_tokens"),
    )


def _details(usage: Mapping[str, JSON], field: str) -> Mapping[str, JSON]:
    details = usage.get(field)
    return details if isinstance(details, Mapping) else {}
