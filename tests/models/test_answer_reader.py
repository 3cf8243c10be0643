"""An answer is read as h11 reads it, whatever it is and however it is cut, and never at more cost than its length."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maka_trio.models.answer import AnswerReader
from maka_trio.models.head import SECTION_BYTES
from tests.models.answers import COUNTED, HEAD, Reading, answers, cut, offsets, read_with_h11


def read(pieces: list[bytes], said: bytes | None = None) -> Reading:
    """Feed the pieces, and then the end of the connection, to the end of the answer."""
    reader, reading = AnswerReader(said), Reading()
    for number, piece in enumerate((*pieces, b"")):
        reading.body += reader.feed(piece)
        if reader.fault is not None:
            reading.faulted = number
        if reader.ended or reader.fault is not None:
            break
    reading.not_http = bool(reader.not_http)
    if reader.head is not None:
        reading.status, reading.fields = reader.head.status, _normal(reader.head.fields)
    reading.ended, reading.reusable = reader.ended, reader.reusable
    return reading


def _normal(fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """As h11 writes them: codings in lower case, and a length once however often it was said."""
    written: list[tuple[bytes, bytes]] = []
    for name, value in fields:
        if name == b"content-length":
            if name not in dict(written):
                written.append((name, value.split(b",")[0].strip()))
        else:
            written.append((name, value.lower() if name == b"transfer-encoding" else value))
    return written


def check(data: bytes, at: list[int], said: bytes | None = None) -> None:
    """Both read the same; but what cannot become HTTP is refused at once, while h11 may wait for more of it."""
    pieces = cut(data, at)
    expected, found = read_with_h11(pieces, said), read(pieces, said)
    if found.not_http and expected.faulted is not None:
        assert found.faulted is not None
        assert found.faulted <= expected.faulted
        found.faulted = expected.faulted
    assert found == expected


@given(answers, offsets)
@example(COUNTED + b"hello world", [20, 90])
@example(COUNTED + b"hello", [])
@example(HEAD + b"5\r\nhello\r\n0\r\nA: b\r\n\r\n", [])
@example(HEAD + b"5\r\nhello\r\n0\r\n\r\n", [len(HEAD) + 13])
@example(HEAD + b"5\r\nhel", [])
@example(HEAD + b"5\r\nhello\r\n0", [])
@example(HEAD + b"5\r\nhello\rX0\r\n\r\n", [])
@example(HEAD + b"5\r\nhelloXX3\r\nabc\r\n0\r\n\r\n", [len(HEAD) + 9])
@example(HEAD + b"ffffffffffffffff\r\nhello", [])
@example(HEAD + b"0\r\nA: b\n\nE: f\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\n\r\nuntil it closes", [25])
@example(b"HTTP/1.1 200 OK\r\nX: y\r\n", [])
@example(b"HTTP/1.1 100 X\r\n\r\n\x00", [])
@example(b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", [])
@example(b"HTTP/1.1 200 OK\r\nX: a\r\n\tTransfer-Encoding: chunked\r\n\r\n5\r\nhello", [])
def test_an_answer_is_read_as_h11_reads_it(data: bytes, at: list[int]) -> None:
    """Status, headers, body and end are the same, and where a fault shows."""
    check(data, at)


@given(answers)
def test_an_answer_is_read_as_h11_reads_it_byte_by_byte(data: bytes) -> None:
    """The same with one byte in each read."""
    check(data, list(range(len(data))))


@given(answers, offsets, st.sampled_from([b"close", b"keep-alive", b"x, Close", b""]))
@example(COUNTED + b"hello world", [], b"close")
@example(COUNTED + b"hello world!", [], b"keep-alive")
@example(COUNTED.replace(b"Content-Type", b"Connection: close\r\nX") + b"hello world", [], b"keep-alive")
@example(HEAD + b"5\r\nhello\r\n0\r\n\r\n!", [], b"keep-alive")
def test_a_connection_is_used_again_where_h11_would(data: bytes, at: list[int], said: bytes) -> None:
    """The answer has ended, both sides keep the connection, and no byte came after it."""
    check(data, at, said)


WHOLE = {
    "in chunks": HEAD + b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nA: b\r\n\r\n",
    "counted": COUNTED + b"hello world",
    "kept": COUNTED.replace(b"OK\r\n", b"OK\r\nConnection: keep-alive\r\n") + b"hello world",
    "announced": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + COUNTED + b"hello world",
    "with line feeds": COUNTED.replace(b"\r", b"") + b"hello world",
    "folded": COUNTED.replace(b"Length: ", b"Length:\r\n\t ") + b"hello world",
}


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
def test_an_answer_is_read_wherever_it_is_cut(data: bytes) -> None:
    """In two pieces and in three, at all places; and its connection can be used again."""
    expected = read([data])
    assert (expected.body, expected.faulted, expected.reusable) == (b"hello world", None, True)
    assert expected == read_with_h11([data])
    for first in range(len(data)):
        for second in range(first, len(data), 7):
            assert read(cut(data, [first, second])) == expected


FIVE = b"Content-Length: 5\r\n\r\nhello"
FORMS = {
    "no content": b"HTTP/1.1 204 No\r\n" + FIVE,
    "not modified": b"HTTP/1.1 304 Not\r\n" + FIVE,
    "not modified, in chunks": HEAD.replace(b"200", b"304") + b"5\r\nhello\r\n0\r\n\r\n",
    "1.0": b"HTTP/1.0 200 OK\r\n" + FIVE,
    "1.0 that would be kept": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + FIVE,
    "1.0 in chunks": HEAD.replace(b"1.1", b"1.0") + b"5\r\nhello\r\n0\r\n\r\n",
    "1.2": b"HTTP/1.2 200 OK\r\n" + FIVE,
    "no more requests": b"HTTP/1.1 200 OK\r\nconnection: x, Close\r\n" + FIVE,
    "said before the answer": b"HTTP/1.1 100 C\r\nConnection: close\r\n\r\nHTTP/1.1 200 OK\r\n" + FIVE,
    "another protocol": b"HTTP/1.1 101 Up\r\nUpgrade: x\r\n\r\n",
    "chunks and a length": HEAD[:-2] + b"Content-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a length twice": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n" + FIVE,
    "a length twice in one": b"HTTP/1.1 200 OK\r\nContent-Length: 5 , 5\r\n\r\nhello",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n" + FIVE,
    "two codings": HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded value": b"HTTP/1.1 200 OK\r\nConnection: a\r\n\t , close\r\n" + FIVE,
    "a folded name": b"HTTP/1.1 200 OK\r\nConnec\r\n tion: close\r\n" + FIVE,
    "a fold of nothing": b"HTTP/1.1 200 OK\r\n Connection: close\r\n" + FIVE,
    "a coding in the trailers": HEAD + b"5\r\nhello\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n",
    "no length in the trailers": HEAD + b"5\r\nhello\r\n0\r\nContent-Length: x\r\n\r\n",
    "folded trailers": HEAD + b"5\r\nhello\r\n0\r\n A: b\r\n\r\n",
}


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_the_forms_of_an_answer_are_those_of_h11(data: bytes) -> None:
    """What has a body, how it ends, what is refused and what closes, wherever it is cut."""
    for at in range(len(data)):
        check(data, [at])
    check(data + b"!", [])


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nA: ", HEAD + b"0\r\nA: ", HEAD + b"5;"])
@pytest.mark.parametrize("length", [SECTION_BYTES - 1000, SECTION_BYTES + 1000])
def test_what_does_not_end_is_not_waited_for(start: bytes, length: int) -> None:
    """Head, trailers and size line may be so long; of longer ones the end is not waited for."""
    data = start + b"x" * (length - len(start.partition(b"\r\n\r\n")[2] or start))
    check(data, [length // 2, length])


def test_a_connection_that_closes_ends_a_body_of_no_stated_length() -> None:
    """The answer is whole; the connection is gone."""
    reader = AnswerReader(None)
    assert reader.feed(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nhello") == b"hello"
    assert reader.feed(b" world") == b" world"
    assert not reader.ended
    assert reader.feed(b"") == b""
    assert (reader.ended, reader.reusable, reader.fault) == (True, False, None)


def test_no_byte_of_a_chunk_is_held_back() -> None:
    """What has arrived of it is given out at once, and what comes in halves is put together."""
    reader = AnswerReader(None)
    pieces = [HEAD, b"3\r\nabc\r\n2\r\n", b"de", b"\r", b"\n4", b"\r\nf", b"ghi\r\n0\r\n\r\n"]
    assert [reader.feed(piece) for piece in pieces] == [b"", b"abc", b"de", b"", b"", b"f", b"ghi"]
    assert reader.reusable


def test_what_comes_with_a_fault_is_given_out_first() -> None:
    """The fault is there to be raised once the bytes before it were dealt with."""
    reader = AnswerReader(None)
    assert reader.feed(HEAD + b"5\r\nhello\r\nnonsense\r\n") == b"hello"
    assert reader.fault is not None
    assert not reader.ended


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH\r\n", b"\x15\x03\x01\x00\x02", b"http/1.1 200 OK\r\n", b"HTTPS"])
def test_what_cannot_become_http_is_not_waited_for(data: bytes) -> None:
    """It is refused at once, and its beginning is kept to be shown."""
    reader = AnswerReader(None)
    reader.feed(data)
    assert reader.not_http == data
    assert reader.fault is not None


# --- what it costs ---

CPU_SECONDS: float = 2.0
"""Each of these takes some hundredths of a second; gone through again and again, five to fifty seconds."""

START = b"HTTP/1.1 200 OK\r\n"
NOT_PLAIN: dict[str, Callable[[int], bytes]] = {
    "blanks": lambda n: START + b"X:" + b" " * n + b"\x00\r\n\r\n",
    "tabs": lambda n: START + b"X:" + b"\t" * n + b"\x00\r\n\r\n",
    "words": lambda n: START + b"X: " + b"y " * (n // 2) + b"\x00\r\n\r\n",
    "blanks after a coding": lambda n: START + b"Transfer-Encoding: chunked" + b" " * n + b"x\r\n\r\n",
    "codings": lambda n: START + b"Transfer-Encoding: " + b"chunked, " * (n // 9) + b"chunked\r\n\r\n",
    "lengths": lambda n: START + b"Content-Length: " + b"0, " * (n // 3) + b"0\r\n\r\n",
    "options": lambda n: START + b"Content-Length: 0\r\nConnection: " + b", " * (n // 2) + b"\r\n\r\n",
    "folded lines": lambda n: START + b"Content-Length: 0\r\nX: y\r\n" + b" z\r\n" * (n // 4) + b"\r\n",
    "lines": lambda n: START + b"Content-Length: 0\r\n" + b"A:\r\n" * (n // 4) + b"\r\n",
    "carriage returns": lambda n: START + b"\r" * n + b"\n\n",
    "a status": lambda n: START[:-2] + b" " * n + b"\x00\r\n\r\n",
    "announcements": lambda n: b"HTTP/1.1 100 C\r\n\r\n" * (n // 18) + START + b"Content-Length: 0\r\n\r\n",
    "an extension without end": lambda n: HEAD + b"5;" + b" " * n,
    "an extension in two lines": lambda n: HEAD + b"5;" + b" " * n + b"\n\r\n",
    "an extension of carriage returns": lambda n: HEAD + b"5;" + b"\r" * n + b"\n0\r\n\r\n",
    "small chunks": lambda n: HEAD + b"1\r\na\r\n" * (n // 6) + b"0\r\n\r\n",
    "a trailer": lambda n: HEAD + b"0\r\nX:" + b" " * n + b"\x00\r\n\r\n",
    "trailers": lambda n: HEAD + b"0\r\n" + b"A:\r\n" * (n // 4) + b"\r\n",
}


def cpu_seconds(data: bytes, piece: int) -> float:
    """What reading it takes, in pieces of this length."""
    reader = AnswerReader(None)
    start = time.thread_time()
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])
        if reader.ended or reader.fault is not None:
            break
    return time.thread_time() - start


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN)
@pytest.mark.parametrize(("length", "piece"), [(90_000, 65_536), (90_000, 100_000), (30_000, 1)])
def test_an_answer_costs_what_its_length_costs(data: Callable[[int], bytes], length: int, piece: int) -> None:
    """Nothing is gone through again and again, in few reads or in many; a second look is for a machine that slept."""
    assert any(cpu_seconds(data(length), piece) < CPU_SECONDS for _ in range(3))


def test_any_number_of_heads_may_announce_the_answer() -> None:
    """They come in one read, and none of them waits on the stack for the next."""
    assert read([b"HTTP/1.1 100 C\r\n\r\n" * 3000 + COUNTED + b"hello world"]).body == b"hello world"
