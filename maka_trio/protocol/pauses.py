"""Answers that are no end of a turn: the provider stops to go on once its own content is sent back.

Each protocol notes in its provider options how an answer ended; which of those notes mean a pause stands here, so that
whoever makes steps need know no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from maka_trio.facts.model import ModelStep
from maka_trio.protocol.hosted_calls import own_options

PAUSES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "anthropic": ("stop_reason", ("pause_turn", "compaction")),
}
"""By a protocol's key: the note that says how an answer ended, and its values that are a pause."""


def is_paused(step: ModelStep) -> bool:
    """Whether the provider paused the turn and continues it when its content is sent back."""
    return any(own_options(step.provider_options, key).get(note) in values for key, (note, values) in PAUSES.items())
