"""An answer is read as h11 reads it, whatever it is; plain ones without h11."""

from __future__ import annotations

import re
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maka_trio.models import answer
from maka_trio.models.answer import AnswerReader, Head
from tests.models.test_rechunk import HEAD, cut, in_fewer_words, offsets, read_with_h11, responses

COUNTED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 11\r\n\r\n"
Result = tuple[Head | None, bytes, bool, str | None]


def read(pieces: list[bytes], reader: AnswerReader | None = None) -> Result:
    """Feed the pieces, and the end of the connection if the answer has not ended before."""
    reader = reader or AnswerReader("POST", None)
    body = b""
    for piece in (*pieces, b""):
        if not reader.ended and reader.fault is None:
            body += reader.feed(piece)
    head = reader.head and Head(reader.head.status, [_field(*field) for field in reader.head.fields])
    return head, body, reader.ended, None if reader.fault is None else _plainly(str(reader.fault))


def _field(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """h11 writes codings in lower case."""
    return name, value.lower() if name == b"transfer-encoding" else value


def read_by_h11(pieces: list[bytes]) -> Result:
    """The same with nothing but h11."""
    reading = read_with_h11(iter(pieces))
    heads = [Head(status, fields) for status, fields in reading.heads if status >= 200]
    ended = reading.trailers is not None
    return heads[-1] if heads else None, reading.body, ended, _plainly(reading.error)


def _plainly(error: str | None) -> str | None:
    """How much of a body came is counted by h11 from where it was asked."""
    return in_fewer_words(error and re.sub(r"received \d+ bytes", "received some", error))


statuses = st.sampled_from(
    [b"200 OK", b"200", b"404 Not \xff Found", b"500  ", b"100 Go on", b"204 No", b"304 N", b"999 X"]
)
lines = st.sampled_from(
    [
        *(b"Content-Length: 5", b"content-length:3 ", b"Content-Length: 0", b"Content-Length: 99"),
        *(b"Content-Length: +5", b"Transfer-Encoding: chunked", b"Connection: close", b"connection: keep-alive"),
        *(b"X: \xff\x80", b"X:\ty \t", b"X: a\x00b", b"X: a\x01b", b"X: a\x7fb", b": x", b"X", b"X : y"),
        *(b" X: folded", b"Content-Type: text/event-stream"),
    ]
)


@st.composite
def counted(draw: st.DrawFn) -> bytes:
    """Answers with a length, or with something in its place."""
    line = draw(st.sampled_from([b"HTTP/1.1 "] * 8 + [b"HTTP/1.0 ", b"http/1.1 ", b"HTTP/1.1"])) + draw(statuses)
    head = b"\r\n".join([line, *draw(st.lists(lines, max_size=4)), b"", b""])
    return head + draw(st.binary(max_size=12)) + draw(st.sampled_from([b"", b"", b"hello", b"HTTP/1.1 200 OK\r\n\r\n"]))


@given(st.one_of(responses(), counted()), offsets)
@example(COUNTED + b"hello world", [20, 90])
@example(HEAD + b"5\r\nhello\r\n0\r\nA: b\r\n\r\n", [])
@example(HEAD + b"5\r\nhello\r\n0\r\n\r\n", [len(HEAD) + 13])
@example(b"HTTP/1.1 200 OK\r\n\r\nuntil it closes", [25])
@example(b"HTTP/1.1 200 OK\r\nX: y\r\n", [])
@example(b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", [])
@example(COUNTED + b"hello", [])
@example(HEAD + b"5\r\nhel", [])
@example(HEAD + b"5\r\nhello\r\n0", [])
def test_an_answer_is_read_as_h11_reads_it(data: bytes, at: list[int]) -> None:
    """Head, body, end and the error's text are the same, however the bytes are cut."""
    pieces = cut(data, at)
    assert read(pieces) == read_by_h11(pieces)


@given(st.one_of(responses(), counted()))
def test_an_answer_is_read_as_h11_reads_it_byte_by_byte(data: bytes) -> None:
    """The same with one byte in each read."""
    pieces = cut(data, list(range(len(data))))
    assert read(pieces) == read_by_h11(pieces)


@given(st.one_of(responses(), counted()), offsets, st.sampled_from([None, None, b"close", b"keep-alive"]))
@example(COUNTED + b"hello world!", [], None)
@example(HEAD + b"5\r\nhello\r\n0\r\n\r\n!", [], None)
@example(HEAD + b"5\r\nhello\r\n0\r\nA: b\r\n\r\n", [len(HEAD) + 13], None)
@example(COUNTED + b"hello world", [], b"close")
@example(COUNTED.replace(b"Content-Type", b"Connection: close\r\nX") + b"hello world", [], None)
def test_a_connection_is_used_again_only_where_h11_would(data: bytes, at: list[int], said: bytes | None) -> None:
    """The answer has ended, both sides keep the connection, and no byte came after it."""
    reader, connection = AnswerReader("POST", said), h11.Connection(h11.CLIENT)
    fields = [("host", "x"), ("content-length", "0"), *([("connection", said)] if said else [])]
    connection.send(h11.Request(method="POST", target="/", headers=fields))
    connection.send(h11.EndOfMessage())
    for piece in cut(data, at):
        if not reader.ended and reader.fault is None:
            reader.feed(piece)
            connection.receive_data(piece)
    if reader.reusable:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            assert event is not h11.NEED_DATA
        assert connection.their_state is connection.our_state is h11.DONE
        assert connection.trailing_data == (b"", False)


@pytest.mark.parametrize("data", [COUNTED + b"hello world", HEAD + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"])
def test_a_plain_answer_needs_no_parser(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one read or in many; and its connection can be used again."""
    monkeypatch.setattr(answer, "_Parser", None)
    for step in (1, 7, len(data)):
        reader = AnswerReader("POST", None)
        edges = [*range(0, len(data), step), len(data)]
        pieces = [data[start:end] for start, end in pairwise(edges)]
        if step > 1:  # else the last chunk comes in pieces, which is for the parser
            pieces = [*pieces[:-2], b"".join(pieces[-2:])]
        elif reader.head is None:
            pieces = [*pieces[:-5], b"".join(pieces[-5:])]
        assert read(pieces, reader)[1:] == (b"hello world", True, None)
        assert reader.reusable


def test_no_byte_of_a_chunk_is_held_back() -> None:
    """What has arrived of it is given out at once, and what comes in halves is put together."""
    reader = AnswerReader("POST", None)
    pieces = [HEAD, b"3\r\nabc\r\n2\r\n", b"de", b"\r", b"\n4", b"\r\nf", b"ghi\r\n0\r\n\r\n"]
    assert [reader.feed(piece) for piece in pieces] == [b"", b"abc", b"de", b"", b"", b"f", b"ghi"]
    assert reader.reusable


def test_what_comes_with_a_fault_is_given_out_first() -> None:
    """The fault is there to be raised once the bytes before it were dealt with."""
    reader = AnswerReader("POST", None)
    assert reader.feed(HEAD + b"5\r\nhello\r\nnonsense\r\n") == b"hello"
    assert reader.fault is not None
    assert not reader.ended


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH\r\n", b"\x15\x03\x01\x00\x02", b"HTTP/0.9"])
def test_what_cannot_become_a_plain_head_is_not_waited_for(data: bytes) -> None:
    """The parser has all of it at once, and its beginning is kept to be shown."""
    reader = AnswerReader("POST", None)
    reader.feed(data)
    assert reader.first_bytes == data


def test_a_head_of_many_blanks_costs_what_its_length_costs() -> None:
    """No pattern goes back and forth over it."""
    head = HEAD[:-2] + b"X:" + b" " * 30_000 + b"\x00\r\n\r\n"
    assert read([head]) == read_by_h11([head])
