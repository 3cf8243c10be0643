"""No secret of a request leaves the library by way of an error, a cause, a repr or a log."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
import trio
from trio.testing import MockClock

from maka_trio.errors import AdapterError, ModelError
from maka_trio.facts.message import Message
from maka_trio.models import ModelExecutor
from maka_trio.models.masking import Secrets
from maka_trio.request import ApiKey, Credentials, ModelRequest, ProviderConfig, ProviderKind, RequestHeaders
from tests.models.line_protocol import KEY, LineAdapter, executor, provider, request
from tests.models.raw_server import EVENT_STREAM, STREAM_HEAD, Peer, RawServer, answer, chunk

QUERY_KEY = "qk-0123456789/abcdef"
HEADER_KEY = "hk-0123456789abcdef"
OVERLAY_KEY = "ok-0123456789abcdef"
PASSWORD = "pw-0123456789abcdef"
OPTION_KEY = "sk-option-0123456789/abcdef"
ALL_KEYS = (KEY, QUERY_KEY, HEADER_KEY, OVERLAY_KEY, PASSWORD, OPTION_KEY)


def shown(error: BaseException) -> str:
    """Everything about an error that could end in a log: text, repr, arguments, causes, traceback."""
    chain = [error, error.__cause__, error.__context__]
    return "\n".join([*map(repr, chain), *map(str, chain), *traceback.format_exception(error)])


def assert_clean(text: str) -> None:
    for key in ALL_KEYS:
        for form in (key, quote(key, safe=""), key[:12]):
            assert form not in text


async def provoke(server: RawServer, script: Callable[[Peer], Awaitable[None]]) -> ModelError:
    """The error of one request whose configuration is full of secrets."""
    base = f"http://user:{PASSWORD}@127.0.0.1:{server.port}/v1?key={quote(QUERY_KEY, safe='')}"
    settings: dict[str, Any] = {"headers": {"x-key": HEADER_KEY}, "body_overlay": {"deep": [{"token": OVERLAY_KEY}]}}
    settings["secrets"] = {"tools": ApiKey(OPTION_KEY)}

    async def serve() -> None:
        await script(await server.accept())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with executor().stream(request(base, **settings)) as stream:
            with pytest.raises(ModelError) as caught:
                async for _ in stream:
                    pass
    return caught.value


ECHO = json.dumps({"said": list(ALL_KEYS), "url": quote(QUERY_KEY, safe="")}).encode()


async def in_an_error_body(peer: Peer) -> None:
    received = await peer.read_request()
    said = b" ".join([received.line, *received.headers.values(), ECHO])
    await peer.send(answer(said, status=b"401 Unauthorized"))


async def in_the_answer(peer: Peer) -> None:
    received = await peer.read_request()
    await peer.send(STREAM_HEAD, chunk(b"!refused " + received.headers[b"authorization"] + ECHO + b"\n"))


async def in_html(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(answer(b"<html>" + ECHO, b"content-type: text/html; " + KEY.encode() + b"\r\n"))


async def in_an_encoding(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(answer(b"", EVENT_STREAM, b"content-encoding: " + KEY.encode() + b"\r\n"))


async def in_a_redirect(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(answer(b"", b"location: http://x/?" + ECHO + b"\r\n", status=b"302 Found"))


async def instead_of_http(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(ECHO + b"\r\n\r\n")


async def in_a_bad_head(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(b"HTTP/1.1 200 OK\r\nbad " + ECHO + b"\r\n\r\n")


async def in_a_bad_chunk(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(STREAM_HEAD, ECHO + b"\r\n")


async def in_a_bug(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(STREAM_HEAD, chunk(b"?" + ECHO + b"\n"))


async def nowhere_silent(peer: Peer) -> None:
    await peer.read_request()
    await peer.assert_closed()


async def nowhere_closed(peer: Peer) -> None:
    await peer.read_request()
    await peer.aclose()


PLACES = [
    in_an_error_body,
    in_the_answer,
    in_html,
    in_an_encoding,
    in_a_redirect,
    instead_of_http,
    in_a_bad_head,
    in_a_bad_chunk,
    in_a_bug,
    nowhere_silent,
    nowhere_closed,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
async def test_what_a_server_echoes_is_masked(
    server: RawServer,
    place: Callable[[Peer], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
    skipping_clock: MockClock,
) -> None:
    """Wherever the keys come back, whole, encoded or cut, they are not in the error nor in its causes."""
    caplog.set_level(logging.INFO)
    error = await provoke(server, place)
    assert_clean(shown(error))
    assert str(error)
    assert not caplog.records


async def test_what_is_sent_shows_in_no_debug_log(server: RawServer, caplog: pytest.LogCaptureFixture) -> None:
    """Neither ours nor that of a library, whatever their loggers are told to tell."""
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "h11", "maka_trio"):
        caplog.set_level(logging.DEBUG, logger=name)
    await provoke(server, nowhere_closed)
    assert_clean(caplog.text)


async def test_what_remains_is_useful(server: RawServer) -> None:
    """The status stays, and the server's words around the key."""
    error = await provoke(server, in_an_error_body)
    assert "status 401" in str(error)
    assert '"said"' in str(error)


async def test_a_failed_login_tells_only_its_kind(server: RawServer) -> None:
    """The exception of an auth callable may hold anything."""

    async def login() -> Credentials:
        await trio.lowlevel.checkpoint()
        raise LookupError(f"refused for {KEY}")

    async with executor().stream(request(server.base_url, auth=login)) as stream:
        with pytest.raises(AdapterError, match="LookupError") as caught:
            await anext(stream)
    assert_clean(shown(caught.value))
    assert not server.has_waiting()


async def test_a_login_that_fails_in_tasks_is_one_plain_error(server: RawServer) -> None:
    """A group out of the callable is wrapped like any other exception."""

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError(KEY)

    async def login() -> Credentials:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()
        return ApiKey(KEY)

    async with executor().stream(request(server.base_url, auth=login)) as stream:
        with pytest.raises(AdapterError, match="ExceptionGroup") as caught:
            await anext(stream)
    assert_clean(shown(caught.value))


async def test_a_login_that_ends_the_program_is_let_through(server: RawServer) -> None:
    """Ctrl-C is nobody's failed login."""

    async def login() -> Credentials:
        await trio.lowlevel.checkpoint()
        raise BaseExceptionGroup("", [KeyboardInterrupt()])

    with pytest.raises(KeyboardInterrupt):
        async with executor().stream(request(server.base_url, auth=login)) as stream:
            await anext(stream)


@pytest.mark.parametrize("answer", [None, "sk-plain", {"authorization": KEY}, b""])
async def test_a_login_returns_credentials(server: RawServer, answer: object) -> None:
    """Anything else is named by its type alone."""

    async def login() -> object:
        await trio.lowlevel.checkpoint()
        return answer

    async with executor().stream(request(server.base_url, auth=login)) as stream:
        with pytest.raises(AdapterError, match=type(answer).__name__) as caught:
            await anext(stream)
    assert_clean(shown(caught.value))


async def test_a_key_that_http_cannot_carry_is_not_quoted(server: RawServer) -> None:
    """The header is named: at the opening where the key is known, in the stream where it is asked for."""
    bad = ApiKey(f"{KEY}\r\nx: y")

    async def login() -> Credentials:
        await trio.lowlevel.checkpoint()
        return bad

    with pytest.raises(Exception, match="authorization") as caught:
        async with executor().stream(request(server.base_url, auth=bad)):
            pass
    assert_clean(shown(caught.value))
    async with executor().stream(request(server.base_url, auth=login)) as stream:
        with pytest.raises(AdapterError, match="authorization") as in_stream:
            await anext(stream)
    assert_clean(shown(in_stream.value))


async def test_each_request_asks_for_its_own_credentials(server: RawServer) -> None:
    """A login is called once a request, so that it may renew what has run out."""
    tokens = iter(["first-token", "second-token"])
    seen: list[bytes] = []

    async def login() -> Credentials:
        await trio.lowlevel.checkpoint()
        return RequestHeaders({"x-auth": next(tokens)})

    async def serve() -> None:
        for _ in range(2):
            peer = await server.accept()
            seen.append((await peer.read_request()).headers[b"x-auth"])
            await peer.send(answer(b"end\n", EVENT_STREAM))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        for _ in range(2):
            async with executor().stream(request(server.base_url, auth=login)) as stream:
                assert len([event async for event in stream]) == 1
    assert seen == [b"first-token", b"second-token"]


@pytest.mark.parametrize("secret", ["front-of-it/rest-of-it", 'front-of-it"rest-of-it', "front-of-it rest-of-it"])
def test_a_secret_is_masked_to_its_end(secret: str) -> None:
    """Its spellings in a URL and in JSON begin as it does itself; none may hide where another one goes on."""
    secrets = Secrets(provider("http://x/v1"))
    secrets.add({"x-key": secret})
    for spelling in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1]):
        error = AdapterError(f"a {spelling} b {spelling[:-3]} c")
        secrets.clean(error)
        assert "rest" not in str(error)
        assert "front" not in str(error)


@pytest.mark.parametrize("change", [str.lower, str.upper])
def test_a_secret_is_masked_in_any_case(change: Callable[[str], str]) -> None:
    """A provider that quotes a key where a code should be has it shown in lower case."""
    secret = "sk-Proj-AbCdEfGh1234567890"
    secrets = Secrets(provider("http://x/v1"))
    secrets.add({"authorization": f"Bearer {secret}"})
    error = AdapterError(f"the provider answered 401 ({change(secret)}): no")
    secrets.clean(error)
    assert str(error) == "the provider answered 401 ([secret]): no"


@pytest.mark.parametrize("said", ["user:pass-Word-1234", "pass-Word-1234", "dXNlcjpwYXNzLVdvcmQtMTIzNA=="])
def test_what_a_server_reads_in_a_basic_header_is_masked(said: str) -> None:
    """It has the password itself, not only how it was sent."""
    secrets = Secrets(provider("http://x/v1"))
    secrets.add({"authorization": "Basic dXNlcjpwYXNzLVdvcmQtMTIzNA=="})
    error = AdapterError(f"no such user: {said}.")
    secrets.clean(error)
    assert str(error) == "no such user: [secret]."


def test_ordinary_words_are_not_masked() -> None:
    """Short values of headers and overlay are no secrets; masking them would spoil every message."""
    secrets = Secrets(provider("http://x/v1", headers={"x-mode": "fast"}, body_overlay={"effort": "low", "n": 1}))
    secrets.add(LineAdapter().authorize(ApiKey(KEY)))
    error = AdapterError("the Bearer was too fast and too low")
    secrets.clean(error)
    assert str(error) == "the Bearer was too fast and too low"


HOSTED = {
    ProviderKind.OPENAI_RESPONSES: {
        "openai": {"hosted_tools": [{"id": "openai.mcp", "args": {"authorization": {"$secret": "tools"}}}]}
    },
    ProviderKind.ANTHROPIC: {"anthropic": {"mcp_servers": [{"authorization_token": {"$secret": "tools"}}]}},
    ProviderKind.OPENAI_CHAT_COMPLETIONS: {"openai": {"data_sources": [{"token": {"$secret": "tools"}}]}},
    ProviderKind.OPENAI_COMPATIBLE: {"x": {"tools": [{"headers": {"a": {"$secret": "tools"}}}]}},
}


def hosted_request(kind: ProviderKind, base_url: str) -> ModelRequest:
    """A request whose options refer to a secret."""
    name = "x" if kind is ProviderKind.OPENAI_COMPATIBLE else None
    config = ProviderConfig(kind, "m", base_url, ApiKey(KEY), name=name, secrets={"tools": ApiKey(OPTION_KEY)})
    return ModelRequest(config, [Message.user("hi")], provider_options=HOSTED[kind])


SAID = json.dumps({"error": {"message": f"no {OPTION_KEY} nor {quote(OPTION_KEY, safe='')}"}}).encode()
ECHOES = {
    "an error body": [answer(SAID, status=b"401 Unauthorized")],
    "html": [answer(b"<html>" + SAID, b"content-type: text/html\r\n")],
    "a bad chunk": [STREAM_HEAD, SAID + b"\r\n"],
    "the answer": [STREAM_HEAD, chunk(b"data: " + SAID + b"\n\n")],
}


@pytest.mark.parametrize("kind", HOSTED)
@pytest.mark.parametrize("said", ECHOES)
async def test_a_secret_of_the_options_is_sent_and_shown_nowhere(
    server: RawServer, kind: ProviderKind, said: str
) -> None:
    """The body carries it where the options name it; what the server says of it is masked, in every protocol."""
    asked = hosted_request(kind, server.base_url)
    bodies: list[bytes] = []

    async def serve() -> None:
        peer = await server.accept()
        bodies.append((await peer.read_request()).body)
        await peer.send(*ECHOES[said])
        await peer.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with ModelExecutor(5) as models, models.stream(asked) as stream:
            with pytest.raises(ModelError) as caught:
                async for _ in stream:
                    pass
    assert bodies[0].count(OPTION_KEY.encode()) == 1
    assert b"$secret" not in bodies[0]
    assert_clean(shown(caught.value))
    assert "no [secret] nor [secret]" in str(caught.value)
    assert_clean(repr(asked))


@pytest.mark.parametrize("kind", HOSTED)
async def test_the_window_counts_what_is_sent(server: RawServer, kind: ProviderKind) -> None:
    """The bytes of the body with the secret in it, not of its name."""
    async with trio.open_nursery() as nursery:
        seen: list[tuple[int, int]] = []
        models = ModelExecutor(5)

        async def serve() -> None:
            peer = await server.accept()
            received = await peer.read_request()
            seen.append((len(received.body), models.statistics().window_used))
            await peer.aclose()

        nursery.start_soon(serve)
        async with models, models.stream(hosted_request(kind, server.base_url)) as stream:
            with pytest.raises(ModelError):
                await anext(stream)
    assert seen[0][0] == seen[0][1]
