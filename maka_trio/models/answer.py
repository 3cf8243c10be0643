"""`AnswerReader`: one HTTP/1.1 answer, sans-IO. Bytes in, its head and the bytes of its body out.

Nearly every answer has a plain head and a body in chunks or of a stated length, and is read here. Everything else goes
to h11, from its first byte on, and so does an answer that turns out to be something else further on: what it means, or
that it is an error, is h11's to say. Between the two, `Rechunker` keeps many small chunks from costing much.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import h11

from maka_trio.limits import KIB
from maka_trio.models.rechunk import HEAD_BYTES, Dechunker, Rechunker

PARSER_BYTES: Final = 100 * KIB
"""The longest head, and the longest size line of a chunk, that the parser takes."""

FIRST_BYTES: Final = KIB
"""How much of the beginning is remembered where it is no plain answer, to tell what it is if it is not HTTP."""

_VERSION: Final = b"HTTP/1.1 "
_LAST_CHUNK: Final = b"0\r\n\r\n"
_BLANK_LINE = re.compile(rb"\n\r?\n")
_END: Final = h11.EndOfMessage()

_TEXT = rb"[\t\x20-\x7e\x80-\xff]*"
_FIELDS = rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:" + _TEXT + rb"\r\n)*"
_HEAD = re.compile(rb"HTTP/1\.1 ([2-5][0-9]{2})(?: " + _TEXT + rb")?\r\n(" + _FIELDS + rb")\r\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")

Field = tuple[bytes, bytes]


class Head(NamedTuple):
    """Status and headers, names in lower case."""

    status: int
    fields: list[Field]


class AnswerReader:
    """Reads the answer to one request.

    Args:
        method: of the request.
        connection: what the request's `connection` header says, if it has one.

    Attributes:
        head: once it is there.
        ended: the answer was read to its end.
        fault: what was met after the bytes that were given out; the caller raises it once it has dealt with them.
        first_bytes: the beginning of an answer that is not plain.
    """

    def __init__(self, method: str, connection: bytes | None) -> None:
        self.head: Head | None = None
        self.ended = False
        self.fault: h11.RemoteProtocolError | None = None
        self.first_bytes = b""
        self._request = (method, connection)
        self._read = b""  # the head, or as much of it as there is; the parser is given it if it is needed after all
        self._chunks: Dechunker | None = None
        self._left = 0
        self._clean = True  # nothing came after the end
        self._parser: _Parser | None = None

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body that these bytes from the network hold. No bytes mean that the far side has closed."""
        if self._parser is not None:
            return self._parse(data)
        if self.head is None:
            return self._read_head(data)
        return self._read_body(data)

    @property
    def reusable(self) -> bool:
        """The connection may be used for another request: the answer has ended, and nothing came after it."""
        if self._parser is not None:
            return self._parser.reusable
        return self.ended and self._clean

    # --- plain answers ------------------------------------------------------------------------------------

    def _read_head(self, data: bytes) -> bytes:
        before = len(self._read)
        self._read += data
        if _BLANK_LINE.search(self._read, max(0, before - 2)) is None:
            waits = data and len(self._read) <= HEAD_BYTES and _begins(self._read)
            return b"" if waits else self._give_up(b"", closed=not data)
        found = _HEAD.match(self._read)
        if found is None or not self._take_head(int(found[1]), found[2]):
            return self._give_up(b"")
        self._read, rest = found[0], self._read[found.end() :]
        return self._read_body(rest) if rest else b""

    def _take_head(self, status: int, lines: bytes) -> bool:
        """Take a head whose body is framed in one of the two usual ways, or say that it is no such head."""
        fields = _fields(lines)
        coding = [value for name, value in fields if name == b"transfer-encoding"]
        length = [value for name, value in fields if name == b"content-length"]
        asked = self._request[1] is not None or any(name == b"connection" for name, _ in fields)
        if asked or status in (204, 304):
            return False
        match coding, length:
            case [only], [] if only.lower() == b"chunked":
                self._chunks = Dechunker(b"")
            case [], [only] if _LENGTH.fullmatch(only):
                self._left = int(only)
            case _:
                return False
        self.head = Head(status, fields)
        self.ended = self._chunks is None and not self._left
        return True

    def _read_body(self, data: bytes) -> bytes:
        if not data:
            return self._give_up(b"", closed=True)
        if self._chunks is None:
            return self._count(data)
        body, rest = self._chunks.feed(data)
        self.ended = rest == _LAST_CHUNK
        return body + self._give_up(rest) if rest and not self.ended else body

    def _count(self, data: bytes) -> bytes:
        body = data[: self._left]
        self._left -= len(body)
        self.ended = not self._left
        self._clean = len(body) == len(data)
        return body

    # --- all others ---------------------------------------------------------------------------------------

    def _give_up(self, rest: bytes, *, closed: bool = False) -> bytes:
        """Let the parser go on: with the head, and with what comes after the last chunk that was read."""
        read, self._read = self._read, b""
        held = self._chunks.flush() if self._chunks is not None else b""
        self.first_bytes = read[:FIRST_BYTES]
        self._parser = _Parser(*self._request)
        body = [self._parse(data) for data in (read, held + rest) if data]
        return b"".join([*body, self._parse(b"")] if closed else body)

    def _parse(self, data: bytes) -> bytes:
        assert self._parser is not None
        body = self._parser.feed(data)
        self.head = self.head or self._parser.head
        self.ended, self.fault = self._parser.ended, self._parser.fault
        return body


class _Parser:
    """h11 behind `Rechunker`."""

    def __init__(self, method: str, connection: bytes | None) -> None:
        self.head: Head | None = None
        self.ended = False
        self.fault: h11.RemoteProtocolError | None = None
        self._framing = Rechunker()
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=PARSER_BYTES)
        self._http.send(_outline(method, connection))
        self._http.send(_END)

    @property
    def reusable(self) -> bool:
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        return done and self._framing.complete

    def feed(self, data: bytes) -> bytes:
        passed = self._framing.feed(data) if data else self._framing.flush()
        if passed:
            self._http.receive_data(passed)
        if not data:
            self._http.receive_data(b"")
        return b"".join(self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        while not self.ended:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as fault:
                self.fault = fault
                return
            match event:
                case h11.Data():
                    yield bytes(event.data)
                case h11.Response() | h11.InformationalResponse(status_code=101):
                    self.head = Head(event.status_code, list(event.headers))
                    self.ended = event.status_code == 101  # it ends HTTP on this connection
                case h11.EndOfMessage():
                    self.ended = True
                case h11.NEED_DATA | h11.PAUSED:
                    return


@functools.lru_cache(maxsize=16)
def _outline(method: str, connection: bytes | None) -> h11.Request:
    """What the parser is told of a request: its method, and whether the connection is to outlive it."""
    headers = [(b"host", b"-"), (b"content-length", b"0")]
    return h11.Request(
        method=method, target="/", headers=headers if connection is None else [*headers, (b"connection", connection)]
    )


def _begins(data: bytes) -> bool:
    """Whether it may become the head of a plain answer."""
    return data.startswith(_VERSION[: len(data)])


def _fields(lines: bytes) -> list[Field]:
    parts = (line.partition(b":") for line in lines.split(b"\r\n") if line)
    return [(name.lower(), value.strip(b" \t")) for name, _, value in parts]
