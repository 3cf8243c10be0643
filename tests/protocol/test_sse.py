"""Server-sent events: framing, text, limits."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from maka_trio import limits
from maka_trio.errors import AdapterError
from maka_trio.protocol.sse import SseDecoder, SseEvent
from tests.protocol.decoding import every_cut

Plain = list[tuple[str, bytes]]


def decode(pieces: list[bytes], *, end: bool = True) -> Plain:
    decoder = SseDecoder()
    events: list[SseEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
    if end:
        events += decoder.end()
    return [(event.name, event.data) for event in events]


def the_same_in_every_cut(body: bytes, expected: Plain) -> None:
    for pieces in every_cut(body):
        assert decode(pieces) == expected, pieces[:1]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'data: {"a":1}\r\n\r\ndata: {"a":2}\r\n\r\n', [b'{"a":1}', b'{"a":2}']),
        (b"data: 1\rdata: 2\r\rdata: 3\r\r", [b"1\n2", b"3"]),
        (b"data: 1\rid: 7\n\ndata: 2\rdata: 3\r\n\n", [b"1", b"2\n3"]),
        (b"data: 1\n\r\ndata: 2\n\n", [b"1", b"2"]),
        (b"data: 1\r\n\ndata: 2\r\n\r", [b"1", b"2"]),
        (b"data: 1\n\n\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data:a\ndata:  b\n\ndata\n\n", [b"a\n b"]),
    ],
)
def test_lf_cr_and_crlf_end_a_line_wherever_a_read_ends(body: bytes, expected: list[bytes]) -> None:
    """Every mix of line endings gives the same events for every cut."""
    the_same_in_every_cut(body, [("", data) for data in expected])


@pytest.mark.parametrize("ending", [b"\n\n", b"\r\r", b"\r\n\r", b"\n\r"])
def test_a_finished_event_is_never_held_back(ending: bytes) -> None:
    """The event is there with the byte that ends it, even if a line feed may still belong to it."""
    decoder = SseDecoder()
    assert decoder.feed(b"data: 1" + ending[:-1]) == []
    assert [event.data for event in decoder.feed(ending[-1:])] == [b"1"]


def test_one_byte_order_mark_at_the_very_start_is_removed() -> None:
    """One mark goes, also cut in pieces; a second one is part of the field's name; a later one is data."""
    mark = b"\xef\xbb\xbf"
    the_same_in_every_cut(mark + b"data: 1\n\ndata: 2\n\n", [("", b"1"), ("", b"2")])
    the_same_in_every_cut(mark + mark + b"data: 1\n\ndata: 2\n\n", [("", b"2")])
    the_same_in_every_cut(b"data: " + mark + b"1\n\n", [("", mark + b"1")])


def test_a_character_may_be_cut_anywhere() -> None:
    """Multi-byte characters survive every cut, in data and in event names."""
    body = 'event: é\ndata: {"t":"€🙂"}\n\n'.encode()
    the_same_in_every_cut(body, [("é", '{"t":"€🙂"}'.encode())])


@pytest.mark.parametrize(
    ("line", "bad"),
    [(b'data: {"t":"\xff"}', 12), (b": \xc3(", 2), (b"event: \xed\xa0\x80", 7), (b"data: \xe2\x82", 6)],
)
def test_bytes_that_are_not_utf8_are_an_error_with_their_offset(line: bytes, bad: int) -> None:
    """The events before come first; then the decoder stays broken."""
    before = b"data: 1\n\ndata: two\n\n"
    for pieces in every_cut(before + line + b"\n\ndata: 3\n\n"):
        decoder = SseDecoder()
        events: list[SseEvent] = []
        with pytest.raises(AdapterError) as caught:
            for piece in pieces:
                events += decoder.feed(piece)
            decoder.feed(b"")
        assert [event.data for event in events] == [b"1", b"two"]
        assert caught.value.offset == len(before) + bad
        with pytest.raises(AdapterError):
            decoder.end()


def test_only_line_feed_and_carriage_return_end_a_line() -> None:
    """Unicode separators, form feed and vertical tab are text."""
    data = '{"t":"x\u2028y\u0085z"}\x0c\x0b\x1c\x1d'.encode()
    the_same_in_every_cut(b"data: " + data + b"\n\n", [("", data)])


def test_what_has_no_data_is_not_dispatched_and_leaves_nothing_behind() -> None:
    """Comments, retry, id and lone event names make no event; a name does not leak into the next one."""
    body = (
        b": ping\n\nretry: 500\n\nevent: ping\n\nid: 7\ndata: 1\n\n: ping\n\nevent: x\ndata:\n\ndata: \n\nfoo: bar\n"
        b"data: 2\nevent: late\nevent: last\n\nevent\ndata: 3\n\n"
    )
    the_same_in_every_cut(body, [("", b"1"), ("last", b"2"), ("", b"3")])


@pytest.mark.parametrize(
    "residue",
    [
        b'data: {"a":1}\n',
        b'data: {"a":1}',
        b'data: {"a":1}\r',
        b"data: [DONE]",
        b"data:[DONE]\n",
        b'data: {"a":\ndata: 1}',
        b'event: x\ndata: {"a":1}',
        b'data: {"a":1}\n: comm',
        b"data: [1]",
    ],
)
def test_an_event_that_lacks_only_its_blank_line_is_kept_at_a_clean_end(residue: bytes) -> None:
    """A body may end right after a complete document or the end marker."""
    for pieces in every_cut(b"data: 0\n\n" + residue):
        events = decode(pieces)
        assert len(events) == 2
        assert events[1][0] == ("x" if residue.startswith(b"event") else "")


@pytest.mark.parametrize(
    "residue",
    [
        b'data: {"a":',
        b"data: 12",
        b"data: nul",
        b"data: [DON",
        b"event: x\n",
        b"data",
        b"da",
        b'data: {"a":1}\ndata: {',
    ],
)
def test_an_event_that_was_cut_is_discarded(residue: bytes) -> None:
    """The front of a document, even one that could be a shorter document, is nothing."""
    the_same_in_every_cut(b"data: 0\n\n" + residue, [("", b"0")])


def test_a_character_that_the_end_of_the_body_cuts_is_discarded_with_its_event() -> None:
    """Half a character is no error at the end: the event was cut."""
    the_same_in_every_cut(b'data: 0\n\ndata: {"t":"\xe2\x82', [("", b"0")])
    the_same_in_every_cut(b"data: 0\n\nevent: \xe2\x82", [("", b"0")])


def test_an_event_over_the_limit_is_an_error_that_names_the_limit() -> None:
    """A line that never ends stops at the limit; what is kept stays below it."""
    decoder = SseDecoder()
    piece = b"x" * 65_536
    decoder.feed(b"data: ")
    with pytest.raises(AdapterError, match=str(limits.WIRE_EVENT_BYTES)):
        for _ in range(9 * limits.MIB // len(piece)):
            decoder.feed(piece)


def test_many_short_lines_of_one_event_count_together() -> None:
    """Lines of an event are counted with all their bytes, since each takes memory."""
    decoder = SseDecoder(limit=1000)
    with pytest.raises(AdapterError, match="1000"):
        for _ in range(1000):
            decoder.feed(b"data:\n")


def test_comments_without_end_are_no_event() -> None:
    """Heartbeats without blank lines do not add up."""
    decoder = SseDecoder(limit=100)
    for _ in range(1000):
        assert decoder.feed(b": ping\n") == []
    assert [event.data for event in decoder.feed(b"data: 1\n\n")] == [b"1"]


@pytest.mark.parametrize("line", [b"data: " + b"x" * 95, b": " + b"x" * 99, b"event: y\ndata: " + b"x" * 87])
def test_the_limit_holds_at_the_same_byte_for_every_cut(line: bytes) -> None:
    """One byte over the limit is refused, the limit itself is not, however the bytes arrive."""
    for pieces in every_cut(line + b"\n\ndata: 2\n\n"):
        decoder = SseDecoder(limit=100)
        with pytest.raises(AdapterError, match="100"):
            for piece in pieces:
                decoder.feed(piece)
    within = line[:-1] + b"\n\ndata: 2\n\n"
    kept = len(decode([within]))
    for pieces in every_cut(within):
        decoder = SseDecoder(limit=100)
        assert len([event for piece in pieces for event in decoder.feed(piece)]) == kept


def test_a_large_event_in_single_bytes_costs_work_in_proportion() -> None:
    """Four times the bytes touch about four times the bytes: nothing is scanned again."""
    small, large = (_bytes_touched(size) for size in (64 * 1024, 256 * 1024))
    assert large < 6 * small


def _bytes_touched(size: int) -> int:
    """How many bytes all searches and copies of the decoder go over, counted through a buffer that tells."""
    touched = 0

    class Counting(bytearray):
        def __iadd__(self, other: bytes) -> Counting:  # type: ignore[override,misc]
            nonlocal touched
            touched += len(other)
            return super().__iadd__(other)  # type: ignore[return-value]

        def __bytes__(self) -> bytes:
            nonlocal touched
            touched += len(self)
            return bytes(bytearray(self))

    decoder = SseDecoder()
    decoder._line = Counting()
    body = b"data: " + b"x" * size + b"\n\n"
    events = [event for at in range(len(body)) for event in decoder.feed(body[at : at + 1])]
    assert [len(event.data) for event in events] == [size]
    return touched


def test_offsets_say_where_an_event_begins() -> None:
    """The offset is that of the event's first field in the body, byte order mark included."""
    body = b"\xef\xbb\xbfdata: 1\r\n\r\n: c\ndata: 2\n\nevent: x\ndata: 3\n\ndata: 4\n\n"
    starts = [body.index(front) for front in (b"data: 1", b"data: 2", b"event: x", b"data: 4")]
    for pieces in every_cut(body):
        decoder = SseDecoder()
        assert [event.offset for piece in pieces for event in decoder.feed(piece)] == starts


# --- against the standard, written the slow way ----------------------------------------------------------------


def by_the_standard(body: bytes) -> Plain:
    """The algorithm of the standard over the whole body, but for data that is empty."""
    text = body.decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events: Plain = []
    name, data = "", []
    for line in text.split("\n")[:-1]:
        if not line:
            if "\n".join(data):
                events.append((name, "\n".join(data).encode()))
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return events


FRAGMENTS = st.sampled_from(
    [
        "data",
        "event",
        "id",
        ":",
        ": ",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "data: ",
        "event: ",
        "data: x\n\n",
        "\ufeff",
        "é",
        "€",
    ]
)


@settings(max_examples=400)
@given(st.lists(FRAGMENTS | st.text(max_size=3), max_size=40), st.randoms(use_true_random=False))
@example(["event: ", "a", "\n", "data: ", "b", "\n\n"], random.Random(0))
@example(["data: ", "b", "\n", "data: ", "\n\n", "\n"], random.Random(0))
def test_any_body_in_any_pieces_gives_what_the_standard_gives(fragments: list[str], cuts: random.Random) -> None:
    """Model test: the fast decoder and the standard's own algorithm agree."""
    body = "".join(fragments).encode()
    places = sorted(cuts.randrange(len(body) + 1) for _ in range(cuts.randrange(6)))
    pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    assert decode(pieces, end=False) == by_the_standard(body)
