"""The end of a run that another run goes on from, and what that other run claims of it.

A claim is evidence: whoever has the log can recompute each digest in it, and the log does before it accepts one.
"""

from __future__ import annotations

from typing import Final

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.identity import Invocation
from maka_trio.facts.scope import Lineage
from maka_trio.records import frozen

_LAST: Final = 2**63 - 1

NOT_DERIVED: Final = "sha256:" + "0" * 64
"""A digest of a claim that nobody has computed from the log yet."""


@frozen
class RunBoundary:
    """The exact end of a sealed run: its last sequence, and the digest over its events, as `run_prefix` has them."""

    invocation: Invocation = attrs.field(validator=bounds.instance(Invocation))
    high_water: int = attrs.field(validator=bounds.integer(minimum=1, maximum=_LAST))
    digest: str = attrs.field(validator=bounds.digest)


@frozen
class ContinuationBase:
    """What is continued: the lineage of the source, up to its end."""

    scope: Lineage = attrs.field(validator=bounds.instance(Lineage))
    high_water: int = attrs.field(validator=bounds.integer(minimum=1, maximum=_LAST))
    digest: str = attrs.field(validator=bounds.digest)


@frozen
class ContinuationClaim:
    """What a continuation says of the run that it goes on from.

    `replay_digest` covers the messages of the base as they are replayed, each with the route that made it, before a
    request leaves out what its own route cannot carry.
    """

    source: RunBoundary = attrs.field(validator=bounds.instance(RunBoundary))
    base: ContinuationBase = attrs.field(validator=bounds.instance(ContinuationBase))
    replay_digest: str = attrs.field(validator=bounds.digest)

    def __attrs_post_init__(self) -> None:
        if (self.base.scope, self.base.high_water) != (_scope_of(self.source), self.source.high_water):
            raise InvalidInput("the base of a claim is the lineage of its source, up to the end of the source")

    @classmethod
    def of(
        cls, source: RunBoundary, *, base_digest: str = NOT_DERIVED, replay_digest: str = NOT_DERIVED
    ) -> ContinuationClaim:
        """The claim on a run; without digests, what of it is known before the log was read."""
        return cls(source, ContinuationBase(_scope_of(source), source.high_water, base_digest), replay_digest)


def _scope_of(source: RunBoundary) -> Lineage:
    return Lineage(source.invocation.session_id, source.invocation.run_id)
