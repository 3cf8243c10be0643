"""The provider's time: how long the other side may still take. One clock an exchange.

Each network operation runs in a scope of its own, so silence is measured from when we began to listen, and a deadline
that passes beside bytes that came in time cancels nothing. Time that is ours (the input window, the consumer, the
log) never counts.
"""

from __future__ import annotations

import math

import attrs
import trio

from maka_trio import limits
from maka_trio.errors import InvalidInput, ModelTimedOut
from maka_trio.facts.bounds import excerpt
from maka_trio.records import frozen


def _seconds(instance: object, attribute: attrs.Attribute[float], value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not value > 0:  # type: ignore[operator]  # NaN compares false, so it is refused too
        raise InvalidInput(f"{attribute.name}={excerpt(value)} is not a positive number of seconds")


@frozen
class Timeouts:
    """The limits on a provider's time, in seconds.

    Args:
        idle_timeout: silence on the wire: connecting, sending, waiting for the headers or for the next bytes.
        semantic_timeout: time without a model event, whatever else arrives. A tool call is one event, made when it
            is complete, so this must be longer than the longest call takes to stream.
        response_timeout: the whole answer, from the start of connecting, less the consumer's share of the time.
    """

    idle_timeout: float = attrs.field(validator=_seconds)
    semantic_timeout: float | None = attrs.field(default=None, validator=attrs.validators.optional(_seconds))
    response_timeout: float | None = attrs.field(default=None, validator=attrs.validators.optional(_seconds))


class ProviderClock:
    """Deadlines for the network operations of one exchange.

    It stands still while the consumer is behind: from when events are handed on until the consumer has taken them
    all and waits for more. Then silence is measured afresh.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._silent_since = -math.inf
        self._semantic = self._response = self._final = math.inf
        self._behind_since: float | None = None
        self._scope = trio.CancelScope()

    def start(self) -> None:
        """The exchange begins now."""
        now = trio.current_time()
        self._semantic = now + (self._timeouts.semantic_timeout or math.inf)
        self._response = now + (self._timeouts.response_timeout or math.inf)

    def listen(self) -> trio.CancelScope:
        """A network operation begins: the scope to run it in."""
        self._silent_since = trio.current_time()
        self._scope = trio.CancelScope(deadline=self._deadline())
        return self._scope

    def _deadline(self) -> float:
        if self._behind_since is not None:
            return self._final
        return min(self._silent_since + self._timeouts.idle_timeout, self._semantic, self._response, self._final)

    # --- what moves the deadlines ---

    def handed_on(self) -> None:
        """Events were decoded, and are the consumer's to take. No network operation is under way."""
        if self._behind_since is None:
            self._behind_since = trio.current_time()

    def caught_up(self) -> None:
        """The consumer has taken all events and waits for more."""
        if self._behind_since is None:
            return
        now = trio.current_time()
        self._silent_since = now
        self._response += now - self._behind_since
        self._semantic = now + (self._timeouts.semantic_timeout or math.inf)
        self._behind_since = None
        self._scope.deadline = self._deadline()

    def begin_grace(self) -> None:
        """The answer's end was seen: what trails it has a fixed time, which nothing else that arrives extends."""
        if self._final == math.inf:
            self._final = trio.current_time() + min(self._timeouts.idle_timeout, limits.FINISH_GRACE_SECONDS)

    def begin_linger(self) -> None:
        """The answer is complete: the end of the body gets a moment, for the sake of the connection."""
        self._final = trio.current_time() + min(self._timeouts.idle_timeout, limits.LINGER_SECONDS)

    def timed_out(self, doing: str) -> ModelTimedOut:
        """The error for an operation that reached its deadline; `doing` says what was waited for."""
        now = trio.current_time()
        if now >= self._response:
            return ModelTimedOut(f"no complete answer within {self._timeouts.response_timeout:g} s (response_timeout)")
        if now >= self._semantic:
            return ModelTimedOut(f"no model event for {self._timeouts.semantic_timeout:g} s (semantic_timeout)")
        return ModelTimedOut(
            f"the provider was silent for {self._timeouts.idle_timeout:g} s while {doing} (idle_timeout)"
        )
