"""How a thread wakes trio's loop: a byte in a pipe. Cheaper than trio's own way, which is made for all occasions.

Knows trio and pipes, and not what is to be heard.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

import trio

_AT_ONCE: Final = 4096


class Bell:
    """Rung in any thread, heard in the trio run that it was made in.

    Args:
        heard: called in the trio thread after one or more rings. Must not raise.

    Raises:
        OSError: there are no descriptors left.
    """

    def __init__(self, heard: Callable[[], object]) -> None:
        self._heard = heard
        self._closed = False
        self._near, self._far = os.pipe()
        os.set_blocking(self._near, False)
        os.set_blocking(self._far, False)
        trio.lowlevel.spawn_system_task(self._listen, name="maka_trio bell")

    def ring(self) -> None:
        """Wake the loop. After the trio run nobody hears it."""
        try:
            os.write(self._far, b"\0")
        except BlockingIOError:
            return  # there are many rings in it that were not heard yet

    async def _listen(self) -> None:
        await trio.lowlevel.checkpoint()
        with contextlib.suppress(trio.ClosedResourceError):
            while not self._closed:  # it may be closed between the last ring and this task's turn
                await trio.lowlevel.wait_readable(self._near)
                if not self._closed:
                    os.read(self._near, _AT_ONCE)
                    self._heard()

    def close(self) -> None:
        """Hear no more. Only when nobody rings any more, in the trio run."""
        self._closed = True
        trio.lowlevel.notify_closing(self._near)
        os.close(self._near)
        os.close(self._far)
