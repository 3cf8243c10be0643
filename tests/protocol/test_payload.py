"""A provider's JSON: payloads, arguments, counts."""

from __future__ import annotations

import msgspec
import pytest

from maka_trio import limits
from maka_trio.errors import AdapterError
from maka_trio.protocol.payload import parse_arguments, parse_payload, quoted, token_count

ANY = msgspec.json.Decoder()


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "null", " null "])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    """Nothing, white space and null all say that there are none."""
    assert parse_arguments(text, "now") == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"n":1}', {"n": 1}),
        ('"{\\"n\\":1}"', '{"n":1}'),
        ("[1]", [1]),
        ("3", 3),
        ("false", False),
        ('{"t":"\\ud83d\\ude00"}', {"t": "😀"}),
    ],
)
def test_any_one_document_is_taken_as_it_is(text: str, value: object) -> None:
    """Whether the value fits the tool is for the tool's schema to say."""
    assert parse_arguments(text, "put") == value


@pytest.mark.parametrize(
    "text",
    ['{"n":', '{"n":NaN}', '{"n":Infinity}', '{"n":1}{"n":2}', "{'n':1}", '{"t":"\\ud800"}', '{"n":1}x', "[1,]", "nul"],
)
def test_anything_else_is_refused_and_never_repaired(text: str) -> None:
    """Half a document, a second one, numbers that are none, lone surrogates."""
    with pytest.raises(AdapterError, match="'put' are not JSON"):
        parse_arguments(text, "put")


def test_arguments_deeper_than_a_fact_may_be_are_refused() -> None:
    """The limit is named; as deep as the limit is fine, and so is broad."""

    def nested(depth: int) -> str:
        return "[" * depth + "]" * depth

    assert parse_arguments(nested(limits.JSON_DEPTH), "put")
    assert parse_arguments("[" + ",".join(["{}"] * 1000) + "]", "put")
    for depth in (limits.JSON_DEPTH + 1, 200, 100_000):
        with pytest.raises(AdapterError, match=r"nested|recursion"):
            parse_arguments(nested(depth), "put")


def test_a_payload_that_is_not_json_is_quoted_in_short_and_escaped() -> None:
    """The error says where, and shows at most the excerpt."""
    with pytest.raises(AdapterError, match="byte 7") as caught:
        parse_payload(ANY, b'{"a\x1b[31m": ' + b"x" * 1000, 7)
    assert caught.value.offset == 7
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 2 * limits.WIRE_EXCERPT_BYTES + 200


def test_an_excerpt_is_bounded_in_bytes() -> None:
    """Long texts end in an ellipsis, whatever their characters take."""
    assert quoted("short") == "'short'"
    assert (
        quoted("字" * 1000)
        == repr(("字" * 1000).encode()[: limits.WIRE_EXCERPT_BYTES].decode(errors="replace")) + "..."
    )
    assert quoted(b"\xff") == "'\\ufffd'" or quoted(b"\xff") == "'\ufffd'"


@pytest.mark.parametrize(("value", "count"), [(None, None), (0, 0), (7, 7), (3.0, 3), (2**53 - 1, 2**53 - 1)])
def test_counts_are_whole_numbers_or_unknown(value: object, count: int | None) -> None:
    """Null is unknown, not zero; 3.0 and 3 are one number in JSON."""
    assert token_count(value, "f") == count


@pytest.mark.parametrize("value", [-1, 1.5, "2", True, 2**53, float("inf"), [], {}])
def test_anything_else_is_no_count(value: object) -> None:
    """The field is named."""
    with pytest.raises(AdapterError, match="completion_tokens"):
        token_count(value, "completion_tokens")
