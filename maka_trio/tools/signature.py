"""Python types as JSON Schemas: what a typed function asks of the model that calls it.

Classes with fields (attrs, dataclasses, TypedDict) stand once in `$defs`, so they may contain themselves. A type that
has no one form in JSON is refused by name. Knows nothing of tools; `tools.arguments` turns JSON back into the types.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

import attrs

from maka_trio.errors import InvalidInput
from maka_trio.facts.json_value import JSON
from maka_trio.records import frozen
from maka_trio.tools.docstring import parse_docstring

MISSING: Final = object()
"""The default of a member that has none, or none that a schema could show."""

_PRIMITIVES: Final[dict[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    None: "null",
}
_ARRAYS: Final = frozenset({list, Sequence, set, frozenset, AbstractSet})
_SETS: Final = frozenset({set, frozenset, AbstractSet})
_OBJECTS: Final = frozenset({dict, Mapping})
_UNIONS: Final = frozenset({Union, types.UnionType})
_QUALIFIERS: Final = frozenset(
    getattr(typing, name) for name in ("Required", "NotRequired", "ReadOnly") if hasattr(typing, name)
)


@frozen
class Field:
    """One member of an object: an argument of a function, or a field of a class."""

    name: str
    kind: Any
    required: bool
    default: object = MISSING
    description: str | None = None


class SchemaWriter:
    """Writes the schemas of types that belong to one document.

    Args:
        scope: names for annotations of classes that stand in no module, such as those of a test function.
    """

    def __init__(self, scope: Mapping[str, Any] | None = None) -> None:
        self._scope = scope or {}
        self._definitions: dict[str, dict[str, JSON]] = {}
        self._names: dict[type, str] = {}

    def document(self, kind: Any) -> dict[str, JSON]:
        """The schema of a type, with the classes it needs."""
        return self._with_definitions(self.schema(kind))

    def object_document(self, fields: Sequence[Field]) -> dict[str, JSON]:
        """The schema of an object of these members, with the classes it needs."""
        return self._with_definitions(self._object(fields))

    def schema(self, kind: Any) -> dict[str, JSON]:
        """The schema of a type. Classes are referred to.

        Raises:
            InvalidInput: the type has no one form in JSON.
        """
        kind, description = unwrapped(kind)
        schema = self._schema(kind)
        return {**schema, "description": description} if description else schema

    def _with_definitions(self, schema: dict[str, JSON]) -> dict[str, JSON]:
        return {**schema, "$defs": self._definitions} if self._definitions else schema

    def _schema(self, kind: Any) -> dict[str, JSON]:
        origin, arguments = get_origin(kind), get_args(kind)
        if kind is Any or kind is object:
            return {}
        if kind is None or (isinstance(kind, type) and kind in _PRIMITIVES):
            return {"type": _PRIMITIVES[kind]}
        if origin is Literal:
            return _choice(arguments, kind)
        if is_union(kind):
            return {"anyOf": [self.schema(member) for member in arguments]}
        if (origin or kind) is tuple:
            return self._tuple(arguments)
        if (origin or kind) in _ARRAYS:
            return self._array(arguments, unique=(origin or kind) in _SETS)
        if (origin or kind) in _OBJECTS:
            return self._mapping(arguments)
        if isinstance(kind, type):
            return self._class(kind)
        raise InvalidInput(f"{kind!r} has no JSON Schema")

    def _array(self, arguments: Sequence[Any], *, unique: bool) -> dict[str, JSON]:
        schema: dict[str, JSON] = {"type": "array"}
        if arguments:
            schema["items"] = self.schema(arguments[0])
        if unique:
            schema["uniqueItems"] = True
        return schema

    def _tuple(self, arguments: Sequence[Any]) -> dict[str, JSON]:
        if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
            return self._array(arguments[:1], unique=False)
        size = 0 if arguments == ((),) else len(arguments)
        return {
            "type": "array",
            "prefixItems": [self.schema(item) for item in arguments[:size]],
            "items": False,
            "minItems": size,
        }

    def _mapping(self, arguments: Sequence[Any]) -> dict[str, JSON]:
        if not arguments:
            return {"type": "object"}
        if unwrapped(arguments[0])[0] is not str:
            raise InvalidInput(f"the keys of a JSON object are str, not {arguments[0]!r}")
        return {"type": "object", "additionalProperties": self.schema(arguments[1])}

    def _class(self, kind: type) -> dict[str, JSON]:
        if issubclass(kind, enum.Enum):
            return _choice([member.value for member in kind], kind)
        if kind not in self._names:
            fields = _class_fields(kind, self._scope)
            name = self._new_name(kind)
            self._definitions[name] = {}  # taken, before the fields that may refer to it
            self._definitions[name] = self._object(fields)
        return {"$ref": f"#/$defs/{self._names[kind]}"}

    def _new_name(self, kind: type) -> str:
        name, number = kind.__name__, 2
        while name in self._definitions:
            name, number = f"{kind.__name__}{number}", number + 1
        self._names[kind] = name
        return name

    def _object(self, fields: Sequence[Field]) -> dict[str, JSON]:
        return {
            "type": "object",
            "properties": {field.name: self._member(field) for field in fields},
            "required": [field.name for field in fields if field.required],
            "additionalProperties": False,
        }

    def _member(self, field: Field) -> dict[str, JSON]:
        schema = self.schema(field.kind)
        if field.description:
            schema.setdefault("description", field.description)
        if not field.required and _is_scalar(field.default):
            schema["default"] = cast(JSON, field.default)
        return schema


def is_union(kind: Any) -> bool:
    """Whether a type is `A | B` or `Union[A, B]` (so also `Optional`)."""
    return get_origin(kind) in _UNIONS


def unwrapped(kind: Any) -> tuple[Any, str | None]:
    """A type without what is written around it: `Annotated` (a text in it describes), new names, qualifiers."""
    description = None
    while True:
        if get_origin(kind) is Annotated:
            described = [note for note in kind.__metadata__ if isinstance(note, str)]
            description = description or (described[0] if described else None)
            kind = kind.__origin__
        elif get_origin(kind) in _QUALIFIERS:
            kind = get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind, description


def _choice(values: Sequence[object], kind: Any) -> dict[str, JSON]:
    values = [value.value if isinstance(value, enum.Enum) else value for value in values]
    if not values or not all(_is_scalar(value) for value in values):
        raise InvalidInput(f"the values of {kind!r} are not all JSON")
    names = {_PRIMITIVES[type(value)] for value in values}
    schema: dict[str, JSON] = {"enum": values}  # type: ignore[dict-item]  # each was found to be a scalar
    return {"type": names.pop(), **schema} if len(names) == 1 else schema


def _is_scalar(value: object) -> bool:
    return type(value) in _PRIMITIVES and (not isinstance(value, float) or math.isfinite(value))


# --- classes with fields ----------------------------------------------------------------------------------


def hints_of(owner: Any, scope: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The annotations of a function or class; `scope` holds names that its module does not.

    Raises:
        InvalidInput: an annotation names something that cannot be found.
    """
    try:
        return typing.get_type_hints(owner, localns=dict(scope) if scope else None, include_extras=True)
    except Exception as error:  # annotations are code of the user's, and their names may be anything
        raise InvalidInput(f"the annotations of {owner.__qualname__} cannot be resolved: {error}") from None


def _class_fields(kind: type, scope: Mapping[str, Any]) -> list[Field]:
    described = parse_docstring(kind.__doc__).arguments
    return [attrs.evolve(field, description=described.get(field.name)) for field in _bare_fields(kind, scope)]


def _bare_fields(kind: type, scope: Mapping[str, Any]) -> list[Field]:
    if attrs.has(kind):
        return _attrs_fields(kind, scope)
    if dataclasses.is_dataclass(kind):
        hints = hints_of(kind)
        return [Field(f.name, hints[f.name], *_dataclass_default(f)) for f in dataclasses.fields(kind) if f.init]
    if typing.is_typeddict(kind):
        hints = hints_of(kind)
        return [Field(name, hint, _is_required(kind, name, hint)) for name, hint in hints.items()]
    raise InvalidInput(f"{kind.__qualname__} has no JSON Schema")


def _is_required(kind: type, name: str, hint: Any) -> bool:
    """Whether a key of a TypedDict must be there. Python itself looks for qualifiers before it resolves texts."""
    while get_origin(hint) is Annotated:
        hint = hint.__origin__
    if get_origin(hint) in (typing.Required, typing.NotRequired):
        return get_origin(hint) is typing.Required
    required: frozenset[str] = getattr(kind, "__required_keys__", frozenset())
    return name in required


def _attrs_fields(kind: type[attrs.AttrsInstance], scope: Mapping[str, Any]) -> list[Field]:
    if any(isinstance(field.type, str) for field in attrs.fields(kind)):
        try:
            attrs.resolve_types(kind, localns=dict(scope))
        except Exception as error:  # annotations are code of the user's, and their names may be anything
            raise InvalidInput(f"the annotations of {kind.__qualname__} cannot be resolved: {error}") from None
    fields = [field for field in attrs.fields(kind) if field.init]
    for field in fields:
        if field.type is None:
            raise InvalidInput(f"the field {field.name!r} of {kind.__qualname__} has no annotation")
    return [Field(f.name, f.type, f.default is attrs.NOTHING, f.default) for f in fields]


def _dataclass_default(field: dataclasses.Field[Any]) -> tuple[bool, object]:
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    return required, field.default
