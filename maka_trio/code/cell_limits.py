"""`CellLimits`: what one program of a model may use. Values only."""

from __future__ import annotations

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.limits import KIB, MIB
from maka_trio.records import frozen

LONGEST_EXECUTION = 3600.0
"""Seconds of running time that a cell may be given at most."""


def _seconds(instance: object, attribute: attrs.Attribute[float], value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST_EXECUTION:
        words = f"must be seconds, more than 0 and at most {LONGEST_EXECUTION:g}"
        raise InvalidInput(f"{attribute.name}={bounds.excerpt(value)} {words}")


@frozen(kw_only=True)
class CellLimits:
    """What one code cell may use. Sizes are bytes.

    Args:
        source_bytes: the program, in UTF-8.
        value_bytes: the program's value, and the arguments of one call, as JSON.
        memory_bytes: the heap of the interpreter. The worker process itself takes about 12 MiB more.
        execution_seconds: running time only; waiting for a tool or asleep is free.
        tool_calls: calls of tools in all.
        tool_calls_in_flight: calls of tools at once; further ones wait.
        output_bytes: all text the program writes.
        notifications: times it notifies the model. What it says so becomes part of the conversation.
        notification_bytes: the text of all notifications, in UTF-8.
        host_calls: times the program asks anything of us, names it does not define included.
        timers: sleeps.
        sleep_seconds: the longest sleep.
    """

    source_bytes: int = attrs.field(default=64 * KIB, validator=bounds.integer(minimum=1, maximum=MIB))
    value_bytes: int = attrs.field(default=MIB, validator=bounds.integer(minimum=1, maximum=64 * MIB))
    memory_bytes: int = attrs.field(default=64 * MIB, validator=bounds.integer(minimum=MIB, maximum=4096 * MIB))
    execution_seconds: float = attrs.field(default=30.0, validator=_seconds)
    tool_calls: int = attrs.field(default=32, validator=bounds.integer(minimum=0, maximum=10_000))
    tool_calls_in_flight: int = attrs.field(default=8, validator=bounds.integer(minimum=1, maximum=256))
    output_bytes: int = attrs.field(default=MIB, validator=bounds.integer(minimum=1, maximum=64 * MIB))
    notifications: int = attrs.field(default=64, validator=bounds.integer(minimum=0, maximum=10_000))
    notification_bytes: int = attrs.field(default=256 * KIB, validator=bounds.integer(minimum=0, maximum=64 * MIB))
    host_calls: int = attrs.field(default=10_000, validator=bounds.integer(minimum=1, maximum=1_000_000))
    timers: int = attrs.field(default=128, validator=bounds.integer(minimum=0, maximum=10_000))
    sleep_seconds: float = attrs.field(default=60.0, validator=_seconds)
