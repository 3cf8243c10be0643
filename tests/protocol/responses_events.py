"""Responses events written short, and decoders for them."""

from __future__ import annotations

from typing import Any

from maka_trio.facts.message import Message
from maka_trio.protocol.openai_responses_options import ResponsesOptions
from maka_trio.protocol.openai_responses_stream import ResponsesDecoder
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from tests.protocol.decoding import Outcome
from tests.protocol.wire_streams import named, outcome_of

PROVIDER = ProviderConfig(ProviderKind.OPENAI_RESPONSES, "gpt", "https://api.test/v1", ApiKey("sk-secret"))
REQUEST = ModelRequest(PROVIDER, [Message.user("hi")])


def decoder(options: ResponsesOptions | None = None) -> ResponsesDecoder:
    return ResponsesDecoder(REQUEST, options or ResponsesOptions())


def decoded(*events: bytes, options: ResponsesOptions | None = None) -> Outcome:
    return outcome_of(lambda: decoder(options), b"".join(events))


def created() -> bytes:
    return named(
        "response.created", response={"id": "resp_1", "model": "gpt-x", "created_at": 1700000000, "output": []}
    )


def added(index: int, kind: str, **fields: Any) -> bytes:
    return named("response.output_item.added", output_index=index, item={"type": kind, "id": f"i_{index}", **fields})


def done(index: int, kind: str, **fields: Any) -> bytes:
    return named("response.output_item.done", output_index=index, item={"type": kind, "id": f"i_{index}", **fields})


def event(kind: str, index: int, **fields: Any) -> bytes:
    return named(f"response.{kind}", output_index=index, item_id=f"i_{index}", **fields)


def said(index: int, *pieces: str, **fields: Any) -> bytes:
    """A whole message item of one text."""
    whole = "".join(pieces)
    part = {"type": "output_text", "text": whole, "annotations": []}
    deltas = b"".join(event("output_text.delta", index, content_index=0, delta=piece) for piece in pieces)
    return b"".join(
        (
            added(index, "message", role="assistant", content=[], **fields),
            event("content_part.added", index, content_index=0, part={"type": "output_text", "text": ""}),
            deltas,
            event("output_text.done", index, content_index=0, text=whole),
            event("content_part.done", index, content_index=0, part=part),
            done(index, "message", role="assistant", content=[part], **fields),
        )
    )


def called(index: int, call_id: str, name: str, *pieces: str, **fields: Any) -> bytes:
    """A whole function call."""
    whole = "".join(pieces)
    deltas = b"".join(event("function_call_arguments.delta", index, delta=piece) for piece in pieces)
    return b"".join(
        (
            added(index, "function_call", call_id=call_id, name=name, arguments="", **fields),
            deltas,
            event("function_call_arguments.done", index, arguments=whole),
            done(index, "function_call", call_id=call_id, name=name, arguments=whole, **fields),
        )
    )


def thinking(index: int, item_id: str = "rs_1", **fields: Any) -> bytes:
    """A reasoning item with two summaries."""
    summary = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    events = [added(index, "reasoning", summary=[])]
    for number, part in enumerate(summary):
        events += [
            event(
                "reasoning_summary_part.added", index, summary_index=number, part={"type": "summary_text", "text": ""}
            ),
            event("reasoning_summary_text.delta", index, summary_index=number, delta=part["text"]),
            event("reasoning_summary_text.done", index, summary_index=number, text=part["text"]),
            event("reasoning_summary_part.done", index, summary_index=number, part=part),
        ]
    return b"".join([*events, done(index, "reasoning", **{"summary": summary, **fields, "id": item_id})])


def ended(status: str = "completed", **fields: Any) -> bytes:
    response = {"id": "resp_1", "model": "gpt-x", "status": status, "output": [], **fields}
    return named(f"response.{status}", response=response)


def incomplete(reason: str) -> bytes:
    return ended("incomplete", incomplete_details={"reason": reason})
