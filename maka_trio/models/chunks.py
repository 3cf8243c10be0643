"""`Dechunker`: takes the body of an HTTP/1.1 answer out of its chunks. Sans-IO.

A provider that flushes each event sends a small chunk for each, and one network read brings many of them: they are gone
through in one loop. What is accepted is what h11 accepts; what it costs is the length of what was sent.
"""

from __future__ import annotations

import re

from maka_trio.models.head import SECTION_BYTES, Framing, Malformed, Section, fields_of

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;[^\r\n]*+(?:\r(?!\n)[^\r\n]*+)*+|[ \t]*+)\r\n")


class Dechunker:
    """Reads one body. It holds back no byte of it.

    Attributes:
        ended: the last chunk was read, and the trailers behind it, of which nothing is kept.
        clean: nothing came after the end.
    """

    def __init__(self) -> None:
        self.ended = False
        self.clean = True
        self._left = 0  # of a chunk
        self._footer = b""  # what has to come after the chunk
        self._line = bytearray()  # the beginning of a size line
        self._trailers: Section | None = None

    def feed(self, data: bytes, parts: list[bytes]) -> None:
        """Bytes from the network in; those of the body are added to the parts.

        Raises:
            Malformed: what comes after the bytes that were added is no chunk.
        """
        if self._trailers is not None:
            self._read_trailers(self._trailers, data)
        elif self._line:
            self._read_line(data, parts)
        else:
            self._read(data, parts)

    def _read(self, raw: bytes, parts: list[bytes]) -> None:
        at = self._rest_of_chunk(raw, 0, parts) if self._footer else 0
        while line := _SIZE_LINE.match(raw, at):
            size, start = int(line[1], 16), line.end()
            end = start + size
            if not size:
                self._trailers = Section()
                self._read_trailers(self._trailers, raw[start:])
                return
            if raw[end : end + 2] == b"\r\n":
                parts.append(raw[start:end])
                at = end + 2
            else:
                self._left, self._footer = size, b"\r\n"
                at = self._rest_of_chunk(raw, start, parts)
        self._keep_line(raw[at:])

    def _rest_of_chunk(self, raw: bytes, at: int, parts: list[bytes]) -> int:
        """Take as much as has come of a chunk and of the line end after it; returns where that ends."""
        part = raw[at : at + self._left]
        parts.append(part)
        at += len(part)
        self._left -= len(part)
        if self._left:
            return at
        found = raw[at : at + len(self._footer)]
        if not self._footer.startswith(found):
            raise Malformed(f"a chunk is followed by {found!r}")
        self._footer = self._footer[len(found) :]
        return at + len(found)

    def _read_line(self, data: bytes, parts: list[bytes]) -> None:
        """Read on once the size line is whole; only then is it looked at."""
        searched = len(self._line) - 1
        self._line += data
        if self._line.find(b"\r\n", searched) >= 0:
            raw, self._line = bytes(self._line), bytearray()
            self._read(raw, parts)
        else:
            self._check_line()

    def _keep_line(self, rest: bytes) -> None:
        line, ended, _ = rest.partition(b"\r\n")
        if ended:
            raise Malformed(f"not the size of a chunk: {line!r}")
        self._line += line
        self._check_line()

    def _check_line(self) -> None:
        if len(self._line) > SECTION_BYTES:
            raise Malformed(f"more than {SECTION_BYTES} bytes before a chunk")

    def _read_trailers(self, trailers: Section, data: bytes) -> None:
        trailers.add(data)
        lines = trailers.next()
        if lines is not None:
            Framing.of(fields_of(lines))
            self.ended, self.clean = True, not trailers.rest
