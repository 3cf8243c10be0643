"""`ModelExecutor`: opens model streams, and owns what they share: adapters, input windows, connections."""

from __future__ import annotations

import copy
import ssl
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType

import attrs

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.models.clock import Timeouts
from maka_trio.models.exchange import ModelCall
from maka_trio.models.masking import Secrets
from maka_trio.models.stream import ModelStream, StreamBlock, close_streams
from maka_trio.models.transport import HttpTransport
from maka_trio.models.window import InputWindow
from maka_trio.models.wire_request import Post
from maka_trio.protocol.adapter import Adapter
from maka_trio.protocol.registry import adapter_for
from maka_trio.records import frozen
from maka_trio.request import ApiKey, ModelRequest, ProviderConfig, RequestHeaders
from maka_trio.scopes import Home


@frozen(eq=False)
class AdapterBinding:
    """An adapter with the input window and the connections that its requests share.

    Handed from one executor to another with `with_adapters`, so that both draw on the same ones.
    """

    adapter: Adapter
    window: InputWindow = attrs.field(factory=InputWindow, validator=bounds.instance(InputWindow))
    transport: HttpTransport = attrs.field(factory=HttpTransport, validator=bounds.instance(HttpTransport))


@frozen
class ExecutorStatistics:
    """A snapshot of an executor and of what it shares."""

    open_streams: int
    """Streams of this executor whose block has not been left."""
    open_connections: int
    """Sockets of its connections, unused ones included."""
    unused_connections: int
    """Connections kept for a next request."""
    window_used: int
    """Bytes of request bodies in flight."""
    window_waiting: int
    """Requests that wait for the window."""


class ModelExecutor:
    """Sends model requests, any number at once.

    As an async context manager it keeps unused connections for the next request and closes them at the end. It
    works without being entered too; then each request opens a connection of its own and leaves nothing open. What
    was entered is used in that trio run.

    Args:
        idle_timeout: seconds of provider silence (connecting, sending, waiting for headers or the next bytes)
            after which a request fails. Waiting for local capacity never counts.
        input_window: bytes of request bodies in flight, for each adapter. A larger body waits until it is alone.
        semantic_timeout: seconds without a model event, whatever else arrives; off by default. A tool call is one
            event, when it is complete.
        response_timeout: seconds for a whole answer; off by default.
        ssl_context: for https, in place of the default one.

    Raises:
        InvalidInput: a timeout or the window is not positive.
    """

    def __init__(
        self,
        idle_timeout: float = limits.IDLE_TIMEOUT,
        *,
        input_window: int = limits.INPUT_WINDOW_BYTES,
        semantic_timeout: float | None = None,
        response_timeout: float | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        InputWindow(input_window)  # refuses a bad size now, not at the first request
        self._timeouts = Timeouts(idle_timeout, semantic_timeout, response_timeout)
        self._input_window = input_window
        self._transport = HttpTransport(ssl_context)
        self._shared: dict[str, AdapterBinding] = {}
        self._given: dict[str, AdapterBinding] = {}
        self._streams: set[ModelStream] = set()
        self._held: list[HttpTransport] = []
        self._home: Home | None = None
        self._closed = False

    # --- lifetime ---

    async def __aenter__(self) -> ModelExecutor:
        """Keep unused connections from now on."""
        self._check_open()
        if self._held:
            raise InvalidInput("this ModelExecutor was entered already")
        self._home = Home("this ModelExecutor")
        self._held = list(self._transports())
        for transport in self._held:
            transport.hold()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.aclose()

    async def aclose(self) -> None:
        """Admit no more streams, close those that are open, and the unused connections. Idempotent.

        Waits even if the caller is cancelled, at most `limits.CLEANUP_SECONDS`. Executors that share connections
        with this one go on working.

        Raises:
            CleanupUnconfirmed: a stream could not be closed in that time.
        """
        self._closed = True
        held, self._held = self._held, []
        try:
            await close_streams(list(self._streams))
        finally:
            for transport in held:
                transport.release()

    def _transports(self) -> set[HttpTransport]:
        return {self._transport, *(binding.transport for binding in self._given.values())}

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInput("this ModelExecutor is closed")
        if self._home is not None:
            self._home.check()

    # --- sharing ---

    def binding(self, provider: ProviderConfig) -> AdapterBinding:
        """The adapter that serves this provider, with the window and connections that go with it."""
        if not isinstance(provider, ProviderConfig):
            raise InvalidInput(f"provider must be a ProviderConfig, not {type(provider).__name__}")
        adapter = adapter_for(provider)
        if adapter.name in self._given:
            return self._given[adapter.name]
        if adapter.name not in self._shared:
            self._shared[adapter.name] = AdapterBinding(adapter, InputWindow(self._input_window), self._transport)
        return self._shared[adapter.name]

    def with_adapters(self, bindings: Mapping[str, AdapterBinding]) -> ModelExecutor:
        """An executor with the same limits that uses these bindings, and shares everything else with this one.

        Args:
            bindings: by adapter name: `chat-completions`, `anthropic-messages`, `openai-responses`.
        """
        if not isinstance(bindings, Mapping):
            raise InvalidInput(f"bindings must be a mapping by adapter name, not {type(bindings).__name__}")
        for name, binding in bindings.items():
            if not isinstance(binding, AdapterBinding) or binding.adapter.name != name:
                raise InvalidInput(f"{name!r} needs an AdapterBinding of the adapter with that name")
        other = copy.copy(self)
        other._given = {**self._given, **bindings}
        other._streams, other._held, other._home, other._closed = set(), [], None, False
        return other

    # --- streams ---

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[ModelStream]:
        """Open a model stream: `async with models.stream(request) as stream`.

        The block is entered before anything is sent; errors of the exchange come out of the stream. Leaving the
        block, in whatever way, stops the exchange; when it has been left, the connection is closed, or kept for the
        next request if the answer ended.

        Raises:
            InvalidInput: the request cannot be encoded or sent, or the executor is closed.
            AdapterError: the encoded body is larger than `limits.REQUEST_BODY_BYTES`.
        """
        return StreamBlock(partial(self._prepare, request), self._timeouts, self._streams)

    def check(self, request: ModelRequest) -> None:
        """See whether a request could be sent. Nothing is opened, and no credentials are asked for.

        Raises:
            InvalidInput, AdapterError: as `stream` does.
        """
        self._prepare(request)

    def _prepare(self, request: ModelRequest) -> tuple[ModelCall, InputWindow]:
        self._check_open()
        if not isinstance(request, ModelRequest):
            raise InvalidInput(f"request must be a ModelRequest, not {type(request).__name__}")
        binding = self.binding(request.provider)
        encoded = binding.adapter.encode(request)
        auth, secrets = request.provider.auth, Secrets(request.provider)
        known = binding.adapter.authorize(auth) if isinstance(auth, (ApiKey, RequestHeaders)) else None
        secrets.add(known or {})
        post = Post.of(encoded, known or {})  # what cannot be sent is refused now, also where credentials are to come
        unsent = post if known is not None else encoded
        return ModelCall(request, binding.adapter, unsent, binding.transport, secrets), binding.window

    @property
    def open_streams(self) -> int:
        """Streams of this executor whose block has not been left."""
        return len(self._streams)

    def statistics(self) -> ExecutorStatistics:
        """What is open and in use now."""
        bindings, transports = {**self._shared, **self._given}.values(), self._transports()
        return ExecutorStatistics(
            open_streams=self.open_streams,
            open_connections=sum(transport.open_connections for transport in transports),
            unused_connections=sum(transport.unused_connections for transport in transports),
            window_used=sum(binding.window.used for binding in bindings),
            window_waiting=sum(binding.window.waiting for binding in bindings),
        )
