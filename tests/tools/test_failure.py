"""What an exception says of an effect, and how its text is shown."""

from __future__ import annotations

import pytest

from maka_trio import limits
from maka_trio.errors import CleanupUnconfirmed, RunCancelled, ToolFailed, ToolOutcomeUnknown
from maka_trio.facts import EffectFailed, EffectUnknown
from maka_trio.tools.failure import Fatal, bounded, judge, leaves, text_of

GRAVEST_FIRST = [CleanupUnconfirmed("c"), ToolOutcomeUnknown("u"), ValueError("f")]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its text")


@pytest.mark.parametrize("start", range(3))
def test_the_gravest_leaf_decides_wherever_it_stands(start: int) -> None:
    """Fatal before unknown before failed, however deep the group."""
    errors: list[Exception] = [*GRAVEST_FIRST[start:][::-1]]
    group = ExceptionGroup("outer", [errors[0], ExceptionGroup("inner", errors)])
    verdict = judge(group)
    assert isinstance(verdict, [Fatal, EffectUnknown, EffectFailed][start])
    if isinstance(verdict, Fatal):
        assert verdict.error is GRAVEST_FIRST[0]


def test_a_group_is_taken_apart_in_order() -> None:
    """Groups in groups as well; a plain exception is its own leaf."""
    one, two, three = ValueError(1), ValueError(2), ValueError(3)
    group = ExceptionGroup("", [one, ExceptionGroup("", [two, three])])
    assert list(leaves(group)) == [one, two, three]
    assert list(leaves(one)) == [one]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (ToolFailed("shelf full"), "shelf full"),
        (ToolFailed(), "the tool failed"),
        (RunCancelled("the inner run was cancelled"), "the inner run was cancelled"),
        (Unprintable(), "Unprintable"),
        (OSError("\udc80 is not there"), "OSError: \\udc80 is not there"),
        (ExceptionGroup("group", [ValueError("a"), ToolFailed("b")]), "ValueError: a; b"),
    ],
    ids=repr,
)
def test_a_text_is_the_words_of_the_exception(error: Exception, text: str) -> None:
    """Our own errors speak for themselves, others are named; what cannot be written is escaped."""
    assert text_of(error) == text


def test_a_long_text_is_cut_at_the_limit_on_a_character() -> None:
    """In bytes, and the reader sees that it was cut."""
    limit = limits.TOOL_ERROR_BYTES
    whole = "é" * (limit // 2)
    assert bounded(whole) == whole
    cut = bounded(whole + "é")
    assert cut.endswith("...")
    assert limit - 4 <= len(cut.encode()) <= limit
    assert len(text_of(ToolFailed("x" * 10 * limit)).encode()) == limit


def test_escapes_count_as_what_they_become() -> None:
    """A text of lone surrogates is six times as long when it is written."""
    assert len(bounded("\ud800" * limits.TOOL_ERROR_BYTES).encode()) <= limits.TOOL_ERROR_BYTES
    assert bounded("\ud800", 6) == "\\ud800"


def test_a_group_of_many_shows_some_and_counts_the_rest() -> None:
    """A thousand tasks that failed are no thousand lines."""
    text = text_of(ExceptionGroup("", [ValueError(number) for number in range(1000)]))
    assert text.startswith("ValueError: 0; ValueError: 1; ")
    assert text.endswith("and 992 more")
