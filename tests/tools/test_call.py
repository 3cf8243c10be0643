"""What a running tool is given of its call."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from maka_trio import facts
from maka_trio.tools import AbortSwitch, ToolCall


def call(operation_id: str = "o", *, invocation_id: str = "i", switch: AbortSwitch | None = None) -> ToolCall:
    invocation = facts.Invocation("s", "t", "r", invocation_id)
    return ToolCall(invocation, operation_id, "put", abort=switch or AbortSwitch())


def test_a_public_id_follows_from_invocation_and_operation() -> None:
    """The same in every process, another for every other operation."""
    first = call().tool_use_id()
    assert first == call().tool_use_id() == "tool_" + first[5:]
    assert len(first) == 37
    assert first not in (call("o2").tool_use_id(), call(invocation_id="i2").tool_use_id())
    assert call("bc", invocation_id="a").tool_use_id() != call("c", invocation_id="ab").tool_use_id()


async def test_a_call_made_by_a_test_stands_for_itself() -> None:
    """Handlers can be called without a run."""
    alone = ToolCall(facts.Invocation.new("s"), "o", "put")
    assert not alone.cancelled.is_set()
    with alone.abort_scope() as scope:
        await trio.lowlevel.checkpoint()
    assert not scope.cancelled_caught


async def test_the_switch_is_thrown_once_and_for_all() -> None:
    """Who waits is woken, who comes later does not wait."""
    switch = AbortSwitch()
    handed = call(switch=switch)
    woken = []

    async def wait() -> None:
        await handed.cancelled.wait()
        woken.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        switch.throw()
        switch.throw()
    await wait()
    assert woken == [True] * 3
    assert handed.cancelled.is_set()


async def test_a_handler_cannot_throw_the_switch() -> None:
    """The signal is read-only."""
    assert not hasattr(call().cancelled, "set")


async def test_waiting_for_the_signal_is_a_checkpoint() -> None:
    """Also when it is set already."""
    switch = AbortSwitch()
    switch.throw()
    with trio.testing.assert_checkpoints():
        await call(switch=switch).cancelled.wait()


async def test_a_scope_is_left_when_the_switch_is_thrown() -> None:
    """And the switch remembers that something was interrupted."""
    switch = AbortSwitch()
    async with trio.open_nursery() as nursery:

        async def covered() -> None:
            with call(switch=switch).abort_scope() as scope:
                await trio.sleep_forever()
            assert scope.cancelled_caught

        nursery.start_soon(covered)
        await trio.testing.wait_all_tasks_blocked()
        assert not switch.interrupted
        switch.throw()
    assert switch.interrupted


async def test_a_scope_that_was_left_before_is_not_touched() -> None:
    """The switch holds only what is open."""
    switch = AbortSwitch()
    with call(switch=switch).abort_scope() as scope:
        await trio.lowlevel.checkpoint()
    switch.throw()
    assert not scope.cancel_called
    assert not switch.interrupted


async def test_a_scope_passes_errors_on() -> None:
    """It is a cancel scope and no more."""
    with pytest.raises(ValueError, match="x"), call().abort_scope():
        raise ValueError("x")
