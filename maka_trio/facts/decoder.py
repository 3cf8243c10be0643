"""Usual facts out of their bytes in one go: msgspec checks the shape while it parses, and only values are left to make.

Of each class there is a shape, a struct of msgspec's that is made from the class itself. It takes what the converter
would take of that class and nothing else, and there are shapes of the usual classes only: whatever is refused is for
the converter, which says what is wrong, if anything is. A shape takes some time to make, and then half as much for
each fact.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
import msgspec

from maka_trio.facts.codec import decode_fact
from maka_trio.facts.event import (
    Fact,
    InvocationEnded,
    InvocationOpened,
    ModelCompleted,
    ModelInterrupted,
    ModelRequested,
    ToolDispatched,
    ToolRejected,
    ToolSettled,
)
from maka_trio.facts.identity import Provider
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.message import ErrorOutput, JsonOutput, TextContent, TextOutput
from maka_trio.facts.model import TextPart, ToolCallPart
from maka_trio.facts.opening import MessageOpening
from maka_trio.facts.outcome import Cancelled, Completed, EffectFailed, EffectUnknown, Failed, Succeeded
from maka_trio.facts.scope import Session

Make: TypeAlias = Callable[[Any], Any]

_USUAL_FACTS: Final = (
    *(InvocationOpened, InvocationEnded, ModelRequested, ModelCompleted, ModelInterrupted),
    *(ToolDispatched, ToolSettled, ToolRejected),
)
_USUAL_MEMBERS: Final = frozenset(
    (
        *(MessageOpening, Session, Provider, TextContent, TextPart, ToolCallPart),
        *(TextOutput, JsonOutput, ErrorOutput, Succeeded, EffectFailed, EffectUnknown, Completed, Failed, Cancelled),
    )
)
"""What is read of a union. A member that is not here has an unknown tag."""

_FACTORY: Final[Any] = attrs.Factory  # a class, though declared as a function
_AS_IT_IS: Final = frozenset({str, int, bool, NoneType})
_JSON: Final[dict[Any, Any]] = {JSON: Any, JsonObject: dict[str, Any]}


class _Nothing(msgspec.Struct, tag_field="kind", tag=""):
    """Nothing is of this kind. msgspec lets the kind of the only member of a union be left out, so this is another."""

    def __post_init__(self) -> None:
        raise ValueError("nothing is of this kind")


class _Shapes:
    """The shapes made so far. `made` makes a value of a struct, and leaves everything else as it is."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[type, bool], type[msgspec.Struct]] = {}
        self._makers: dict[type, Make] = {}

    def made(self, value: Any) -> Any:
        """The value of a struct."""
        make = self._makers.get(type(value))
        return value if make is None else make(value)

    def _all_made(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([self.made(value) for value in values])

    def of(self, cls: Any, *, tagged: bool) -> type[msgspec.Struct]:
        """The shape of a class. A member of a union has its kind as well."""
        shape = self._shapes.get((cls, tagged))
        if shape is None:
            hints, fields = get_type_hints(cls), attrs.fields(cls)
            types = [self._type(hints[field.name]) for field in fields]
            shape = msgspec.defstruct(
                cls.__name__,
                [(field.name, kind, _default(field)) for field, (kind, _) in zip(fields, types, strict=True)],
                forbid_unknown_fields=True,
                tag_field="kind" if tagged else None,
                tag=cls.kind if tagged else None,
                rename={field.name: field.metadata["key"] for field in fields if "key" in field.metadata},
            )
            self._makers[shape] = _maker(cls, [(at, make) for at, (_, make) in enumerate(types) if make is not None])
            self._shapes[cls, tagged] = shape  # last: another thread that finds it reads with it
        return shape

    def _type(self, kind: Any) -> tuple[Any, Make | None]:
        """What msgspec reads for a type, and what makes a value of it if that is not one yet."""
        if kind in _JSON:
            return _JSON[kind], None
        if kind in _AS_IT_IS or (isinstance(kind, type) and issubclass(kind, Enum)):
            return kind, None
        if attrs.has(kind):
            return self.of(kind, tagged=False), self.made
        if get_origin(kind) is tuple:
            item, make = self._type(get_args(kind)[0])
            return tuple[item, ...], None if make is None else self._all_made  # type: ignore[valid-type]  # made while running
        assert get_origin(kind) in (Union, UnionType), kind
        return self._union(get_args(kind))

    def _union(self, members: tuple[Any, ...]) -> tuple[Any, Make | None]:
        classes = [member for member in members if attrs.has(member)]
        if len(classes) > 1:
            usual = [self.of(cls, tagged=True) for cls in classes if cls in _USUAL_MEMBERS]
            shapes: list[Any] = [*usual, _Nothing]
        else:
            shapes = [self.of(cls, tagged=False) for cls in classes]
        others = [self._type(member)[0] for member in members if member not in classes]
        return Union[*shapes, *others], self.made if shapes else None


def _default(field: attrs.Attribute[Any]) -> Any:
    if field.default is attrs.NOTHING:
        return msgspec.NODEFAULT
    default: Any = field.default
    return msgspec.field(default_factory=default.factory) if isinstance(default, _FACTORY) else default


def _maker(cls: Make, makes: list[tuple[int, Make]]) -> Make:
    if not makes:
        return lambda struct: cls(*msgspec.structs.astuple(struct))

    def make(struct: msgspec.Struct) -> Any:
        values = list(msgspec.structs.astuple(struct))
        for at, inner in makes:
            values[at] = inner(values[at])
        return cls(*values)

    return make


_SHAPES: Final = _Shapes()
_DECODERS: Final[dict[str, Make | None]] = {cls.kind: None for cls in _USUAL_FACTS}

_FEW: Final = 512
"""Facts of a kind that take the converter about as long as their shape takes to make."""

_met: Final = dict.fromkeys(_DECODERS, 0)
"""How many facts of a kind were read, as far as the few go. Threads may count one less; nothing hangs on it."""


def usual_fact(body: bytes, kind: str) -> Fact | None:
    """The fact in its bytes; None for one that is not of this kind, or not a usual one, or no fact at all."""
    if kind not in _DECODERS:
        return None
    try:
        decode = _DECODERS[kind] or _decoder(kind)
        fact: Fact = _SHAPES.made(decode(body))
    except Exception:  # whatever it is, the converter meets it as well, and has the words for it
        return None
    return fact


def read_fact(body: bytes, kind: str) -> Fact:
    """The fact in its bytes, which a row says is of this kind. The first few of a kind are left to the converter.

    Raises:
        InvalidInput: it is no fact.
    """
    met = _met.get(kind)
    if met is not None:
        if met >= _FEW:
            fact = usual_fact(body, kind)
            if fact is not None:
                return fact
        else:
            _met[kind] = met + 1
    return decode_fact(body)


def _decoder(kind: str) -> Make:
    cls = next(cls for cls in _USUAL_FACTS if cls.kind == kind)
    shape: Any = _SHAPES.of(cls, tagged=True)
    decode = _DECODERS[kind] = msgspec.json.Decoder(shape | _Nothing).decode
    return decode
