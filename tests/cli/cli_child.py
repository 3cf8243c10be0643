"""Runs `maka-trio` as a child process, the way a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import trio

PATIENCE = 120.0
"""Seconds a child may take: far more than it needs, on a machine that is busy with other things."""

_LEFT_OUT = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "MAKA_TRIO_API_KEY",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "PYTHONUNBUFFERED",
)


@attrs.frozen
class Outcome:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str


Here = Callable[..., Outcome]
"""What the fixture `here` is."""


def environment(home: Path, changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment whose home and state are in `home`, without anybody's keys or tastes."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return kept | {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TZ": "UTC"} | dict(changes or {})


def maka(*arguments: object, home: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments),
        env=environment(home, env),
        cwd=home,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "maka_trio", *map(str, arguments)]


@attrs.define
class Child:
    """A command under way in the test's own trio program."""

    process: trio.Process
    out: bytes = b""
    err: bytes = b""
    _news: trio.Event = attrs.field(factory=trio.Event)
    open_streams: int = 0

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    async def status(self) -> int:
        """Wait for its end."""
        with trio.fail_after(PATIENCE):
            return await self.process.wait()

    async def says(self, text: str) -> None:
        """Wait until standard error holds a text."""
        await self._until(lambda: text.encode() in self.err)

    async def answers(self, text: str) -> None:
        """Wait until standard output holds a text."""
        await self._until(lambda: text.encode() in self.out)

    async def _until(self, true: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE):
            while not true():
                if not self.open_streams:
                    raise AssertionError(f"the child has said all it has to say: {self.out!r} {self.err!r}")
                await self._news.wait()

    async def collect(self, name: str, stream: trio.abc.ReceiveStream) -> None:
        """Keep what comes out of a stream, until it ends or the test closes it."""
        with suppress(trio.ClosedResourceError):
            async for data in stream:
                setattr(self, name, getattr(self, name) + data)
                self._tell()
        self.open_streams -= 1
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()


@asynccontextmanager
async def running(
    arguments: Sequence[object], *, home: Path, env: Mapping[str, str] | None = None, output: int | None = None
) -> AsyncGenerator[Child, None]:
    """Run a command beside the test; it is killed if the test leaves it.

    Its output is collected as it comes, or goes to the descriptor `output`.
    """
    where = subprocess.PIPE if output is None else output
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            command(*arguments), env=environment(home, env), cwd=home, stdout=where, stderr=where
        )
        child = Child(process)
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            if stream is not None:
                child.open_streams += 1
                nursery.start_soon(child.collect, name, stream)
        try:
            yield child
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):  # a killed process ends by itself
                await process.wait()
