"""The bell by which a thread wakes trio's loop."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from maka_trio.errors import StoreError
from maka_trio.log import EventLog
from maka_trio.log.bell import Bell


def descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


async def test_rings_are_heard() -> None:
    """What a thread did before it rang is seen by who hears it, in the trio thread."""
    done: list[int] = []
    seen: list[tuple[int, int]] = []
    news = trio.Event()
    bell = Bell(lambda: (seen.append((len(done), threading.get_ident())), news.set()))

    def work() -> None:
        done.append(1)
        bell.ring()

    for number in range(3):
        news = trio.Event()
        thread = threading.Thread(target=work)
        thread.start()
        with trio.fail_after(60):
            await news.wait()
        thread.join()
        assert seen[-1] == (number + 1, threading.get_ident())
    bell.close()


async def test_more_rings_than_the_pipe_holds() -> None:
    """Rings that nobody has heard yet hold nobody up, and all of them are heard."""
    heard = trio.Event()
    bell = Bell(heard.set)
    for _ in range(200_000):
        bell.ring()
    with trio.fail_after(60):
        await heard.wait()
    bell.close()


async def test_closed_right_after_a_ring() -> None:
    """A bell that is closed before its ring was heard hears nothing and leaves no descriptor."""
    before = descriptors()
    for passes in range(6):
        bell = Bell(lambda: None)
        await trio.testing.wait_all_tasks_blocked()
        bell.ring()
        for _ in range(passes):
            await trio.lowlevel.cancel_shielded_checkpoint()
        bell.close()
        await trio.testing.wait_all_tasks_blocked()
    assert descriptors() == before


def test_ring_after_the_run() -> None:
    """After the trio run a ring is for nobody."""
    heard: list[int] = []

    async def main() -> Bell:
        return Bell(lambda: heard.append(1))

    bell = trio.run(main)
    for _ in range(200_000):
        bell.ring()
    assert heard == []


async def test_log_without_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log for which no descriptors are left is not open and holds nothing, so it can be opened later."""

    def none_left() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", none_left)
        with pytest.raises(StoreError):
            await EventLog.open(tmp_path / "log.db").__aenter__()
    async with EventLog.open(tmp_path / "log.db"):
        pass
