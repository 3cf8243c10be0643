"""The executor: its settings, what executors share, and its end."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from maka_trio import limits
from maka_trio.errors import AdapterError, InvalidInput
from maka_trio.models import AdapterBinding, ExecutorStatistics, InputWindow, ModelExecutor
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.request import ModelRequest, ProviderKind
from tests.models.line_protocol import END, LineAdapter, executor, provider, request
from tests.models.raw_server import EVENT_STREAM, STREAM_HEAD, RawServer, answer, chunk

CHAT = provider("http://unused.invalid/v1")

# --- settings ---


@pytest.mark.parametrize("name", ["idle_timeout", "semantic_timeout", "response_timeout"])
@pytest.mark.parametrize("value", [0, 0.0, -1, math.nan, True, "5", [5]])
def test_a_timeout_is_a_positive_number(name: str, value: object) -> None:
    """Zero, negative and not-a-number are refused, by name and value."""
    with pytest.raises(InvalidInput, match=name):
        ModelExecutor(**{name: value})  # type: ignore[arg-type]


def test_there_is_always_an_idle_timeout() -> None:
    """It may be infinite, but not missing."""
    with pytest.raises(InvalidInput, match="idle_timeout"):
        ModelExecutor(None)  # type: ignore[arg-type]
    ModelExecutor(math.inf)


@pytest.mark.parametrize("value", [0, -5, 1.5, None])
def test_the_window_is_a_positive_number_of_bytes(value: object) -> None:
    """Refused when the executor is made, not at the first request."""
    with pytest.raises(InvalidInput, match="input_window"):
        ModelExecutor(input_window=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, "request", object()])
async def test_a_request_is_a_model_request(value: Any) -> None:
    """Anything else is refused at the opening."""
    with pytest.raises(InvalidInput, match="ModelRequest"):
        async with executor().stream(value):
            pass


async def test_what_an_adapter_refuses_is_refused_at_the_opening(server: RawServer) -> None:
    """Nothing is sent, nothing is taken of the window."""

    class TooLarge(LineAdapter):
        def encode(self, request: ModelRequest) -> EncodedRequest:
            raise AdapterError("too large")

    models = executor(TooLarge())
    with pytest.raises(AdapterError, match="too large"):
        async with models.stream(request(server.base_url)):
            pass
    assert models.statistics() == ExecutorStatistics(0, 0, 0, 0, 0)
    assert not server.has_waiting()


async def test_a_contradicting_header_is_refused_at_the_opening() -> None:
    """Also one that contradicts the credentials."""
    for headers in ({"authorization": "other"}, {"accept-encoding": "gzip"}):
        with pytest.raises(InvalidInput, match=next(iter(headers))):
            async with executor().stream(request("http://127.0.0.1:9/v1", headers=headers)):
                pass


async def test_a_body_beyond_the_limit_of_a_request_never_waits() -> None:
    """The real adapters refuse it before it takes a place in the line."""
    models = ModelExecutor()
    with pytest.raises(AdapterError, match=str(limits.REQUEST_BODY_BYTES)):
        async with models.stream(request("http://127.0.0.1:9/v1", "x" * (limits.REQUEST_BODY_BYTES + 1))):
            pass
    assert models.statistics().window_waiting == 0


# --- sharing ---


def test_bindings_go_by_protocol() -> None:
    """Providers of one protocol share adapter, window and connections."""
    models = ModelExecutor()
    chat = models.binding(provider("http://a/v1"))
    compatible = attrs.evolve(provider("http://b/v1"), kind=ProviderKind.OPENAI_COMPATIBLE, name="local")
    messages = models.binding(attrs.evolve(provider("http://c/v1"), kind=ProviderKind.ANTHROPIC))
    assert models.binding(compatible) is chat
    assert messages is not chat
    assert (chat.adapter.name, messages.adapter.name) == ("chat-completions", "anthropic-messages")
    assert messages.transport is chat.transport
    assert messages.window is not chat.window


def test_a_binding_is_asked_for_with_a_provider() -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidInput, match="ProviderConfig"):
        ModelExecutor().binding("chat-completions")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bindings",
    [{"chat-completions": LineAdapter()}, {"anthropic-messages": AdapterBinding(LineAdapter())}, {"x": None}],
)
def test_bindings_are_given_under_their_names(bindings: Any) -> None:
    """A binding under another protocol's name, or something else, is refused."""
    with pytest.raises(InvalidInput, match=next(iter(bindings))):
        ModelExecutor().with_adapters(bindings)


async def test_executors_that_share_a_binding_share_its_window(server: RawServer) -> None:
    """One executor's body keeps the other's in the line."""
    first = executor(input_window=8)
    binding = first.binding(provider("http://x"))
    second = ModelExecutor(1.0).with_adapters({"chat-completions": binding})
    async with (
        first.stream(request(server.base_url, "x" * 8)) as holding,
        second.stream(request(server.base_url, "y")) as waiting,
    ):
        assert second.statistics().window_waiting == first.statistics().window_waiting == 1
        await holding.aclose()
        assert second.statistics().window_used == 1
        await waiting.aclose()
    assert second.binding(provider("http://x")) is binding


def test_an_executor_made_from_another_shares_what_is_not_given() -> None:
    """Also what neither had used when the second was made."""
    first = ModelExecutor()
    second = first.with_adapters({"anthropic-messages": first.binding(attrs.evolve(CHAT, kind=ProviderKind.ANTHROPIC))})
    assert second.binding(CHAT) is first.binding(CHAT)


async def test_closing_one_of_two_that_share_leaves_the_other(server: RawServer) -> None:
    """Connections are kept until the last one that was entered closes."""

    async def serve() -> None:
        peer = await server.accept()
        for _ in range(3):
            await peer.read_request()
            await peer.send(answer(b"end\n", EVENT_STREAM))
        await peer.assert_closed()

    async def ask(models: ModelExecutor) -> None:
        async with models.stream(request(server.base_url)) as stream:
            assert [event async for event in stream] == [END]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        first = executor()
        second = first.with_adapters({})
        async with second:
            async with first:
                await ask(first)
                await ask(second)
            await ask(second)
            assert second.statistics().unused_connections == 1
        assert second.statistics().open_connections == 0


async def test_a_binding_of_ones_own_brings_its_own_window() -> None:
    """The parts of a binding have defaults."""
    binding = AdapterBinding(LineAdapter(), window=InputWindow(5))
    models = ModelExecutor().with_adapters({"chat-completions": binding})
    async with models.stream(request("http://127.0.0.1:9/v1")):
        assert models.statistics().window_used == 5


# --- the end ---


async def test_a_closed_executor_says_so(server: RawServer) -> None:
    """Closing is idempotent; later use is refused."""
    models = executor()
    async with models:
        pass
    await models.aclose()
    with pytest.raises(InvalidInput, match="closed"):
        async with models.stream(request(server.base_url)):
            pass
    with pytest.raises(InvalidInput, match="closed"):
        async with models:
            pass


async def test_an_executor_is_entered_once() -> None:
    """Entering it again would close it twice."""
    async with executor() as models:
        with pytest.raises(InvalidInput, match="entered"):
            await models.__aenter__()


async def test_closing_ends_the_streams_that_are_open(server: RawServer) -> None:
    """Whoever reads one is told; the far side sees the connection close."""
    models = executor()
    async with models.stream(request(server.base_url)) as stream, trio.open_nursery() as nursery:
        peer = await server.accept()
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"+a\n"))
        await anext(stream)

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await anext(stream)

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await models.aclose()
        assert models.statistics().open_connections == 0
        await peer.assert_closed()


async def test_a_cancelled_block_closes_all_the_same(server: RawServer) -> None:
    """Kept connections are closed under cancellation too."""

    async def serve() -> None:
        peer = await server.accept()
        await peer.read_request()
        await peer.send(answer(b"end\n", EVENT_STREAM))
        await peer.assert_closed()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with trio.CancelScope() as scope:
            async with executor() as models:
                async with models.stream(request(server.base_url)) as stream:
                    assert [event async for event in stream] == [END]
                assert models.statistics().unused_connections == 1
                scope.cancel()
                await trio.sleep_forever()
        assert models.statistics().open_connections == 0


async def test_what_was_entered_in_one_run_is_refused_in_another(server: RawServer) -> None:
    """Its connections wake the tasks of its own run. It says so, and goes on working there."""
    async with executor() as models:

        async def elsewhere() -> None:
            with pytest.raises(InvalidInput, match="another trio run"):
                async with models.stream(request(server.base_url)):
                    raise AssertionError("it was opened")

        await trio.to_thread.run_sync(trio.run, elsewhere)
        async with models.stream(request(server.base_url)):
            assert models.statistics().open_streams == 1


def test_an_executor_serves_one_run_after_another() -> None:
    """Nothing of it is tied to the event loop that used it first."""
    models = executor()

    async def main() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = RawServer(listener)

        async def serve() -> None:
            peer = await server.accept()
            async with peer.stream:
                await peer.read_request()
                await peer.send(answer(b"end\n", EVENT_STREAM))

        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            async with models.stream(request(server.base_url)) as stream:
                assert [event async for event in stream] == [END]

    trio.run(main)
    trio.run(main)
