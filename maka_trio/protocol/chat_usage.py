"""Token counts of chat completions: totals that are stated again and again, the last of each field winning."""

from __future__ import annotations

from typing import Final

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.model import ModelUsage
from maka_trio.protocol.payload import token_count

_PLACES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "input_tokens": (("prompt_tokens",),),
    "output_tokens": (("completion_tokens",),),
    "cache_read_tokens": (
        ("prompt_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),
    ),
    "cache_write_tokens": (
        ("prompt_tokens_details", "cache_write_tokens"),
        ("prompt_tokens_details", "cache_creation_tokens"),
    ),
    "reasoning_tokens": (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",)),
}
"""Where each count may stand; the first place that states one counts."""


class ChatUsage:
    """The counts stated so far."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def state(self, usage: object) -> bool:
        """Take a usage object. Returns whether it states any count.

        Raises:
            AdapterError: it is no object, or a count is not a non-negative integer.
        """
        if not isinstance(usage, dict):
            raise AdapterError(f"usage={excerpt(usage)} is not an object")
        stated = False
        for field, places in _PLACES.items():
            for place in places:
                count = token_count(_at(usage, place), ".".join(place))
                if count is not None:
                    self._counts[field] = count
                    stated = True
                    break
        return stated

    def total(self) -> ModelUsage:
        """The last stated value of each field; None where none was stated."""
        return ModelUsage(**self._counts)


def _at(usage: dict[str, object], place: tuple[str, ...]) -> object:
    value: object = usage
    for key in place:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
