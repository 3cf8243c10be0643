"""Foreign text is shown with everything escaped that a terminal would act on."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maka_trio.cli.escape import clip, columns, escaped, escaped_json, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b2J", "\\x9b2J"),
        ("back\bspace\x07\x7f\0", "back\\x08space\\x07\\x7f\\x00"),
        ("over\rwritten", "over\\rwritten"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("hid\u200bden \ufeff", "hid\\u200bden \\ufeff"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("line\u2028separator", "line\\u2028separator"),
        ("lone \udc80", "lone \\udc80"),
    ],
)
def test_what_a_terminal_acts_on_is_escaped(text: str, shown: str) -> None:
    """Control, format, separator and surrogate characters come out as their escapes."""
    assert shown == escaped(text)


@pytest.mark.parametrize(
    "text",
    ["plain", "two\nlines\tand a tab", "[bold]markup[/bold]", "naïve 漢字\u3000\xa0🙂", "👩\u200d👩\u200d👧", "a \\ b"],
)
def test_what_people_write_is_left_alone(text: str) -> None:
    """Line feeds, tabs, wide and joined characters, markup and backslashes are text."""
    assert text == escaped(text)


def test_crlf_is_one_line_end() -> None:
    """A Windows line end is no control character to warn of."""
    assert escaped("a\r\nb") == "a\nb"


def test_one_line_shows_line_feeds_and_tabs() -> None:
    """A row of a table stays one row."""
    assert one_line("a\nb\tc\r\n") == "a\\nb\\tc\\n"


@given(st.text(st.characters()))
def test_no_text_escapes_escaping(text: str) -> None:
    """Whatever the text: nothing but line feeds, tabs and joiners is left of the dangerous categories."""
    left = set(escaped(text)) - set("\n\t\u200c\u200d")
    assert not {c for c in left if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert escaped(escaped(text)) == escaped(text)


@given(st.dictionaries(st.text(), st.text()))
def test_escaped_json_is_the_same_value(value: dict[str, str]) -> None:
    """A terminal is shown other bytes, but never another value."""
    shown = escaped_json(json.dumps(value, ensure_ascii=False))
    assert value == json.loads(shown)
    assert escaped(shown) == shown


def test_escaped_json_writes_astral_characters_as_surrogate_pairs() -> None:
    """JSON has no other escape for them."""
    assert escaped_json('"\U000e0041\x9b"') == '"\\udb40\\udc41\\u009b"'


def test_columns_counts_what_a_terminal_draws() -> None:
    """Wide characters take two columns, combining ones none."""
    assert (columns("abc"), columns("漢字"), columns("e\u0301")) == (3, 4, 1)


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_clip_never_takes_more_room_than_there_is(text: str, room: int) -> None:
    """A clipped text fits, and one that fits is not clipped."""
    clipped = clip(text, room)
    assert columns(clipped) <= room
    assert clipped == text or (columns(text) > room and clipped.endswith("…"))
