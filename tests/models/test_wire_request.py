"""The headers of a request: all of them, none overwritten, and none that HTTP cannot carry."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.errors import InvalidInput
from maka_trio.models.wire_request import Post, request_headers
from maka_trio.protocol.adapter import EncodedRequest


def headers(*given: tuple[str, str]) -> dict[bytes, bytes]:
    return dict(request_headers(given, host=b"example.org", length=3))


def test_ours_are_added() -> None:
    """Host, length, and that nothing may be compressed."""
    assert headers() == {
        b"host": b"example.org",
        b"content-length": b"3",
        b"accept-encoding": b"identity",
        b"user-agent": b"maka-trio",
    }


def test_a_program_may_name_itself_and_its_host() -> None:
    """User agent and host are defaults."""
    assert headers(("User-Agent", "mine"), ("Host", "other"))[b"user-agent"] == b"mine"
    assert headers(("Host", "other"))[b"host"] == b"other"


def test_latin_1_values_survive() -> None:
    """Header values are bytes; those of Latin-1 have a place in them."""
    assert headers(("x-name", "Grüße\xff"))[b"x-name"] == b"Gr\xfc\xdfe\xff"


def test_equal_values_are_no_contradiction() -> None:
    """Names compare without case, values without the space around them."""
    assert headers(("X-A", "1"), ("x-a", " 1 "), ("Accept-Encoding", "identity"))[b"x-a"] == b"1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accept-encoding", "gzip-secret"),
        ("Content-Length", "4"),
        ("X-A", "2-secret"),
        ("transfer-encoding", "chunked"),
        ("Expect", "100-continue"),
        ("upgrade", "h2c"),
    ],
)
def test_contradictions_are_refused_by_name(name: str, value: str) -> None:
    """Nothing wins in silence; the value is not told."""
    with pytest.raises(InvalidInput, match=name.lower()) as caught:
        headers(("x-a", "1"), (name, value))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\n", "ä", "a\x00", "名"])
def test_names_are_tokens(name: str) -> None:
    """What is no header name is refused."""
    with pytest.raises(InvalidInput):
        headers((name, "1"))


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\x00b", "\x7f", "字", "a\rb"])
def test_values_cannot_smuggle(value: str) -> None:
    """Line ends, control characters and what Latin-1 lacks are refused."""
    with pytest.raises(InvalidInput, match="x-a"):
        headers(("x-a", value))


@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6)), max_size=4))
def test_whatever_is_given_is_carried_or_refused(given_headers: list[tuple[str, str]]) -> None:
    """Either an `InvalidInput`, or headers that h11 accepts too."""
    try:
        made = request_headers(given_headers, host=b"x", length=0)
    except InvalidInput:
        return
    h11.Request(method="POST", target="/", headers=made)


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://x:port/v1", "http://x/\x00", "http://\udc80/"])
def test_a_url_that_cannot_be_asked_is_refused(url: str) -> None:
    """Without quoting it: it may hold a key."""
    with pytest.raises(InvalidInput, match="base_url") as caught:
        Post.of(EncodedRequest(url, (), b""), {})
    assert url not in str(caught.value)
