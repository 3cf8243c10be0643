"""Failures of a provider as a run sees them, on every protocol: what is retried, what is told, and what never is."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from maka_trio import facts
from maka_trio.engine import RetryPolicy
from maka_trio.errors import AdapterError, ContextOverflow, MakaError, ModelError, ModelRefused, ProviderFailure
from maka_trio.request import ApiKey, Credentials, ProviderConfig, ProviderKind
from maka_trio.testing import Call, Thinking, WireError
from tests.engine.scene import Scene, echo, registration, scene

KINDS = pytest.mark.parametrize("kind", list(ProviderKind))

CALL = Call("echo", {"n": 1}, id="a")


def event(payload: Any, name: str | None = None) -> bytes:
    head = b"event: %b\n" % name.encode() if name else b""
    return head + b"data: %b\n\n" % json.dumps(payload).encode()


async def failure_of(it: Scene, **settings: Any) -> ModelError:
    """The error of a run, whose end in the log says the same."""
    asked = it.input(tools=[registration("echo", echo)], **settings)
    with pytest.raises(ModelError) as caught:
        await it.engine.run(asked)
    ended = (await it.facts())[-1]
    assert ended.outcome.message[:2000] == str(caught.value)[:2000]
    return caught.value


# --- errors inside an answer ------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    "before",
    [[], ["I will "], ["I will ", CALL], [Thinking("hm"), "I will ", CALL, Call("echo", {"n": 2}, id="b")]],
    ids=["nothing", "text", "call", "calls"],
)
async def test_an_overload_inside_an_answer_is_tried_again(
    tmp_path: Path, kind: ProviderKind, before: list[Any]
) -> None:
    """Whatever was streamed before it: none of its calls run, none of it is fed back."""
    async with scene(tmp_path) as it:
        it.provider.say(*before, WireError("overloaded_error", "busy"))
        it.provider.call_tools(("echo", {"n": 3}, "a"))
        it.provider.say("Done.")
        await it.engine.run(it.input(kind=kind, tools=[registration("echo", echo)]))
        found = await it.facts()
        assert it.provider.requests[0].raw == it.provider.requests[1].raw
    (interrupted,) = [fact for fact in found if isinstance(fact, facts.ModelInterrupted)]
    assert interrupted.status is facts.InterruptionStatus.RETRYABLE_FAILURE
    assert [fact.input for fact in found if isinstance(fact, facts.ToolDispatched)] == [{"n": 3}]
    assert not [fact for fact in found if isinstance(fact, facts.ToolRejected)]


CHAT_ERRORS: list[tuple[Any, str | None, type[MakaError], str]] = [
    ({"error": {"message": "boom", "code": 502}}, None, ProviderFailure, "boom"),
    ({"error": {"message": "boom", "code": "502"}}, None, ProviderFailure, "boom"),
    ({"error": {"message": "boom", "type": "server_error"}}, None, ProviderFailure, "server_error"),
    ({"error": {"message": "boom", "code": 429}}, None, ProviderFailure, "boom"),
    ({"error": "boom"}, None, AdapterError, "boom"),
    ({"message": "boom"}, "error", AdapterError, "boom"),
    ({"error": {"message": "server_error 503 rate limit"}}, None, AdapterError, "rate limit"),
    ({"error": {"message": "full", "code": "context_length_exceeded"}}, None, ContextOverflow, "full"),
    ({"error": {"message": "no", "code": "content_filter"}}, None, ModelRefused, "content_filter"),
    ({"error": {"message": "\x1b[2J" + "x" * 100_000, "code": "odd"}}, None, AdapterError, "\\x1b[2J"),
]


@pytest.mark.parametrize("kind", [ProviderKind.OPENAI_CHAT_COMPLETIONS, ProviderKind.OPENAI_COMPATIBLE])
@pytest.mark.parametrize("spoken", [False, True], ids=["at once", "after text"])
@pytest.mark.parametrize(("payload", "name", "expected", "words"), CHAT_ERRORS)
async def test_an_error_object_in_place_of_a_chunk(
    tmp_path: Path,
    kind: ProviderKind,
    spoken: bool,
    payload: Any,
    name: str | None,
    expected: type[MakaError],
    words: str,
) -> None:
    """By code and type, in every form; its words are bounded, escaped, and decide nothing. Earlier text is kept."""
    text = event({"id": "r1", "choices": [{"index": 0, "delta": {"content": "A"}}]})
    async with scene(tmp_path, retry=RetryPolicy(retries=0)) as it:
        it.provider.raw_sse(*([text] if spoken else []), event(payload, name))
        error = await failure_of(it, kind=kind)
        assert type(error) is expected
        assert words in str(error)
        assert len(str(error)) < 5000
        assert str(error).isprintable()
        observed = [fact.event for fact in await it.facts(observed=True) if isinstance(fact, facts.ModelObserved)]
        assert [e.text for e in observed if isinstance(e, facts.PartDelta)] == ["A"] * spoken
        assert "model_interrupted" in await it.story()
    if isinstance(error, ContextOverflow):
        assert error.observed_output is spoken


async def test_a_null_error_beside_choices_is_none(tmp_path: Path) -> None:
    """Some servers write every key they have."""
    whole = {"id": "r1", "error": None, "choices": [{"index": 0, "delta": {"content": "A"}, "finish_reason": "stop"}]}
    async with scene(tmp_path) as it:
        it.provider.raw_sse(event(whole), b"data: [DONE]\n\n")
        await it.engine.run(it.input())


# --- how long to wait -------------------------------------------------------------------------------------------

UNUSABLE = [
    {"retry-after": "-1"},
    {"retry-after": "0"},
    {"retry-after": "NaN"},
    {"retry-after": "1e309"},
    {"retry-after": "99999999999"},
    {"retry-after": ""},
    {"retry-after": formatdate(1e9, usegmt=True)},
    {"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"},
    {"retry-after": "soon", "retry-after-ms": "later"},
]


@KINDS
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("headers", UNUSABLE, ids=lambda headers: repr(next(iter(headers.values()))))
async def test_a_wait_that_nobody_can_mean_is_as_if_none_was_asked(
    tmp_path: Path, kind: ProviderKind, status: int, headers: dict[str, str]
) -> None:
    """The run's own backoff, which is short here: no exception, no long wait."""
    async with scene(tmp_path) as it:
        it.provider.fail(status, headers=headers)
        it.provider.say("Done.")
        with trio.fail_after(60):
            await it.engine.run(it.input(kind=kind))
        assert len(it.provider.requests) == 2


@KINDS
async def test_milliseconds_come_first(tmp_path: Path, kind: ProviderKind) -> None:
    """Ninety seconds would take longer than this test may."""
    async with scene(tmp_path) as it:
        it.provider.fail(429, headers={"retry-after-ms": "30", "retry-after": "90"})
        it.provider.say("Done.")
        with trio.fail_after(60):
            await it.engine.run(it.input(kind=kind))


@KINDS
@pytest.mark.parametrize(("headers", "seconds"), [({"retry-after": "301"}, 301), ({"retry-after-ms": "4e6"}, 4000)])
async def test_a_longer_wait_than_anybody_has_is_told_at_once(
    tmp_path: Path, kind: ProviderKind, headers: dict[str, str], seconds: float
) -> None:
    """The caller may come back then."""
    async with scene(tmp_path) as it:
        it.provider.fail(429, headers=headers)
        error = await failure_of(it, kind=kind)
        assert len(it.provider.requests) == 1
    assert isinstance(error, ProviderFailure)
    assert (error.reason, error.status, error.retry_after) == ("rate_limit", 429, seconds)


# --- secrets ----------------------------------------------------------------------------------------------------

KEY = "sk-0123456789+/abcdef"
QUERY_KEY = "qk-0123456789abcdef"
HEADER_KEY = "hk-0123456789abcdef"
OVERLAY_KEY = "ok-0123456789abcdef"
EVERYTHING = json.dumps({"you": f"Bearer {KEY}", "sent": [KEY, QUERY_KEY, HEADER_KEY, OVERLAY_KEY]})


def secretive(it: Scene, kind: ProviderKind, auth: Any = None) -> ProviderConfig:
    """A configuration with a key in every place that takes one."""
    config = it.provider.config(
        kind,
        auth=auth or ApiKey(KEY),
        headers={"x-key": HEADER_KEY},
        body_overlay={"token": {"deep": [OVERLAY_KEY]}},
    )
    return attrs.evolve(config, base_url=f"{config.base_url}?key={QUERY_KEY}")


def assert_clean(text: str) -> None:
    for key in (KEY, QUERY_KEY, HEADER_KEY, OVERLAY_KEY):
        assert key not in text
        assert json.dumps(key)[1:-1] not in text
        assert key[:11] not in text


def everything_of(error: BaseException) -> str:
    """An error as any logger could show it: texts, reprs, arguments, attributes, notes, the chain of its causes."""
    shown, seen = traceback.format_exception(error), [error]
    while seen:
        one = seen.pop()
        shown += [str(one), repr(one), repr(one.args), repr(vars(one))]
        seen += [cause for cause in (one.__cause__, one.__context__) if cause is not None]
        seen += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
    return "\n".join(shown)


Tell = Callable[[Scene], None]


def in_a_401(it: Scene) -> None:
    error = {"code": "invalid_api_key", "type": "authentication_error", "message": f"no such key: {EVERYTHING}"}
    it.provider.answer(401, None, {"error": error})


def in_a_503(it: Scene) -> None:
    it.provider.answer(503, {"content-type": "text/html"}, f"<html>{EVERYTHING}")


def in_the_stream(it: Scene) -> None:
    it.provider.say("I will ", CALL, WireError("invalid_api_key", EVERYTHING))


def in_html(it: Scene) -> None:
    it.provider.answer(200, {"content-type": "text/html"}, EVERYTHING)


def in_nonsense(it: Scene) -> None:
    it.provider.raw_sse(b"data: {%b\n\n" % EVERYTHING.encode())


def nowhere(it: Scene) -> None:
    it.provider.reset()


@KINDS
@pytest.mark.parametrize("tell", [in_a_401, in_a_503, in_the_stream, in_html, in_nonsense, nowhere])
async def test_no_secret_of_a_request_leaves_the_library(
    tmp_path: Path, kind: ProviderKind, tell: Tell, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever the provider echoes it: not in the error nor its causes, not in the log's files, not in a repr."""
    caplog.set_level(logging.DEBUG)
    async with scene(tmp_path, retry=RetryPolicy(retries=0)) as it:
        tell(it)
        config = secretive(it, kind)
        error = await failure_of(it, provider=config)
        asked = it.input(provider=config)
        it.provider.say("Done.")
        await it.engine.run(asked)
        assert_clean(repr(config) + repr(asked) + repr(await it.events()))
        sent = it.provider.requests[-1]
    assert HEADER_KEY in sent.headers.values()
    assert_clean(everything_of(error))
    assert_clean(caplog.text)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert_clean(file.read_bytes().decode("latin-1"))


@KINDS
@pytest.mark.parametrize("status", [401, 503])
async def test_what_remains_is_useful(tmp_path: Path, kind: ProviderKind, status: int) -> None:
    """Status, code, the words around the key, and whose answer it was."""
    async with scene(tmp_path, retry=RetryPolicy(retries=0)) as it:
        it.provider.fail(status, "invalid_api_key", f"the key {KEY} is not known")
        error = await failure_of(it, provider=secretive(it, kind))
        host = it.provider.base_url.removeprefix("http://").removesuffix("/v1")
    assert isinstance(error, ProviderFailure if status == 503 else AdapterError)
    assert error.status == status  # type: ignore[union-attr]  # both have one
    for part in (host, str(status), "invalid_api_key", "the key", "is not known"):
        assert part in str(error)


@KINDS
async def test_a_login_that_fails_tells_only_its_kind(tmp_path: Path, kind: ProviderKind) -> None:
    """Its exception may hold what it was about to return."""

    async def login() -> Credentials:
        await trio.lowlevel.checkpoint()
        try:
            raise ConnectionError(f"while renewing {KEY}")
        except ConnectionError as error:
            raise LookupError(f"nothing but {KEY}") from error

    async with scene(tmp_path) as it:
        error = await failure_of(it, provider=secretive(it, kind, login))
        assert it.provider.requests == ()
    assert "LookupError" in str(error)
    assert_clean(everything_of(error))
    assert_clean((tmp_path / "log.sqlite").read_bytes().decode("latin-1"))
