"""One exchange that does not go well: what each broken, foreign or refusing answer becomes."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from maka_trio import limits
from maka_trio.errors import AdapterError, ProviderFailure
from tests.models.asking import A, ask, fail, saying
from tests.models.line_protocol import LineAdapter, executor, request
from tests.models.raw_server import (
    EVENT_STREAM,
    LAST_CHUNK,
    STREAM_HEAD,
    RawServer,
    answer,
    chunk,
    head,
)

# --- broken off ---


@pytest.mark.parametrize(
    ("pieces", "then", "reason", "replay_safe"),
    [
        ([STREAM_HEAD, chunk(b"+a\n")], "eof", "stream_truncated", True),
        ([STREAM_HEAD, chunk(b"+a\n") + b"5\r\nab"], "eof", "stream_truncated", True),
        ([STREAM_HEAD, chunk(b"+a\n") + b"1000"], "eof", "stream_truncated", True),
        ([STREAM_HEAD, chunk(b"+a\nbarrier\n")], "eof", "stream_truncated", False),
        ([STREAM_HEAD, chunk(b"+a\n") + LAST_CHUNK], "eof", "stream_truncated", True),
        ([head(EVENT_STREAM, b"content-length: 99\r\n") + b"+a\n"], "eof", "stream_truncated", True),
        ([head(EVENT_STREAM) + b"+a\n"], "eof", "stream_truncated", True),
    ],
)
async def test_an_answer_cut_short_is_truncated(
    server: RawServer, pieces: list[bytes], then: str, reason: str, replay_safe: bool
) -> None:
    """What had arrived is handed on; whether the request may be sent again is the decoder's to say."""
    events, failure = await ask(server, saying(*pieces, then=then))
    assert events == [A]
    assert isinstance(failure, ProviderFailure)
    assert (failure.reason, failure.replay_safe) == (reason, replay_safe)


@pytest.mark.parametrize("replay_safe", [True, False])
async def test_a_reset_in_the_answer_is_a_network_failure(server: RawServer, replay_safe: bool) -> None:
    """The connection is reset after the consumer has the first event."""
    received = trio.Event()
    body = b"+a\n" if replay_safe else b"barrier\n+a\n"

    async def serve() -> None:
        peer = await server.accept()
        await peer.read_request()
        await peer.send(STREAM_HEAD, chunk(body))
        await received.wait()
        peer.reset()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with executor().stream(request(server.base_url)) as stream:
            assert await anext(stream) == A
            received.set()
            with pytest.raises(ProviderFailure) as caught:
                await anext(stream)
    assert (caught.value.reason, caught.value.replay_safe) == ("network", replay_safe)


async def test_zero_events_are_truncated(server: RawServer) -> None:
    """An event stream that ends before it began is no empty answer."""
    failure = await fail(server, saying(answer(b"", EVENT_STREAM)))
    assert isinstance(failure, ProviderFailure)
    assert failure.reason == "stream_truncated"


async def test_a_document_cut_short_may_be_asked_for_again(server: RawServer) -> None:
    """Nothing of a document is used before all of it is there."""
    failure = await fail(server, saying(answer(b'{"text": "a"}', b"content-type: application/json\r\n")[:-3]))
    assert isinstance(failure, ProviderFailure)
    assert (failure.reason, failure.replay_safe) == ("stream_truncated", True)


@pytest.mark.parametrize(
    "tail",
    [b"zz\r\nabc\r\n", b"3\r\nabcXX", b"-1\r\n", b"0\r\n: bad\r\n\r\n"],
    ids=["size", "footer", "minus", "trailer"],
)
async def test_broken_http_framing_is_an_adapter_error(server: RawServer, tail: bytes) -> None:
    """A server that cannot frame a body is not asked again."""
    events, failure = await ask(server, saying(STREAM_HEAD, chunk(b"+a\n") + tail, then="silence"))
    assert events[:1] == [A]
    assert isinstance(failure, AdapterError)


# --- no answer at all ---


@pytest.mark.parametrize(
    ("pieces", "then"),
    [([], "eof"), ([], "reset"), ([b"HTTP/1.1 20"], "eof"), ([head(EVENT_STREAM)[:-2]], "eof")],
    ids=["close", "reset", "half a line", "half a head"],
)
async def test_a_connection_that_ends_before_the_answer_can_be_tried_again(
    server: RawServer, pieces: list[bytes], then: str
) -> None:
    """Nothing was answered, so nothing can be repeated."""
    failure = await fail(server, saying(*pieces, then=then))
    assert isinstance(failure, ProviderFailure)
    assert (failure.reason, failure.replay_safe, failure.status) == ("network", True, None)
    assert f"127.0.0.1:{server.port}" in str(failure)


async def test_a_refused_connection_can_be_tried_again(server: RawServer) -> None:
    """The error names the server and what the system said."""
    url, port = server.base_url, server.port
    await server.listener.aclose()
    async with executor().stream(request(url)) as stream:
        with pytest.raises(ProviderFailure, match=f"127.0.0.1:{port}: .*refused") as caught:
            await anext(stream)
    assert (caught.value.reason, caught.value.replay_safe) == ("network", True)


async def test_an_unknown_host_can_be_tried_again() -> None:
    """Name resolution is part of connecting."""
    async with executor().stream(request("http://no-such-host.invalid/v1")) as stream:
        with pytest.raises(ProviderFailure, match=r"no-such-host\.invalid") as caught:
            await anext(stream)
    assert (caught.value.reason, caught.value.replay_safe) == ("network", True)


@pytest.mark.parametrize("then", ["eof", "silence"])
@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n", b"HELLO\r\n\r\n"]
)
async def test_bytes_that_are_not_http_are_an_adapter_error(server: RawServer, said: bytes, then: str) -> None:
    """The wrong port is not retried; the error quotes, escaped, what was there."""
    failure = await fail(server, saying(said, then=then))
    assert isinstance(failure, AdapterError)
    assert "does not speak HTTP" in str(failure)
    assert str(failure).isprintable()


async def test_a_malformed_head_is_an_adapter_error(server: RawServer) -> None:
    """What is wrong with it is said, bounded."""
    failure = await fail(server, saying(head(b"bad header" * 1000 + b"\r\n"), then="silence"))
    assert isinstance(failure, AdapterError)
    assert len(str(failure)) < 1000


# --- answers that are none ---


async def test_html_is_an_adapter_error_that_says_what_came(server: RawServer) -> None:
    """Status, content type and the beginning of the page; bounded, escaped, never retried."""
    page = b"<!doctype html>\x1b[31m<title>x</title>" + b"y" * 20_000
    failure = await fail(server, saying(answer(page, b"content-type: text/html; charset=utf-8\r\n")))
    assert isinstance(failure, AdapterError)
    assert failure.status == 200
    text = str(failure)
    assert all(part in text for part in ("200", "text/html; charset=utf-8", "<!doctype html>"))
    assert text.isprintable()
    assert len(text) < 2 * limits.WIRE_EXCERPT_BYTES + 200


async def test_an_error_in_a_document_is_the_adapters_to_classify(server: RawServer) -> None:
    """A JSON body under status 200 may state an error; it is told whose answer it was."""
    script = saying(answer(b'{"error": "no such model"}', b"content-type: application/json\r\n"))
    assert str(await fail(server, script)) == f"127.0.0.1:{server.port}: no such model"


async def test_a_document_has_a_limit(server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte too many, and the rest is not read."""
    monkeypatch.setattr(limits, "PLAIN_BODY_BYTES", 100)
    document = b'{"text": "%b"}' % (b"x" * 90)
    failure = await fail(server, saying(answer(document, b"content-type: application/json\r\n")))
    assert isinstance(failure, AdapterError)
    assert "100 bytes" in str(failure)


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"x" * 5000])
async def test_compressed_answers_are_refused(server: RawServer, encoding: bytes) -> None:
    """They were not asked for, and unpacking them has no bound."""
    script = saying(answer(b"end\n", EVENT_STREAM, b"content-encoding: " + encoding + b"\r\n"))
    failure = await fail(server, script)
    assert isinstance(failure, AdapterError)
    assert "content-encoding" in str(failure)
    assert len(str(failure)) < 1000


@pytest.mark.parametrize("status", [301, 302, 307, 308, 304])
async def test_redirects_are_not_followed(server: RawServer, status: int) -> None:
    """A prompt and a key go where they were sent, nowhere else."""
    script = saying(answer(b"", b"location: http://127.0.0.1:9/\r\n", status=b"%d Moved" % status))
    failure = await fail(server, script)
    assert isinstance(failure, AdapterError)
    assert failure.status == status
    assert str(status) in str(failure)


# --- refusals ---


async def test_an_error_status_is_classified_with_its_headers_and_body(server: RawServer) -> None:
    """The adapter sees the status, lower-case header names, and the body."""
    adapter = LineAdapter()
    script = saying(answer(b"slow down", b"Retry-After: 7\r\nX-A: 1\r\nx-a: 2\r\n", status=b"429 Too Many"))
    failure = await fail(server, script, executor(adapter))
    assert isinstance(failure, ProviderFailure)
    assert failure.status == 429
    ((status, headers, body),) = adapter.failures
    assert (status, body) == (429, b"slow down")
    assert headers["retry-after"] == "7"
    assert headers["x-a"] == "1, 2"


async def test_an_error_body_is_read_to_its_limit(server: RawServer) -> None:
    """What is beyond the limit is left in the socket."""
    adapter = LineAdapter()
    body = b"x" * (limits.ERROR_BODY_BYTES * 2)
    await fail(server, saying(answer(body, status=b"500 Oops")), executor(adapter))
    assert len(adapter.failures[0][2]) == limits.ERROR_BODY_BYTES


@pytest.mark.parametrize("then", ["eof", "silence"])
async def test_a_status_is_known_whatever_becomes_of_the_body(
    server: RawServer, then: str, skipping_clock: MockClock
) -> None:
    """A body that stops short, or never comes, does not hide the status."""
    adapter = LineAdapter()
    script = saying(head(b"content-length: 99\r\n", status=b"503 Busy") + b"half", then=then)
    failure = await fail(server, script, executor(adapter))
    assert isinstance(failure, ProviderFailure)
    assert adapter.failures[0][0] == 503
    assert adapter.failures[0][2] == b"half"


async def test_a_compressed_error_body_is_not_read(server: RawServer) -> None:
    """The status alone must do."""
    adapter = LineAdapter()
    script = saying(answer(b"\x1f\x8b", b"content-encoding: gzip\r\n", status=b"500 Oops"))
    await fail(server, script, executor(adapter))
    assert adapter.failures[0][2] == b""
