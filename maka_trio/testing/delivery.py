"""Brings one scripted answer to one client: in the protocol of its request, in chunks, with all its stops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import trio

from maka_trio.facts import bounds
from maka_trio.facts.json_value import JSON
from maka_trio.testing.answers import (
    Answer,
    Control,
    Disconnect,
    Headers,
    Plain,
    Raw,
    RawStream,
    Reset,
    Said,
    Silence,
    Wire,
    cut,
    render,
)
from maka_trio.testing.chat_wire import ChatWire
from maka_trio.testing.gate import Gate
from maka_trio.testing.http_server import Exchange
from maka_trio.testing.messages_wire import MessagesWire
from maka_trio.testing.requests import RecordedRequest
from maka_trio.testing.responses_wire import ResponsesWire

_SSE_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


class Delivery:
    """One answer on its way to one client."""

    def __init__(self, exchange: Exchange, request: RecordedRequest, answer: Answer, call_ids: Iterator[str]) -> None:
        self._exchange = exchange
        self._request = request
        self._answer = answer
        self._call_ids = call_ids
        self._sent = 0

    async def send(self) -> None:
        """Send all of it. Ends early, without an error, where the script breaks the connection."""
        answer = self._answer
        if isinstance(answer, Plain):
            await self._exchange.respond(answer.status, answer.headers, answer.body)
            return
        pieces: list[bytes] = []
        for piece in self._body(answer):
            if isinstance(piece, bytes):
                pieces.append(piece)
            elif await self._flush(answer, pieces) or await self._stop_at(piece):
                return
        if await self._flush(answer, pieces):
            return
        await self._head()
        await self._exchange.finish()

    def _body(self, answer: Said | RawStream) -> Iterator[bytes | Control]:
        if isinstance(answer, Said):
            yield from render(answer, _wire(self._request, answer), self._call_ids)
            return
        for item in answer.items:
            yield item.data if isinstance(item, Raw) else item

    async def _head(self) -> None:
        if not self._exchange.head_sent:
            await self._exchange.start(200, _SSE_HEADERS)

    async def _flush(self, answer: Said | RawStream, pieces: list[bytes]) -> bool:
        """Send what has come together. True when that was the place to cut the connection."""
        for chunk in cut(pieces, answer.chunk):
            await self._head()
            left = None if answer.cut_at is None else answer.cut_at - self._sent
            if left is not None and len(chunk) >= left:
                if left:
                    await self._exchange.chunk(chunk[:left])
                self._exchange.disconnect()
                return True
            await self._exchange.chunk(chunk)
            self._sent += len(chunk)
        pieces.clear()
        return False

    async def _stop_at(self, control: Control) -> bool:
        """Do what stands between two pieces. True when nothing comes after it."""
        match control:
            case Gate():
                await control.pass_through()
                return False
            case Headers():
                await self._head()
                return False
            case Silence():
                await trio.sleep_forever()
            case Disconnect():
                self._exchange.disconnect()
            case Reset():
                self._exchange.reset()
        return True


def _field(body: JSON, *path: str) -> JSON:
    for name in path:
        body = body.get(name) if isinstance(body, Mapping) else None
    return body


def _wire_name(path: str) -> str | None:
    names: Iterable[str] = ("chat/completions", "messages", "responses")
    return next((name for name in names if path.endswith(f"/{name}")), None)


def _wire(request: RecordedRequest, answer: Said) -> Wire:
    model = str(_field(request.body, "model"))
    response_id = f"scripted{request.number}"
    match _wire_name(request.path):
        case "messages":
            return MessagesWire(response_id, model, answer.usage)
        case "responses":
            return ResponsesWire(response_id, model)
        case _:
            asked = _field(request.body, "stream_options", "include_usage") is True
            return ChatWire(response_id, model, include_usage=asked)


def why_not(request: RecordedRequest, answer: Answer) -> str | None:
    """Why an answer of the script cannot be said to this request."""
    if not isinstance(answer, Said):
        return None
    if _wire_name(request.path) is None:
        return (
            f"request {request.number} asks for {bounds.excerpt(request.path)}: only .../chat/completions, "
            ".../messages and .../responses can be answered with say and call_tools"
        )
    if _field(request.body, "stream") is not True:
        return f'request {request.number} has no "stream": true in a JSON body: say and call_tools answer streams'
    return None
