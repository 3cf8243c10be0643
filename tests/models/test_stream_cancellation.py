"""A stream may be cancelled at any moment: nothing of it is left, and the far side learns of it."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
import trustme

from maka_trio.models import ModelExecutor
from maka_trio.request import ApiKey
from tests.models.line_protocol import KEY, executor, request
from tests.models.raw_server import LAST_CHUNK, STREAM_HEAD, Peer, RawServer, chunk, listening

Scenario = Callable[[ModelExecutor, RawServer], Awaitable[None]]


@attrs.define(eq=False, slots=False)
class CancelAfter(trio.abc.Instrument):
    """Cancels a scope right after the n-th step of the tasks that run under it.

    Between two steps a task is atomic, so all n are all moments at which somebody else can cancel it.
    """

    steps: int
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    taken: int = 0
    root: trio.lowlevel.Task | None = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.root is not None and self._is_ours(task):
            if self.taken == self.steps:
                self.scope.cancel()
            self.taken += 1

    def _is_ours(self, task: trio.lowlevel.Task | None) -> bool:
        while task is not None and task is not self.root:
            nursery = task.parent_nursery
            task = None if nursery is None else nursery.parent_task
        return task is not None


async def cancelled_after(steps: int, scenario: Scenario, models: ModelExecutor, server: RawServer) -> bool:
    """Run the scenario with a cancel after so many of its steps; say whether it was cancelled before its end."""
    instrument = CancelAfter(steps)

    async def run() -> None:
        instrument.root = trio.lowlevel.current_task()
        trio.lowlevel.add_instrument(instrument)
        try:
            with instrument.scope:
                await scenario(models, server)
        finally:
            trio.lowlevel.remove_instrument(instrument)

    async with trio.open_nursery() as nursery:  # noqa: ASYNC112  # a task of its own, whose steps are counted
        nursery.start_soon(run)
    return instrument.scope.cancelled_caught


async def serve(server: RawServer) -> None:
    """Answer everybody slowly, piece by piece; every connection must end because the peer closed it."""

    async def one(peer: Peer) -> None:
        try:
            while True:
                await peer.read_request()
                await peer.send(STREAM_HEAD, chunk(b"+a\n"), chunk(b"+b\n" * 100), chunk(b"end\n"), LAST_CHUNK)
        except (trio.BrokenResourceError, AssertionError):
            await peer.assert_closed()

    async with trio.open_nursery() as connections:
        while True:
            connections.start_soon(one, await server.accept())


# --- what is cancelled ---


async def iterate(models: ModelExecutor, server: RawServer) -> None:
    """Read one stream event by event."""
    async with models.stream(request(server.base_url)) as stream:
        async for _ in stream:
            pass


async def slow_lots(models: ModelExecutor, server: RawServer) -> None:
    """Read lots, with a pause after each, so that the channel fills."""
    async with models.stream(request(server.base_url)) as stream:
        try:
            while True:
                await stream.receive_lot()
                for _ in range(10):
                    await trio.lowlevel.checkpoint()
        except trio.EndOfChannel:
            pass


async def close_early(models: ModelExecutor, server: RawServer) -> None:
    """Close after the first event."""
    async with models.stream(request(server.base_url)) as stream:
        await anext(stream)
        await stream.aclose()


async def wait_in_line(models: ModelExecutor, server: RawServer) -> None:
    """Two streams, the second one waiting for the window and for its credentials."""

    async def login() -> ApiKey:
        await trio.lowlevel.checkpoint()
        return ApiKey(KEY)

    text = "x" * 1024
    async with (
        models.stream(request(server.base_url, text)) as first,
        models.stream(request(server.base_url, text, auth=login)) as second,
    ):
        async for _ in first:
            pass
        async for _ in second:
            pass


async def upload(models: ModelExecutor, server: RawServer) -> None:
    """A body of many pieces."""
    async with models.stream(request(server.base_url, "x" * 2**20)) as stream:
        async for _ in stream:
            pass


async def two_requests(models: ModelExecutor, server: RawServer) -> None:
    """The second one finds the connection of the first."""
    for _ in range(2):
        await iterate(models, server)


SCENARIOS = [iterate, slow_lots, close_early, wait_in_line, upload, two_requests]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_cancel_at_every_step_leaves_nothing(server: RawServer, scenario: Scenario) -> None:
    """Cancelled after each of its steps: no connection in use, no byte of the window, no task, and it can go on."""
    await explore(server, scenario, executor(input_window=1024))


@pytest.mark.parametrize("scenario", [iterate, two_requests], ids=lambda scenario: scenario.__name__)
async def test_a_cancel_at_every_step_of_tls_leaves_nothing(scenario: Scenario) -> None:
    """The same through the handshake and encrypted."""
    authority = trustme.CA()
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server_tls)
    client_tls = ssl.create_default_context()
    authority.configure_trust(client_tls)
    async with listening(server_tls) as server:
        await explore(server, scenario, executor(ssl_context=client_tls))


async def explore(server: RawServer, scenario: Scenario, models: ModelExecutor) -> None:
    """Cancel after 0, 1, 2 … steps until the scenario ends by itself."""
    async with models, trio.open_nursery() as nursery:
        nursery.start_soon(serve, server)
        steps = 0
        with trio.fail_after(60):
            while await cancelled_after(steps, scenario, models, server):
                statistics = models.statistics()
                assert statistics.open_streams == 0, steps
                assert statistics.open_connections == statistics.unused_connections, steps
                assert (statistics.window_used, statistics.window_waiting) == (0, 0), steps
                steps += 1
        assert steps > 3
        nursery.cancel_scope.cancel()
    assert models.statistics().open_connections == 0


async def test_the_server_hears_of_every_cancel(server: RawServer) -> None:
    """In each phase: the next read of the server ends, so that it can stop generating."""
    for pieces in ([], [STREAM_HEAD], [STREAM_HEAD, chunk(b"+a\n")]):
        with trio.CancelScope() as scope:
            async with executor().stream(request(server.base_url)) as stream:
                peer = await server.accept()
                await peer.read_request()
                await peer.send(*pieces)
                if len(pieces) == 2:
                    await anext(stream)
                await trio.testing.wait_all_tasks_blocked(0.001)
                scope.cancel()
                await anext(stream)
        assert scope.cancelled_caught
        with trio.fail_after(60):
            await peer.assert_closed()
