"""The rules of tool operations: only accepted calls run, each at most once, children settle first (semantics 2.3)."""

from __future__ import annotations

from typing import TypeAlias, assert_never

from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import canonical
from maka_trio.facts.event import ModelCompleted, ToolDispatched, ToolNotified, ToolRejected, ToolSettled
from maka_trio.facts.identity import (
    CodeCell,
    CodeMode,
    HostSdk,
    Provider,
    Standalone,
    ToolCallIdentity,
    provider_operation_id,
)
from maka_trio.transitions.open_work import AcceptedCall, LiveOperation
from maka_trio.transitions.refusal import Refusal, Undo, refused

_NewOperation: TypeAlias = ToolDispatched | ToolRejected

_ENDED_WORDS = {
    Refusal.OPERATION_UNKNOWN: "was not dispatched by this invocation",
    Refusal.OPERATION_REJECTED: "was rejected",
    Refusal.OPERATION_SETTLED: "is settled",
}


class ToolOperations:
    """The calls and operations of one invocation.

    Attributes:
        calls: accepted calls that are neither dispatched nor rejected, by their operation id, in call order.
        input_bytes: what the inputs of these calls have, as JSON.
        live: dispatched operations without settlement.
    """

    def __init__(self) -> None:
        self.calls: dict[str, AcceptedCall] = {}
        self.input_bytes = 0
        self.live: dict[str, LiveOperation] = {}
        self._ended: dict[str, Refusal] = {}
        self._call_ids: dict[str, bool] = {}
        self._accepted = 0

    def accept(self, fact: ModelCompleted, undo: Undo) -> None:
        """The local calls of a completed step may be dispatched or rejected from now on."""
        for call in fact.output.local_calls():
            self._accepted += 1
            self._expect(AcceptedCall(self._accepted, fact.step_id, call.id, call.name, canonical(call.input)), undo)

    def _expect(self, accepted: AcceptedCall, undo: Undo) -> None:
        operation_id = accepted.operation_id
        before = self.calls.get(operation_id)  # two calls of one id are one operation
        size = len(accepted.input) - (len(before.input) if before else 0)
        self.calls[operation_id] = accepted
        self.input_bytes += size

        def back() -> None:
            self.input_bytes -= size
            if before is None:
                del self.calls[operation_id]
            else:
                self.calls[operation_id] = before

        undo.append(back)

    def dispatch(self, fact: ToolDispatched, *, executor_running: bool, undo: Undo) -> None:
        """T1."""
        operation_id = fact.operation_id
        parent = self._check_new(fact, executor_running=executor_running)
        self._take_call(fact, undo)
        self.live[operation_id] = LiveOperation(fact.name, fact.call)
        undo.append(lambda: self.live.pop(operation_id))
        if parent is not None and _blocks_parent(fact.call):
            _add_blocking(parent, 1, undo)

    def reject(self, fact: ToolRejected, *, executor_running: bool, undo: Undo) -> None:
        """The call is refused for good."""
        self._check_new(fact, executor_running=executor_running)
        self._take_call(fact, undo)
        self._end(fact.operation_id, Refusal.OPERATION_REJECTED, undo)

    def settle(self, fact: ToolSettled, undo: Undo) -> None:
        """T2."""
        operation_id = fact.operation_id
        operation = self._live(operation_id, fact.kind)
        if operation.blocking:
            raise refused(
                Refusal.CHILDREN_UNSETTLED,
                f"operation {excerpt(operation_id)} has {operation.blocking} unsettled calls of its own",
            )
        del self.live[operation_id]
        undo.append(lambda: self.live.__setitem__(operation_id, operation))
        self._end(operation_id, Refusal.OPERATION_SETTLED, undo)
        parent = self.live.get(_parent_id(operation.call) or "")
        if parent is not None and _blocks_parent(operation.call):
            _add_blocking(parent, -1, undo)

    def check_notification(self, fact: ToolNotified) -> None:
        """Only a live code cell says something before its settlement."""
        operation = self._live(fact.operation_id, fact.kind)
        if not isinstance(operation.call.origin, CodeCell):
            raise refused(Refusal.NOT_A_CELL, f"operation {excerpt(fact.operation_id)} is no code cell")

    # --- bookkeeping --------------------------------------------------------------------------------------

    def _live(self, operation_id: str, kind: str) -> LiveOperation:
        operation = self.live.get(operation_id)
        if operation is not None:
            return operation
        how = self._ended.get(operation_id, Refusal.OPERATION_UNKNOWN)
        raise refused(how, f"{kind} for operation {excerpt(operation_id)}, which {_ENDED_WORDS[how]}")

    def _end(self, operation_id: str, how: Refusal, undo: Undo) -> None:
        self._ended[operation_id] = how
        undo.append(lambda: self._ended.pop(operation_id))

    def _take_call(self, fact: _NewOperation, undo: Undo) -> None:
        operation_id, call_id = fact.operation_id, fact.call.tool_call_id
        accepted = self.calls.pop(operation_id, None)
        if accepted is not None:
            self.input_bytes -= len(accepted.input)
            undo.append(lambda: self._put_back(operation_id, accepted))
        if call_id not in self._call_ids:
            self._call_ids[call_id] = isinstance(fact.call.origin, Provider)
            undo.append(lambda: self._call_ids.pop(call_id))

    def _put_back(self, operation_id: str, accepted: AcceptedCall) -> None:
        calls = {**self.calls, operation_id: accepted}
        self.calls = dict(sorted(calls.items(), key=lambda item: item[1].number))
        self.input_bytes += len(accepted.input)

    # --- who may be new -----------------------------------------------------------------------------------

    def _check_new(self, fact: _NewOperation, *, executor_running: bool) -> LiveOperation | None:
        """Check a new operation; return the parent operation if it has one."""
        operation_id, origin = fact.operation_id, fact.call.origin
        if operation_id in self.live or operation_id in self._ended:
            raise refused(Refusal.OPERATION_REUSED, f"operation {excerpt(operation_id)} was used before")
        self._check_call_id(fact.call)
        match origin:
            case Provider():
                self._check_accepted(fact, origin.step_id)
                return None
            case CodeMode() | CodeCell():
                return self._live_parent(origin.parent_operation_id, origin.parent_tool_call_id)
            case HostSdk(parent_operation_id=str() as parent_id):
                return self._live_parent(parent_id, None)
            case HostSdk():
                if not executor_running:
                    raise refused(Refusal.PARENT_NOT_LIVE, "a host_sdk call needs a live parent or a running executor")
                return None
            case Standalone():
                return None
            case _:
                assert_never(origin)

    def _check_call_id(self, call: ToolCallIdentity) -> None:
        """A call id is used once, but models count from one again in each step."""
        used_by_model = self._call_ids.get(call.tool_call_id)
        if used_by_model is not None and not (used_by_model and isinstance(call.origin, Provider)):
            raise refused(
                Refusal.CALL_REUSED, f"tool call {excerpt(call.tool_call_id)} was used before in this invocation"
            )

    def _check_accepted(self, fact: _NewOperation, step_id: str) -> None:
        expected = provider_operation_id(step_id, fact.call.tool_call_id)
        if fact.operation_id != expected:
            raise refused(
                Refusal.CALL_NOT_ACCEPTED,
                f"operation {excerpt(fact.operation_id)} of a model's call must be named {excerpt(expected)}",
            )
        accepted = self.calls.get(expected)
        if accepted is None:
            raise refused(
                Refusal.CALL_NOT_ACCEPTED, f"no completed step has an open local call for operation {excerpt(expected)}"
            )
        if fact.name != accepted.name or canonical(fact.input) != accepted.input:
            raise refused(
                Refusal.CALL_DIFFERS, f"operation {excerpt(expected)} has another name or input than the accepted call"
            )

    def _live_parent(self, operation_id: str, call_id: str | None) -> LiveOperation:
        parent = self.live.get(operation_id)
        if parent is None or (call_id is not None and parent.call.tool_call_id != call_id):
            raise refused(
                Refusal.PARENT_NOT_LIVE,
                f"parent {excerpt(operation_id)} is no dispatched, unsettled operation of this invocation and call",
            )
        return parent


def _parent_id(call: ToolCallIdentity) -> str | None:
    match call.origin:
        case CodeMode() | CodeCell() | HostSdk():
            return call.origin.parent_operation_id
        case _:
            return None


def _blocks_parent(call: ToolCallIdentity) -> bool:
    """A cell may outlive the call that started it; every other child settles first."""
    return isinstance(call.origin, (CodeMode, HostSdk))


def _add_blocking(parent: LiveOperation, change: int, undo: Undo) -> None:
    parent.blocking += change

    def back() -> None:
        parent.blocking -= change

    undo.append(back)
