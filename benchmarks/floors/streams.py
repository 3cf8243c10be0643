"""Many streams with httpx on trio and the standard library's JSON, event by event, written nowhere."""

from __future__ import annotations

import json
import sys

import httpx
import trio

from benchmarks.sample import Stopwatch


async def read(client: httpx.AsyncClient, url: str) -> int:
    """Read one stream; return the characters of its text."""
    text, rest = 0, b""
    async with client.stream("POST", f"{url}/chat/completions", json={"stream": True}) as response:
        async for piece in response.aiter_bytes():
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                if event[6:] != b"[DONE]":
                    choices = json.loads(event[6:])["choices"]
                    text += len(choices[0]["delta"].get("content") or "") if choices else 0
    return text


async def main(streams: int, deltas: int, url: str) -> None:
    """Read them all at once."""
    texts: list[int] = []

    async def add() -> None:
        texts.append(await read(client, url))

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        watch = Stopwatch()
        async with trio.open_nursery() as nursery:
            for _ in range(streams):
                nursery.start_soon(add)
        watch.report_all(streams * deltas)
    assert texts == [deltas * 12] * streams


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
