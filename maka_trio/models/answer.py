"""`AnswerReader`: one HTTP/1.1 answer, sans-IO. Bytes in, its head and the bytes of its body out.

It takes what h11 takes, to the same meaning, and refuses what h11 refuses.
"""

from __future__ import annotations

from typing import Final

from maka_trio.limits import KIB
from maka_trio.models.chunks import Dechunker
from maka_trio.models.head import Head, Malformed, Section, says_close

FIRST_BYTES: Final = KIB
"""How much is kept of the beginning of what is not HTTP, to tell what it is."""

_HTTP: Final = b"HTTP/"


class AnswerReader:
    """Reads the answer to one POST request.

    Args:
        connection: what the request's `connection` header says, if it has one.

    Attributes:
        head: once it is there. Heads that only announce it (1xx) are passed over.
        ended: the answer was read to its end.
        fault: what is wrong after the bytes that were given out; the caller raises it once it has dealt with them.
        not_http: the beginning of what is not HTTP at all, which is a fault.
    """

    def __init__(self, connection: bytes | None) -> None:
        self.head: Head | None = None
        self.ended = False
        self.fault: str | None = None
        self.not_http = b""
        self._kept = connection is None or not says_close(connection)
        self._section: Section | None = Section()
        self._chunks: Dechunker | None = None
        self._left: int | None = None  # of a body whose length was said

    @property
    def reusable(self) -> bool:
        """The connection may be used for another request: the answer has ended, and nothing came after it."""
        return self.ended and self._kept

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body that these bytes from the network hold. No bytes mean that the far side has closed."""
        parts: list[bytes] = []
        try:
            if not data:
                self._close()
            elif self._section is not None:
                self._read_head(self._section, data, parts)
            else:
                self._read_body(data, parts)
        except Malformed as fault:
            self.fault = str(fault)
        return b"".join(parts)

    def _close(self) -> None:
        if self.head is None or self._chunks is not None or self._left is not None:
            raise Malformed("the connection was closed in the middle of the answer")
        self.ended, self._kept = True, False

    # --- the head -----------------------------------------------------------------------------------------

    def _read_head(self, section: Section, data: bytes, parts: list[bytes]) -> None:
        section.add(data)
        while self.head is None:
            self._check_beginning(section)
            lines = section.next()
            if lines is None:
                return
            self._take(Head.of(lines))
        self._section = None
        self._read_body(section.rest, parts)

    def _check_beginning(self, section: Section) -> None:
        if not _HTTP.startswith(section.beginning(len(_HTTP))):
            self.not_http = section.beginning(FIRST_BYTES)
            raise Malformed("not HTTP")

    def _take(self, head: Head) -> None:
        if head.status == 101:
            raise Malformed("status 101: another protocol, which nobody asked for")
        if head.status < 200:
            return
        self.head = head
        self._kept = self._kept and not head.closes
        if head.status in (204, 304):
            self._left = 0
        elif head.framing.chunked:
            self._chunks = Dechunker()
        else:
            self._left = head.framing.length

    # --- the body -----------------------------------------------------------------------------------------

    def _read_body(self, data: bytes, parts: list[bytes]) -> None:
        if self._chunks is not None:
            self._chunks.feed(data, parts)
            self.ended, clean = self._chunks.ended, self._chunks.clean
        elif self._left is not None:
            parts.append(data[: self._left])
            clean = len(data) <= self._left
            self._left = max(0, self._left - len(data))
            self.ended = not self._left
        else:  # it ends where the connection ends
            parts.append(data)
            clean = True
        self._kept = self._kept and clean
