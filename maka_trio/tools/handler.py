"""What may stand behind a tool: an async function, or a handler that prepares its effect first.

An immediate handler is `async (input, call) -> result`; all of it is the effect. A prepared handler does what has no
effect yet (parse, look up, ask a person) in `prepare`, which a cancelled run leaves at once, and gives back the
effect or a refusal. Which results a handler may return is told in `tools.output`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

from maka_trio.facts.codec import canonical, digest
from maka_trio.facts.json_value import JSON, check_json
from maka_trio.facts.outcome import ToolRejection
from maka_trio.records import frozen
from maka_trio.tools.call import ToolCall

ImmediateHandler: TypeAlias = Callable[[Any, ToolCall], Awaitable[object]]
"""`async (input, call) -> result`. `input` is a fresh copy that the handler may change."""


@frozen
class Approval:
    """A yes to one operation with exactly these arguments, and to nothing else.

    It is a value of this process and stands in no log: a restart never turns into a grant.
    """

    operation_id: str
    input_digest: str

    @classmethod
    def of(cls, call: ToolCall, shown: JSON) -> Approval:
        """The approval of a call by someone who was shown these arguments."""
        return cls(call.operation_id, digest(canonical(check_json(shown, what="the approved arguments"))))


@frozen(eq=False)
class PreparedEffect:
    """An effect that is ready to run, once.

    Args:
        run: `async (input) -> result`, called after the dispatch is durable, with a fresh copy of the *recorded*
            arguments. It is released only after the settlement, or when the dispatch was refused.
        approval: who asked somebody says so here. An approval of other arguments than the recorded ones rejects the
            call: what was approved is what runs, or nothing does.
    """

    run: Callable[[Any], Awaitable[object]]
    approval: Approval | None = None


class PreparedHandler(Protocol):
    """A handler whose effect is prepared before the dispatch is committed."""

    async def prepare(self, arguments: Any, call: ToolCall, /) -> PreparedEffect | ToolRejection:
        """Make the effect ready without having any. May be cancelled at every await; then nothing is dispatched."""
        ...


ASYNC_HINT: Final = "write `async def`, and wrap blocking work with trio.to_thread.run_sync"

Handler: TypeAlias = ImmediateHandler | PreparedHandler


def is_prepared(handler: object) -> TypeGuard[PreparedHandler]:
    """Whether a handler has an async `prepare`."""
    return not isinstance(handler, type) and inspect.iscoroutinefunction(getattr(handler, "prepare", None))


def may_wait(handler: object) -> bool:
    """Whether a handler may wait for something, a person even, while it prepares."""
    return is_prepared(handler) and not getattr(handler, "prepares_at_once", False)


def named(handler: object) -> str:
    """What to call a handler in an error. Never its repr: that of a partial shows what it binds."""
    return str(getattr(handler, "__qualname__", type(handler).__name__))


def fault_of(handler: object) -> str | None:
    """What is wrong with a handler, as the end of a sentence that names its tool; None for a usable one."""
    if is_prepared(handler) or _is_async(handler):
        return None
    if isinstance(handler, type) or not callable(handler):
        return f"needs an async function or an object with an async prepare as its handler, not {named(handler)}"
    return f"has the handler {named(handler)}, which is not async; {ASYNC_HINT}"


def _is_async(handler: object) -> bool:
    if isinstance(handler, type):
        return False
    call_method = getattr(type(handler), "__call__", None)  # noqa: B004  to see whether it is async
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call_method)
