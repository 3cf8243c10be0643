"""Docstrings in Google's form, as far as a tool needs them: the description, and a text for each argument."""

from __future__ import annotations

import inspect
import re
from itertools import pairwise
from typing import Final

from maka_trio.records import frozen

_SECTION: Final = re.compile(
    r"(Args|Arguments|Parameters|Attributes|Returns|Yields|Raises|Examples?|Notes?|Warnings?|References|See Also):",
    re.IGNORECASE,
)
_ENTRY: Final = re.compile(r"(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")
_ARGUMENTS: Final = frozenset({"args", "arguments", "parameters", "attributes"})


@frozen
class Documentation:
    """What a docstring says: everything before its first section, and its entries for arguments (or attributes)."""

    description: str
    arguments: dict[str, str]


def parse_docstring(docstring: str | None) -> Documentation:
    """Read a docstring; one without sections is all description."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    headers = [number for number, line in enumerate(lines) if _SECTION.fullmatch(line.rstrip())]
    description = "\n".join(lines[: headers[0]] if headers else lines).strip()
    arguments: dict[str, str] = {}
    for start, end in pairwise([*headers, len(lines)]):
        if lines[start].rstrip(" :").lower() in _ARGUMENTS:
            arguments |= _entries(lines[start + 1 : end])
    return Documentation(description, arguments)


def _entries(lines: list[str]) -> dict[str, str]:
    """`name: text` and `name (type): text`, each going on in the lines that are indented deeper."""
    entries: dict[str, str] = {}
    name, indentation = "", None
    for line in lines:
        depth = len(line) - len(line.lstrip())
        indentation = depth if indentation is None and line.strip() else indentation
        entry = _ENTRY.fullmatch(line.strip()) if depth == indentation else None
        if entry:
            name = entry["name"]
            entries[name] = entry["text"]
        elif name and line.strip():
            entries[name] = f"{entries[name]} {line.strip()}".strip()
    return entries
