"""One dispatched effect: it runs once, shielded, in a task of its own, and how it ended is kept as a value.

A task of its own, so that what a handler does to its cancel scopes and context variables stays there. Shielded, since
it was dispatched: it ends by itself, and the abort of the run is only told to it. Knows nothing of the log.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from maka_trio.errors import CleanupUnconfirmed
from maka_trio.facts.outcome import EffectFailed, EffectUnknown
from maka_trio.records import frozen
from maka_trio.tools.call import AbortSwitch
from maka_trio.tools.failure import Fatal, judge

NOT_STARTED_TEXT: Final = "the run was cancelled before the effect started; nothing happened"
"""The settlement of a call whose T1 was durable when the cancel arrived, but whose effect had not begun."""

ABORTED_TEXT: Final = "the run was aborted; the tool left a part of its work and returned nothing"
"""The settlement of an effect that an abort scope interrupted and that says nothing itself."""

LOST_TEXT: Final = "the task of the effect was lost; its effect may have happened"


@frozen
class Returned:
    """The effect came to its end with this result, not yet encoded."""

    value: object


Verdict: TypeAlias = Returned | EffectFailed | EffectUnknown | Fatal


class Effect:
    """An effect on its way from T1 to T2.

    Args:
        body: the effect.
        switch: how it is told of an abort.
    """

    def __init__(self, body: Callable[[], Awaitable[object]], switch: AbortSwitch) -> None:
        self._body = body
        self._switch = switch
        self._ended = trio.Event()
        self.verdict: Verdict = EffectUnknown(LOST_TEXT)

    async def run(self) -> None:
        """Run the effect to its end. For a nursery of the run: whatever the effect raises is kept as the verdict."""
        try:
            if trio.current_effective_deadline() == -math.inf:
                self.verdict = EffectFailed(NOT_STARTED_TEXT)
            else:
                with trio.CancelScope(shield=True):  # dispatched: it ends by itself
                    self.verdict = await self._judged()
        finally:
            self._ended.set()

    async def ended_or_aborted(self) -> None:
        """Wait for the end in the task of the run. A cancel of the run is passed on to the effect, then raised."""
        try:
            await self._ended.wait()
        except BaseException:
            self._switch.throw()
            raise

    def leaked(self, group: BaseExceptionGroup) -> None:
        """What came out of the nursery. Besides cancellations, that is trio's word that the effect left one open."""
        _, other = group.split(trio.Cancelled)
        if other is not None:
            fatal = CleanupUnconfirmed("the tool returned with a nursery or a cancel scope of its own still open")
            fatal.__cause__ = other
            self.verdict = Fatal(fatal)

    async def _judged(self) -> Verdict:
        try:
            value = await self._body()
        except BaseException as error:  # noqa: ASYNC103 - nothing outside can cancel here; the verdict keeps it all
            return judge(error)  # noqa: ASYNC104
        if value is None and self._switch.interrupted:
            return EffectFailed(ABORTED_TEXT)
        return Returned(value)
