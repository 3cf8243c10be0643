"""`JsonList`: a JSON array that grows, each item of which is encoded once. Knows no protocol."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from maka_trio.facts.json_value import JSON


class JsonList:
    """The items of an array as JSON text. Adding to it costs what is added, however long it is."""

    def __init__(self) -> None:
        self._items = bytearray()

    def __bool__(self) -> bool:
        return bool(self._items)

    def extend(self, items: Sequence[JSON]) -> None:
        """Add items at the end."""
        if items:
            if self._items:
                self._items += b","
            self._items += msgspec.json.encode(items)[1:-1]

    def raw(self, more: Sequence[JSON] = ()) -> msgspec.Raw:
        """The whole array, with `more` behind what is kept; for use as a value of what is encoded next."""
        last = msgspec.json.encode(more)[1:-1] if more else b""
        return msgspec.Raw(b"".join((b"[", self._items, b"," if last and self._items else b"", last, b"]")))
