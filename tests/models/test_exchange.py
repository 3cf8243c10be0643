"""One exchange that goes well: what is sent, and every form in which a good answer comes."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
import trio

from maka_trio.errors import AdapterError, ProviderFailure
from maka_trio.facts.model import ModelEvent
from maka_trio.models import network
from tests.models.asking import A, ask, saying
from tests.models.line_protocol import END, KEY, LineAdapter, executor, request
from tests.models.raw_server import (
    EVENT_STREAM,
    LAST_CHUNK,
    STREAM_HEAD,
    Peer,
    RawServer,
    ReceivedRequest,
    answer,
    chunk,
    head,
)

# --- what goes out ---


async def test_the_request_is_a_plain_post(server: RawServer) -> None:
    """Body and credentials as the adapter says, uncompressed answers only, nothing a proxy setting could change."""
    seen: list[ReceivedRequest] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.read_request())
        await peer.send(answer(b"end\n", EVENT_STREAM))

    await ask(server, script)
    (received,) = seen
    assert received.line == b"POST /v1/lines HTTP/1.1"
    assert received.body == b"question"
    assert received.headers == {
        b"host": b"127.0.0.1:%d" % server.port,
        b"content-type": b"application/json",
        b"content-length": b"8",
        b"authorization": b"Bearer " + KEY.encode(),
        b"accept-encoding": b"identity",
        b"user-agent": b"maka-trio",
    }


async def test_the_environment_is_not_asked(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment belongs to other programs."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert await ask(server, saying(answer(b"end\n", EVENT_STREAM))) == ([END], None)


async def test_a_large_body_arrives_whole(server: RawServer) -> None:
    """Bodies are sent in pieces; the server gets the same bytes."""
    text = "".join(map(str, range(100_000)))
    bodies: list[bytes] = []

    async def serve() -> None:
        peer = await server.accept()
        bodies.append((await peer.read_request()).body)
        await peer.send(answer(b"end\n", EVENT_STREAM))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with executor().stream(request(server.base_url, text)) as stream:
            assert [event async for event in stream] == [END]
    assert bodies == [text.encode()]


@pytest.mark.parametrize("size", [10, 10_000_000])
async def test_a_server_may_answer_before_it_has_read_everything(
    server: RawServer, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network takes no more of the body, but an answer is there: it counts."""
    adapter = LineAdapter()
    said = [b"", answer(b"too much", status=b"413 Too Large")]

    class Deaf:
        """A connection whose far side has answered and no longer listens."""

        def __init__(self) -> None:
            self.socket = socket.socket()

        async def send_all(self, data: bytes) -> None:
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError

        async def receive_some(self, max_bytes: int) -> bytes:
            await trio.lowlevel.checkpoint()
            return said.pop()

    async def connect(*_: object, **__: object) -> Deaf:
        await trio.lowlevel.checkpoint()
        return Deaf()

    monkeypatch.setattr(network, "dial", connect)
    monkeypatch.setattr(network, "_socket", lambda stream: stream.socket)
    async with executor(adapter).stream(request(server.base_url, "x" * size)) as stream:
        with pytest.raises(ProviderFailure) as caught:
            await anext(stream)
    assert caught.value.status == 413
    assert adapter.failures[0][2] == b"too much"


# --- answers ---


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([STREAM_HEAD, chunk(b"+a\n"), chunk(b"end\n"), LAST_CHUNK], id="chunked"),
        pytest.param([bytes([byte]) for byte in STREAM_HEAD + chunk(b"+a\nend\n") + LAST_CHUNK], id="byte by byte"),
        pytest.param([answer(b"+a\nend\n", EVENT_STREAM)], id="content-length"),
        pytest.param([head(EVENT_STREAM), b"+a\nend\n"], id="until close"),
        pytest.param([b"HTTP/1.0 200 OK\r\n" + EVENT_STREAM + b"\r\n", b"+a\n", b"end\n"], id="HTTP/1.0"),
        pytest.param([answer(b"+a\nend\n")], id="no content type"),
        pytest.param([answer(b"+a\nend\n", b"content-type:\r\n")], id="empty content type"),
        pytest.param([answer(b"+a\nend\n", b"content-type: Text/Event-Stream ; charset=utf-8\r\n")], id="parameters"),
        pytest.param([head(status=b"100 Continue"), answer(b"+a\nend\n", EVENT_STREAM)], id="interim"),
        pytest.param([answer(b"+a\nend\n", EVENT_STREAM, status=b"203 Other")], id="203"),
        pytest.param([answer(b"+a\nend\n", EVENT_STREAM, b"content-encoding: identity\r\n")], id="identity"),
        pytest.param([answer(b'{"text": "a"}', b"content-type: application/json\r\n")], id="document"),
    ],
)
async def test_every_framing_of_a_good_answer_is_read(server: RawServer, pieces: list[bytes]) -> None:
    """Chunked, counted or until close; streamed or, from servers that ignore `stream`, a document."""
    assert await ask(server, saying(*pieces)) == ([A, END], None)


async def test_nothing_after_the_end_of_the_answer_counts(server: RawServer) -> None:
    """Bytes after the finish are not decoded, however they are framed."""
    assert await ask(server, saying(STREAM_HEAD, chunk(b"end\n+late\n"), chunk(b"!late\n"))) == ([END], None)


@pytest.mark.parametrize("ending", ["eof", "reset", "garbage"])
@pytest.mark.parametrize("last", [b"end\n", b"grace\n"])
async def test_a_complete_answer_survives_a_broken_connection(server: RawServer, last: bytes, ending: str) -> None:
    """After the finish, and in the grace that follows one without usage, the end of a connection is only its end."""
    received = trio.Event()

    async def serve() -> None:
        peer = await server.accept()
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(b"+a\n" + last))
        await received.wait()
        match ending:
            case "eof":
                await peer.aclose()
            case "reset":
                peer.reset()
            case "garbage":
                with suppress(trio.BrokenResourceError):
                    await peer.send(b"zz\r\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with executor().stream(request(server.base_url)) as stream:
            assert await anext(stream) == A
            received.set()
            assert [event async for event in stream] == [END]


async def test_a_clean_end_in_the_grace_finishes_the_answer(server: RawServer) -> None:
    """The end of the body is one of the things that the grace waits for."""
    assert await ask(server, saying(STREAM_HEAD, chunk(b"+a\ngrace\n") + LAST_CHUNK)) == ([A, END], None)


async def test_events_before_a_fault_come_first_and_the_fault_at_once(server: RawServer) -> None:
    """The decoder's error follows its events without waiting for the provider to say more."""
    events, failure = await ask(server, saying(STREAM_HEAD, chunk(b"+a\n!bad\n"), then="silence"))
    assert events == [A]
    assert isinstance(failure, AdapterError)
    assert str(failure).endswith(": bad")


async def test_a_bug_in_a_decoder_is_an_adapter_error(server: RawServer) -> None:
    """No foreign exception comes out; its place is told, its text, which may quote the answer, is not."""
    events, failure = await ask(server, saying(STREAM_HEAD, chunk(b"+a\n?quoted\n"), then="silence"))
    assert events == [A]
    assert isinstance(failure, AdapterError)
    assert "KeyError at line_protocol.py:" in str(failure)
    assert "quoted" not in str(failure)
    assert failure.__cause__ is failure.__context__ is None


async def test_nothing_follows_the_finish(server: RawServer) -> None:
    """An adapter that makes events after the finish is at fault."""
    events, failure = await ask(server, saying(STREAM_HEAD, chunk(b"twice\n")))
    assert events == []
    assert isinstance(failure, AdapterError)


async def test_an_answer_must_say_how_it_finished(server: RawServer) -> None:
    """A decoder that ends without a finish does not pass as one that completed."""

    class Forgetful(LineAdapter):
        def decode_document(self, request: object, body: bytes) -> list[ModelEvent]:
            return [A]

    script = saying(answer(b"{}", b"content-type: application/json\r\n"))
    events, failure = await ask(server, script, executor(Forgetful()))
    assert events == [A]
    assert isinstance(failure, AdapterError)
