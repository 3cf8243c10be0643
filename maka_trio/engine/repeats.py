"""The same request a second time: recognised by its invocation id, or by the fingerprint the application gave it.

A repeated request is never run again. What it asks for is held against what the first one asked for: the opening,
to the last byte, media compared by content. Where a request was sent (provider and model) is no part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import attrs

from maka_trio.errors import CommitRejected
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import encode_fact
from maka_trio.facts.continuation import ContinuationClaim
from maka_trio.facts.event import EventWrite, Fact, InvocationOpened
from maka_trio.facts.identity import Invocation
from maka_trio.facts.message import ContentPart, MediaContent
from maka_trio.facts.opening import ContinuationOpening, MessageOpening, fingerprint_digest, request_fingerprint
from maka_trio.facts.outcome import ArtifactRef
from maka_trio.log.invocations import InvocationRecord
from maka_trio.records import frozen


@frozen
class Asked:
    """One request as it can be compared with another: who, by what name, and for what."""

    invocation: Invocation
    fingerprint: str | None
    content: bytes
    """The SHA-256 of what was asked for: a run keeps it, and a message may be long."""

    @classmethod
    def of(cls, opening: EventWrite, fingerprint: str | None) -> Asked:
        """What is about to be asked for, and the name that the application gave it."""
        refs = tuple(artifact.ref for artifact in opening.artifacts)
        asked = cls._of(opening.event.invocation, opening.event.fact, refs)
        return asked if fingerprint is None else attrs.evolve(asked, fingerprint=fingerprint)

    @classmethod
    def before(cls, record: InvocationRecord) -> Asked:
        """What the log says was asked for."""
        return cls._of(record.invocation, record.opening, record.artifacts)

    @classmethod
    def _of(cls, invocation: Invocation, fact: Fact, artifacts: tuple[ArtifactRef, ...]) -> Asked:
        assert isinstance(fact, InvocationOpened)
        content = encode_fact(_by_content(fact, {ref.id: ref.digest for ref in artifacts}))
        return cls(invocation, request_fingerprint(fact.input), hashlib.sha256(content).digest())

    def repeats(self, other: Asked) -> bool:
        """Whether this is that request again.

        Raises:
            CommitRejected: it has the name of that request (`reason` is `conflict`) and asks for something else.
        """
        if self.invocation.invocation_id == other.invocation.invocation_id:
            name, same = f"invocation {excerpt(self.invocation.invocation_id)}", self.invocation == other.invocation
        elif None not in (self.fingerprint, other.fingerprint) and self._session_and_name == other._session_and_name:
            name, same = f"request {excerpt(self.fingerprint)}", True
        else:
            return False
        if not same or self.content != other.content:
            raise CommitRejected(f"{name} was started before, for something else", reason="conflict")
        return True

    @property
    def _session_and_name(self) -> tuple[str, str]:
        return self.invocation.session_id, fingerprint_digest(self.fingerprint or "")


def ended_before(asked: Asked, found: InvocationRecord | None) -> InvocationRecord | None:
    """The ended run of the same request, if that is what the log has found.

    An open one is none: nobody drives it, and its session says so.

    Raises:
        CommitRejected: the request's name stands for something else.
    """
    if found is None or not asked.repeats(Asked.before(found)):
        return None
    return found if found.outcome is not None else None


def _by_content(fact: InvocationOpened, digests: Mapping[str, str]) -> InvocationOpened:
    """The opening without what it was given when it was submitted: ids of its media, which their digests replace."""
    opening = fact.input
    if isinstance(opening, ContinuationOpening):  # the rest of its claim follows from the source
        return attrs.evolve(fact, input=attrs.evolve(opening, claim=ContinuationClaim.of(opening.claim.source)))
    if not isinstance(opening, MessageOpening) or not digests:
        return fact
    parts = tuple(_by_digest(part, digests) for part in opening.content.parts)
    content = attrs.evolve(opening.content, parts=parts)
    return attrs.evolve(fact, input=attrs.evolve(opening, content=content))


def _by_digest(part: ContentPart, digests: Mapping[str, str]) -> ContentPart:
    if not isinstance(part, MediaContent) or part.artifact is None:
        return part
    return attrs.evolve(part, artifact=digests.get(part.artifact, part.artifact), digest=None)
