"""A provider that is never the slow side: one thread, answers made before they are asked for.

Runs as a process of its own: prints its port and ends when its standard input closes. What it answers stands in the
path, before `/v1/...`:

    /stream/N/SIZE/CHUNK       N deltas of SIZE characters; CHUNK is `event` (an HTTP chunk each) or bytes a chunk
    /paced/N/SIZE/MS           the same, one event each MS milliseconds
    /loop/K                    a tool call for each of the first K requests of a conversation, then an answer
    /idle                      response headers, then nothing
    /closed                    when clients ended connections to `/idle`, by the system's monotonic clock
"""

from __future__ import annotations

import heapq
import selectors
import socket
import sys
import time
from collections.abc import Callable

from benchmarks.provider_bodies import END, STREAM_HEAD, chunk, document, loop_answer, text_answer, text_events


class Server:
    """All connections in one loop."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.closed: list[float] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer = 0
        self._running = True
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        self.selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self.selector.register(sys.stdin, selectors.EVENT_READ, self._stop)

    def run(self) -> None:
        """Serve until the parent is gone."""
        print(self._listener.getsockname()[1], flush=True)
        while self._running:
            timeout = None if not self._timers else max(0.0, self._timers[0][0] - time.monotonic())
            for key, _ in self.selector.select(timeout):
                key.data()
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at a time."""
        self._timer += 1
        heapq.heappush(self._timers, (when, self._timer, act))

    def _stop(self) -> None:
        self._running = False

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.selector.register(connection, selectors.EVENT_READ, Peer(self, connection).readable)


class Peer:
    """One connection: requests in, answers out, one at a time."""

    def __init__(self, server: Server, connection: socket.socket) -> None:
        self._server = server
        self._connection = connection
        self._received = bytearray()
        self._outgoing = memoryview(b"")
        self._watched = selectors.EVENT_READ
        self._idle = False
        self._open = True

    # --- in -----------------------------------------------------------------------------------------------

    def readable(self) -> None:
        """Bytes, or the end."""
        try:
            data = self._connection.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self._close()
            return
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end])
        length = _content_length(head)
        if len(self._received) >= end + 4 + length:
            body = bytes(self._received[end + 4 : end + 4 + length])
            del self._received[: end + 4 + length]
            self._answer(head.split(b" ", 2)[1].decode(), body)

    def _answer(self, path: str, body: bytes) -> None:
        asked, _, rest = path.partition("/v1/")
        anthropic = rest.startswith("messages")
        match asked.split("/")[1:]:
            case ["stream", count, size, chunking]:
                self._send(text_answer(int(count), int(size), chunking, anthropic=anthropic))
            case ["loop", steps]:
                done = body.count(b'"tool_call_id"')
                self._send(loop_answer(done, last=done >= int(steps), streamed=_streams(body)))
            case ["paced", count, size, pause]:
                self._send(STREAM_HEAD)
                self._pace(text_events(int(count), int(size)), 0, int(pause) / 1000, time.monotonic())
            case ["idle"]:
                self._idle = True
                self._send(STREAM_HEAD)
            case ["closed"]:
                self._send(document(self._server.closed))
            case _:
                self._close()

    # --- out ----------------------------------------------------------------------------------------------

    def _pace(self, events: tuple[bytes, ...], at: int, pause: float, start: float) -> None:
        """Send the next event and plan the one after it."""
        if not self._open:
            return
        last = at + 1 == len(events)
        self._send(chunk(events[at]) + (END if last else b""))
        if not last:
            self._server.at(start + (at + 1) * pause, lambda: self._pace(events, at + 1, pause, start))

    def _send(self, data: bytes) -> None:
        self._outgoing = memoryview(bytes(self._outgoing) + data) if self._outgoing else memoryview(data)
        self._push()

    def _push(self) -> None:
        """Send what there is room for, and come back when there is more."""
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[self._connection.send(self._outgoing) :]
        except BlockingIOError:
            self._watch(selectors.EVENT_WRITE, self._push)
        except ConnectionError:
            self._close()
        else:
            self._watch(selectors.EVENT_READ, self.readable)

    def _watch(self, events: int, act: Callable[[], None]) -> None:
        if self._open and events != self._watched:
            self._watched = events
            self._server.selector.modify(self._connection, events, act)

    def _close(self) -> None:
        if self._open:
            self._open = False
            if self._idle:
                self._server.closed.append(time.monotonic())
            self._server.selector.unregister(self._connection)
            self._connection.close()


def _content_length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"content-length:")
    return int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


def _streams(body: bytes) -> bool:
    return b'"stream":true' in body or b'"stream": true' in body


if __name__ == "__main__":
    Server().run()
