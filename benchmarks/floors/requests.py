"""Short requests with httpx on trio, beside idle streams."""

from __future__ import annotations

import sys

import httpx
import trio

from benchmarks.sample import Stopwatch

REQUESTS = 500


async def exchange(client: httpx.AsyncClient, url: str) -> None:
    """One request with its whole answer."""
    async with client.stream("POST", f"{url}/chat/completions", json={"stream": True}) as response:
        async for _ in response.aiter_bytes():
            pass


async def main(idle: int, url: str) -> None:
    """Hold idle streams open, then ask."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client, trio.open_nursery() as nursery:
        for _ in range(idle):
            nursery.start_soon(exchange, client, url.replace("/stream/1/12/event/", "/idle/"))
        await trio.sleep(1)
        watch = Stopwatch()
        for _ in range(REQUESTS):
            await exchange(client, url)
        watch.report(REQUESTS)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
