"""How long a run lets its stream alone after it has written what came. Pure.

Hundreds of slow answers cost by the read and hardly by the byte: each small read wakes two tasks and is a row and a
wait for the disk. Where nobody looks at an answer while it comes, a short rest lets the next read bring more, and the
log gets the same text in fewer events. What is followed, what comes fast and what has few beside it never rests.
"""

from __future__ import annotations

from collections.abc import Sequence

from maka_trio import limits
from maka_trio.facts.model import ModelEvent, PartDelta


def rest_after(lot: Sequence[ModelEvent], streams: int) -> float:
    """Seconds to rest after a lot, while so many streams are open and nobody follows this one; 0 for none."""
    if streams <= limits.READ_AHEAD_STREAMS:
        return 0.0
    text = sum(len(event.text) for event in lot if isinstance(event, PartDelta))
    return 0.0 if text >= limits.REST_TEXT else min(streams * limits.REST_SECONDS_A_STREAM, limits.REST_SECONDS)
