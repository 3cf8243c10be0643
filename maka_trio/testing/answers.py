"""What a scripted provider may answer: the parts of an answer and what can go wrong in the middle of one.

Values only. An answer says what the model says, in no provider's format; `chat_wire`, `messages_wire` and
`responses_wire` know how each protocol puts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.json_value import JSON, check_json
from maka_trio.facts.model import FinishReason, ModelUsage
from maka_trio.records import frozen
from maka_trio.testing.gate import Gate
from maka_trio.testing.requests import RecordedRequest

Chunking: TypeAlias = Literal["event", "packed"] | int
"""How the body is cut into HTTP chunks: one for each event, one for all up to the next stop, or n bytes each."""


# --- what the model says ------------------------------------------------------------------------------------


@frozen
class Text:
    """One piece of what the model says. Pieces that follow each other belong to the same part."""

    text: str = attrs.field(validator=bounds.text())


@frozen
class Thinking:
    """One piece of what the model thinks. The last piece of a part may carry the provider's `signature` for it."""

    text: str = attrs.field(validator=bounds.text())
    signature: str | None = None


InputOf: TypeAlias = Callable[[RecordedRequest], JSON]
"""Makes the arguments of a call from the request that it answers, such as an id that the request tells of."""


def _call_input(value: object) -> JSON | InputOf:
    return value if callable(value) else check_json(value, what="input of a scripted call")


@frozen
class Call:
    """A tool call.

    Args:
        name: the tool.
        input: its arguments, or a function of the request that gives them.
        id: the provider's call id; by default one that no other call of this provider has.
        fragments: the argument text as the provider streams it, in place of `input`. It need not be JSON.
    """

    name: str
    input: JSON | InputOf = attrs.field(factory=dict, converter=_call_input)
    id: str | None = None
    fragments: tuple[str, ...] | None = None

    def argument_fragments(self) -> tuple[str, ...]:
        """The argument text, piece by piece."""
        if self.fragments is not None:
            return self.fragments
        assert not callable(self.input), "the answer was not made for a request"
        return (json.dumps(self.input, ensure_ascii=False, separators=(",", ":")),)

    def made_for(self, request: RecordedRequest) -> Call:
        """The call with its arguments as this request asks for them."""
        return attrs.evolve(self, input=self.input(request)) if callable(self.input) else self


@frozen
class Raw:
    """Bytes for the body as they are."""

    data: bytes = attrs.field(validator=bounds.instance((bytes, bytearray)), converter=bytes)


@frozen
class Heartbeat:
    """A sign of life without meaning, in the protocol's own form."""


@frozen
class WireError:
    """An error in the middle of the stream, in the protocol's own form. Ends the answer."""

    type: str = "server_error"
    message: str = "scripted error"


# --- what happens to the connection --------------------------------------------------------------------------


@frozen
class Headers:
    """Send the response headers now. Without it they go out with the first bytes of the body."""


@frozen
class Silence:
    """Say nothing more; keep the connection until the client closes it. Ends the answer."""


@frozen
class Disconnect:
    """Close the connection in order (FIN), whatever the body still lacks. Ends the answer."""


@frozen
class Reset:
    """Reset the connection (RST), as a crashed server's kernel does. Ends the answer."""


Control: TypeAlias = Gate | Headers | Silence | Disconnect | Reset
Part: TypeAlias = Text | Thinking | Call | Raw | Heartbeat | WireError
Item: TypeAlias = Part | Control

CONTROLS = (Gate, Headers, Silence, Disconnect, Reset)


def as_item(value: object) -> Item:
    """A bare string is text, bytes are raw, everything else must be one of the values of this module."""
    match value:
        case str():
            return Text(value)
        case bytes() | bytearray():
            return Raw(bytes(value))
        case Text() | Thinking() | Call() | Raw() | Heartbeat() | WireError():
            return value
        case Gate() | Headers() | Silence() | Disconnect() | Reset():
            return value
        case _:
            raise InvalidInput(
                f"an answer is made of str, bytes, Gate and the parts of maka_trio.testing, not {type(value).__name__}"
            )


def as_call(value: Call | tuple[Any, ...]) -> Call:
    """`(name,)`, `(name, input)` and `(name, input, id)` stand for a `Call`."""
    if isinstance(value, Call):
        return value
    if not isinstance(value, tuple) or not 1 <= len(value) <= 3:
        raise InvalidInput(f"a call is Call(...), (name, input) or (name, input, id), not {bounds.excerpt(value)}")
    return Call(*value)


# --- whole answers ------------------------------------------------------------------------------------------

When: TypeAlias = Callable[[RecordedRequest], bool]
"""Says whether an answer is for a request."""

DEFAULT_USAGE = ModelUsage(input_tokens=10, output_tokens=5)
"""What a scripted answer states where the test does not care."""


def _chunking(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in ("event", "packed") and not (type(value) is int and value > 0):
        raise InvalidInput(f"chunk={value!r} must be 'event', 'packed' or a positive number of bytes")


@frozen(kw_only=True)
class Said:
    """A streamed answer in the protocol of whoever asks.

    `finish` is a `FinishReason`, or any text, which the protocol's own field is then given as it is. By default it
    follows from whether there are calls. `usage=None` states no usage.
    """

    items: tuple[Item, ...]
    finish: FinishReason | str | None = None
    usage: ModelUsage | None = DEFAULT_USAGE
    chunk: Chunking = attrs.field(default="event", validator=_chunking)
    cut_at: int | None = attrs.field(default=None, validator=bounds.optional(bounds.integer(minimum=0, maximum=2**53)))
    when: When | None = None

    def finish_reason(self) -> FinishReason | str:
        """What the answer ends with."""
        if self.finish is not None:
            return self.finish
        called = any(isinstance(item, Call) for item in self.items)
        return FinishReason.TOOL_CALLS if called else FinishReason.STOP


@frozen(kw_only=True)
class RawStream:
    """A `text/event-stream` body, byte by byte the script's own."""

    items: tuple[Raw | Control, ...]
    chunk: Chunking = attrs.field(default="event", validator=_chunking)
    cut_at: int | None = attrs.field(default=None, validator=bounds.optional(bounds.integer(minimum=0, maximum=2**53)))
    when: When | None = None


@frozen(kw_only=True)
class Plain:
    """A whole HTTP answer of one body, such as an error."""

    status: int = attrs.field(validator=bounds.integer(minimum=200, maximum=599))
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""
    when: When | None = None


Answer: TypeAlias = Said | RawStream | Plain


def made_for(answer: Answer, request: RecordedRequest) -> Answer:
    """The answer as it is given to this request."""
    if not isinstance(answer, Said):
        return answer
    items = tuple(item.made_for(request) if isinstance(item, Call) else item for item in answer.items)
    return attrs.evolve(answer, items=items)


# --- rendering ----------------------------------------------------------------------------------------------


class Wire(Protocol):
    """One protocol's side of an answer. Holds the state of one response; every method returns body bytes in order."""

    def start(self) -> Iterator[bytes]:
        """What comes before any part."""
        ...

    def text(self, part: Text) -> Iterator[bytes]:
        """One piece of text."""
        ...

    def thinking(self, part: Thinking) -> Iterator[bytes]:
        """One piece of thinking."""
        ...

    def call(self, part: Call, call_id: str) -> Iterator[bytes]:
        """One whole tool call."""
        ...

    def heartbeat(self) -> bytes:
        """A sign of life."""
        ...

    def error(self, part: WireError) -> bytes:
        """An error inside the stream."""
        ...

    def finish(self, reason: FinishReason | str, usage: ModelUsage | None) -> Iterator[bytes]:
        """Everything from the finish reason to the end of the message."""
        ...


def render(answer: Said, wire: Wire, call_ids: Iterator[str]) -> Iterator[bytes | Control]:
    """The body of an answer, event by event, with the stops of the script in their places."""
    started = False
    for item in answer.items:
        if isinstance(item, CONTROLS):
            yield item
            if isinstance(item, (Silence, Disconnect, Reset)):
                return
            continue
        if not started and isinstance(item, (Text, Thinking, Call)):
            started = True
            yield from wire.start()
        yield from _render_part(item, wire, call_ids)
        if isinstance(item, WireError):
            return
    if not started:
        yield from wire.start()
    yield from wire.finish(answer.finish_reason(), answer.usage)


def _render_part(part: Part, wire: Wire, call_ids: Iterator[str]) -> Iterator[bytes]:
    match part:
        case Text():
            yield from wire.text(part)
        case Thinking():
            yield from wire.thinking(part)
        case Call():
            yield from wire.call(part, part.id if part.id is not None else next(call_ids))
        case Raw():
            yield part.data
        case Heartbeat():
            yield wire.heartbeat()
        case WireError():
            yield wire.error(part)


def sse(data: JSON | str, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    name = f"event: {event}\n" if event is not None else ""
    return f"{name}data: {text}\n\n".encode()


def cut(pieces: Sequence[bytes], chunk: Chunking) -> list[bytes]:
    """The HTTP chunks that carry these pieces, which no stop of the script lies between."""
    if chunk == "event":
        return [piece for piece in pieces if piece]
    whole = b"".join(pieces)
    if chunk == "packed":
        return [whole] if whole else []
    assert isinstance(chunk, int)
    return [whole[start : start + chunk] for start in range(0, len(whole), chunk)]
