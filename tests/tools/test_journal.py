"""T1, the effect, T2: what is written of a call, in which order, whatever the tool does."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import trio

from maka_trio import facts
from maka_trio.errors import (
    CleanupUnconfirmed,
    CommitRejected,
    CommitUnknown,
    LogFull,
    PrefixTooLarge,
    ResultUnavailable,
    SessionRetired,
    StoreError,
    ToolFailed,
    ToolOutcomeUnknown,
)
from maka_trio.facts.codec import canonical
from maka_trio.facts.event import Fact
from maka_trio.tools import ToolCall, ToolImage
from maka_trio.tools.failure import INTERRUPTED_TEXT
from maka_trio.tools.journal import Operation
from maka_trio.tools.output import RESULT_LOST_TEXT
from tests.ids import shown
from tests.tools.scene import STEP, ListLog, Scene, registration

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
OPERATION = f"{STEP}:c1"


def raising(error: BaseException) -> Any:
    async def handler(value: Any, call: ToolCall) -> None:
        raise error

    return handler


# --- the order --------------------------------------------------------------------------------------------


async def test_a_call_is_dispatched_then_run_then_settled() -> None:
    """T1 is durable before the effect starts, T2 before the result is handed out."""
    scene = Scene()
    seen = []

    async def handler(value: Any, call: ToolCall) -> Any:
        seen.append(list(scene.log.kinds))
        return {"got": value}

    settled = await scene.call(handler, {"n": 1})
    assert seen == [["tool_dispatched"]]
    dispatched, written = scene.log.facts
    identity = facts.ToolCallIdentity.provider(STEP, "c1")
    assert dispatched == facts.ToolDispatched(OPERATION, identity, "put", {"n": 1})
    assert written is settled
    assert settled.operation_id == OPERATION
    assert settled.outcome.model_projection == facts.JsonOutput({"got": {"n": 1}})
    payload = scene.log.writes[1].payload
    assert payload == canonical({"got": {"n": 1}})
    assert settled.outcome.raw.bytes == len(payload)


async def test_every_fact_carries_the_invocation() -> None:
    """Whose call it was is never in doubt."""
    scene = Scene()
    await scene.call(raising(ToolFailed("no")))
    assert {write.event.invocation for write in scene.log.writes} == {scene.invocation}


async def test_the_caller_learns_when_the_dispatch_is_durable() -> None:
    """Between T1 and the start of the effect; a refused call never gets there."""
    scene = Scene()
    order: list[str] = []

    async def handler(value: Any, call: ToolCall) -> None:
        order.append("effect")

    tool = registration(handler, schema={"type": "object"})
    for call_id, value in (("c1", {}), ("c2", 5)):
        call = facts.ModelToolCall(call_id, "put", value)
        await scene.journal.execute(STEP, call, tool, dispatched=lambda: order.append(scene.log.kinds[-1]))
    assert order == ["tool_dispatched", "effect"]


async def test_the_handler_is_told_who_it_works_for() -> None:
    """Invocation, operation, name, the provider's call, a public id."""
    scene = Scene()
    seen: list[ToolCall] = []

    async def handler(value: Any, call: ToolCall) -> None:
        seen.append(call)

    await scene.call(handler)
    (call,) = seen
    assert call.invocation is scene.invocation
    assert (call.operation_id, call.name) == (OPERATION, "put")
    assert call.identity == facts.ToolCallIdentity.provider(STEP, "c1")
    assert call.tool_use_id().startswith("tool_")
    assert not call.cancelled.is_set()


async def test_a_call_that_no_model_made_is_journaled_the_same_way() -> None:
    """Its facts carry whoever made it, and its raw result is handed out as it was stored."""
    scene = Scene()
    identity = facts.ToolCallIdentity("nested-1", facts.CodeMode("parent", "c1"))
    operation = Operation("fresh-operation", identity, "put", {"n": 1})
    seen: list[ToolCall] = []

    async def handler(value: Any, call: ToolCall) -> Any:
        seen.append(call)
        return value

    performed = await scene.journal.perform(operation, registration(handler))
    refused = await scene.journal.perform(operation, registration(handler, schema=False))
    assert [fact.operation_id for fact in scene.log.facts] == ["fresh-operation"] * 3
    assert scene.log.facts[0].call == scene.log.facts[2].call == identity
    assert (seen[0].operation_id, seen[0].identity) == ("fresh-operation", identity)
    assert performed.fact is scene.log.facts[1]
    assert performed.payload == scene.log.writes[1].payload == b'{"n":1}'
    assert (refused.fact.kind, refused.payload) == ("tool_rejected", None)


async def test_a_handler_may_change_its_input() -> None:
    """It has a copy: the facts, and the next call of the same value, see what the model wrote."""
    scene = Scene()
    given = {"list": [1]}

    async def handler(value: Any, call: ToolCall) -> Any:
        value["list"].append(2)
        value["more"] = True
        return value

    first = await scene.call(handler, given)
    second = await scene.call(handler, given, call_id="c2")
    assert given == {"list": [1]}
    assert scene.log.facts[0].input == {"list": [1]}
    assert first.outcome == second.outcome


async def test_a_result_does_not_change_after_it_was_returned() -> None:
    """The tool may go on using its objects."""
    scene = Scene()
    kept = {"n": 1}

    async def handler(value: Any, call: ToolCall) -> Any:
        return kept

    settled = await scene.call(handler)
    kept["n"] = 2
    assert settled.outcome.model_projection.value == {"n": 1}


async def test_media_is_written_with_the_settlement_that_names_it() -> None:
    """Its id follows from the event's, so that a retry of the append is the same append."""
    scene = Scene()

    async def handler(value: Any, call: ToolCall) -> Any:
        return ToolImage(PNG)

    settled = await scene.call(handler)
    write = scene.log.writes[-1]
    (artifact,) = write.artifacts
    assert artifact.data == PNG
    assert settled.outcome.artifacts == (artifact.ref,)
    assert artifact.ref.id == f"{write.event.id}:0"


async def test_the_effect_is_kept_until_its_settlement_and_no_longer() -> None:
    """What a handler holds is released after T2."""
    released_at: list[list[str]] = []
    scene = Scene()

    class Holder:
        async def __call__(self, value: Any, call: ToolCall) -> None:
            await trio.lowlevel.checkpoint()

    holder = Holder()
    weakref.finalize(holder, lambda: released_at.append(list(scene.log.kinds)))
    tool = registration(holder)
    del holder
    call = facts.ModelToolCall("c1", "put", None)
    await scene.journal.execute(STEP, call, tool)
    del tool
    gc.collect()
    assert released_at == [["tool_dispatched", "tool_settled"]]


async def test_what_a_handler_does_to_its_context_stays_there() -> None:
    """Context variables of one effect are not seen by the run or by the next effect."""
    from contextvars import ContextVar

    variable = ContextVar("variable", default="run")
    scene = Scene()
    seen = []

    async def handler(value: Any, call: ToolCall) -> None:
        seen.append(variable.get())
        variable.set("effect")

    await scene.call(handler)
    await scene.call(handler, call_id="c2")
    assert [*seen, variable.get()] == ["run", "run", "run"]


# --- what an error says -----------------------------------------------------------------------------------


async def failed_message(handler: Any) -> str:
    scene = Scene()
    settled = await scene.call(handler)
    assert scene.log.kinds == ["tool_dispatched", "tool_settled"]
    assert isinstance(settled.outcome, facts.EffectFailed)
    return settled.outcome.message


async def test_an_ordinary_exception_is_a_failure_with_its_message() -> None:
    """The run goes on, and the model reads the class and the words."""
    assert await failed_message(raising(ValueError("no such file"))) == "ValueError: no such file"


async def test_a_tool_chooses_the_text_of_its_failure() -> None:
    """`ToolFailed` is its text and nothing else."""
    assert await failed_message(raising(ToolFailed("the shelf is full"))) == "the shelf is full"


@pytest.mark.parametrize("error", [ToolFailed(), ValueError()], ids=shown)
async def test_a_failure_is_never_silent(error: Exception) -> None:
    """Without words there is still something to read."""
    assert await failed_message(raising(error))


async def test_a_group_of_ordinary_exceptions_is_a_failure_with_all_their_messages() -> None:
    """A handler with a nursery of its own fails like any other."""

    async def handler(value: Any, call: ToolCall) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raising(ValueError("one")), None, call)
            nursery.start_soon(raising(KeyError("two")), None, call)

    message = await failed_message(handler)
    assert "ValueError: one" in message
    assert "KeyError: 'two'" in message


async def test_the_cause_of_an_error_is_not_told() -> None:
    """Only the exception's own text reaches the log and the model."""

    async def handler(value: Any, call: ToolCall) -> None:
        try:
            raise ValueError("the password is hunter2")
        except ValueError as error:
            raise ToolFailed("login failed") from error

    assert await failed_message(handler) == "login failed"


@pytest.mark.parametrize(
    "error", [PrefixTooLarge("10 events"), ResultUnavailable("not there"), trio.TooSlowError("slow")], ids=shown
)
async def test_what_says_nothing_of_the_log_itself_is_a_failure(error: Exception) -> None:
    """A read that asked for too much is the tool's own affair, and so is its own timeout."""
    assert str(error) in await failed_message(raising(error))


async def test_an_outcome_that_nobody_knows_is_settled_as_unknown() -> None:
    """The worker is gone; the effect may have happened."""
    scene = Scene()
    settled = await scene.call(raising(ToolOutcomeUnknown("the host went away")))
    assert settled.outcome == facts.EffectUnknown("the host went away")


async def test_the_gravest_leaf_of_a_group_decides() -> None:
    """One unknown outcome among failures leaves the whole unknown."""
    scene = Scene()
    settled = await scene.call(raising(ExceptionGroup("", [ValueError("x"), ToolOutcomeUnknown("gone")])))
    assert settled.outcome == facts.EffectUnknown("gone")


async def test_a_cancellation_that_is_not_of_the_run_leaves_the_outcome_unknown() -> None:
    """A handler that lets its own `Cancelled` out was cut somewhere; the run itself is not cancelled by it."""
    scene = Scene()

    async def handler(value: Any, call: ToolCall) -> None:
        kept = None
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                kept = cancelled
                raise
        assert kept is not None
        raise kept

    settled = await scene.call(handler)
    assert settled.outcome == facts.EffectUnknown(INTERRUPTED_TEXT)
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (object(), "object is not JSON"),
        ({1: 2}, "a key is int"),
        (float("nan"), "nan is not JSON"),
        ("\ud800", "surrogate"),
        (b"x", "bytes is not JSON"),
    ],
    ids=shown,
)
async def test_a_result_that_is_no_json_is_lost_and_the_model_is_told(result: object, reason: str) -> None:
    """The effect happened: it is settled, as a failure that says what was lost."""

    async def handler(value: Any, call: ToolCall) -> Any:
        return result

    message = await failed_message(handler)
    assert message.startswith(RESULT_LOST_TEXT)
    assert reason in message


# --- what leaves an operation unsettled -------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        CleanupUnconfirmed("a child still runs"),
        CommitRejected("child fact"),
        CommitUnknown("child fact"),
        StoreError("disk"),
        KeyboardInterrupt(),
        SystemExit(3),
    ],
    ids=shown,
)
@pytest.mark.parametrize("in_a_group", [False, True])
async def test_a_fatal_error_of_a_tool_leaves_it_unsettled_and_comes_out_bare(
    error: BaseException, in_a_group: bool
) -> None:
    """Nobody knows what was done, so no T2 says anything; the run ends with the error itself."""
    scene = Scene()
    raised = BaseExceptionGroup("", [ValueError("beside"), error]) if in_a_group else error
    with pytest.raises(type(error)) as caught:
        await scene.call(raising(raised))
    assert caught.value is error
    assert scene.log.kinds == ["tool_dispatched"]


@pytest.mark.parametrize("error", [BaseException("unheard of"), GeneratorExit(), asyncio.CancelledError()], ids=shown)
async def test_an_exception_that_no_tool_may_let_out_ends_its_run_and_nothing_else(error: BaseException) -> None:
    """It becomes an error of ours, which a run can keep: what is no `Exception` would end the program."""
    scene = Scene()
    with pytest.raises(CleanupUnconfirmed, match=type(error).__name__) as caught:
        await scene.call(raising(error))
    assert caught.value.__cause__ is error
    assert scene.log.kinds == ["tool_dispatched"]


@pytest.mark.parametrize("error", [CommitRejected("no"), CommitUnknown("?"), SessionRetired("over"), LogFull("full")])
async def test_an_effect_does_not_run_when_its_dispatch_is_not_acknowledged(error: Exception) -> None:
    """No T1, no effect; the error is the log's own."""
    ran = False

    async def refuse(fact: Fact) -> None:
        raise error

    async def handler(value: Any, call: ToolCall) -> None:
        nonlocal ran
        ran = True

    scene = Scene(ListLog(before=refuse))
    with pytest.raises(type(error)) as caught:
        await scene.call(handler)
    assert caught.value is error
    assert not ran
    assert scene.log.writes == []


@pytest.mark.parametrize("error", [CommitUnknown("?"), LogFull("full")])
@pytest.mark.parametrize("outcome", [None, ValueError("x")])
async def test_a_settlement_that_is_not_acknowledged_is_the_log_s_error(
    error: Exception, outcome: Exception | None
) -> None:
    """It is not tried again and hides behind nothing, whether the tool succeeded or failed."""

    async def refuse(fact: Fact) -> None:
        if isinstance(fact, facts.ToolSettled):
            raise error

    async def handler(value: Any, call: ToolCall) -> None:
        if outcome is not None:
            raise outcome

    scene = Scene(ListLog(before=refuse))
    with pytest.raises(type(error)) as caught:
        await scene.call(handler)
    assert caught.value is error
    assert scene.log.kinds == ["tool_dispatched"]


async def test_a_rejection_that_is_not_acknowledged_is_the_log_s_error() -> None:
    """Also for a call that was refused elsewhere."""

    async def refuse(fact: Fact) -> None:
        raise CommitRejected("no")

    scene = Scene(ListLog(before=refuse))
    with pytest.raises(CommitRejected):
        await scene.journal.reject(STEP, facts.ModelToolCall("c1", "x", {}), facts.ToolRejection.unavailable())


async def test_a_rejection_is_written_as_it_was_decided() -> None:
    """The call, its name and its input as the model wrote them."""
    scene = Scene()
    call = facts.ModelToolCall("c1", "nobody", [1])
    rejected = await scene.journal.reject(STEP, call, facts.ToolRejection.unavailable())
    identity = facts.ToolCallIdentity.provider(STEP, "c1")
    expected = facts.ToolRejected(OPERATION, identity, "nobody", [1], facts.ToolRejection.unavailable())
    assert rejected == expected
    assert scene.log.facts == [expected]


# --- handlers that break trio's rules ---------------------------------------------------------------------


async def leave_a_scope_open() -> None:
    trio.CancelScope(shield=True).__enter__()


async def leave_a_nursery_open() -> None:
    nursery = await trio.open_nursery().__aenter__()
    nursery.start_soon(trio.lowlevel.checkpoint)


@pytest.mark.parametrize("breakage", [leave_a_scope_open, leave_a_nursery_open])
async def test_a_handler_that_breaks_the_nesting_of_scopes_leaves_its_call_unsettled(
    breakage: Callable[[], Any],
) -> None:
    """What it started may go on behind its back; the error is plain, and trio's complaint is its cause."""
    scene = Scene()

    async def handler(value: Any, call: ToolCall) -> str:
        await breakage()
        return "done"

    with pytest.raises(CleanupUnconfirmed, match="still open") as caught:
        await scene.call(handler)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert scene.log.kinds == ["tool_dispatched"]


async def test_no_task_of_an_effect_is_left() -> None:
    """The tree under the run is as it was."""
    scene = Scene()
    before = len(trio.lowlevel.current_task().child_nurseries)

    async def handler(value: Any, call: ToolCall) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.checkpoint)
            nursery.start_soon(trio.lowlevel.checkpoint)

    await scene.call(handler)
    assert len(trio.lowlevel.current_task().child_nurseries) == before
