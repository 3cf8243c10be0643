"""The trio forms that everything above uses."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from maka_trio.errors import InvalidInput
from maka_trio.scopes import Home, Latch, finish_within, owned_nursery


async def test_the_error_of_an_owned_block_comes_out_bare() -> None:
    """Its tasks are cancelled and waited for first."""
    ended = trio.Event()

    async def task() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    with pytest.raises(ValueError, match="mine"):
        async with owned_nursery() as nursery:
            nursery.start_soon(task)
            await trio.testing.wait_all_tasks_blocked()
            raise ValueError("mine")
    assert ended.is_set()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=repr)
async def test_what_ends_a_program_comes_out_of_an_owned_block_bare_too(error: BaseException) -> None:
    """Ctrl-C in the block is no group either, and the tasks have ended."""
    with pytest.raises(type(error)) as caught:
        async with owned_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error
    assert caught.value is error


async def test_a_cancel_from_outside_does_not_hide_the_failure_of_the_block() -> None:
    """Both at once: the failure comes out, through the cancelled scope."""
    with pytest.raises(ValueError, match="mine"), trio.CancelScope() as scope:
        async with owned_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            raise ValueError("mine")


async def test_a_cancel_alone_passes_through_an_owned_block() -> None:
    """It is caught by the scope it belongs to."""
    with trio.CancelScope() as scope:
        async with owned_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_leaving_an_owned_block_waits_for_its_tasks() -> None:
    """Nothing is cancelled by leaving."""
    done = trio.Event()

    async def task() -> None:
        await trio.lowlevel.checkpoint()
        done.set()

    async with owned_nursery() as nursery:
        nursery.start_soon(task)
    assert done.is_set()


async def test_a_failing_task_shows_as_a_group() -> None:
    """It should have kept its failure as a value, and the group says so."""

    async def task() -> None:
        raise KeyError("bug")

    with pytest.RaisesGroup(KeyError):
        async with owned_nursery() as nursery:
            nursery.start_soon(task)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=repr)
@pytest.mark.parametrize("beside", ["nothing", "a cancel", "a failure of the block"])
async def test_what_ends_a_program_comes_out_of_a_task_bare(error: BaseException, beside: str) -> None:
    """`sys.exit` in any task leaves with its status, whatever else was cancelled by it or with it."""

    async def leave() -> None:
        raise error

    with pytest.raises(type(error)) as caught, trio.CancelScope() as scope:
        async with owned_nursery() as nursery:
            nursery.start_soon(leave)
            if beside == "a cancel":
                scope.cancel()
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                if beside == "a failure of the block":
                    raise ValueError("not finished") from None
                raise
    assert caught.value is error


async def test_a_failure_beside_what_ends_a_program_is_not_lost() -> None:
    """Then there is something to tell, and a group tells both."""

    async def fail(error: BaseException) -> None:
        raise error

    with pytest.RaisesGroup(KeyboardInterrupt, KeyError):
        async with owned_nursery() as nursery:
            nursery.start_soon(fail, KeyboardInterrupt())
            nursery.start_soon(fail, KeyError("bug"))


async def test_another_trio_run_is_told_apart() -> None:
    """One in a thread, at the same time; a call that comes back through trio is at home."""
    home = Home("the thing")
    home.check()

    async def elsewhere() -> None:
        with pytest.raises(InvalidInput, match="the thing belongs to another trio run"):
            home.check()

    await trio.to_thread.run_sync(trio.run, elsewhere)
    await trio.to_thread.run_sync(trio.from_thread.run_sync, home.check)


async def test_cleanup_is_shielded_and_bounded(autojump_clock: trio.testing.MockClock) -> None:
    """Under a cancel it still runs; past its bound it is given up, and that is said."""
    ran = []

    async def quick() -> None:
        await trio.sleep(1)
        ran.append("quick")

    with trio.CancelScope() as scope:
        scope.cancel()
        assert await finish_within(quick, 2)
        assert not await finish_within(trio.sleep_forever, 2)
    assert ran == ["quick"]


async def test_a_latch_lets_everybody_through_once_it_is_set(nursery: trio.Nursery) -> None:
    """Those who wait, and those who come later; each passes a checkpoint."""
    latch, through = Latch(), []

    async def wait(name: str) -> None:
        await latch.wait()
        through.append(name)

    nursery.start_soon(wait, "early")
    nursery.start_soon(wait, "early")
    await trio.testing.wait_all_tasks_blocked()
    assert not latch.is_set()
    assert through == []
    latch.set()
    latch.set()
    assert latch.is_set()
    await trio.testing.wait_all_tasks_blocked()
    with trio.testing.assert_checkpoints():
        await wait("late")
    assert through == ["early", "early", "late"]


async def test_a_cancelled_wait_for_a_latch_changes_nothing() -> None:
    """It can be set and waited for afterwards."""
    latch = Latch()
    with trio.move_on_after(0.01) as waited:
        await latch.wait()
    assert waited.cancelled_caught
    latch.set()
    await latch.wait()
