"""An agent loop with httpx on trio: request, one call, its result, again. `durable` journals it by hand.

The journal is two commits a step with full synchronisation, each waited for before what comes after it. Nothing is
validated, nothing can be cancelled or recovered.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import trio

from benchmarks.sample import Stopwatch, folder, warm_up_url

TOOL = {
    "type": "function",
    "function": {
        "name": "echo",
        "description": "Give the value back.",
        "parameters": {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]},
    },
}
Record = Callable[..., None]


async def run(client: httpx.AsyncClient, url: str, record: Record) -> int:
    """One run; returns its steps that called a tool."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go on"}]
    settled: list[dict[str, Any]] = []
    for step in range(100_000):
        body = json.dumps({"model": "bench", "stream": True, "messages": messages, "tools": [TOOL]})
        record(*settled, {"kind": "requested", "step": step})
        said = await ask(client, url, body.encode())
        messages.append(said)
        if "tool_calls" not in said:
            record({"kind": "completed", "message": said})
            return step
        call = said["tool_calls"][0]
        record({"kind": "completed", "message": said}, {"kind": "dispatched", "call": call})
        result = json.dumps(json.loads(call["function"]["arguments"])["value"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        settled = [{"kind": "settled", "call": call["id"], "result": result}]
    raise AssertionError


async def ask(client: httpx.AsyncClient, url: str, body: bytes) -> dict[str, Any]:
    """One streamed request; returns the message."""
    text, rest, call = "", b"", None
    headers = {"content-type": "application/json"}
    async with client.stream("POST", f"{url}/chat/completions", content=body, headers=headers) as response:
        async for piece in response.aiter_bytes():
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                if event[6:] == b"[DONE]":
                    continue
                for choice in json.loads(event[6:])["choices"]:
                    delta = choice["delta"]
                    text += delta.get("content") or ""
                    for part in delta.get("tool_calls", ()):
                        if call is None:
                            call = part
                        else:
                            call["function"]["arguments"] += part["function"]["arguments"]
    if call is None:
        return {"role": "assistant", "content": text}
    del call["index"]
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def journal(path: Path) -> Record:
    """A recorder that commits what it is given in one transaction."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE events(sequence INTEGER PRIMARY KEY, id TEXT NOT NULL, body TEXT NOT NULL)")

    def record(*facts: dict[str, Any]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO events(id, body) VALUES (?, ?)", [(str(uuid.uuid4()), json.dumps(fact)) for fact in facts]
        )
        connection.execute("COMMIT")

    return record


async def main(runs: int, steps: int, durable: bool, url: str) -> None:
    """Make `runs` runs at once."""
    with folder() as place:
        record = journal(place / "journal.sqlite") if durable else lambda *facts: None
        async with httpx.AsyncClient(timeout=60) as client:
            await run(client, warm_up_url(url), record)
            watch = Stopwatch()
            async with trio.open_nursery() as nursery:
                for _ in range(runs):
                    nursery.start_soon(checked_run, client, url, record, steps)
            watch.report(runs * steps)


async def checked_run(client: httpx.AsyncClient, url: str, record: Record, steps: int) -> None:
    """One run that made the steps it should."""
    made = await run(client, url, record)
    assert made == steps, made


if __name__ == "__main__":
    runs, steps, how, url = sys.argv[1:]
    trio.run(main, int(runs), int(steps), how == "durable", url)
