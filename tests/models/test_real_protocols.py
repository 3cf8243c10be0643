"""The real adapters over the wire: when their answers end, when they are given up, and what refusals become."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from maka_trio import limits
from maka_trio.errors import AdapterError, ContextOverflow, ModelTimedOut, ProviderFailure
from maka_trio.facts.message import Message
from maka_trio.facts.model import FinishReason, ModelStep
from maka_trio.models import ModelExecutor
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, ProviderKind
from maka_trio.steps import StepBuilder
from tests.models.raw_server import LAST_CHUNK, STREAM_HEAD, Peer, RawServer, answer, chunk

CHAT, MESSAGES = ProviderKind.OPENAI_CHAT_COMPLETIONS, ProviderKind.ANTHROPIC
KEY = "sk-real-0123456789abcdef"
JSON = b"content-type: application/json\r\n"


def request(kind: ProviderKind, server: RawServer) -> ModelRequest:
    return ModelRequest(ProviderConfig(kind, "model", server.base_url, ApiKey(KEY)), [Message.user("question")])


def sse(**payload: Any) -> bytes:
    """One event as both vendors write it."""
    name = f"event: {payload['type']}\n" if "type" in payload else ""
    return f"{name}data: {json.dumps(payload)}\n\n".encode()


def chat(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return sse(id="r", choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


DONE = b"data: [DONE]\n\n"
CHAT_TEXT = chat({"role": "assistant", "content": "A"})
CHAT_STOP = chat({}, "stop")

MESSAGE_TEXT = (
    sse(
        type="message_start",
        message={"id": "m", "type": "message", "role": "assistant", "model": "model", "content": [], "usage": {}},
    )
    + sse(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
    + sse(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "A"})
)
MESSAGE_STOP = (
    sse(type="content_block_stop", index=0)
    + sse(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1})
    + sse(type="message_stop")
)


async def step(
    kind: ProviderKind, server: RawServer, script: Callable[[Peer], Awaitable[None]], **settings: Any
) -> ModelStep:
    """The whole answer to one request."""
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await script(await server.accept())

        nursery.start_soon(serve)
        async with ModelExecutor(10.0, **settings) as models, models.stream(request(kind, server)) as stream:
            builder = StepBuilder()
            async for event in stream:
                builder.push(event)
            await stream.aclose()
            assert models.statistics().window_used == 0
    return builder.finish()


def saying(*pieces: bytes, ping: bytes | None = None) -> Callable[[Peer], Awaitable[None]]:
    """Write the pieces as chunks; then silence, or a ping each second, until the peer closes."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, *map(chunk, pieces))
        try:
            while ping is not None:
                await trio.sleep(1)
                await peer.send(chunk(ping))
        except trio.BrokenResourceError:
            return
        await peer.assert_closed()

    return script


@pytest.mark.parametrize(
    ("kind", "pieces"), [(CHAT, [CHAT_TEXT, CHAT_STOP, DONE]), (MESSAGES, [MESSAGE_TEXT, MESSAGE_STOP])]
)
async def test_a_complete_answer_ends_though_the_body_does_not(
    server: RawServer, kind: ProviderKind, pieces: list[bytes], skipping_clock: MockClock
) -> None:
    """`[DONE]` and `message_stop` are ends; the connection is closed."""
    started = trio.current_time()
    answer_step = await step(kind, server, saying(*pieces))
    assert (answer_step.text(), answer_step.finish_reason) == ("A", FinishReason.STOP)
    assert trio.current_time() - started < 0.5


@pytest.mark.parametrize("ping", [None, b": ping\n\n"])
async def test_a_chat_answer_without_a_last_word_ends_with_the_grace(
    server: RawServer, ping: bytes | None, skipping_clock: MockClock
) -> None:
    """A finish reason, then silence or heartbeats: the step completes, its usage unknown."""
    started = trio.current_time()
    answer_step = await step(CHAT, server, saying(CHAT_TEXT, CHAT_STOP, ping=ping))
    assert answer_step.text() == "A"
    assert answer_step.usage.input_tokens is None
    assert trio.current_time() - started == pytest.approx(limits.FINISH_GRACE_SECONDS, abs=1.1)


async def test_trailing_usage_is_waited_for(server: RawServer, skipping_clock: MockClock) -> None:
    """Usage that comes within the grace counts, and completes the step at once."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(CHAT_TEXT + CHAT_STOP))
        await trio.sleep(1)
        await peer.send(chunk(sse(id="r", choices=[], usage={"prompt_tokens": 3, "completion_tokens": 4})))
        await peer.assert_closed()

    answer_step = await step(CHAT, server, script)
    assert (answer_step.usage.input_tokens, answer_step.usage.output_tokens) == (3, 4)


@pytest.mark.parametrize(
    ("kind", "piece", "ping"),
    [(CHAT, CHAT_TEXT, b": ping\n\n"), (MESSAGES, MESSAGE_TEXT, sse(type="ping")), (MESSAGES, MESSAGE_TEXT, b":\n\n")],
)
async def test_pings_keep_a_stream_alive_unless_a_semantic_timeout_is_set(
    server: RawServer, kind: ProviderKind, piece: bytes, ping: bytes, skipping_clock: MockClock
) -> None:
    """Pings are progress for the idle timeout; the semantic timeout sees through them."""
    started = trio.current_time()
    with pytest.RaisesGroup(pytest.RaisesExc(ModelTimedOut, match="semantic_timeout"), flatten_subgroups=True):
        await step(kind, server, saying(piece, ping=ping), semantic_timeout=25.0)
    assert trio.current_time() - started == pytest.approx(25, abs=1.1)


# --- answers that are none ---


async def failure(kind: ProviderKind, server: RawServer, *pieces: bytes) -> Exception:
    """What a scripted response raises."""

    async def serve() -> None:
        peer = await server.accept()
        await peer.read_request()
        await peer.send(*pieces)
        await peer.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with ModelExecutor(10.0).stream(request(kind, server)) as stream:
            with pytest.raises(Exception) as caught:  # noqa: PT011  # the caller looks at it
                async for _ in stream:
                    pass
    return caught.value


@pytest.mark.parametrize("kind", [CHAT, MESSAGES])
async def test_refusals_are_classified(server: RawServer, kind: ProviderKind) -> None:
    """Status, code and `Retry-After` reach the adapter; an echoed key does not come out."""
    body = json.dumps({"type": "error", "error": {"type": "x", "message": f"bad key {KEY}"}}).encode()
    limited = await failure(kind, server, answer(body, JSON, b"retry-after: 7\r\n", status=b"429 Slow"))
    assert isinstance(limited, ProviderFailure)
    assert (limited.reason, limited.status, limited.retry_after) == ("rate_limit", 429, 7.0)
    busy = await failure(kind, server, answer(body, JSON, status=b"503 Busy"))
    assert isinstance(busy, ProviderFailure)
    assert busy.reason == "provider_unavailable"
    denied = await failure(kind, server, answer(body, JSON, status=b"401 Unauthorized"))
    assert isinstance(denied, AdapterError)
    assert "401" in str(denied)
    for error in (limited, busy, denied):
        assert KEY not in str(error)


RESPONSES = ProviderKind.OPENAI_RESPONSES
LIMITED = {"type": "error", "error": {"code": 429, "type": "rate_limit_error", "message": "slow"}}


@pytest.mark.parametrize("kind", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("streamed", [False, True], ids=["document", "stream"])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"retry-after: 3\r\n", 3.0),
        (b"retry-after-ms: 250\r\nretry-after: 9\r\n", 0.25),
        (b"retry-after: 0\r\n", None),
        (b"retry-after: soon\r\n", None),
        (b"", None),
    ],
)
async def test_a_wait_beside_an_error_in_a_successful_answer_counts(
    server: RawServer, kind: ProviderKind, streamed: bool, header: bytes, seconds: float | None
) -> None:
    """Some servers say 200, state a limit in the body and the wait in the head, as they would beside a 429."""
    if streamed:
        head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n")
        error = await failure(kind, server, head, chunk(sse(**LIMITED)), LAST_CHUNK)
    else:
        error = await failure(kind, server, answer(json.dumps(LIMITED).encode(), JSON, header))
    assert isinstance(error, ProviderFailure)
    assert (error.reason, error.retry_after) == ("rate_limit", seconds)


async def test_a_wait_says_nothing_of_a_broken_answer(server: RawServer) -> None:
    """It is about the provider's own trouble: what was cut may be asked for again as ever."""
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nretry-after: 3\r\n\r\n")
    error = await failure(CHAT, server, head, chunk(CHAT_TEXT), LAST_CHUNK)
    assert isinstance(error, ProviderFailure)
    assert (error.reason, error.retry_after) == ("stream_truncated", None)


async def test_an_overflow_is_told_by_its_code(server: RawServer) -> None:
    """Also in a document under status 200."""
    body = json.dumps({"error": {"code": "context_length_exceeded", "message": "long"}}).encode()
    for status in (b"400 Bad", b"200 OK"):
        assert isinstance(await failure(CHAT, server, answer(body, JSON, status=status)), ContextOverflow)


async def test_a_cut_answer_is_truncated(server: RawServer) -> None:
    """The end of the body is no end of the answer, however cleanly the body ends."""
    for kind, piece in ((CHAT, CHAT_TEXT), (MESSAGES, MESSAGE_TEXT)):
        for last in (LAST_CHUNK, b""):
            error = await failure(kind, server, STREAM_HEAD, chunk(piece), last)
            assert isinstance(error, ProviderFailure)
            assert (error.reason, error.replay_safe) == ("stream_truncated", True)


async def test_a_document_in_place_of_a_stream_is_an_answer(server: RawServer) -> None:
    """Servers that ignore `stream` are understood."""
    document = {
        "id": "r",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "A"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(answer(json.dumps(document).encode(), JSON))
        await peer.aclose()

    answer_step = await step(CHAT, server, script)
    assert (answer_step.text(), answer_step.usage.input_tokens) == ("A", 1)
