"""How soon is a cancelled caller free, and the server told, with 256 streams open?"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable

import httpx
import trio

from benchmarks.clients import Setup, request, run_input, setup
from benchmarks.question import Aim, Contender, Question
from benchmarks.sample import folder, median, quantile, report

STREAMS = 256
CANCELS = 64
NAME = "benchmarks.cancel"

STREAM = Contender("maka_trio, stream", NAME, ("stream",))
RUN = Contender("maka_trio, engine.run", NAME, ("run",))

QUESTIONS = (
    Question(
        "cancel",
        "Milliseconds from the cancel until the caller goes on, and until the server sees the connection closed, at "
        "256 open streams, one cancelled after the other.",
        (STREAM, RUN),
        (
            Aim(STREAM.label, None, 1, None, "free_ms", at_most=True),
            Aim(STREAM.label, None, 3, None, "closed_ms", at_most=True),
            Aim(RUN.label, None, 1, None, "free_ms", at_most=True),
            Aim(RUN.label, None, 3, None, "closed_ms", at_most=True),
        ),
        path="/idle",
    ),
)


async def stream(it: Setup, url: str, number: int) -> None:
    """Wait for a stream that says nothing."""
    async with it.models.stream(request(url)) as events:
        async for _ in events:
            pass


async def run(it: Setup, url: str, number: int) -> None:
    """Wait for a run whose stream says nothing."""
    await it.engine.run(run_input(url, f"session {number}"))


async def main(hold: Callable[[Setup, str, int], Awaitable[None]], url: str) -> None:
    """Open all, cancel some one by one."""
    freed: dict[int, float] = {}
    scopes = [trio.CancelScope() for _ in range(STREAMS)]

    async def held(number: int) -> None:
        with scopes[number]:
            await hold(it, url, number)
        freed[number] = time.monotonic()

    with folder() as place:
        async with setup(place) as it, trio.open_nursery() as nursery:
            for number in range(STREAMS):
                nursery.start_soon(held, number)
            while it.models.statistics().open_connections < STREAMS:  # noqa: ASYNC110 - nobody tells when
                await trio.sleep(0.01)
            await trio.sleep(0.5)
            cancelled = []
            for scope in scopes[:CANCELS]:
                cancelled.append(time.monotonic())
                scope.cancel()
                await trio.sleep(0.02)
            seen = await closes(url)
            free = [freed[number] - at for number, at in enumerate(cancelled)]
            closed = [there - here for there, here in zip(seen, cancelled, strict=True)]
            report(
                cost=median(free),
                free_ms=median(free) * 1e3,
                free_p99_ms=quantile(free, 0.99) * 1e3,
                closed_ms=median(closed) * 1e3,
                closed_p99_ms=quantile(closed, 0.99) * 1e3,
            )
            nursery.cancel_scope.cancel()


async def closes(url: str) -> list[float]:
    """When the server saw its connections end; its clock is the system's."""
    async with httpx.AsyncClient() as client:
        seen: list[float] = (await client.post(url.replace("/idle/", "/closed/") + "/x")).json()
    return seen[-CANCELS:]


if __name__ == "__main__":
    trio.run(main, {"stream": stream, "run": run}[sys.argv[1]], sys.argv[2])
