"""Independent model streams: each makes progress, each closes its own connection, whatever the others do.

The scenarios run over real loopback sockets, with the original's assertions and limits of time, which
are measured by a clock that a busy machine does not hurry. A server here is a task that a test scripts; what it does
not read or write is part of the scenario.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import attrs
import pytest
import trio

from maka_trio import ApiKey, Message, ModelExecutor, ModelRequest, ProviderConfig, ProviderKind, StepBuilder
from maka_trio.errors import MakaError, ModelError, ModelTimedOut
from maka_trio.facts import PartDelta
from maka_trio.protocol.registry import ADAPTERS

CHAT = ProviderKind.OPENAI_CHAT_COMPLETIONS
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
STREAM_HEAD = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


# --- the scene ---


@attrs.frozen
class Listener:
    """A socket that accepts on 127.0.0.1."""

    sockets: trio.SocketListener

    @classmethod
    async def bind(cls, stack: AsyncExitStack) -> Listener:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        return cls(await stack.enter_async_context(listener))

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.sockets.socket.getsockname()[1]}/v1"

    async def accept(self) -> trio.SocketStream:
        return await self.sockets.accept()


async def read_request(socket: trio.SocketStream) -> str:
    """One request with its body."""
    wire = bytearray()
    end = -1
    while end < 0 or len(wire) < end + 4 + _content_length(wire[:end]):
        data = await socket.receive_some(65536)
        assert data, "the request ended early"
        wire += data
        end = wire.find(b"\r\n\r\n") if end < 0 else end
    return wire.decode()


def _content_length(head: bytearray) -> int:
    (length,) = (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(length.partition(b":")[2])


async def assert_http_closed(socket: trio.SocketStream) -> None:
    """The peer closes in order, or resets a connection that holds unread bytes; it sends nothing."""
    try:
        data = await socket.receive_some(1)
    except trio.BrokenResourceError:
        return
    assert data == b"", f"cancelled HTTP connection did not close: {data!r}"


def request(kind: ProviderKind, base: str, text: str = "question") -> ModelRequest:
    name = "fixture" if kind is ProviderKind.OPENAI_COMPATIBLE else None
    provider = ProviderConfig(kind, "test-model", base, ApiKey("test-key"), name=name)
    return ModelRequest(provider, [Message.user(text)])


def part(name: str, delta: dict[str, Any], finish_reason: str | None, completion_tokens: int | None = None) -> str:
    """One server-sent event with a chunk; with usage if tokens are given."""
    chunk: dict[str, Any] = {
        "id": name,
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "test-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    if completion_tokens is not None:
        total = 1 + completion_tokens
        chunk["usage"] = {"prompt_tokens": 1, "completion_tokens": completion_tokens, "total_tokens": total}
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"


def http_chunk(body: str) -> bytes:
    data = body.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole_response(body: str) -> bytes:
    data = body.encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data


@attrs.frozen
class Joined:
    """A task that can be waited for."""

    done: trio.Event = attrs.field(factory=trio.Event)

    async def wait(self) -> None:
        await self.done.wait()


def spawn(nursery: trio.Nursery, work: Callable[[], Awaitable[None]]) -> Joined:
    joined = Joined()

    async def run() -> None:
        await work()
        joined.done.set()

    nursery.start_soon(run)
    return joined


async def complete(models: ModelExecutor, base: str) -> None:
    """One healthy request, read to its end."""
    async with models.stream(request(CHAT, base)) as stream:
        step = StepBuilder()
        text = ""
        async for event in stream:
            if isinstance(event, PartDelta):
                text += event.text
            step.push(event)
        assert text == "alive"
        step.finish()
        await stream.aclose()


# --- the scenarios ---


async def test_requests_progress_through_backpressure_and_cancellation() -> None:
    """A silent, a flooding and an abandoned stream hold up nobody, and each connection closes when its stream does."""
    with trio.fail_after(20):
        models = ModelExecutor(15.0)
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            waiting = await Listener.bind(stack)
            received = trio.Event()

            async def pending_http() -> None:
                socket = await waiting.accept()
                async with socket:
                    await read_request(socket)
                    received.set()
                    await assert_http_closed(socket)

            pending = spawn(nursery, pending_http)
            held = await stack.enter_async_context(models.stream(request(CHAT, waiting.base)))
            await received.wait()

            flooding = await Listener.bind(stack)

            async def flood_http() -> None:
                socket = await flooding.accept()
                async with socket:
                    await read_request(socket)
                    await socket.send_all(STREAM_HEAD)
                    with suppress(trio.BrokenResourceError):  # closed while the kernel still held unsent bytes
                        await socket.send_all(http_chunk(part("slow", {"content": "x" * 4096}, None) * 256))
                    await assert_http_closed(socket)

            flood = spawn(nursery, flood_http)
            slow = await stack.enter_async_context(models.stream(request(CHAT, flooding.base)))
            while True:
                if isinstance(await anext(slow), PartDelta):
                    break
            # The stream stays open and is not read: more events than its queue holds are under way.

            serving = await Listener.bind(stack)

            async def healthy_http() -> None:
                for _ in range(3):
                    socket = await serving.accept()
                    async with socket:
                        await read_request(socket)
                        await socket.send_all(
                            whole_response(part("healthy", {"content": "alive"}, "stop", 1) + "data: [DONE]\n\n")
                        )

            healthy = spawn(nursery, healthy_http)
            await complete(models, serving.base)

            await held.aclose()
            await pending.wait()

            # A consumer that vanishes cancels its request too.
            abandoned = await Listener.bind(stack)
            arrived = trio.Event()

            async def abandoned_http() -> None:
                socket = await abandoned.accept()
                async with socket:
                    await read_request(socket)
                    arrived.set()
                    await assert_http_closed(socket)

            left = spawn(nursery, abandoned_http)
            abandoned_call = trio.CancelScope()

            async def call() -> None:
                with abandoned_call:
                    async with models.stream(request(CHAT, abandoned.base)):
                        await trio.sleep_forever()

            joined = spawn(nursery, call)
            await arrived.wait()
            abandoned_call.cancel()
            await joined.wait()
            assert abandoned_call.cancelled_caught
            await left.wait()
            await complete(models, serving.base)

            await slow.aclose()
            await flood.wait()
            await complete(models, serving.base)
            await healthy.wait()


async def test_waiting_for_the_input_window_is_no_provider_silence_and_can_be_cancelled() -> None:
    """A body larger than the window owns it until its connection is closed; who waits is not timed out meanwhile."""
    with trio.fail_after(60):
        large_models = ModelExecutor(30.0)
        binding = large_models.binding(request(CHAT, "http://fixture.invalid").provider)
        queued_models = ModelExecutor(0.25).with_adapters({"chat-completions": binding})
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            listener = await Listener.bind(stack)
            received = trio.Event()

            async def serve() -> None:
                first = await listener.accept()
                async with first:
                    assert len(await read_request(first)) > 32 * 1024 * 1024
                    received.set()
                    # The large request owns the window until its connection has closed: neither of the two
                    # that wait may pass it.
                    second = await closed_before_another(first, listener)
                async with second:
                    wire = await read_request(second)
                    assert "queued survivor" in wire
                    assert "cancelled before transport" not in wire
                    await second.send_all(
                        whole_response(part("queued", {"content": "after capacity"}, "stop", 1) + "data: [DONE]\n\n")
                    )

            http = spawn(nursery, serve)
            large = request(CHAT, listener.base, "x" * (33 * 1024 * 1024))
            held = await stack.enter_async_context(large_models.stream(large))
            await received.wait()
            survivor = request(CHAT, listener.base, "queued survivor")
            waiting = await stack.enter_async_context(queued_models.stream(survivor))
            cancelled = request(CHAT, listener.base, "cancelled before transport")
            queued = await stack.enter_async_context(queued_models.stream(cancelled))
            await queued.aclose()
            with trio.move_on_after(0.75) as patience:
                await anext(waiting)
            assert patience.cancelled_caught, "waiting for local capacity must outlive the idle timeout without failing"
            await held.aclose()
            text = ""
            step = StepBuilder()
            async for event in waiting:
                if isinstance(event, PartDelta):
                    text += event.text
                step.push(event)
            assert text == "after capacity"
            step.finish()
            await waiting.aclose()
            await http.wait()


async def closed_before_another(first: trio.SocketStream, listener: Listener) -> trio.SocketStream:
    """The first connection must close before a second one arrives; return the second."""
    closed = False
    second = None

    async def watch() -> None:
        nonlocal closed
        await assert_http_closed(first)
        closed = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        second = await listener.accept()
        assert closed, "input reservation released before cleanup"
    return second


@pytest.mark.parametrize("kind", ADAPTERS)
async def test_waiting_for_response_headers_times_out_and_closes(kind: ProviderKind) -> None:
    """A server that reads the request and says nothing is given up, whatever the protocol."""
    with trio.fail_after(20):
        models = ModelExecutor(0.4)
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            listener = await Listener.bind(stack)

            async def serve() -> None:
                socket = await listener.accept()
                async with socket:
                    await read_request(socket)
                    await assert_http_closed(socket)

            http = spawn(nursery, serve)
            async with models.stream(request(kind, listener.base)) as stream:
                with pytest.raises(ModelTimedOut):
                    async for _ in stream:
                        pass
                await stream.aclose()
            await http.wait()


@pytest.mark.parametrize("silent_after_resume", [False, True])
async def test_output_backpressure_outlives_the_idle_timeout_without_losing_text(silent_after_resume: bool) -> None:
    """A consumer may pause longer than the idle timeout; all text arrives, and silence counts from its return."""
    with trio.fail_after(20):
        models = ModelExecutor(0.4)
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            listener = await Listener.bind(stack)
            unit = "retained 字🙂 "
            resumed = trio.Event()

            async def serve() -> None:
                socket = await listener.accept()
                async with socket:
                    await read_request(socket)
                    await socket.send_all(STREAM_HEAD)
                    await socket.send_all(http_chunk(part("backpressure", {"content": unit}, None) * 128))
                    # Nothing more comes while the consumer pauses for longer than the idle timeout.
                    await resumed.wait()
                    if silent_after_resume:
                        await assert_http_closed(socket)
                        return
                    last = part("backpressure", {}, "stop", 128) + "data: [DONE]\n\n"
                    await socket.send_all(http_chunk(last) + b"0\r\n\r\n")

            http = spawn(nursery, serve)
            async with models.stream(request(CHAT, listener.base)) as stream:
                step = StepBuilder()
                text = ""
                paused = False
                failure = None
                try:
                    async for event in stream:
                        if isinstance(event, PartDelta):
                            text += event.text
                            if not paused:
                                paused = True
                                await trio.sleep(1.2)
                                resumed.set()
                        step.push(event)
                except ModelError as error:
                    failure = error
                assert paused
                assert text == unit * 128
                if silent_after_resume:
                    assert isinstance(failure, ModelTimedOut)
                    with pytest.raises(MakaError):
                        step.finish()
                else:
                    assert failure is None
                    step.finish()
                await stream.aclose()
            await http.wait()


async def test_256_requests_reach_the_wire_at_once_and_are_cleaned_up() -> None:
    """There is no cap: all requests are sent before any stream is closed, and then every connection closes."""
    calls = 256
    with trio.fail_after(30):
        models = ModelExecutor(25.0)
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            listener = await Listener.bind(stack)
            received = trio.Event()

            async def serve() -> None:
                sockets: list[trio.SocketStream] = []

                async def read(socket: trio.SocketStream) -> None:
                    await read_request(socket)
                    sockets.append(socket)

                async with trio.open_nursery() as connections:
                    for _ in range(calls):
                        connections.start_soon(read, await listener.accept())
                received.set()
                for socket in sockets:
                    async with socket:
                        await assert_http_closed(socket)

            http = spawn(nursery, serve)
            opened = [
                await stack.enter_async_context(models.stream(request(CHAT, listener.base))) for _ in range(calls)
            ]
            await received.wait()
            async with trio.open_nursery() as cleanup:
                for stream in opened:
                    cleanup.start_soon(stream.aclose)
            await http.wait()
