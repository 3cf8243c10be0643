"""The checks see what is left behind and what happened in half, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio

from maka_trio.testing.checks import Effects, channels_closed, no_leaks


def test_an_effect_that_happens_once_is_well() -> None:
    """Begun once, done once."""
    effects = Effects()
    with effects("a"):
        pass
    assert effects.check() == []
    assert (effects.begun("a"), effects.done("a"), effects.begun("b")) == (1, 1, 0)


def test_an_effect_that_happens_twice_or_in_half_is_named() -> None:
    """What raised in the middle is half an effect."""
    effects = Effects()
    for _ in range(2):
        with effects("twice"):
            pass
    with pytest.raises(OSError, match="broke"), effects("half"):
        raise OSError("broke")
    assert effects.check() == ["the effect 'twice' was begun 2 times", "the effect 'half' happened in half"]


async def test_open_ends_of_channels_are_counted() -> None:
    """Both ends, clones included."""
    await trio.lowlevel.checkpoint()
    send, receive = trio.open_memory_channel[int](0)
    clone = send.clone()
    assert channels_closed(send) == ["channel 1: 2 send ends are open", "channel 1: 1 receive ends are open"]
    send.close()
    clone.close()
    receive.close()
    assert channels_closed(send, receive) == []


async def test_a_block_that_closes_everything_passes() -> None:
    """Sockets, tasks and threads that ended inside are nobody's leak."""
    async with no_leaks():
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await trio.to_thread.run_sync(lambda: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 0)
            nursery.start_soon(trio.sleep, 0)
        for listener in listeners:
            await listener.aclose()


async def test_a_socket_left_open_is_a_leak() -> None:
    """The error says what kind of thing was left."""
    listeners = []

    async def leave_one() -> None:
        async with no_leaks():
            listeners.extend(await trio.open_tcp_listeners(0, host="127.0.0.1"))

    with pytest.raises(AssertionError, match=r"left behind: socket:"):
        await leave_one()
    await listeners[0].aclose()


async def test_a_file_left_open_is_a_leak(tmp_path: Path) -> None:
    """It is named by its path."""
    files = []

    async def leave_one() -> None:
        async with no_leaks():
            files.append((tmp_path / "left").open("w"))

    with pytest.raises(AssertionError, match="left "):
        await leave_one()
    files[0].close()


async def test_a_task_left_running_is_a_leak(nursery: trio.Nursery) -> None:
    """Whichever nursery it is in."""

    async def leave_one() -> None:
        async with no_leaks():
            nursery.start_soon(trio.sleep_forever)

    with pytest.raises(AssertionError, match="sleep_forever is running"):
        await leave_one()
    nursery.cancel_scope.cancel()


async def test_a_thread_left_running_is_a_leak() -> None:
    """A thread that is not trio's own idle one."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="left over")

    async def leave_one() -> None:
        async with no_leaks():
            thread.start()

    with pytest.raises(AssertionError, match="'left over' is running"):
        await leave_one()
    end.set()
    thread.join()


async def test_the_blocks_own_error_passes() -> None:
    """A failure is not hidden behind the leaks it caused."""

    async def fail() -> None:
        async with no_leaks():
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()
