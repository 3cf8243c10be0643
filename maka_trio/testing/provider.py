"""`ScriptedProvider`: a model provider on loopback that says what a test tells it to.

A real HTTP server in the same trio program. A test scripts answers, runs its own program against
`provider.config(...)`, and looks at `provider.requests`. Answers are written once, in no provider's format, and
put on the wire in the protocol of the path that was asked.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import trio

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.json_value import JSON
from maka_trio.request import ApiKey, ProviderConfig, ProviderKind
from maka_trio.testing.answers import (
    CONTROLS,
    Answer,
    Call,
    Control,
    Disconnect,
    Plain,
    Raw,
    RawStream,
    Reset,
    Said,
    Silence,
    Text,
    as_call,
    as_item,
    made_for,
)
from maka_trio.testing.delivery import Delivery, why_not
from maka_trio.testing.gate import Tally
from maka_trio.testing.http_server import Exchange, Incoming, serve_loopback
from maka_trio.testing.requests import RecordedRequest

# A day: longer than any client is willing to wait, so that nobody retries what the script will never answer.
_NO_RETRY = {"retry-after": "86400"}


class ScriptedProvider:
    """A provider on a script.

        async with ScriptedProvider() as provider:
            provider.call_tools(("add", {"a": 1, "b": 2}))
            provider.say("The sum is ", "3.")
            await engine.run(run_input(provider=provider.config()))
            assert len(provider.requests) == 2

    Each request takes the first answer in the script that nobody took yet and whose `when`, if it has one, is true
    of the request. A request without an answer is told so with status 500, and `errors` keeps the sentence.

    It listens on a free port of 127.0.0.1 and nowhere else. Leaving the block closes every connection at once,
    whatever answers are still under way. Waiting methods wait for ever: bound them with `trio.fail_after`.
    """

    def __init__(self) -> None:
        self._script: list[Answer] = []
        self._requests: list[RecordedRequest] = []
        self._errors: list[str] = []
        self._arrived = Tally()
        self._accepted = Tally()
        self._closed = Tally()
        self._call_ids = (f"call_{number}" for number in itertools.count(1))
        self._stack = AsyncExitStack()
        self._port: int | None = None

    def __repr__(self) -> str:
        where = self.base_url if self._port is not None else "not entered"
        return f"<ScriptedProvider {where}, {len(self._requests)} requests, {len(self._script)} answers left>"

    async def __aenter__(self) -> Self:
        if self._port is not None:
            raise RuntimeError("a ScriptedProvider is entered once")
        server = serve_loopback(
            self._handle,
            on_open=self._count_open,
            on_close=self._count_close,
            on_malformed=self._errors.append,
        )
        self._port = await self._stack.enter_async_context(server)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        # The stack holds a nursery, which must see the cancellation; its tasks end at once.
        return await self._stack.__aexit__(kind, error, traceback)  # noqa: ASYNC102

    # --- where it is ----------------------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """What a client is given as base URL: everything before `/chat/completions` and its kin."""
        if self._port is None:
            raise RuntimeError("the provider has no address before it is entered with `async with`")
        return f"http://127.0.0.1:{self._port}/v1"

    def config(
        self,
        kind: ProviderKind = ProviderKind.OPENAI_CHAT_COMPLETIONS,
        model: str = "test",
        **settings: Any,
    ) -> ProviderConfig:
        """A provider configuration that reaches this provider. `settings` are those of `ProviderConfig`."""
        settings.setdefault("auth", ApiKey("test-key"))
        if kind is ProviderKind.OPENAI_COMPATIBLE:
            settings.setdefault("name", "fixture")
        return ProviderConfig(kind=kind, model=model, base_url=self.base_url, **settings)

    # --- the script -----------------------------------------------------------------------------------------

    def say(self, *items: object, **settings: Any) -> None:
        """Answer with these parts.

        Args:
            items: `str` is a piece of text; `Thinking`, `Call`, `Heartbeat`, `Raw` and `WireError` are what they
                say; a `Gate` holds the answer there; `Headers`, `Silence`, `Disconnect` and `Reset` act on the
                connection.
            settings: `finish`, `usage`, `chunk`, `cut_at` and `when`, as in `Said`.
        """
        self._script.append(Said(items=tuple(as_item(item) for item in items), **settings))

    def call_tools(self, *calls: Call | tuple[Any, ...], text: str | None = None, **settings: Any) -> None:
        """Answer with tool calls: each `(name, input)`, `(name, input, id)` or a `Call`, after an optional text."""
        if not calls:
            raise InvalidInput("call_tools needs at least one call")
        before = () if text is None else (text,)
        self.say(*before, *(as_call(call) for call in calls), **settings)

    def raw_sse(self, *pieces: object, **settings: Any) -> None:
        """Answer with an event stream of exactly these bytes, with gates and other stops between them.

        Args:
            pieces: bytes or str (one HTTP chunk each, unless `chunk` says otherwise), `Gate` and the like.
            settings: `chunk`, `cut_at` and `when`, as in `RawStream`.
        """
        self._script.append(RawStream(items=tuple(_raw_item(piece) for piece in pieces), **settings))

    def answer(
        self,
        status: int,
        headers: Mapping[str, str] | None = None,
        body: bytes | str | JSON = b"",
        *,
        when: Callable[[RecordedRequest], bool] | None = None,
    ) -> None:
        """Answer with a whole HTTP response. A body that is neither bytes nor str is sent as JSON."""
        sent = dict(headers or {})
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            sent.setdefault("content-type", "application/json")
        data = body.encode() if isinstance(body, str) else body
        self._script.append(Plain(status=status, headers=sent, body=data, when=when))

    def fail(
        self,
        status: int,
        error_type: str = "server_error",
        message: str = "scripted failure",
        *,
        headers: Mapping[str, str] | None = None,
        when: Callable[[RecordedRequest], bool] | None = None,
    ) -> None:
        """Answer with an error body that every protocol reads as its own."""
        error: JSON = {"type": error_type, "code": error_type, "message": message}
        self.answer(status, headers, {"type": "error", "error": error}, when=when)

    def silence(self, *, when: Callable[[RecordedRequest], bool] | None = None) -> None:
        """Read the request and never answer, not even with headers."""
        self._script.append(RawStream(items=(Silence(),), when=when))

    def reset(self, *, when: Callable[[RecordedRequest], bool] | None = None) -> None:
        """Read the request and reset the connection."""
        self._script.append(RawStream(items=(Reset(),), when=when))

    def disconnect(self, *, when: Callable[[RecordedRequest], bool] | None = None) -> None:
        """Read the request and close the connection without an answer."""
        self._script.append(RawStream(items=(Disconnect(),), when=when))

    # --- what happened --------------------------------------------------------------------------------------

    @property
    def requests(self) -> tuple[RecordedRequest, ...]:
        """Every request that was read to its end, in the order of their ends."""
        return tuple(self._requests)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went against the script: unscripted requests, bytes that were no request, a `when` that raised."""
        return tuple(self._errors)

    @property
    def answers_left(self) -> int:
        """Answers that no request has taken."""
        return len(self._script)

    @property
    def connections(self) -> int:
        """Connections accepted so far."""
        return self._accepted.value

    @property
    def open_connections(self) -> int:
        """Connections that neither side has closed, as far as the server has seen."""
        return self._accepted.value - self._closed.value

    async def wait_for_request(self, number: int = 1) -> RecordedRequest:
        """Wait until this many requests have arrived, and return the last of them."""
        await self._arrived.wait(number)
        return self._requests[number - 1]

    async def wait_for_connections(self, number: int) -> None:
        """Wait until this many connections have been accepted."""
        await self._accepted.wait(number)

    async def wait_closed(self) -> None:
        """Wait until no connection is open. Clients that keep connections alive keep this waiting."""
        while self.open_connections:
            await self._closed.wait(self._closed.value + 1)
        await trio.lowlevel.checkpoint()

    def check_script(self) -> None:
        """Raise AssertionError if anything went against the script or an answer was never asked for."""
        problems = list(self._errors)
        if self._script:
            problems.append(f"{len(self._script)} scripted answers were never asked for")
        if problems:
            raise AssertionError("; ".join(problems))

    # --- answering ------------------------------------------------------------------------------------------

    def _count_open(self) -> None:
        self._accepted.add()

    def _count_close(self) -> None:
        self._closed.add()

    async def _handle(self, exchange: Exchange) -> None:
        request = self._record(exchange)
        answer, problem = self._choose(request)
        if problem is not None:
            self._errors.append(problem)
            answer = _refusal(problem)
        assert answer is not None
        try:
            await Delivery(exchange, request, answer, self._call_ids).send()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise  # the client left, which the server knows how to take
        except Exception as error:
            # An answer that cannot be put on the wire must not take the whole test's nursery down with it.
            self._errors.append(f"request {request.number}: the scripted answer cannot be sent: {error!r}")
            exchange.reset()
        else:
            request.answered.set()

    def _record(self, exchange: Exchange) -> RecordedRequest:
        incoming = exchange.request
        request = RecordedRequest(
            number=len(self._requests) + 1,
            method=incoming.method,
            path=incoming.target.partition("?")[0],
            headers=incoming.headers,
            raw=incoming.body,
            body=_json_body(incoming),
            disconnected=exchange.connection_closed,
        )
        self._requests.append(request)
        self._arrived.add()
        return request

    def _choose(self, request: RecordedRequest) -> tuple[Answer | None, str | None]:
        """Take the answer for a request out of the script, or say why there is none."""
        for position, answer in enumerate(self._script):
            try:
                if answer.when is not None and not answer.when(request):
                    continue
                answer = made_for(answer, request)
            except Exception as error:
                return None, f"request {request.number}: a function of a scripted answer raised {error!r}"
            del self._script[position]
            return answer, why_not(request, answer)
        return None, (
            f"request {request.number} ({request.method} {bounds.excerpt(request.path)}) is not in the script: "
            f"{len(self._script)} answers are left, and none is for it"
        )


def _raw_item(value: object) -> Raw | Control:
    item = as_item(value)
    if isinstance(item, Text):
        return Raw(item.text.encode())
    if isinstance(item, (Raw, *CONTROLS)):
        return item
    raise InvalidInput(f"raw_sse takes bytes, str and gates, not {type(value).__name__}")


def _json_body(incoming: Incoming) -> JSON:
    try:
        body: JSON = json.loads(incoming.body)
    except (ValueError, RecursionError):
        return None
    return body


def _refusal(problem: str) -> Plain:
    error: JSON = {"type": "unscripted_request", "code": "unscripted_request", "message": problem}
    body = json.dumps({"type": "error", "error": error}).encode()
    return Plain(status=500, headers={"content-type": "application/json"} | _NO_RETRY, body=body)
