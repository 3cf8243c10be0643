"""What an exception out of a tool says about its effect. Pure: no trio calls, no log.

An effect may end in a group, of which each leaf is a finding of its own. The gravest leaf decides: one that must
stop the run, else one that leaves the outcome unknown, else the effect failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import trio

from maka_trio import limits
from maka_trio.errors import (
    CleanupUnconfirmed,
    CommitError,
    MakaError,
    PrefixTooLarge,
    ResultUnavailable,
    StoreError,
    ToolOutcomeUnknown,
)
from maka_trio.facts.outcome import EffectFailed, EffectUnknown
from maka_trio.records import frozen

INTERRUPTED_TEXT: Final = "the tool was ended by a cancellation that was not of its run"
"""What is said of a `Cancelled` that a tool let out although nothing around it was cancelled."""

_FATAL = (CommitError, StoreError, CleanupUnconfirmed)
_ABOUT_A_READ = (PrefixTooLarge, ResultUnavailable)
"""Of a log that works: what was asked of it was too much, or is not there."""

_PASSED_ON = (Exception, KeyboardInterrupt, SystemExit)
"""Errors of ours, and what ends a program wherever it is raised."""

_SHOWN_LEAVES: Final = 8


@frozen
class Fatal:
    """The operation stays unsettled and the run ends with this error."""

    error: BaseException


def judge(error: BaseException) -> EffectFailed | EffectUnknown | Fatal:
    """What to settle for an effect that raised, if it may be settled at all."""
    found = list(leaves(error))
    for leaf in found:
        if _ends_the_run(leaf):
            return Fatal(leaf if isinstance(leaf, _PASSED_ON) else _unexpected(leaf))
    for leaf in found:
        if isinstance(leaf, ToolOutcomeUnknown):
            return EffectUnknown(text_of(leaf))
        if isinstance(leaf, trio.Cancelled):
            return EffectUnknown(INTERRUPTED_TEXT)
    return EffectFailed(text_of(error))


def _unexpected(error: BaseException) -> CleanupUnconfirmed:
    """The error that ends a run for a tool that let out what no tool may: nobody knows what became of its effect."""
    found = CleanupUnconfirmed(f"the tool ended in a way that nothing expects: {text_of(error)}")
    found.__cause__ = error
    return found


def _ends_the_run(error: BaseException) -> bool:
    if isinstance(error, _FATAL):
        return not isinstance(error, _ABOUT_A_READ)
    return not isinstance(error, (Exception, trio.Cancelled))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, groups in groups included, in order; a plain exception is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def text_of(error: BaseException) -> str:
    """The text of an exception for the model and the log: its own words, bounded, and fit for UTF-8.

    Neither its cause nor its traceback is part of it.
    """
    found = list(leaves(error))
    lines = [_line(leaf) for leaf in found[:_SHOWN_LEAVES]]
    if len(found) > _SHOWN_LEAVES:
        lines.append(f"and {len(found) - _SHOWN_LEAVES} more")
    return bounded("; ".join(lines))


def _line(error: BaseException) -> str:
    try:
        words = str(error)
    except Exception:  # the exception's own class is at fault, and its name is still worth telling
        words = ""
    if isinstance(error, MakaError):
        return words or "the tool failed"
    name = type(error).__name__
    return f"{name}: {words}" if words else name


def bounded(text: str, limit: int = limits.TOOL_ERROR_BYTES) -> str:
    """A text of at most `limit` bytes of UTF-8, lone surrogates escaped; one that was cut ends in three dots."""
    # No character has less than one byte, so a text that is far too long is never encoded as a whole.
    data = text[: limit + 1].encode(errors="backslashreplace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - 3].decode(errors="ignore") + "..."
