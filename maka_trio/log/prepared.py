"""An append made ready: its fact encoded once, its evidence checked. Pure; runs in the submitter's thread.

Encoding at submission takes a snapshot: whatever the caller does to its objects afterwards, what was submitted is
what is written.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

import attrs

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.codec import digest, encode_fact, encode_text, parse_json
from maka_trio.facts.event import (
    Artifact,
    BodyDeleted,
    EventWrite,
    Fact,
    InvocationOpened,
    MessageImported,
    MessageSteered,
    ModelObserved,
    ModelRequested,
    RuntimeEvent,
    ToolSettled,
    indexed_operation_id,
)
from maka_trio.facts.identity import Invocation
from maka_trio.facts.message import MediaContent
from maka_trio.facts.opening import MessageInput, MessageOpening
from maka_trio.facts.outcome import Succeeded
from maka_trio.records import define

_FACTS = frozenset(get_args(Fact))
_MAX_INTEGER = 2**63 - 1


@define
class PreparedWrite:
    """One event with the canonical bytes of its fact, and what is stored beside it. `size` is all of it, in bytes.

    Where `source_here` is set, the fact does not name its source yet: see `with_source`.
    """

    event: RuntimeEvent
    kind: str
    operation_id: str | None
    body: bytes
    size: int
    payload: bytes | None = None
    artifacts: tuple[Artifact, ...] = ()
    source_here: bool = False


def prepare_all(items: Sequence[RuntimeEvent | EventWrite]) -> list[PreparedWrite]:
    """Make a batch ready.

    Raises:
        InvalidInput: an item cannot be written, or the batch is empty or longer than `limits.BATCH_EVENTS`.
    """
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise InvalidInput(f"commit_batch takes a sequence of events, not {type(items).__name__}")
    if not 1 <= len(items) <= limits.BATCH_EVENTS:
        raise InvalidInput(f"a batch has 1 to {limits.BATCH_EVENTS} events, not {len(items)}")
    return [prepare(item) for item in items]


def prepare(item: RuntimeEvent | EventWrite) -> PreparedWrite:
    """Encode an event and check what can be checked without the log.

    Raises:
        InvalidInput: a value that JSON cannot carry, success without its raw result, an imported message.
    """
    if type(item) is RuntimeEvent and type(item.fact) is ModelObserved:
        streamed = _prepare_text(item, item.fact)
        if streamed is not None:
            return streamed
    if isinstance(item, EventWrite):
        event, payload, artifacts, source_here = item.event, item.payload, tuple(item.artifacts), item.source_here
    elif isinstance(item, RuntimeEvent):
        event, payload, artifacts, source_here = item, None, (), False
    else:
        raise InvalidInput(f"only RuntimeEvent and EventWrite can be committed, not {type(item).__name__}")
    fact = event.fact
    if type(fact) not in _FACTS or not isinstance(event.invocation, Invocation):
        raise InvalidInput(f"an event carries a fact and an Invocation, not {type(fact).__name__}")
    if type(event.recorded_at) is not int or not 0 <= event.recorded_at <= _MAX_INTEGER:
        raise InvalidInput(f"recorded_at={excerpt(event.recorded_at)} is not a count of milliseconds")
    kind = type(fact)
    if kind is ToolSettled and payload is None and isinstance(fact.outcome, Succeeded):  # type: ignore[union-attr]
        raise InvalidInput("a succeeded tool_settled is written as an EventWrite with its raw result")
    if kind is MessageImported:
        raise InvalidInput("message_imported is written by an import admission only")
    if kind is BodyDeleted:
        raise InvalidInput("body_deleted is what a deletion leaves; it is not written as an event")
    body = _encode(fact)
    if kind is ModelObserved:
        return PreparedWrite(event, fact.kind, None, body, len(body), None, artifacts)
    if payload is None and not artifacts and not source_here:
        return PreparedWrite(event, fact.kind, indexed_operation_id(fact), body, len(body))
    size = len(body) + len(payload or b"") + sum(len(artifact.data) for artifact in artifacts)
    return PreparedWrite(event, fact.kind, indexed_operation_id(fact), body, size, payload, artifacts, source_here)


def _prepare_text(event: RuntimeEvent, fact: ModelObserved) -> PreparedWrite | None:
    """Streamed text, in which hardly anything can be wrong; None for what has to be looked at more closely."""
    recorded_at = event.recorded_at
    if type(event.invocation) is not Invocation or type(recorded_at) is not int:
        return None
    body = encode_text(fact)
    if body is None or not 0 <= recorded_at <= _MAX_INTEGER:
        return None
    return PreparedWrite(event, ModelObserved.kind, None, body, len(body))


def with_source(write: PreparedWrite, high_water: int, digest: str) -> PreparedWrite:
    """A request that left its source to the log, with the source that the log has found."""
    event, request = write.event, write.event.fact
    assert isinstance(request, ModelRequested)
    fact = attrs.evolve(request, source_high_water=high_water, source_digest=digest)
    return prepare(RuntimeEvent(event.id, event.recorded_at, event.invocation, fact))


def check_evidence(write: PreparedWrite) -> None:
    """Check that payload and artifacts are what the fact says. Hashes them: for the writer's thread.

    Raises:
        InvalidInput: size, digest, nesting or the set of artifacts differ from the fact's, or pass a limit.
    """
    fact = write.event.fact
    if isinstance(fact, ToolSettled) and isinstance(fact.outcome, Succeeded):
        assert write.payload is not None
        _check_payload(write.payload, fact.outcome.raw.bytes, fact.outcome.raw.digest)
        if tuple(artifact.ref for artifact in write.artifacts) != fact.outcome.artifacts:
            raise InvalidInput("a settlement is written with exactly the artifacts that it names")
    else:
        _check_named(write)
    for artifact in write.artifacts:
        ref = artifact.ref
        if len(artifact.data) != ref.bytes or not _same_digest(artifact.data, ref.digest):
            raise InvalidInput(f"artifact {excerpt(ref.id)} is not the bytes that its reference names")


def _check_named(write: PreparedWrite) -> None:
    """Each artifact is one that the message names, as it names it. What it does not bring, the log has to have."""
    fact = write.event.fact
    named: dict[str | None, list[MediaContent]] = {}
    for part in message_media(fact):
        named.setdefault(part.artifact, []).append(part)
    for artifact in write.artifacts:
        ref = artifact.ref
        parts = named.pop(ref.id, None)
        if parts is None:
            raise InvalidInput(f"artifact {excerpt(ref.id)} is none that the {fact.kind} names, or it comes twice")
        for part in parts:
            if part.digest not in (None, ref.digest):
                raise InvalidInput(f"artifact {excerpt(ref.id)} is not the bytes that its message names")
            if part.media_type != ref.media_type:
                raise InvalidInput(
                    f"artifact {excerpt(ref.id)} is {excerpt(ref.media_type)}, and its message names it as "
                    f"{excerpt(part.media_type)}"
                )


def message_media(fact: Fact) -> Iterator[MediaContent]:
    """The media of a user's message that lie beside it as artifacts."""
    content: MessageInput | None = None
    if isinstance(fact, MessageSteered):
        content = fact.message
    elif isinstance(fact, InvocationOpened) and isinstance(fact.input, MessageOpening):
        content = fact.input.content
    for part in content.parts if content else ():
        if isinstance(part, MediaContent) and part.artifact is not None:
            yield part


def _check_payload(payload: bytes, size: int, named: str) -> None:
    if len(payload) > limits.TOOL_RESULT_BYTES:
        raise InvalidInput(f"the raw result has {len(payload)} bytes; the limit is {limits.TOOL_RESULT_BYTES}")
    if len(payload) != size or not _same_digest(payload, named):
        raise InvalidInput("the raw result is not the bytes that its fact names")
    parse_json(payload, what="the raw result")
    if _depth_over(payload, limits.TOOL_RESULT_DEPTH):
        raise InvalidInput(f"the raw result is nested deeper than {limits.TOOL_RESULT_DEPTH} levels")


def _same_digest(data: bytes, named: str) -> bool:
    return hmac.compare_digest(digest(data), named)


def _encode(fact: Fact) -> bytes:
    try:
        body = encode_fact(fact)
    except InvalidInput:
        raise
    except RecursionError:
        raise InvalidInput(f"{fact.kind} is nested deeper than {limits.FACT_DEPTH} levels") from None
    except Exception as error:  # the encoder has an exception of its own for each kind of value it cannot carry
        raise InvalidInput(f"{fact.kind} cannot be encoded as JSON: {error}") from error
    if _depth_over(body, limits.FACT_DEPTH):
        raise InvalidInput(f"{fact.kind} is nested deeper than {limits.FACT_DEPTH} levels")
    return body


def _depth_over(document: bytes, limit: int) -> bool:
    """Whether JSON nests deeper than `limit`. Nearly every document has too few brackets to, which is quick to see."""
    if document.count(b"{") + document.count(b"[") <= limit:
        return False
    level: list[Any] = [parse_json(document, what="the value")]
    for _ in range(limit):
        level = [child for item in level for child in _children(item) if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
