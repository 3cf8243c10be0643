"""Before T1: arguments, preparation, approval. What goes wrong there is a refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from maka_trio import facts, limits
from maka_trio.errors import CleanupUnconfirmed, CommitUnknown, InvalidInput, StoreError, ToolFailed, ToolOutcomeUnknown
from maka_trio.facts.codec import canonical, digest
from maka_trio.tools import Approval, PreparedEffect, ToolCall
from maka_trio.tools.prepare import OTHER_INPUT_TEXT
from tests.tools.scene import Prepares, Scene

OPERATION = "step:c1"


@attrs.define
class Transfer:
    """An effect that remembers what it was run with."""

    ran_with: list[Any] = attrs.field(factory=list)

    async def run(self, given: Any) -> str:
        self.ran_with.append(given)
        return "done"


async def outcome_of(preparation: Callable[[Any, ToolCall], Awaitable[Any]], value: Any = None) -> Any:
    """The one fact of a call that was refused before T1."""
    scene = Scene()
    rejected = await scene.call(Prepares(preparation), value)
    assert scene.log.facts == [rejected]
    return rejected.reason


# --- arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ['{"n":1}', [1], None, {"n": "1"}, {}], ids=repr)
async def test_arguments_that_do_not_match_never_reach_the_handler(value: Any) -> None:
    """The call is refused with the public text, the place, and nothing of the value."""
    scene = Scene()

    async def handler(value: Any, call: ToolCall) -> None:
        raise AssertionError("the handler was called")

    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    rejected = await scene.call(handler, value, schema=schema)
    assert scene.log.facts == [rejected]
    assert rejected.input == value
    assert rejected.reason.kind is facts.RejectionKind.INVALID_INPUT
    assert rejected.reason.message.startswith(facts.SCHEMA_MISMATCH_TEXT)
    assert facts.SCHEMA_MISMATCH_TEXT in str(rejected.reason)


async def test_arguments_too_deep_for_a_tool_are_refused() -> None:
    """Even when the schema admits anything."""
    value: Any = 1
    for _ in range(limits.JSON_DEPTH + 1):
        value = [value]

    async def handler(value: Any, call: ToolCall) -> None:
        raise AssertionError("the handler was called")

    rejected = await Scene().call(handler, value)
    assert rejected.reason.kind is facts.RejectionKind.INVALID_INPUT


# --- preparation ------------------------------------------------------------------------------------------


async def test_preparation_comes_before_the_dispatch_and_the_effect_after_it() -> None:
    """What has no effect is done while the call can still be refused."""
    scene, transfer = Scene(), Transfer()
    prepared_at = []

    async def preparation(value: Any, call: ToolCall) -> PreparedEffect:
        prepared_at.append(list(scene.log.kinds))
        return PreparedEffect(transfer.run)

    settled = await scene.call(Prepares(preparation), {"amount": 100})
    assert prepared_at == [[]]
    assert transfer.ran_with == [{"amount": 100}]
    assert settled.outcome.model_projection == facts.TextOutput("done")


async def test_what_runs_is_what_was_recorded() -> None:
    """A preparation that changes its copy of the arguments does not change the effect's."""
    scene, transfer = Scene(), Transfer()

    async def preparation(value: Any, call: ToolCall) -> PreparedEffect:
        value["amount"] = 50
        return PreparedEffect(transfer.run)

    await scene.call(Prepares(preparation), {"amount": 100})
    assert scene.log.facts[0].input == {"amount": 100}
    assert transfer.ran_with == [{"amount": 100}]


@pytest.mark.parametrize(
    "rejection",
    [
        facts.ToolRejection.unavailable(),
        facts.ToolRejection.invalid_input("no such account"),
        facts.ToolRejection.policy_denied("read-only"),
        facts.ToolRejection.preparation_failed("bank is closed"),
        facts.ToolRejection.exclusive_conflict(),
        facts.ToolRejection.cancelled(),
    ],
    ids=str,
)
async def test_a_preparation_may_refuse_with_any_reason(rejection: facts.ToolRejection) -> None:
    """Its word is written as it is."""

    async def preparation(value: Any, call: ToolCall) -> facts.ToolRejection:
        return rejection

    assert await outcome_of(preparation) == rejection


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no"), "ValueError: no"),
        (ToolFailed("closed"), "closed"),
        (ToolOutcomeUnknown("gone"), "gone"),
        (ExceptionGroup("", [ValueError("a"), KeyError("b")]), "ValueError: a; KeyError: 'b'"),
    ],
    ids=repr,
)
async def test_a_preparation_that_raises_has_failed(error: Exception, message: str) -> None:
    """Nothing happened, so nothing is in doubt: the call is refused."""

    async def preparation(value: Any, call: ToolCall) -> Any:
        raise error

    assert await outcome_of(preparation) == facts.ToolRejection.preparation_failed(message)


@pytest.mark.parametrize("returned", [None, "effect", {"amount": 1}, PreparedEffect], ids=repr)
async def test_a_preparation_that_returns_no_effect_has_failed(returned: Any) -> None:
    """There is nothing to dispatch."""

    async def preparation(value: Any, call: ToolCall) -> Any:
        return returned

    assert (await outcome_of(preparation)).kind is facts.RejectionKind.PREPARATION_FAILED


@pytest.mark.parametrize(
    "error", [CommitUnknown("?"), StoreError("disk"), CleanupUnconfirmed("child"), KeyboardInterrupt(), SystemExit(1)]
)
@pytest.mark.parametrize("in_a_group", [False, True])
async def test_an_error_that_ends_the_run_passes_through_bare(error: BaseException, in_a_group: bool) -> None:
    """Nothing is written for the call; whoever ends the run rejects it."""
    scene = Scene()

    async def preparation(value: Any, call: ToolCall) -> Any:
        raise BaseExceptionGroup("", [ValueError("x"), error]) if in_a_group else error

    with pytest.raises(type(error)) as caught:
        await scene.call(Prepares(preparation))
    assert caught.value is error
    assert scene.log.writes == []


async def test_a_cancellation_that_is_not_of_the_run_is_a_failed_preparation() -> None:
    """The run goes on: nobody cancelled it."""
    kept: list[trio.Cancelled] = []

    async def preparation(value: Any, call: ToolCall) -> Any:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                kept.append(cancelled)
                raise
        raise kept[0]

    assert (await outcome_of(preparation)).kind is facts.RejectionKind.PREPARATION_FAILED
    await trio.lowlevel.checkpoint()


# --- approval ---------------------------------------------------------------------------------------------


def asks_about(shown: Any, transfer: Transfer) -> Callable[[Any, ToolCall], Awaitable[PreparedEffect]]:
    async def preparation(value: Any, call: ToolCall) -> PreparedEffect:
        return PreparedEffect(transfer.run, Approval.of(call, value if shown is None else shown))

    return preparation


async def test_an_approval_of_the_recorded_arguments_lets_the_call_run() -> None:
    """In whatever order the keys were shown."""
    scene, transfer = Scene(), Transfer()
    settled = await scene.call(Prepares(asks_about({"to": "x", "amount": 100}, transfer)), {"amount": 100, "to": "x"})
    assert isinstance(settled.outcome, facts.Succeeded)
    assert transfer.ran_with == [{"amount": 100, "to": "x"}]


async def test_an_approval_of_other_arguments_runs_nothing() -> None:
    """Whoever saw 50 did not agree to 100: what was approved runs, or nothing does."""
    transfer = Transfer()
    reason = await outcome_of(asks_about({"amount": 50}, transfer), {"amount": 100})
    assert reason == facts.ToolRejection.policy_denied(OTHER_INPUT_TEXT)
    assert transfer.ran_with == []


async def test_an_approval_of_another_call_runs_nothing() -> None:
    """The same arguments asked again are another operation, and are asked about again."""
    transfer = Transfer()
    old: list[Approval] = []

    async def preparation(value: Any, call: ToolCall) -> PreparedEffect:
        old.append(Approval.of(call, value))
        return PreparedEffect(transfer.run, old[0])

    scene = Scene()
    await scene.call(Prepares(preparation), {"amount": 100})
    rejected = await scene.call(Prepares(preparation), {"amount": 100}, call_id="c2")
    assert rejected.reason == facts.ToolRejection.policy_denied(OTHER_INPUT_TEXT)
    assert transfer.ran_with == [{"amount": 100}]


async def test_an_approval_names_the_operation_and_the_digest_of_what_was_shown() -> None:
    """Both are what the call itself says of its recorded arguments."""
    seen: list[ToolCall] = []

    async def preparation(value: Any, call: ToolCall) -> Any:
        seen.append(call)
        return facts.ToolRejection.policy_denied("no")

    await outcome_of(preparation, {"amount": 100})
    (call,) = seen
    assert call.input_digest == digest(canonical({"amount": 100}))
    assert Approval.of(call, {"amount": 100}) == Approval(OPERATION, call.input_digest)
    with pytest.raises(InvalidInput, match="approved arguments"):
        Approval.of(call, {"amount": float("nan")})
