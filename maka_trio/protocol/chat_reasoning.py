"""Structured reasoning (`reasoning_details`): kept as it came, so that it can go back unchanged.

Its signatures and encrypted data mean something to the server alone. A stream sends it in pieces; consecutive pieces
of one detail are joined, since that is what the server expects to see again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maka_trio.protocol.parts import encoded_size

_TEXTS = ("text", "summary")


class ReasoningDetails:
    """The details of one answer that were not handed out yet.

    Args:
        kept: False drops them all, for servers that take none back.
    """

    def __init__(self, *, kept: bool) -> None:
        self._kept = kept
        self._details: list[dict[str, Any]] = []

    def add(self, details: Iterable[Any]) -> int:
        """Take the details of one chunk. Returns how many bytes they hold."""
        if not self._kept:
            return 0
        size = 0
        for detail in details:
            if isinstance(detail, dict):
                size += encoded_size(detail)
                self._join(detail)
        return size

    def take(self) -> list[dict[str, Any]]:
        """The details since the last call."""
        details, self._details = self._details, []
        for detail in details:
            for key in _TEXTS:
                if isinstance(detail.get(key), list):
                    detail[key] = "".join(detail[key])
        return details

    def _join(self, detail: dict[str, Any]) -> None:
        last = self._details[-1] if self._details else {}
        # Encrypted details have no text to go on with: each is whole.
        key = next((key for key in _TEXTS if isinstance(detail.get(key), str)), None)
        same = last.get("type") == detail.get("type") and last.get("index") == detail.get("index")
        if not last or not same or (key is None and "signature" not in detail):
            self._details.append({**detail, key: [detail[key]]} if key else dict(detail))
            return
        if key is not None:
            last.setdefault(key, []).append(detail[key])
        last.update({name: value for name, value in detail.items() if name != key and value is not None})
