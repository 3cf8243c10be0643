"""A scripted answer as events of the Responses protocol. Sans-IO; the server's side of `protocol.openai_responses`."""

from __future__ import annotations

from collections.abc import Iterator

from maka_trio.facts.json_value import JSON
from maka_trio.facts.model import FinishReason, ModelUsage
from maka_trio.testing.answers import Call, Text, Thinking, WireError, sse


class ResponsesWire:
    """One response of `POST {base}/responses`.

    A text is a message item, thinking a reasoning item with a summary (its signature the encrypted content), a
    call a function call item.
    """

    def __init__(self, response_id: str, model: str) -> None:
        self._id = response_id
        self._model = model
        self._number = -1
        self._items: list[JSON] = []
        self._open: str | None = None
        self._pieces: list[str] = []

    def start(self) -> Iterator[bytes]:
        """The response as it is created."""
        yield self._event("response.created", {"response": self._response("in_progress")})
        yield self._event("response.in_progress", {"response": self._response("in_progress")})

    def text(self, part: Text) -> Iterator[bytes]:
        """A delta of a message item, which it opens where none is open."""
        if self._open != "message":
            yield from self._stop()
            yield from self._start_message()
        self._pieces.append(part.text)
        yield self._event("response.output_text.delta", self._place("content_index") | {"delta": part.text})

    def thinking(self, part: Thinking) -> Iterator[bytes]:
        """A delta of a reasoning summary; a signature ends the item."""
        if self._open != "reasoning":
            yield from self._stop()
            yield from self._start_reasoning()
        self._pieces.append(part.text)
        yield self._event("response.reasoning_summary_text.delta", self._place("summary_index") | {"delta": part.text})
        if part.signature is not None:
            yield from self._stop(part.signature)

    def call(self, part: Call, call_id: str) -> Iterator[bytes]:
        """A function call item."""
        yield from self._stop()
        item: dict[str, JSON] = {
            "id": self._item_id("fc"),
            "type": "function_call",
            "call_id": call_id,
            "name": part.name,
        }
        yield self._added(item | {"status": "in_progress", "arguments": ""})
        place: dict[str, JSON] = {"item_id": item["id"], "output_index": len(self._items)}
        fragments = part.argument_fragments()
        for fragment in fragments:
            yield self._event("response.function_call_arguments.delta", place | {"delta": fragment})
        arguments = "".join(fragments)
        yield self._event("response.function_call_arguments.done", place | {"arguments": arguments})
        yield self._done(item | {"status": "completed", "arguments": arguments})

    def heartbeat(self) -> bytes:
        """A comment."""
        return b": heartbeat\n\n"

    def error(self, part: WireError) -> bytes:
        """A failed response."""
        error: JSON = {"code": part.type, "message": part.message}
        return self._event("response.failed", {"response": self._response("failed") | {"error": error}})

    def finish(self, reason: FinishReason | str, usage: ModelUsage | None) -> Iterator[bytes]:
        """The last item's end, then the whole response."""
        yield from self._stop()
        complete = reason in (FinishReason.STOP, FinishReason.TOOL_CALLS)
        response = self._response("completed" if complete else "incomplete")
        if not complete:
            named = "max_output_tokens" if reason is FinishReason.LENGTH else str(reason)
            response["incomplete_details"] = {"reason": named}
        if usage is not None:
            response["usage"] = _usage(usage)
        yield self._event("response.completed" if complete else "response.incomplete", {"response": response})

    # --- items ----------------------------------------------------------------------------------------------

    def _start_message(self) -> Iterator[bytes]:
        self._open = "message"
        yield self._added(self._message("in_progress", []))
        part: JSON = {"type": "output_text", "text": "", "annotations": []}
        yield self._event("response.content_part.added", self._place("content_index") | {"part": part})

    def _start_reasoning(self) -> Iterator[bytes]:
        self._open = "reasoning"
        yield self._added({"id": self._item_id("rs"), "type": "reasoning", "summary": []})
        part: JSON = {"type": "summary_text", "text": ""}
        yield self._event("response.reasoning_summary_part.added", self._place("summary_index") | {"part": part})

    def _stop(self, signature: str | None = None) -> Iterator[bytes]:
        kind, self._open = self._open, None
        text, self._pieces = "".join(self._pieces), []
        if kind == "message":
            yield from self._stop_message(text)
        elif kind == "reasoning":
            yield from self._stop_reasoning(text, signature)

    def _stop_message(self, text: str) -> Iterator[bytes]:
        place = self._place("content_index", "msg")
        part: JSON = {"type": "output_text", "text": text, "annotations": []}
        yield self._event("response.output_text.done", place | {"text": text})
        yield self._event("response.content_part.done", place | {"part": part})
        yield self._done(self._message("completed", [part]))

    def _stop_reasoning(self, text: str, signature: str | None) -> Iterator[bytes]:
        place = self._place("summary_index", "rs")
        part: JSON = {"type": "summary_text", "text": text}
        yield self._event("response.reasoning_summary_text.done", place | {"text": text})
        yield self._event("response.reasoning_summary_part.done", place | {"part": part})
        item: dict[str, JSON] = {"id": self._item_id("rs"), "type": "reasoning", "summary": [part]}
        yield self._done(item if signature is None else item | {"encrypted_content": signature})

    def _message(self, status: str, content: JSON) -> dict[str, JSON]:
        return {
            "id": self._item_id("msg"),
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._id}_{len(self._items)}"

    def _place(self, index: str, prefix: str | None = None) -> dict[str, JSON]:
        kind = prefix or {"message": "msg", "reasoning": "rs"}[self._open or ""]
        return {"item_id": self._item_id(kind), "output_index": len(self._items), index: 0}

    def _added(self, item: JSON) -> bytes:
        return self._event("response.output_item.added", {"output_index": len(self._items), "item": item})

    def _done(self, item: JSON) -> bytes:
        event = self._event("response.output_item.done", {"output_index": len(self._items), "item": item})
        self._items.append(item)
        return event

    # --- the envelope ---------------------------------------------------------------------------------------

    def _response(self, status: str) -> dict[str, JSON]:
        return {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": 1,
            "status": status,
            "model": self._model,
            "output": list(self._items),
            "error": None,
            "incomplete_details": None,
            "usage": None,
        }

    def _event(self, name: str, body: dict[str, JSON]) -> bytes:
        self._number += 1
        envelope: dict[str, JSON] = {"type": name, "sequence_number": self._number}
        return sse(envelope | body, event=name)


def _usage(usage: ModelUsage) -> JSON:
    stated: dict[str, JSON] = {}
    if usage.input_tokens is not None:
        stated["input_tokens"] = usage.input_tokens
    if usage.output_tokens is not None:
        stated["output_tokens"] = usage.output_tokens
    if usage.cache_read_tokens is not None:
        stated["input_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
    if usage.reasoning_tokens is not None:
        stated["output_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return stated
