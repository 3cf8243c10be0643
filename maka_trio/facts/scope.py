"""Scopes: which part of the log a prefix, a digest or a high water speaks of."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import attrs

from maka_trio.facts import bounds
from maka_trio.records import frozen


@frozen
class Root:
    """The whole log."""

    kind: ClassVar[str] = "root"


@frozen
class Session:
    """One session."""

    kind: ClassVar[str] = "session"
    id: str = attrs.field(validator=bounds.identity)


@frozen
class Lineage:
    """A session before a run's first ancestor, that run, and the runs it continues; nothing else of the session."""

    kind: ClassVar[str] = "lineage"
    session_id: str = attrs.field(validator=bounds.identity)
    run_id: str = attrs.field(validator=bounds.identity)


Scope: TypeAlias = Root | Session | Lineage
