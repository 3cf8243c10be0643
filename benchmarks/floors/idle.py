"""Idle streams on bare trio sockets: what they weigh."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import trio

from benchmarks.sample import report, resident_kb

STREAMS = 256


async def main(url: str) -> None:
    """Open them, wait until each has its headers, weigh."""
    parts = urlsplit(url)
    seen = 0

    async def wait() -> None:
        nonlocal seen
        stream = await trio.open_tcp_stream(parts.hostname or "", parts.port or 0)
        path = parts.path.encode()
        await stream.send_all(b"POST %b/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" % path)
        await stream.receive_some(65536)
        seen += 1
        await stream.receive_some(65536)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        while not seen:  # noqa: ASYNC110 - nobody tells when
            await trio.sleep(0.01)
        before = resident_kb()
        for _ in range(STREAMS):
            nursery.start_soon(wait)
        while seen <= STREAMS:  # noqa: ASYNC110 - nobody tells when
            await trio.sleep(0.01)
        report(kb=(resident_kb() - before) / STREAMS)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
