"""The lines of an HTTP/1.1 answer: its head, and trailers. Sans-IO.

What is accepted, and what it means, is what h11 accepts and what it means there. What it costs is the length of what
was sent and nothing more, whoever sends it: no part of a pattern gives back what it took, and nothing is copied or
looked at again because more has come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from maka_trio.limits import KIB

SECTION_BYTES: Final = 100 * KIB
"""The longest head, trailer section or size line of a chunk that is waited for. Servers write less than 16 KiB."""

_BLANK_LINE = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/([0-9]\.[0-9]) ([1-9][0-9]{2})(?: [^\x00\n\v\f\r]*+)?\r?")
_FIELD = re.compile(rb"^([!#$%&'*+.^_`|~0-9A-Za-z-]++):([^\x00\n\v\f\r]*+)\r?$", re.MULTILINE)
_FOLD = re.compile(rb"\r?\n[ \t]++")
_LENGTH = re.compile(rb"[0-9]{1,20}")

Field = tuple[bytes, bytes]


class Malformed(Exception):
    """It is not HTTP/1.1. The text quotes what was sent, whole."""


class Section:
    """Collects lines up to a blank one, any number of times."""

    def __init__(self) -> None:
        self._seen = bytearray(b"\n")  # begins with the end of the line before, so that a blank one may be the first
        self._searched = 0

    def add(self, data: bytes) -> None:
        """More has come."""
        self._seen += data

    def next(self) -> bytes | None:
        """What comes before the next blank line, without the end of the last line. None if that has not come yet.

        Raises:
            Malformed: too much has come without it.
        """
        seen = self._seen
        blank = _BLANK_LINE.search(seen, self._searched)
        if blank is None:
            if len(seen) > SECTION_BYTES:
                raise Malformed(f"more than {SECTION_BYTES} bytes of header lines")
            self._searched = max(0, len(seen) - 2)
            return None
        lines = bytes(seen[1 : blank.start()])
        del seen[: blank.end() - 1]
        self._searched = 0
        return lines

    def beginning(self, length: int) -> bytes:
        """What the next lines begin with."""
        return bytes(self._seen[1 : 1 + length])

    @property
    def rest(self) -> bytes:
        """What has come after the last blank line that was found."""
        return bytes(self._seen[1:])


class Framing(NamedTuple):
    """What headers say about the body: that it comes in chunks, or how long it is, or neither."""

    chunked: bool
    length: int | None

    @classmethod
    def of(cls, fields: Iterable[Field]) -> Framing:
        """What these say.

        Raises:
            Malformed: they contradict each other, or name another coding than chunks.
        """
        codings: list[bytes] = []
        lengths: set[bytes] = set()
        for name, value in fields:
            if name == b"transfer-encoding":
                codings.append(value.lower())
            elif name == b"content-length":
                lengths.update(length.strip() for length in value.split(b","))
        if codings not in ([], [b"chunked"]):
            raise Malformed(f"not a transfer encoding that is understood: {codings!r}")
        if lengths and not (len(lengths) == 1 and _LENGTH.fullmatch(next(iter(lengths)))):
            raise Malformed(f"not one content length: {lengths!r}")
        return cls(bool(codings), int(lengths.pop()) if lengths else None)


class Head(NamedTuple):
    """Status and headers of an answer.

    Attributes:
        fields: names in lower case.
        closes: the server will not keep the connection.
    """

    status: int
    fields: list[Field]
    framing: Framing
    closes: bool

    @classmethod
    def of(cls, lines: bytes) -> Head:
        """What these lines say.

        Raises:
            Malformed: they are no head.
        """
        line, _, rest = lines.partition(b"\n")
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise Malformed(f"not a status line: {line!r}")
        fields = fields_of(rest)
        closes = found[1] < b"1.1" or any(name == b"connection" and says_close(value) for name, value in fields)
        return cls(int(found[2]), fields, Framing.of(fields), closes)


def fields_of(lines: bytes) -> list[Field]:
    """Header lines taken apart, after those that are folded were put together.

    Raises:
        Malformed: they are no header lines.
    """
    if lines.startswith((b" ", b"\t")):
        raise Malformed("the first header line is the rest of one")
    if b"\n " in lines or b"\n\t" in lines:
        lines = _FOLD.sub(b" ", lines)
    fields: list[Field] = _FIELD.findall(lines)  # at most one in a line
    if len(fields) < lines.count(b"\n") + bool(lines):
        wrong = next(line for line in lines.split(b"\n") if not _FIELD.match(line))
        raise Malformed(f"not a header line: {wrong!r}")
    return [(name.lower(), value.strip(b" \t")) for name, value in fields]


def says_close(value: bytes) -> bool:
    """Whether a `connection` header ends the connection."""
    return b"close" in (option.strip() for option in value.lower().split(b","))
