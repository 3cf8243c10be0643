"""HTTP answers, mostly valid, with faults mixed in; and what h11 makes of them."""

from __future__ import annotations

from itertools import pairwise

import attrs
import h11
from hypothesis import strategies as st

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
COUNTED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 11\r\n\r\n"


@attrs.define
class Reading:
    """What was made of an answer.

    Attributes:
        faulted: where, if anywhere, it was seen to be wrong: the number of the piece. The end of the connection is
            one more piece.
        not_http: it was seen to be wrong since it is no HTTP at all.
        reusable: another request may be sent on the connection.
    """

    status: int | None = None
    fields: list[tuple[bytes, bytes]] = attrs.field(factory=list)
    body: bytes = b""
    ended: bool = False
    faulted: int | None = None
    not_http: bool = attrs.field(default=False, eq=False)
    reusable: bool = False


def read_with_h11(pieces: list[bytes], said: bytes | None = None) -> Reading:
    """Feed the pieces, and then the end of the connection, to the end of the answer."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=100 * 1024)
    fields = [("host", "x"), ("content-length", "0"), *([("connection", said)] if said else [])]
    connection.send(h11.Request(method="POST", target="/", headers=fields))
    connection.send(h11.EndOfMessage())
    reading = Reading()
    for number, piece in enumerate((*pieces, b"")):
        connection.receive_data(piece)
        try:
            _take_events(connection, reading)
        except h11.RemoteProtocolError:
            reading.faulted = number
        if reading.ended or reading.faulted is not None:
            break
    left, closed = connection.trailing_data
    done = connection.their_state is connection.our_state is h11.DONE
    reading.reusable = reading.ended and done and not left and not closed
    return reading


def _take_events(connection: h11.Connection, reading: Reading) -> None:
    while not reading.ended:
        match connection.next_event():
            case h11.Response(status_code=status, headers=headers):
                reading.status, reading.fields = status, list(headers)
            case h11.Data(data=data):
                reading.body += bytes(data)
            case h11.EndOfMessage():
                reading.ended = True
            case h11.NEED_DATA | h11.PAUSED:
                return


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The data in pieces that end at these offsets."""
    edges = sorted({0, len(data), *(offset % (len(data) + 1) for offset in at)})
    return [data[start:end] for start, end in pairwise(edges)]


offsets = st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)

# --- bodies ---

line_end = st.sampled_from([b"\r\n"] * 60 + [b"\n", b"\r", b"", b"\r\r\n"])
extension = st.sampled_from(
    [b""] * 30
    + [b";a=b", b'; q="x"', b"  ", b";", b" ;x", b"\t", b";\xff", b";a\nb", b";a\rb", b"; \r", b";\x00", b" x"]
)
digits = st.sampled_from(
    [b"%x"] * 40 + [b"%X", b"0%x", b"0000000000%x", b"0x%x", b"+%x", b"-%x", b" %x", b"%x_0", b"%xg"]
)
payload = st.one_of(
    st.binary(max_size=12), st.sampled_from([b"data: {}\n\n", b"\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n"])
)


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """One chunk."""
    data = draw(payload)
    size = draw(digits) % (len(data) + draw(st.sampled_from([0] * 40 + [1, -1 if data else 0])))
    return size + draw(extension) + draw(line_end) + data + draw(line_end)


last_chunk = st.sampled_from([b"0\r\n"] * 20 + [b"000\r\n", b"0;x=y\r\n", b"0 \r\n", b"", b"0"])
trailers = st.sampled_from(
    [b"\r\n"] * 20
    + [b"A: b\r\n\r\n", b"A: b\r\nC: d\r\n\r\n", b"\n", b"A: b\n\n", b"A: b\n\nE: f\r\n\r\n", b"A: b\r\n c\r\n\r\n"]
    + [b": bad\r\n\r\n", b"", b"A", b" a: b\r\n\r\n", b"\r\r\n\r\n"]
    + [b"Transfer-Encoding: gzip\r\n\r\n", b"Content-Length: 1\r\n\r\n", b"Content-Length: x\r\n\r\n"]
)
after = st.sampled_from([b""] * 12 + [b"extra", b"\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])

# --- heads ---

status_line = st.sampled_from(
    [b"HTTP/1.1 200 OK"] * 40
    + [b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No", b"HTTP/1.1 304 ", b"HTTP/1.1 500  ", b"HTTP/2.0 200"]
    + [b"HTTP/1.1 404 Not \xff\x01Found", b"HTTP/1.1 999 X", b"HTTP/1.1 099 X", b"HTTP/1.1 100 X", b"HTTP/1.1 101 X"]
    + [b"HTTP/2 200", b"http/1.1 200", b"HTTP/1.1", b"HTTP/1.1 200 \x00", b"HTTP/1.1 20", b"HTTP/1.1 2000", b" ", b""]
)
field = st.sampled_from(
    [b"Content-Type: text/event-stream", b"Transfer-Encoding: chunked", b"Content-Length: 5"] * 20
    + [b"transfer-encoding:Chunked ", b"X: transfer-encoding: chunked", b"Transfer-Encoding:", b" chunked"]
    + [b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding : chunked"]
    + [b"content-length:3 ", b"Content-Length: 0", b"Content-Length: 99", b"Content-Length: 5, 5", b"Content-Length: "]
    + [b"Content-Length: -1", b"Content-Length: +5", b"Content-Length: 5,", b"Content-Length: 5,6", b"Content-Length:"]
    + [b"Content-Length: 05", b"Content-Length: " + b"0" * 19 + b"5", b"Content-Length: " + b"0" * 20 + b"5"]
    + [b"Connection: close", b"connection: keep-alive", b"Connection: x ,CLOSE\t", b"Connection: closed"]
    + [b"X: \xff\x80", b"X:\ty \t", b"X: a\x00b", b"X: a\x01b", b"X: a\x7fb", b"X: a\x0bb", b"X: a\rb", b"X:\r"]
    + [b": x", b"X", b"X : y", b"X\xff: y", b" X: folded", b"\t", b"\t, close", b"!#$%&'*+-.^_`|~09aZ: y"]
)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """One head."""
    lines = [draw(status_line), *draw(st.lists(field, max_size=4)), b""]
    return b"".join(line + draw(st.sampled_from([b"\r\n"] * 60 + [b"\n", b"\r\r\n", b"\r"])) for line in lines)


interim = st.sampled_from(
    [b""] * 30
    + [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n", b"HTTP/1.1 102\n\n"]
    + [b"HTTP/1.1 100 \r\nConnection: close\r\nContent-Length: 5\r\n\r\n", b"HTTP/1.1 100\r\nContent-Length: x\r\n\r\n"]
    + [b"HTTP/1.1 100 C\r\n\r\n" * 3, b"\r\n"]
)


@st.composite
def written_answers(draw: st.DrawFn) -> bytes:
    """Answers put together from their parts."""
    start = draw(interim) + draw(st.one_of(st.just(HEAD), st.just(COUNTED), heads()))
    if draw(st.booleans()):
        return start + draw(st.one_of(payload, st.just(b"hello world"), st.just(b"hello"))) + draw(after)
    return start + b"".join(draw(st.lists(chunks(), max_size=6))) + draw(last_chunk) + draw(trailers) + draw(after)


@st.composite
def spoiled_answers(draw: st.DrawFn) -> bytes:
    """Such answers with bytes in them that do not belong there, or without some that do."""
    data = draw(written_answers())
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        at = draw(st.integers(min_value=0, max_value=len(data)))
        put = draw(st.sampled_from([b"", b" ", b"\t", b"\r", b"\n", b"\r\n", b"\x00", b":", b";", b",", b"0", b"\xa0"]))
        data = data[:at] + put + data[at + draw(st.integers(min_value=0, max_value=2)) :]
    return data


answers = st.one_of(written_answers(), written_answers(), spoiled_answers())
