"""What user, model and tools have said, in order, and how it is told to a model on one route.

Knows messages and the routes that made them; of facts and runs it knows nothing. A dialogue only grows, so what was
rendered and hashed for one request is not looked at again for the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import attrs

from maka_trio.facts.codec import canonical, encode
from maka_trio.facts.message import AssistantMessage, PromptMessage, SystemMessage
from maka_trio.facts.model import ModelPart, TextKind, TextPart, ToolCallPart
from maka_trio.facts.opening import RequestSurface
from maka_trio.records import frozen
from maka_trio.request import PromptDigest

Route: TypeAlias = tuple[str, str]
"""Route identity and model of a request."""


@frozen
class Said:
    """A message with the route that made it, where one did: reasoning is replayed on its own route only."""

    message: PromptMessage
    route: Route | None = None


class Dialogue:
    """Messages in order, ready to be sent."""

    def __init__(self, said: Iterable[Said] = ()) -> None:
        self.said = list(said)
        self._rendered: tuple[Route, list[PromptMessage]] | None = None
        self._digest: tuple[tuple[object, ...], PromptDigest] | None = None

    def say(self, said: Said) -> None:
        """Add a message."""
        self.said.append(said)
        if self._rendered is not None:
            route, messages = self._rendered
            messages.extend(on_route(said, route))

    def on_route(self, route: Route) -> list[PromptMessage]:
        """The messages as they may be sent on a route. The list grows with the dialogue."""
        if self._rendered is None or self._rendered[0] != route:
            self._rendered = (route, [message for said in self.said for message in on_route(said, route)])
        return self._rendered[1]

    def input_digest(self, route: Route, system: SystemMessage | None, surface: RequestSurface) -> str:
        """The `input_digest` of a request. Messages that an earlier digest covered are not read again."""
        key = (route, system, surface.max_output_tokens)
        if self._digest is None or self._digest[0] != key:
            growing = PromptDigest(surface.max_output_tokens)
            growing.extend(() if system is None else (system,))
            self._digest = (key, growing)
        growing = self._digest[1]
        growing.extend(self.on_route(route)[growing.messages - (system is not None) :])
        return growing.value(surface)


def on_route(said: Said, route: Route) -> list[PromptMessage]:
    """The message as it may be sent on a route.

    Reasoning and provider metadata mean something on the route and model that made them; elsewhere they are
    refused or, worse, taken for something else.
    """
    message = said.message
    if not isinstance(message, AssistantMessage) or said.route is None or said.route == route:
        return [message]
    parts = tuple(
        _without_metadata(part)
        for part in message.parts
        if not (isinstance(part, TextPart) and part.text_kind is TextKind.THINKING)
    )
    return [AssistantMessage(parts)] if has_content(parts) else []


def _without_metadata(part: ModelPart) -> ModelPart:
    if isinstance(part, ToolCallPart):
        return ToolCallPart(attrs.evolve(part.call, provider_options=None))
    return attrs.evolve(part, provider_options=None)


def has_content(parts: tuple[ModelPart, ...]) -> bool:
    """Whether an assistant message of these parts says anything."""
    return any(not isinstance(part, TextPart) or part.text or part.provider_options for part in parts)


# --- replaying --------------------------------------------------------------------------------------------


@frozen
class Replay:
    """What a continuation tells the model of what was said before it.

    Attributes:
        said: the messages.
        refusal: why nothing can go on from there; None where something can.
    """

    said: tuple[Said, ...]
    refusal: str | None = None

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools of the local calls in it, each once, in the order in which they were first called."""
        return tuple(
            dict.fromkeys(
                part.call.name
                for said in self.said
                if isinstance(said.message, AssistantMessage)
                for part in said.message.parts
                if isinstance(part, ToolCallPart) and not part.call.provider_executed
            )
        )

    def digest(self) -> str:
        """The digest over the messages and the routes that made them."""
        seen = hashlib.sha256(b"maka.replay.v1\n")
        for said in self.said:
            route = None if said.route is None else list(said.route)
            seen.update(b"%b\n%b\n" % (encode(said.message, PromptMessage), canonical(route)))
        return f"sha256:{seen.hexdigest()}"


def without_unsettled_text(said: Sequence[Said]) -> Sequence[Said]:
    """The messages up to the last one that is more than text of a run which did not get to its end.

    A call of the provider's own is more than text: it happened, and is not asked for a second time.
    """
    end = len(said)
    while end and _is_text(said[end - 1].message):
        end -= 1
    return said[:end]


def _is_text(message: PromptMessage) -> bool:
    return isinstance(message, AssistantMessage) and all(isinstance(part, TextPart) for part in message.parts)


def refusal_of(said: Sequence[Said]) -> str | None:
    """Why a model has nothing to answer to after these messages; None where it has."""
    if not said:
        return "nothing was said that could be answered"
    last = said[-1].message
    if not isinstance(last, AssistantMessage):
        return None
    if _is_text(last):
        return "the run ended with an answer; there is nothing left to answer"
    return "the run ended with calls that the provider itself made, which are not made again"
