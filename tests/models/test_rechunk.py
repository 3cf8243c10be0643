"""The chunk merger changes no meaning: h11 reads the same from what it passes on as from the original."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import attrs
import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maka_trio.models.rechunk import HEAD_BYTES, SIZE_LINE_BYTES, Rechunker

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@attrs.define
class Reading:
    """What h11 made of a response."""

    heads: list[tuple[int, list[tuple[bytes, bytes]]]] = attrs.field(factory=list)
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] | None = None
    error: str | None = None
    leftover: bytes = b""
    data_events: int = 0


def read_with_h11(pieces: Iterator[bytes], limit: int = 100 * 1024) -> Reading:
    """Feed the pieces, then the end of the connection."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=limit)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    reading = Reading()
    for piece in (*pieces, b""):
        if reading.trailers is not None:  # what is left in the socket
            reading.leftover += piece
            continue
        connection.receive_data(piece)
        try:
            _take_events(connection, reading)
        except h11.RemoteProtocolError as error:
            reading.error = str(error)
            return reading
    return reading


def _take_events(connection: h11.Connection, reading: Reading) -> None:
    while True:
        event = connection.next_event()
        match event:
            case h11.Response() | h11.InformationalResponse():
                reading.heads.append((event.status_code, list(event.headers)))
            case h11.Data():
                reading.body += bytes(event.data)
                reading.data_events += 1
            case h11.EndOfMessage():
                reading.trailers = list(event.headers)
                reading.leftover += connection.trailing_data[0]
                return
            case _:
                return


def merged(pieces: list[bytes], merger: Rechunker) -> Iterator[bytes]:
    """The pieces as they come out of the merger, the way a connection reads."""
    for piece in pieces:
        if out := merger.feed(piece):
            yield out
    if out := merger.flush():
        yield out


def in_fewer_words(error: str | None) -> str | None:
    """A chunk's wrong end is the same fault, whichever way it is told."""
    return "malformed chunk footer" if error and "malformed chunk footer" in error else error


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The data in pieces that end at these offsets."""
    edges = sorted({0, len(data), *(offset % (len(data) + 1) for offset in at)})
    return [data[start:end] for start, end in pairwise(edges)]


def check(data: bytes, at: list[int]) -> Rechunker:
    """Original and merged must read alike; of what h11 accepts, `complete` says that nothing is left over."""
    pieces, merger = cut(data, at), Rechunker()
    original = read_with_h11(iter(pieces))
    passed_on = read_with_h11(merged(pieces, merger))
    expected = attrs.evolve(original, data_events=0)
    assert attrs.evolve(passed_on, data_events=0) == expected
    if merger.complete and original.error is None:
        assert original.trailers is not None
        assert original.leftover == b""
    return merger


# --- responses, mostly valid, with faults mixed in ---

line_end = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b""])
extension = st.sampled_from([b""] * 6 + [b";a=b", b'; q="x"', b"  ", b";", b" ;x", b"\t", b";\xff", b";a\nb", b";a\rb"])
digits = st.sampled_from(
    [b"%x"] * 8 + [b"%X", b"0%x", b"0000000000%x", b"0x%x", b"+%x", b"-%x", b" %x", b"%x_0", b"%xg"]
)
payload = st.one_of(
    st.binary(max_size=12), st.sampled_from([b"data: {}\n\n", b"\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n"])
)


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    data = draw(payload)
    size = draw(digits) % (len(data) + draw(st.sampled_from([0] * 15 + [1, -1 if data else 0])))
    return size + draw(extension) + draw(line_end) + data + draw(line_end)


trailers = st.sampled_from(
    [b"\r\n"] * 4
    + [b"A: b\r\n\r\n", b"A: b\r\nC: d\r\n\r\n", b"\n", b"A: b\n\n", b"A: b\n\nE: f\r\n\r\n"]
    + [b": bad\r\n\r\n", b"", b"A"]
)
last_chunk = st.sampled_from([b"0\r\n"] * 6 + [b"000\r\n", b"0;x=y\r\n", b"0 \r\n", b"", b"0"])
fields = st.lists(
    st.sampled_from(
        [
            b"Content-Type: text/event-stream\r\n",
            b"transfer-encoding:chunked\r\n",
            b"Transfer-Encoding: Chunked \r\n",
            b"X: transfer-encoding: chunked\r\n",
            b"X: y\r\n transfer-encoding: chunked\r\n",
            b"Transfer-Encoding:\r\n chunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Transfer-Encoding : chunked\r\n",
            b"Transfer-Encoding: chunked\n",
            b"Content-Length: 5\r\n",
            b"Content-Length: 5, 5\r\n",
            b"Content-Length: 0\r\n",
            b"Content-Length: -1\r\n",
            b"Connection: close\r\n",
        ]
    ),
    max_size=3,
)
status = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n"] * 8
    + [b"HTTP/1.1 200\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 204 No\r\n", b"HTTP/1.1 304 \r\n", b"HTTP/1.1 500 E\r\n"]
    + [b"HTTP/1.1 200 OK\n", b"HTTP/2 200\r\n", b"nonsense\r\n", b"\r\nHTTP/1.1 200 OK\r\n", b""]
)
interim = st.sampled_from([b""] * 6 + [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"])


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    start = draw(interim) + draw(st.one_of(st.just(HEAD), st.builds(_head, status, fields)))
    body = b"".join(draw(st.lists(chunks(), max_size=6)))
    return start + body + draw(last_chunk) + draw(trailers) + draw(st.sampled_from([b""] * 6 + [b"extra", b"\r\n"]))


def _head(line: bytes, extra: list[bytes]) -> bytes:
    return line + b"".join(extra) + b"\r\n"


offsets = st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)


@given(responses(), offsets)
@example(HEAD + b"5\r\nhello\rX0\r\n\r\n", [])
@example(HEAD + b"5\r\nhelloXX3\r\nabc\r\n0\r\n\r\n", [len(HEAD) + 9])
@example(HEAD + b"ffffffffffffffff\r\nhello", [])
@example(HEAD + b"0\r\nA: b\n\nE: f\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\nX: a\r\n\tTransfer-Encoding: chunked\r\n\r\n5\r\nhello", [])
def test_merged_responses_read_like_the_original(data: bytes, at: list[int]) -> None:
    """Body, trailers, heads, leftovers and the error text are the same, however the bytes are cut."""
    check(data, at)


@given(responses())
def test_merged_responses_read_like_the_original_byte_by_byte(data: bytes) -> None:
    """The same with one byte in each read."""
    check(data, list(range(len(data))))


@given(st.lists(payload.filter(bool), min_size=1, max_size=40), offsets)
def test_a_valid_response_is_complete(bodies: list[bytes], at: list[int]) -> None:
    """A well-formed chunked response ends complete, so that its connection can be used again."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(data), data) for data in bodies)
    merger = check(HEAD + body + b"0\r\n\r\n", at)
    assert merger.complete


def test_the_chunks_of_one_read_become_one() -> None:
    """A hundred small chunks reach h11 as one piece of data."""
    events = [b"data: %d\n\n" % number for number in range(100)]
    raw = HEAD + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"
    reading = read_with_h11(merged([raw], Rechunker()))
    assert (reading.body, reading.data_events) == (b"".join(events), 1)


def test_no_byte_of_a_body_is_held_back() -> None:
    """What has arrived of a chunk is passed on at once, however much of it is missing."""
    merger = Rechunker()
    merger.feed(HEAD)
    out = merger.feed(b"3\r\nabc\r\n100000\r\ndef")
    assert out.endswith(b"abcdef")
    assert merger.feed(b"ghi") == b"ghi"


def test_a_chunk_longer_than_many_reads_is_not_collected() -> None:
    """A chunk of a mebibyte passes read by read; nothing of it stays behind."""
    merger = Rechunker()
    merger.feed(HEAD + b"100000\r\n")
    for _ in range(16):
        assert merger.feed(b"x" * 65536) == b"x" * 65536
    assert not merger.complete
    assert merger.feed(b"\r\n0\r\n\r\n") == b"\r\n0\r\n\r\n"
    assert merger.complete


def test_an_endless_size_line_is_left_to_h11() -> None:
    """What is held back stays small."""
    merger = Rechunker()
    merger.feed(HEAD)
    assert merger.feed(b"5;" + b"x" * (SIZE_LINE_BYTES - 2)) == b""
    assert len(merger.feed(b"x")) == SIZE_LINE_BYTES + 1


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nA: ", HEAD + b"0\r\nA: "])
def test_an_endless_section_is_left_to_h11(start: bytes) -> None:
    """Heads and trailers without end are no longer looked at, and h11 refuses them as it would have."""
    check(start + b"x" * (HEAD_BYTES + 60_000), [len(start) + HEAD_BYTES + 1])


def test_counted_bodies_pass_untouched_and_are_counted() -> None:
    """With a Content-Length the bytes pass as they are; one too many and the connection is not to be used again."""
    for extra in (b"", b"!"):
        raw = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n5\r\nhello\r\n0" + extra
        merger = Rechunker()
        assert b"".join(merged(cut(raw, [20, 45]), merger)) == raw
        assert merger.complete is (extra == b"")


def test_each_request_begins_a_new_response() -> None:
    """After `begin` a head is expected again."""
    merger = Rechunker()
    for _ in range(3):
        merger.begin()
        assert not merger.complete
        merger.feed(HEAD + b"1\r\na\r\n0\r\n\r\n")
        assert merger.complete
