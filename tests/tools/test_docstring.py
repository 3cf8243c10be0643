"""Google-style docstrings, as far as a tool reads them."""

from __future__ import annotations

import pytest

from maka_trio.tools.docstring import Documentation, parse_docstring


@pytest.mark.parametrize("docstring", [None, "", "   \n  "])
def test_no_docstring_says_nothing(docstring: str | None) -> None:
    """And is no error."""
    assert parse_docstring(docstring) == Documentation("", {})


def test_a_plain_docstring_is_all_description() -> None:
    """Indentation as in the source, more than one paragraph, a colon at the end of a line."""
    docstring = """Find files.

        The pattern is one of these:
            a glob
            a name
        """
    assert parse_docstring(docstring) == Documentation(
        "Find files.\n\nThe pattern is one of these:\n    a glob\n    a name", {}
    )


def test_arguments_are_read_from_their_section() -> None:
    """With a type or without, over several lines, and nothing from other sections."""
    docstring = """Find files.

    Args:
        pattern: what to look for,
            with a colon: like this.

            And a second paragraph.
        root (str, optional): where to start
        limit : how many
        nothing:

    Returns:
        found: a list of names

    Raises:
        OSError: the folder is gone
    """
    assert parse_docstring(docstring) == Documentation(
        "Find files.",
        {
            "pattern": "what to look for, with a colon: like this. And a second paragraph.",
            "root": "where to start",
            "limit": "how many",
            "nothing": "",
        },
    )


@pytest.mark.parametrize("header", ["Args:", "Arguments:", "Parameters:", "Attributes:", "args:"])
def test_the_section_has_several_names(header: str) -> None:
    """A class describes its fields as attributes."""
    assert parse_docstring(f"D.\n\n{header}\n    a: b").arguments == {"a": "b"}


def test_the_description_ends_at_the_first_section() -> None:
    """Whichever it is."""
    assert parse_docstring("D.\n\nExample:\n    >>> f()\n").description == "D."


def test_a_line_that_is_no_entry_belongs_to_the_one_before() -> None:
    """Or to nothing, when there is none."""
    assert parse_docstring("Args:\n    free text first\n    a: b\n").arguments == {"a": "b"}
