"""What speaks against going on from a run, as far as values tell: for who asks, for the engine and for the log."""

from __future__ import annotations

from maka_trio.dialogue import Replay
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.event import InvocationOpened
from maka_trio.facts.identity import Invocation
from maka_trio.facts.opening import InvocationConfiguration, RequestSurface


def identity_objection(invocation: Invocation, source: Invocation) -> str | None:
    """Why an invocation cannot continue another, by their identities; None where it can."""
    if invocation.session_id != source.session_id:
        return (
            f"a run of session {excerpt(source.session_id)} is continued in that session, not in "
            f"{excerpt(invocation.session_id)}"
        )
    if invocation.run_id == source.run_id or invocation.invocation_id == source.invocation_id:
        return f"run {excerpt(source.run_id)} is continued by a run of its own, with ids of its own"
    return None


def replay_objection(
    opened: InvocationOpened, surface: RequestSurface, source: InvocationOpened, replay: Replay
) -> str | None:
    """Why an invocation cannot go on with what its source left; None where it can.

    Args:
        opened: the opening that is to come.
        surface: what its requests carry.
        source: the opening of the run that it goes on from.
        replay: what would be replayed.
    """
    cwd, before = _cwd(opened), _cwd(source)
    if cwd != before:
        return f"the run was made in cwd={excerpt(before)} and is continued there, not in {excerpt(cwd)}"
    offered = {definition.name for definition in surface.tools}
    missing = [name for name in replay.tools if name not in offered]
    if missing:
        names = ", ".join(excerpt(name) for name in missing[:8]) + (", ..." if len(missing) > 8 else "")
        return f"the run called tools that are not offered any more: {names}"
    return replay.refusal


def _cwd(opened: InvocationOpened) -> str | None:
    return (opened.configuration or InvocationConfiguration()).cwd
