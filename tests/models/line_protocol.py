"""The smallest protocol an adapter could speak, so that tests of the transport need none of the real ones.

A body is lines: `+TEXT` is a delta, `:` a comment, `grace` the end that trailing usage may follow, `end` the finish,
`twice` a finish with an event after it, `!TEXT` an error, `?` a bug of the decoder, `barrier` what forbids a replay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from maka_trio.errors import AdapterError, ModelError, ProviderFailure
from maka_trio.facts.message import Message
from maka_trio.facts.model import Finished, FinishReason, ModelEvent, PartDelta, PartStarted
from maka_trio.models import AdapterBinding, ModelExecutor
from maka_trio.protocol.adapter import EncodedRequest
from maka_trio.request import ApiKey, Credentials, ModelRequest, ProviderConfig, ProviderKind

END = Finished(FinishReason.STOP)
KEY = "sk-test-0123456789abcdef"


class LineDecoder:
    """Implements `adapter.Decoder`."""

    def __init__(self) -> None:
        self.finished = False
        self.in_grace = False
        self.replay_safe = True
        self.observed_output = False
        self._rest = b""
        self._fault: Exception | None = None

    def feed(self, data: bytes) -> list[ModelEvent]:
        self._raise()
        *lines, self._rest = (self._rest + data).split(b"\n")
        events: list[ModelEvent] = []
        for line in lines:
            if self.finished or self._fault:
                break
            self._line(line.decode(), events)
        if not events:
            self._raise()
        return events

    def settle(self) -> list[ModelEvent]:
        self._raise()
        self.finished = True
        return [END]

    def close(self) -> list[ModelEvent]:
        self._raise()
        if self.finished:
            return []
        if not self.in_grace:
            raise ProviderFailure("ended early", reason="stream_truncated", replay_safe=self.replay_safe)
        return self.settle()

    def _raise(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _line(self, line: str, events: list[ModelEvent]) -> None:
        match line[:1], line[1:]:
            case "+", text:
                self.observed_output = True
                events.append(PartDelta("p", text))
            case "!", text:
                self._fault = AdapterError(text)
            case "?", text:
                self._fault = KeyError(text)
            case _ if line == "barrier":
                self.replay_safe = False
            case _ if line == "grace":
                self.in_grace = True
            case _ if line in ("end", "twice"):
                self.finished = True
                events.append(END)
                if line == "twice":
                    events.append(PartStarted("late"))


@attrs.define
class LineAdapter:
    """Implements `adapter.Adapter`; remembers the failures it was asked about."""

    name: str = "chat-completions"
    extra_headers: dict[str, str] = attrs.field(factory=dict)
    failures: list[tuple[int, Mapping[str, str], bytes]] = attrs.field(factory=list)

    def encode(self, request: ModelRequest) -> EncodedRequest:
        text = "".join(part.text for message in request.prompt for part in message.content)  # type: ignore[union-attr]
        headers = {"content-type": "application/json", **self.extra_headers, **request.provider.headers}
        return EncodedRequest(f"{request.provider.base_url}/lines", tuple(headers.items()), text.encode())

    def authorize(self, credentials: Credentials) -> Mapping[str, str]:
        if isinstance(credentials, ApiKey):
            return {"authorization": f"Bearer {credentials.value}"}
        return credentials.values

    def decoder(self, request: ModelRequest) -> LineDecoder:
        return LineDecoder()

    def decode_document(self, request: ModelRequest, body: bytes) -> list[ModelEvent]:
        document = json.loads(body)
        if "error" in document:
            raise AdapterError(document["error"])
        return [PartDelta("p", document["text"]), END]

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        self.failures.append((status, headers, body))
        return ProviderFailure(f"status {status}: {body.decode()}", status=status, replay_safe=True)


def provider(base_url: str, **settings: Any) -> ProviderConfig:
    """A provider that speaks lines."""
    settings.setdefault("auth", ApiKey(KEY))
    return ProviderConfig(ProviderKind.OPENAI_CHAT_COMPLETIONS, "model", base_url, **settings)


def request(base_url: str, text: str = "question", **settings: Any) -> ModelRequest:
    """A request whose body is `text`."""
    return ModelRequest(provider(base_url, **settings), [Message.user(text)])


def executor(adapter: LineAdapter | None = None, idle_timeout: float = 5.0, **settings: Any) -> ModelExecutor:
    """An executor that speaks lines, with its own connections and window."""
    models = ModelExecutor(idle_timeout, **settings)
    return models.with_adapters({"chat-completions": speaking_lines(models, adapter)})


def speaking_lines(models: ModelExecutor, adapter: LineAdapter | None = None) -> AdapterBinding:
    """The executor's own binding with another adapter in it."""
    binding = models.binding(provider("http://unused.invalid"))
    return attrs.evolve(binding, adapter=adapter or LineAdapter())
