"""Merging the chunks of an HTTP/1.1 response before the HTTP parser sees them. Sans-IO.

A provider that flushes each event sends one small HTTP chunk for each; a parser in Python spends most of a
stream's time on them. `Rechunker` sits between the socket and h11 and joins the chunks of one network read into
one. It decides nothing: what it does not recognise it passes on untouched, from there to the end of the response,
so that every error is h11's own. It holds back no byte of a body, only a chunk's size line that is not yet whole.

A parser need not be asked for a body at all: `Dechunker` takes the chunks apart, and the parser is given what comes
after the last of them and judges it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

HEAD_BYTES: Final = 64 * 1024
"""The longest head or trailer section that is looked at. Longer ones are h11's to refuse."""

SIZE_LINE_BYTES: Final = 1024
"""The longest size line, with extensions, that is waited for."""

_BLANK_LINE = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([0-9]{3})(?: [^\r\n]*)?\r\n")
_TRANSFER_ENCODING = re.compile(rb"\r\ntransfer-encoding:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)", re.IGNORECASE)
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([^\r\n]*?)[ \t]*(?=\r\n)", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\r\n]*)?[ \t]*\r\n")

_NO_FOOTER: Final = b"malformed chunk footer\r\n"
"""What a parser that has not seen a chunk is given for its wrong end, and refuses where a chunk's size should be."""


class Rechunker:
    """Follows one connection's responses, and merges the chunks of each."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A request goes out: what is fed from now on is its response."""
        self._step: Callable[[bytes], bytes] = self._head
        self._seen = b""  # a section that was passed on and has not ended
        self._held = b""  # a size line that is not whole; the only bytes not passed on
        self._left = 0

    @property
    def complete(self) -> bool:
        """The response was followed to its end and nothing came after it.

        A connection whose parser agrees may be used again. h11 alone would take what came after for the next answer.
        """
        return self._step == self._ended

    def feed(self, data: bytes) -> bytes:
        """Bytes from the network in, bytes for the parser out; possibly none."""
        return self._step(data)

    def flush(self) -> bytes:
        """The network ended: what was held back."""
        held, self._held = self._held, b""
        return held

    # Each step takes bytes that are not empty, and may end by handing the rest to the next one.

    def _next(self, step: Callable[[bytes], bytes], rest: bytes) -> bytes:
        self._step = step
        return step(rest) if rest else b""

    def _head(self, data: bytes) -> bytes:
        seen = self._seen + data
        end = _BLANK_LINE.search(seen, max(0, len(self._seen) - 2))
        if end is None:
            self._seen = seen
            if len(seen) > HEAD_BYTES:
                self._step = self._foreign
            return data
        self._seen = b""
        rest = seen[end.end() :]
        passed = data[: len(data) - len(rest)]
        return passed + self._next(self._body_of(seen[: end.end()]), rest)

    def _body_of(self, head: bytes) -> Callable[[bytes], bytes]:
        """The step that follows a head. Chunked only where h11 is certain to say so too."""
        status = _STATUS_LINE.match(head)
        if status is None or not _plain(head):
            return self._foreign
        code = int(status[1])
        if code < 200:
            return self._foreign if code == 101 else self._head
        if code in (204, 304):
            return self._ended
        match _TRANSFER_ENCODING.findall(head), _CONTENT_LENGTH.findall(head):
            case [coding], _ if coding.lower() == b"chunked":
                return self._chunks
            case [], [length] if _LENGTH.fullmatch(length):
                self._left = int(length)
                return self._counted if self._left else self._ended
        return self._foreign

    def _chunks(self, data: bytes) -> bytes:
        raw = self.flush() + data
        parts: list[bytes] = []
        at = 0
        while line := _SIZE_LINE.match(raw, at):
            size, start = int(line[1], 16), line.end()
            if not size:
                return _merged(parts) + self._last_chunk(raw[at : line.end()], raw[line.end() :])
            end = start + size
            if raw[end : end + 2] != b"\r\n":
                return self._open_chunk(parts, size, raw[start:])
            parts.append(raw[start:end])
            at = end + 2
        return _merged(parts) + self._partial_line(raw[at:])

    def _open_chunk(self, parts: list[bytes], size: int, rest: bytes) -> bytes:
        """A chunk of which more is to come: announce it whole, and let its bytes and its end pass as they come."""
        parts.append(rest)
        before = sum(map(len, parts)) - len(rest)
        self._left = size + 2 - len(rest)
        self._step = self._in_chunk if self._left > 0 else self._foreign
        return b"%x\r\n%b" % (before + size, b"".join(parts))

    def _in_chunk(self, data: bytes) -> bytes:
        passed, rest = data[: self._left], data[self._left :]
        self._left -= len(passed)
        if self._left:
            return passed
        return passed + self._next(self._chunks, rest)

    def _partial_line(self, rest: bytes) -> bytes:
        if b"\r\n" in rest or len(rest) > SIZE_LINE_BYTES:
            return self._next(self._foreign, rest)
        self._held = rest
        return b""

    def _last_chunk(self, line: bytes, rest: bytes) -> bytes:
        return line + self._next(self._trailers, rest)

    def _trailers(self, data: bytes) -> bytes:
        self._seen += data
        end = _trailers_end(self._seen)
        if end is not None:
            self._step = self._ended if end == len(self._seen) else self._foreign
        elif len(self._seen) > HEAD_BYTES:
            self._step = self._foreign
        return data

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left <= 0:
            self._step = self._foreign if self._left else self._ended
        return data

    def _ended(self, data: bytes) -> bytes:
        """Bytes after the end: nobody asked for them, and nothing after them can be trusted."""
        return self._next(self._foreign, data)

    def _foreign(self, data: bytes) -> bytes:
        return data


class Dechunker:
    """Takes the bodies out of chunks, from between two of them on.

    Args:
        held: the beginning of the next size line, if that much was read already.
    """

    def __init__(self, held: bytes) -> None:
        self._held = held
        self._left = 0  # of the chunk
        self._footer = b""  # what has to come after the chunk

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Bytes from the network in; out come those of the body, and what is for the parser, which ends this.

        The parser is given the last chunk, or the first thing that is none, and all that follows.
        """
        raw, self._held = self._held + data, b""
        parts: list[bytes] = []
        at = 0
        while True:
            if self._left:
                part = raw[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if self._left:
                    break
                self._footer = b"\r\n"
            if self._footer:
                found = raw[at : at + len(self._footer)]
                if not self._footer.startswith(found):
                    return b"".join(parts), _NO_FOOTER
                at += len(found)
                self._footer = self._footer[len(found) :]
                if self._footer:
                    break
            line = _SIZE_LINE.match(raw, at)
            if line is None or not int(line[1], 16):
                return b"".join(parts), self._no_chunk(raw[at:], ended=line is not None)
            self._left = int(line[1], 16)
            at = line.end()
        return b"".join(parts), b""

    def _no_chunk(self, rest: bytes, *, ended: bool) -> bytes:
        if ended or b"\r\n" in rest or len(rest) > SIZE_LINE_BYTES:
            return rest
        self._held = rest
        return b""

    def flush(self) -> bytes:
        """The network ended: what was held back."""
        held, self._held = self._held, b""
        return held


def _plain(head: bytes) -> bool:
    """Whether every line ends in CRLF and none is folded, so that lines are what they seem."""
    ends = head.count(b"\r\n")
    folded = b"\r\n " in head or b"\r\n\t" in head
    return head.count(b"\n") == ends == head.count(b"\r") and not folded


def _merged(parts: list[bytes]) -> bytes:
    if not parts:
        return b""
    body = b"".join(parts)
    return b"%x\r\n%b\r\n" % (len(body), body)


def _trailers_end(seen: bytes) -> int | None:
    """Where the section ends by h11's rule: an empty first line, else the first blank one."""
    if seen[:1] == b"\n":
        return 1
    if seen[:2] == b"\r\n":
        return 2
    blank = _BLANK_LINE.search(seen)
    return None if blank is None else blank.end()
