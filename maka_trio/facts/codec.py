"""The one converter between values and JSON, canonical bytes, and digests.

Canonical means: object keys sorted, no spaces, UTF-8, shortest numbers, absent where a value is None by default.
The same value has the same bytes in every process, so bytes are what retries compare and digests cover.
Unknown kinds and unknown fields are refused: a log of a newer format must not lose anything by being read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

import attrs
import msgspec
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.msgspec import MsgspecJsonConverter, make_converter

from maka_trio.errors import InvalidInput
from maka_trio.facts import event as events
from maka_trio.facts import identity, opening, outcome, scope
from maka_trio.facts import message as messages
from maka_trio.facts import model as models
from maka_trio.facts.event import Fact, RuntimeEvent
from maka_trio.facts.identity import Invocation
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.streamed import StreamedText, short_observation

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder(order="sorted")


# --- bytes and digests ------------------------------------------------------------------------------------


def canonical(value: JSON) -> bytes:
    """Canonical bytes of a JSON value that `check_json` would pass."""
    return _ENCODER.encode(value)


def parse_json(data: bytes | str, *, what: str) -> JSON:
    """Parse one JSON document.

    Raises:
        InvalidInput: for anything else: NaN, a second document, invalid UTF-8, lone surrogates, too deep.
    """
    try:
        value: JSON = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from None
    return value


def digest(data: bytes) -> str:
    """`sha256:` and the hexadecimal SHA-256 of the bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


# --- the converter ----------------------------------------------------------------------------------------


def _strict(kind: type) -> Callable[[Any, Any], Any]:
    def structure(value: Any, target: Any) -> Any:
        if type(value) is not kind:
            raise InvalidInput(f"expected {kind.__name__}, found {type(value).__name__}")
        if target is kind:
            return value
        # cattrs dispatches by class, so the string enums arrive here as well.
        return target(value) if isinstance(target, type) and issubclass(target, Enum) else value

    return structure


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _array(converter: MsgspecJsonConverter, kind: Any) -> Callable[[Any, Any], Any]:
    """A tuple of one type. cattrs would take a text or an object for a sequence too."""
    item = get_args(kind)[0]
    structure_item = converter.get_structure_hook(item)

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not list:
            raise InvalidInput(f"expected an array, found {type(value).__name__}")
        return tuple([structure_item(inner, item) for inner in value])

    return structure


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise InvalidInput(f"expected a number, found {type(value).__name__}")
    return float(value)


def _as_it_is(value: Any) -> Any:
    return value


def _attribute_overrides(cls: type) -> dict[str, Any]:
    """Leave out what is None by default; take a JSON key of its own where the field declares one."""
    return {
        field.name: override(omit_if_default=True if field.default is None else None, rename=field.metadata.get("key"))
        for field in attrs.fields(cls)
    }


def _tagged(converter: MsgspecJsonConverter, union: Any, tag: str) -> None:
    """Tag each member of a union with its `kind` (or `role`).

    cattrs' own strategy does not refuse unknown fields beside the tag, and names no kind it does not know.
    """
    by_tag = {getattr(cls, tag): cls for cls in get_args(union)}
    hooks: dict[str, Callable[[Any, Any], Any]] = {}  # cattrs' own look-up takes as long as all the rest

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise InvalidInput(f"expected an object with {tag!r}, found {type(value).__name__}")
        rest = dict(value)
        name = rest.pop(tag, None)
        if not isinstance(name, str) or name not in by_tag:
            raise InvalidInput(f"unknown {tag} {name!r}; known are {', '.join(sorted(by_tag))}")
        cls = by_tag[name]
        return (hooks.get(name) or hooks.setdefault(name, converter.get_structure_hook(cls)))(rest, cls)

    members: dict[type, Callable[[Any], Any]] = {}

    def unstructure(value: Any) -> Any:
        cls = type(value)
        fields = (members.get(cls) or members.setdefault(cls, converter.get_unstructure_hook(cls)))(value)
        fields[tag] = getattr(value, tag)
        return fields

    converter.register_structure_hook(union, structure)
    converter.register_unstructure_hook(union, unstructure)


def _model_events(converter: MsgspecJsonConverter) -> None:
    """Model events are tagged beside their data: `{"kind": ..., "data": {...}}` (semantics 1.7)."""
    by_kind = {cls.kind: cls for cls in get_args(models.ModelEvent)}
    hooks: dict[str, Callable[[Any, Any], Any]] = {}

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, dict) or set(value) != {"kind", "data"}:
            raise InvalidInput("a model event is an object of kind and data")
        kind, data = value["kind"], value["data"]
        if kind not in by_kind:
            raise InvalidInput(f"unknown model event kind {kind!r}")
        cls: Any = models.ModelToolCall if kind == models.ToolCallReady.kind else by_kind[kind]
        made = (hooks.get(kind) or hooks.setdefault(kind, converter.get_structure_hook(cls)))(data, cls)
        return models.ToolCallReady(made) if cls is models.ModelToolCall else made

    members: dict[type, Callable[[Any], Any]] = {}

    def unstructure(value: Any) -> Any:
        inner = value.call if isinstance(value, models.ToolCallReady) else value
        cls = type(inner)
        data = (members.get(cls) or members.setdefault(cls, converter.get_unstructure_hook(cls)))(inner)
        return {"kind": value.kind, "data": data}

    converter.register_structure_hook(models.ModelEvent, structure)
    converter.register_unstructure_hook(models.ModelEvent, unstructure)


def _build() -> MsgspecJsonConverter:
    converter = make_converter(detailed_validation=False, forbid_extra_keys=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _strict(kind))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_factory(_is_tuple, lambda kind: _array(converter, kind))
    for json_type in (JSON, JsonObject):
        converter.register_unstructure_hook(json_type, _as_it_is)
    converter.register_structure_hook(JSON, lambda value, _: value)
    converter.register_structure_hook(JsonObject, _strict(dict))
    converter.register_structure_hook(
        JsonObject | bool, lambda value, _: value if value is True or value is False else _strict(dict)(value, _)
    )
    converter.register_unstructure_hook(JsonObject | bool, _as_it_is)
    converter.register_unstructure_hook_factory(
        attrs.has, lambda cls: make_dict_unstructure_fn(cls, converter, **_attribute_overrides(cls))
    )
    converter.register_structure_hook_factory(
        attrs.has,
        lambda cls: make_dict_structure_fn(
            cls,
            converter,
            _cattrs_forbid_extra_keys=True,
            _cattrs_detailed_validation=False,
            **_attribute_overrides(cls),
        ),
    )
    _model_events(converter)
    for union in (
        models.Source,
        models.ModelPart,
        messages.ContentPart,
        messages.ToolOutput,
        identity.ToolOrigin,
        outcome.ToolOutcome,
        outcome.CompactionOutcome,
        outcome.InvocationOutcome,
        opening.InvocationInput,
        scope.Scope,
        events.Fact,
    ):
        _tagged(converter, union, "kind")
    _tagged(converter, messages.PromptMessage, "role")
    return converter


converter = _build()
"""The library's converter. Applications may use it to store or show our values; do not register hooks on it."""


def unstructure(value: object, kind: Any) -> Any:
    """A value of type `kind` (a class or one of the unions) as JSON."""
    return converter.unstructure(value, unstructure_as=kind)


_hooks: dict[Any, Callable[[Any, Any], Any]] = {}


def structure(value: JSON, kind: Any, *, what: str) -> Any:
    """JSON as a value of type `kind`.

    Raises:
        InvalidInput: for an unknown kind, a missing or unknown field, a wrong type, or a limit that does not hold.
    """
    try:
        return (_hooks.get(kind) or _hooks.setdefault(kind, converter.get_structure_hook(kind)))(value, kind)
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None
    except KeyError as error:
        raise InvalidInput(f"{what}: the field {error.args[0]!r} is missing") from None
    except Exception as error:  # cattrs raises a class of its own for each way a shape can be wrong
        raise InvalidInput(f"{what}: {error}") from error


def encode(value: object, kind: Any) -> bytes:
    """Canonical bytes of a value of type `kind`.

    Raises:
        InvalidInput: something in the value is not of its declared type, or is no JSON.
    """
    return encoder(kind)(value)


def encoder(kind: Any) -> Callable[[object], bytes]:
    """`encode` for values of one type, of which there are many."""
    hook: Callable[[Any], Any] | None = None

    def encode(value: object) -> bytes:
        nonlocal hook
        try:
            hook = hook or converter.get_unstructure_hook(kind)
            return _ENCODER.encode(hook(value))
        except Exception as error:  # what is wrong shows as an error of its own at each place where it may be wrong
            raise InvalidInput(f"{type(value).__name__} cannot be written as JSON: {error}") from error

    return encode


def decode(data: bytes, kind: type[T] | Any, *, what: str) -> Any:
    """The value of type `kind` in canonical (or any JSON) bytes. Raises InvalidInput as `structure` does."""
    return structure(parse_json(data, what=what), kind, what=what)


# --- events -----------------------------------------------------------------------------------------------


_encode_fact = encoder(Fact)
_encode_invocation = encoder(Invocation)
_IN_ORDER = msgspec.json.Encoder()


def encode_fact(fact: Fact) -> bytes:
    """Canonical bytes of a fact. Raises InvalidInput as `encode` does."""
    if type(fact) is events.ModelObserved:
        plain = encode_text(fact)
        if plain is not None:
            return plain
    return _encode_fact(fact)


def encode_text(fact: events.ModelObserved) -> bytes | None:
    """Streamed text, without the converter's long way to the same bytes; None for what that is to judge."""
    step_id, delta = fact.step_id, fact.event
    if type(delta) is not models.PartDelta or delta.provider_options is not None:
        return None
    if not (type(step_id) is str and type(delta.id) is str and type(delta.text) is str):
        return None
    event = {"data": {"id": delta.id, "text": delta.text}, "kind": delta.kind}
    try:
        return _IN_ORDER.encode({"event": event, "kind": events.ModelObserved.kind, "step_id": step_id})
    except UnicodeEncodeError:
        return None


def decode_fact(data: bytes) -> Fact:
    """The fact in its bytes."""
    observed = short_observation(data)
    if observed is not None:
        return observed.fact() if isinstance(observed, StreamedText) else observed
    fact: Fact = decode(data, Fact, what="fact")
    return fact


def encode_invocation(invocation: Invocation) -> bytes:
    """Canonical bytes of an identity."""
    return _encode_invocation(invocation)


def join_event(event_id: str, recorded_at: int, invocation: bytes, fact: bytes) -> bytes:
    """Canonical bytes of an event from the canonical bytes of its parts, so that neither is encoded twice."""
    return b'{"fact":%b,"id":%b,"invocation":%b,"recorded_at":%d}' % (
        fact,
        _ENCODER.encode(event_id),
        invocation,
        recorded_at,
    )


def encode_event(event: RuntimeEvent) -> bytes:
    """Canonical bytes of an event."""
    return join_event(event.id, event.recorded_at, encode_invocation(event.invocation), encode_fact(event.fact))


def decode_event(data: bytes) -> RuntimeEvent:
    """The event in its bytes."""
    event: RuntimeEvent = decode(data, RuntimeEvent, what="event")
    return event
