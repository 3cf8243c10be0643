"""What is left in the place of a deleted body: bytes of the same length that say what was spent and what was done.

A stub has the size of the body it replaces, so that it is written over it in its place: nothing in the file moves, and
no copy of anything is left behind. It begins with a byte that no JSON begins with, then come a seal, the account as
JSON, and spaces.

What a check of the log can find, and what it cannot:

* The seal covers the account, the identity and everything else that the row says. A stub that was changed by accident,
  any bit of it, is found where it is.
* A stub that is missing or too many is found by the events of its session, which name the ones before them, and by
  where the session is said to end. One in a session that was not deleted is found by itself.
* A seal is no secret: who can write the file can make another account, of any kind, id or cost, and that is not found.
  Only the last stub before an event that still has its body cannot be given another digest of the log, because the
  chain goes on from it. Nor can anybody tell whether the bodies were those that the digests were made of; who wants to
  know that checks the log before it is deleted, and keeps its head.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

from maka_trio.errors import InvalidInput
from maka_trio.facts.codec import canonical, parse_json, structure, unstructure
from maka_trio.facts.event import (
    BodyDeleted,
    Fact,
    InvocationEnded,
    ModelCompleted,
    ModelInterrupted,
    ModelRequested,
    ToolDispatched,
    ToolRejected,
    ToolSettled,
    indexed_operation_id,
)
from maka_trio.facts.json_value import JSON
from maka_trio.facts.model import ModelUsage
from maka_trio.facts.outcome import Failed, InvocationOutcome
from maka_trio.facts.prefix import chain_text

MARK: Final = b"\x00"
"""The first byte of a stub."""

_TAG: Final = b"maka.stub.v1\n"
_SEAL_BYTES: Final = 16
_NOTHING: Final = b"{}"
_BEGIN: Final = len(MARK) + _SEAL_BYTES


class Place(NamedTuple):
    """Where an event stands and what its row says of it beside its body, with the canonical bytes of its identity."""

    sequence: int
    previous: int
    previous_fact: int
    kind: str
    event_id: str
    recorded_at: int
    operation_id: str | None
    root_digest: bytes
    session_digest: bytes
    identity: bytes


def is_stub(body: bytes) -> bool:
    """Whether a body is what a deletion left."""
    return body[:1] == MARK


def make_stub(place: Place, fact: Fact | None, size: int) -> bytes:
    """What replaces a body of `size` bytes.

    A body that could not be read, or is shorter than any fact, leaves nothing that could be read either.
    """
    account = canonical({} if fact is None else _account(fact))
    stub = MARK + _seal(place, size, account) + account
    return stub.ljust(size) if len(stub) <= size else MARK * size


def read_stub(kind: str, root_digest: bytes, session_digest: bytes, body: bytes) -> BodyDeleted:
    """What a stub says.

    Raises:
        InvalidInput: it cannot be read.
    """
    if not isinstance(root_digest, bytes) or not isinstance(session_digest, bytes):
        raise InvalidInput("a digest is bytes")
    if body[_BEGIN:].rstrip(b" ") == _NOTHING:  # as of all that was streamed
        return BodyDeleted(kind, len(body), chain_text(root_digest), chain_text(session_digest))
    account = parse_json(body[_BEGIN:], what="the stub")
    if not isinstance(account, dict):
        raise InvalidInput("a stub holds an object")
    value: dict[str, JSON] = {
        **account,
        "of_kind": kind,
        "size": len(body),
        "root_digest": chain_text(root_digest),
        "session_digest": chain_text(session_digest),
    }
    stub: BodyDeleted = structure(value, BodyDeleted, what="stub")
    return stub


def holds(place: Place, body: bytes) -> bool:
    """Whether a stub is as it was made, in the place where it was made. Of a damaged row anything may be asked."""
    account = body[_BEGIN:].rstrip(b" ")
    try:
        seal = _seal(place, len(body), account)
    except (AttributeError, TypeError, ValueError):  # it says things that no event says
        return False
    return body[len(MARK) : _BEGIN] == seal


def _seal(place: Place, size: int, account: bytes) -> bytes:
    said: tuple[Any, ...] = (*place[:-3], place.root_digest.hex(), place.session_digest.hex(), size)
    return hashlib.sha256(_TAG + canonical(said) + place.identity + account).digest()[:_SEAL_BYTES]


# --- the account ------------------------------------------------------------------------------------------


def _account(fact: Fact) -> dict[str, JSON]:
    """What of a fact is kept: nothing that anybody said, and never more than the fact itself says."""
    account: dict[str, Any] = {"operation_id": indexed_operation_id(fact)}
    match fact:
        case ModelRequested(model_id=model_id):
            account["model_id"] = model_id
        case ModelCompleted(output=output):
            account |= {"model_id": output.model, "usage": unstructure(output.usage, ModelUsage) or None}
        case ModelInterrupted(status=status):
            account["outcome"] = status.value
        case ToolDispatched(name=name):
            account["name"] = name
        case ToolRejected(name=name, reason=reason):
            account |= {"name": name, "outcome": reason.kind.value}
        case ToolSettled(outcome=outcome):
            account["outcome"] = outcome.kind
        case InvocationEnded(outcome=ended):
            account["outcome"] = outcome_name(ended)
        case _:
            pass
    return {name: value for name, value in account.items() if value is not None}


def outcome_name(outcome: InvocationOutcome) -> str:
    """How an invocation ended, in a word; a failure with its class."""
    return f"{outcome.kind}:{outcome.failure_class.value}" if isinstance(outcome, Failed) else outcome.kind
