"""What a log can be asked, whoever answers: the reading half of `EventLog`. Each answer is of one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import check_identity, check_instance
from maka_trio.facts.continuation import RunBoundary
from maka_trio.facts.event import Artifact
from maka_trio.facts.identity import Invocation
from maka_trio.facts.json_value import JSON
from maka_trio.facts.prefix import LogPrefix
from maka_trio.facts.scope import Lineage, Root, Scope, Session
from maka_trio.log import admission, invocations, lineage, prefixes, queries
from maka_trio.log.admission import Admission
from maka_trio.log.invocations import InvocationRecord
from maka_trio.log.queries import SessionContext, SessionSafety, SessionSummary
from maka_trio.log.reader import Reader

T = TypeVar("T")


class Questions(Protocol):
    """The questions.

    A read may be cancelled at any time. After `aclose` every one raises LogClosed. What needs the bodies of a session
    that were deleted raises SessionDeleted.
    """

    async def _ask(self, question: Callable[[Reader], T]) -> T:
        """Answer a question from one snapshot."""
        ...

    async def prefix(self, max_events: int, max_bytes: int, scope: Scope | None = None) -> LogPrefix:
        """All events of a scope, the whole log if none is given.

        Args:
            max_events: the most events.
            max_bytes: the most bytes of their JSON; raw tool results do not count.
            scope: the log, a session, or the lineage of a run.

        Raises:
            PrefixTooLarge: the scope holds more. Nothing is ever cut short.
            LogCorrupt: an event does not verify; `sequence` names it.
            InvalidInput: a bound is no count, or there is no such run.
        """
        asked = checked_scope(scope)
        return await self._ask(lambda reader: prefixes.prefix(reader, asked, max_events, max_bytes))

    async def run_prefix(self, session_id: str, run_id: str, max_events: int, max_bytes: int) -> LogPrefix | None:
        """The events of one run with its own high water and digest; None if there is no such run.

        Raises as `prefix` does.
        """
        check_identity(session_id, "session_id")
        check_identity(run_id, "run_id")
        return await self._ask(lambda reader: prefixes.run_prefix(reader, session_id, run_id, max_events, max_bytes))

    async def read_context(
        self,
        session_id: str,
        run_id: str | None = None,
        *,
        max_events: int = limits.CONTEXT_EVENTS,
        max_bytes: int = limits.CONTEXT_BYTES,
    ) -> SessionContext:
        """The facts of a session that a run reads to go on with it, and the session's head at that moment.

        Observations are left out, and so are the calls of programs, except for the dispatches (without their input)
        of those that were never settled.

        With a `run_id`, those of that run's lineage only: the session before the first run that it goes on from, and
        what these runs and it have added. Nothing else of the session is read.

        Raises:
            InvalidInput: the session has no such run.
            PrefixTooLarge: there are more. Inputs in dispatches and rejections do not count.
            LogCorrupt: an event cannot be read, or a succeeded settlement has lost its raw result.
        """
        check_identity(session_id, "session_id")
        if run_id is not None:
            scope = Lineage(session_id, run_id)
            return await self._ask(lambda reader: queries.read_lineage(reader, scope, max_events, max_bytes))
        return await self._ask(lambda reader: queries.read_context(reader, session_id, max_events, max_bytes))

    async def boundary(self, session_id: str, run_id: str) -> RunBoundary:
        """The exact end of a sealed run, which `ContinuationWork` goes on from.

        Raises:
            InvalidInput: the session has no such run, or one of several invocations.
            ReconciliationRequired: the run has not ended.
            LogCorrupt: an event of it does not verify.
        """
        check_identity(session_id, "session_id")
        check_identity(run_id, "run_id")
        return await self._ask(lambda reader: lineage.boundary(reader, session_id, run_id))

    async def require_safe(
        self, session_id: str, *, except_invocation: str | None = None, allow_prior_unknown: bool = False
    ) -> SessionSafety:
        """Check that a session may be continued.

        Args:
            session_id: the session.
            except_invocation: the id of an invocation that is not looked at, because it is the one that asks.
            allow_prior_unknown: let unsettled effects of invocations that were sealed `outcome_unknown` pass.

        Raises:
            ReconciliationRequired: an invocation has not ended, or left something unresolved.
        """
        check_identity(session_id, "session_id")
        return await self._ask(
            lambda reader: queries.require_safe(
                reader, session_id, except_invocation, allow_prior_unknown=allow_prior_unknown
            )
        )

    async def find_invocation(self, invocation_id: str) -> InvocationRecord | None:
        """What the log knows of the invocation of this id; None if it never opened. Raises LogCorrupt."""
        check_identity(invocation_id, "invocation_id")
        return await self._ask(lambda reader: invocations.by_id(reader, invocation_id))

    async def find_request(self, session_id: str, request_fingerprint: str) -> InvocationRecord | None:
        """The last invocation that a session opened for a request; None if there is none. Raises LogCorrupt."""
        check_identity(session_id, "session_id")
        check_identity(request_fingerprint, "request_fingerprint")
        return await self._ask(lambda reader: invocations.by_request(reader, session_id, request_fingerprint))

    async def admission(
        self, invocation: Invocation, request_fingerprint: str | None, *, allow_prior_unknown: bool, history: bool
    ) -> Admission:
        """All that a run has to know before it opens.

        As `find_invocation`, `find_request`, `require_safe` and `read_context` would say it one after the other.

        Args:
            invocation: the identity that the run is to have.
            request_fingerprint: its request's, if it has one.
            allow_prior_unknown: as for `require_safe`.
            history: read the context of its session.

        Raises:
            StoreError: it cannot be seen whether the request was run before.
        """
        check_instance(invocation, "invocation", Invocation)
        if request_fingerprint is not None:
            check_identity(request_fingerprint, "request_fingerprint")
        return await self._ask(
            lambda reader: admission.admission(
                reader, invocation, request_fingerprint, allow_prior_unknown=allow_prior_unknown, history=history
            )
        )

    async def sessions(self) -> list[SessionSummary]:
        """All sessions, in the order in which they began."""
        return await self._ask(queries.sessions)

    async def resolve_tool_result(self, session_id: str, event_id: str) -> JSON:
        """The raw result of a succeeded settlement, verified by size and digest.

        Raises:
            ResultUnavailable: it is missing or damaged, or the event is not of this session or no such settlement.
        """
        check_identity(session_id, "session_id")
        check_identity(event_id, "event_id")
        return await self._ask(lambda reader: queries.tool_result(reader, session_id, event_id))

    async def read_artifact(self, session_id: str, artifact_id: str) -> Artifact:
        """An artifact of a session, verified. Raises ResultUnavailable."""
        check_identity(session_id, "session_id")
        check_identity(artifact_id, "artifact_id")
        return await self._ask(lambda reader: queries.artifact(reader, session_id, artifact_id))


def checked_scope(scope: Scope | None) -> Scope:
    """The scope that was asked for: the whole log if none was. Raises InvalidInput for what is none."""
    if scope is None:
        return Root()
    if not isinstance(scope, (Root, Session, Lineage)):
        raise InvalidInput(f"scope must be Root, Session or Lineage, not {type(scope).__name__}")
    return scope
