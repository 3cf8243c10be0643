"""Who an event belongs to: sessions, turns, runs, invocations; operations and the calls they stand for.

Knows nothing of what happened to any of them.
"""

from __future__ import annotations

import os
from typing import ClassVar, Final, TypeAlias

import attrs

from maka_trio.facts import bounds
from maka_trio.records import frozen

_DRAWN_AT_ONCE: Final = 256
_VARIANT: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}

_unused: list[str] = []
os.register_at_fork(after_in_child=_unused.clear)  # else parent and child would give the same ids


def random_hex() -> str:
    """128 random bits as 32 hexadecimal digits.

    Drawn from the system many at a time: each draw lets go of the interpreter, which a busy thread takes at once.
    """
    try:
        return _unused.pop()
    except IndexError:
        digits = os.urandom(16 * _DRAWN_AT_ONCE).hex()
        _unused.extend(digits[at : at + 32] for at in range(32, len(digits), 32))
        return digits[:32]


def new_id() -> str:
    """A fresh random id, a UUID of version 4."""
    bits = random_hex()
    return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{_VARIANT[bits[16]]}{bits[17:20]}-{bits[20:]}"


@frozen
class Invocation:
    """Who an event belongs to.

    A turn is one logical user turn, a run one admission of it, an invocation one physical execution of the run.
    """

    session_id: str = attrs.field(validator=bounds.identity)
    turn_id: str = attrs.field(validator=bounds.identity)
    run_id: str = attrs.field(validator=bounds.identity)
    invocation_id: str = attrs.field(validator=bounds.identity)

    @classmethod
    def new(cls, session_id: str) -> Invocation:
        """A new turn of a session, with fresh ids."""
        return cls(session_id, new_id(), new_id(), new_id())


@frozen
class Provider:
    """The model asked for the call in this step."""

    kind: ClassVar[str] = "provider"
    step_id: str = attrs.field(validator=bounds.identity)


@frozen
class CodeMode:
    """A program inside a code cell called the tool."""

    kind: ClassVar[str] = "code_mode"
    parent_operation_id: str = attrs.field(validator=bounds.identity)
    parent_tool_call_id: str = attrs.field(validator=bounds.identity)


@frozen
class CodeCell:
    """The code cell itself, child of the `exec` call that started it."""

    kind: ClassVar[str] = "code_cell"
    parent_operation_id: str = attrs.field(validator=bounds.identity)
    parent_tool_call_id: str = attrs.field(validator=bounds.identity)


@frozen
class HostSdk:
    """An extension of the host program called the tool."""

    kind: ClassVar[str] = "host_sdk"
    package_id: str = attrs.field(validator=bounds.identity)
    entry_id: str = attrs.field(validator=bounds.identity)
    activation: str = attrs.field(validator=bounds.identity)
    parent_operation_id: str | None = attrs.field(default=None, validator=bounds.optional(bounds.identity))


@frozen
class Standalone:
    """Nothing above it: the call stands for itself."""

    kind: ClassVar[str] = "standalone"


ToolOrigin: TypeAlias = Provider | CodeMode | CodeCell | HostSdk | Standalone


@frozen
class ToolCallIdentity:
    """Which call an operation belongs to, and who made it."""

    tool_call_id: str = attrs.field(validator=bounds.identity)
    origin: ToolOrigin

    @classmethod
    def provider(cls, step_id: str, tool_call_id: str) -> ToolCallIdentity:
        """A call of a model step."""
        return cls(tool_call_id, Provider(step_id))


def provider_operation_id(step_id: str, tool_call_id: str) -> str:
    """The operation id of a model's call. Step ids are unique, so it is, whatever ids a provider repeats."""
    return f"{step_id}:{tool_call_id}"
