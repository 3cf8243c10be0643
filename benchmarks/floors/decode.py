"""One stream over a blocking socket, with the standard library's JSON: what cannot be done away with."""

from __future__ import annotations

import json
import socket
import sys
from urllib.parse import urlsplit

from benchmarks.sample import Stopwatch

DELTAS = 20_000


def main(url: str) -> None:
    """Read one stream."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        watch = Stopwatch()
        connection.sendall(
            b"POST %b/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" % parts.path.encode()
        )
        file = connection.makefile("rb", buffering=1 << 16)
        while file.readline() != b"\r\n":
            pass
        text, rest = 0, b""
        while size := int(file.readline(), 16):
            *events, rest = (rest + file.read(size)).split(b"\n\n")
            file.readline()
            text += sum(map(text_in, events))
        watch.report(DELTAS)
    assert text == DELTAS * 12, text


def text_in(event: bytes) -> int:
    """Characters of text in one event."""
    data = event[6:]
    if data == b"[DONE]":
        return 0
    choices = json.loads(data)["choices"]
    return len(choices[0]["delta"].get("content") or "") if choices else 0


if __name__ == "__main__":
    main(sys.argv[1])
