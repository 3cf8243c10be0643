"""What the log says to a run before it opens, in one answer.

Hundreds of runs may begin at once, and the way to a reader's thread and back takes longer than what is looked up there.
"""

from __future__ import annotations

from maka_trio import limits
from maka_trio.errors import MakaError
from maka_trio.facts.event import StoredEvent
from maka_trio.facts.identity import Invocation
from maka_trio.log import invocations
from maka_trio.log.invocations import InvocationRecord
from maka_trio.log.queries import read_context, require_safe
from maka_trio.log.reader import Reader
from maka_trio.records import define


@define(eq=False)
class Admission:
    """What the log says to a request for a run.

    Attributes:
        before: the invocation that was opened for the same request, found by its id or its fingerprint.
    """

    before: InvocationRecord | None
    _history: tuple[StoredEvent, ...] | MakaError | None

    def take_history(self) -> tuple[StoredEvent, ...]:
        """The facts of the session, where they were asked for. Once, and not where the request has its end already.

        Raises:
            ReconciliationRequired: the session may not be continued.
            PrefixTooLarge, StoreError: it cannot be read.
        """
        history, self._history = self._history, None  # who asked may keep this, and an error leads back to him
        assert history is not None
        if isinstance(history, MakaError):
            try:
                raise history
            finally:
                del history
        return history


def admission(
    reader: Reader, invocation: Invocation, fingerprint: str | None, *, allow_prior_unknown: bool, history: bool
) -> Admission:
    """See `Questions.admission`."""
    before = invocations.by_id(reader, invocation.invocation_id)
    if before is None and fingerprint is not None:
        before = invocations.by_request(reader, invocation.session_id, fingerprint)
    if before is not None and before.outcome is not None:
        return Admission(before, None)
    try:
        require_safe(reader, invocation.session_id, None, allow_prior_unknown=allow_prior_unknown)
        return Admission(before, _facts(reader, invocation.session_id) if history else ())
    except MakaError as error:
        return Admission(before, error)


def _facts(reader: Reader, session_id: str) -> tuple[StoredEvent, ...]:
    return read_context(reader, session_id, limits.CONTEXT_EVENTS, limits.CONTEXT_BYTES).events
