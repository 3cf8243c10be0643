"""The names that a program calls its tools by. Pure.

A tool may be named in ways that no identifier can be, and as something that the program needs for itself.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Final

HELPERS: Final = ("text", "notify", "store", "load", "yield_control", "exit", "tools")
"""Functions that every program has besides its tools."""

_NEEDED: Final = frozenset(
    """
    abs all any ascii bin bool bytes callable chr complex dict divmod enumerate eval exec filter float format frozenset
    getattr hasattr hash hex id int isinstance iter len list map max min next object oct open ord pow print property
    range repr reversed round set setattr slice sorted str sum super tuple type zip
    asyncio base64 bisect collections copy dataclasses datetime decimal functools hashlib itertools json math os
    pathlib random re sys time typing
    """.split()  # noqa: SIM905 - a list literal of these would fill a page
)
_NO_IDENTIFIER: Final = re.compile(r"[^A-Za-z0-9_]")


def function_names(tools: Iterable[str]) -> dict[str, str]:
    """A function name, an ASCII identifier, for each tool name; every one its own, in a fixed order.

    A name that can stand as it is does. In others each other character becomes an underscore, and a name that is
    taken, or that the language or a program needs, gets underscores at its end.
    """
    names = sorted(tools)
    taken = {name for name in names if _stands(name)}
    found = {name: name for name in taken}
    for name in names:
        if name not in found:
            found[name] = _free(name, taken)
            taken.add(found[name])
    return found


def _stands(name: str) -> bool:
    return (
        name.isascii()
        and name.isidentifier()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
        and name not in _NEEDED
        and name not in HELPERS
    )


def _free(name: str, taken: set[str]) -> str:
    plain = _NO_IDENTIFIER.sub("_", name).lstrip("_")
    candidate = plain if plain and not plain[0].isdigit() else f"tool_{plain}"
    while candidate in taken or not _stands(candidate):
        candidate += "_"
    return candidate
