"""A program of its own, so that its memory is its own: reads a very long answer and says how much memory it took.

Prints one JSON object: resident megabytes when idle, at most while the consumer slept, and at most while it read on;
how many megabytes the server could send while the consumer slept; and how the answer ended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
import trio.testing

from maka_trio.errors import ModelError
from maka_trio.facts.message import Message
from maka_trio.models import ModelExecutor, ModelStream
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind

MEGABYTE = 1_000_000
TEXT = "x" * 1000
PAGE = 4096

DELTAS: dict[str, Any] = {
    "openai_chat_completions": {"id": "r", "choices": [{"index": 0, "delta": {"content": TEXT}}]},
    "openai_compatible": {"id": "r", "choices": [{"index": 0, "delta": {"reasoning_content": TEXT}}]},
    "openai_responses": {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": TEXT},
    "anthropic": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
}
STARTS: dict[str, list[Any]] = {
    "anthropic": [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
}


def sse(payload: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(payload).encode()


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / MEGABYTE


class Flood:
    """A server that sends as much as anybody takes."""

    def __init__(self, start: bytes, piece: bytes, total: int) -> None:
        self.start = start
        self.piece = piece
        self.total = total
        self.sent = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one request, whatever it is."""
        try:
            await stream.receive_some(65536)
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + self.start)
            while self.sent < self.total:
                await stream.send_all(self.piece)
                self.sent += len(self.piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has had enough


async def peak_until(done: Callable[[], bool]) -> float:
    """The most memory there is until something is so."""
    most = resident()
    while not done():
        await trio.sleep(0.002)
        most = max(most, resident())
    return most


async def peak_until_blocked(flood: Flood) -> float:
    """The same until the server cannot send any more: nobody reads, and the kernel holds what it can."""
    most, before = resident(), -1
    while before != flood.sent:
        before, until = flood.sent, trio.current_time() + 0.3
        most = max(most, await peak_until(lambda until=until: trio.current_time() > until))  # type: ignore[misc]
    return most


async def read_on(stream: ModelStream, ended: list[str]) -> None:
    try:
        async for _ in stream:
            pass
    except ModelError as error:
        ended.append(str(error))
    else:
        ended.append("whole")


async def main(kind: str, what: str) -> None:
    if what == "line":
        flood = Flood(b"data: ", b"x" * 65536, 100 * MEGABYTE)
    else:
        piece = sse(DELTAS[kind]) * 60
        flood = Flood(b"".join(map(sse, STARTS.get(kind, []))), piece, 100 * MEGABYTE)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    base_url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
    name = "generic" if kind == "openai_compatible" else None
    config = ProviderConfig(ProviderKind(kind), "m", base_url, ApiKey("key"), name=name)
    report: dict[str, Any] = {}
    ended: list[str] = []
    async with trio.open_nursery() as nursery, ModelExecutor() as models:
        nursery.start_soon(trio.serve_listeners, flood.serve, [listener])
        await trio.testing.wait_all_tasks_blocked()  # the code that runs has been read by now
        report["idle"] = resident()
        async with models.stream(ModelRequest(config, [Message.user("Go.")])) as stream:
            if what == "answer":
                await anext(stream)
            report["asleep"] = await peak_until_blocked(flood)
            report["sent"] = flood.sent / MEGABYTE
            async with trio.open_nursery() as reading:
                reading.start_soon(read_on, stream, ended)
                report["reading"] = await peak_until(lambda: bool(ended))
        nursery.cancel_scope.cancel()
    print(json.dumps({**report, "ended": ended[0]}))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
