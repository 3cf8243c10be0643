"""Foreign text made fit to be shown: nothing in it may move the cursor, colour a line or reorder what is read.

What a model, a provider or a log says is data. Each character that a terminal would act on, or a person could not
see, is shown as its escape; nothing else is changed. The result is for reading, not for parsing back: a backslash
that was there before stays as it is.
"""

from __future__ import annotations

import unicodedata

_ACTED_ON = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Zero-width joiners change neither direction nor position, and some scripts and emoji need them."""


def escaped(text: str) -> str:
    """The text with every control and format character escaped. Line feeds and tabs stay; CRLF is a line feed."""
    if text.isprintable():
        return text
    return "".join(map(_visible, text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """The text escaped, on one line: line feeds and tabs are shown as escapes as well."""
    return escaped(text).replace("\n", "\\n").replace("\t", "\\t")


def _visible(character: str) -> str:
    if character.isprintable() or character in "\n\t" or character in _JOINERS:
        return character
    if unicodedata.category(character) not in _ACTED_ON:
        return character
    code = ord(character)
    if character == "\r":
        return "\\r"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escaped_json(document: str) -> str:
    """A JSON document as a terminal may show it: the same value, with JSON's own escapes for what is acted on."""
    return document if document.isprintable() else "".join(map(_json_visible, document))


def _json_visible(character: str) -> str:
    if _visible(character) == character:
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


# --- room on a line -----------------------------------------------------------------------------------------


def columns(text: str) -> int:
    """Terminal columns that escaped text on one line takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def clip(text: str, room: int) -> str:
    """The text if it fits into so many columns, else its beginning and an ellipsis."""
    if columns(text) <= room:
        return text
    used = 0
    for position, character in enumerate(text):
        used += _columns(character)
        if used >= room:
            return text[:position] + "…"
    return text


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
