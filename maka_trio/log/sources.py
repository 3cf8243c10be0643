"""What a request says of the part of the log that it was made from: its session, or its lineage where it continues."""

from __future__ import annotations

import attrs

from maka_trio.facts.context import StepPurpose
from maka_trio.facts.event import Fact, ModelRequested
from maka_trio.facts.prefix import chain_text
from maka_trio.facts.scope import Lineage, Scope, Session
from maka_trio.log.prepared import PreparedWrite, with_source
from maka_trio.log.sessions import OpenInvocation, SessionState
from maka_trio.transitions import check_source


def source_link(session: SessionState) -> bytes:
    """The digest of what the next request of a session is made from."""
    return session.digest if session.lineage is None else session.lineage


def check_request(
    fact: ModelRequested, session: SessionState, invocation: OpenInvocation, *, source_here: bool
) -> None:
    """Hold what a request says of its source against where that stands.

    Summaries and continuations have to prove it. The steps of a message are made of their session, as they state.

    Raises:
        CommitRejected: it says something else. With `source_here` it does not say yet, except for the scope.
    """
    scope: Scope = Session(session.session_id)
    if session.lineage is not None:
        scope = Lineage(session.session_id, invocation.state.invocation.run_id)
    elif fact.purpose is not StepPurpose.SUMMARY:
        return
    digest = chain_text(source_link(session))
    if source_here:
        fact = attrs.evolve(fact, source_high_water=session.head, source_digest=digest)
    check_source(fact, scope, session.head, digest)


def with_source_of(known: Fact, write: PreparedWrite) -> PreparedWrite:
    """A request that left its source to the log, with the source of the one that it may be a retry of."""
    if not (write.source_here and isinstance(known, ModelRequested)):
        return write
    return with_source(write, known.source_high_water, known.source_digest)
