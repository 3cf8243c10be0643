"""Tools as a program's author sees them: typed declarations, written from their schemas. Pure.

They are read by a model and never run, so a type may be written in whatever form says most in the fewest words.
Whatever a schema says that no type can is left to the schema: the call is checked against it in any case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from maka_trio.facts.opening import ToolDefinition
from maka_trio.tools.failure import bounded

DESCRIPTION_BYTES: Final = 1000
"""What of a tool's description a declaration holds."""

_TYPE_BYTES: Final = 1000
_LITERALS: Final = 16
_DEPTH: Final = 6
_NAMES: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}


def declaration(function: str, definition: ToolDefinition) -> str:
    """A tool as an `async def`, with its description as docstring."""
    types = _Types(definition.input_schema)
    returned = _Types(definition.output_schema).text if definition.output_schema is not None else "Any"
    lines = [f"async def {function}({types.parameters()}) -> {returned}: ..."]
    if definition.description.strip():
        description = bounded(definition.description.strip(), DESCRIPTION_BYTES)
        lines += [f"    # {line}" for line in description.splitlines()]
    return "\n".join(lines)


class _Types:
    """The types of one schema, whose references lead into itself."""

    def __init__(self, schema: Any) -> None:
        self._root = schema

    @property
    def text(self) -> str:
        """The type of the whole."""
        return _short(self._type(self._root, _DEPTH))

    def parameters(self) -> str:
        """The whole as the parameters of a function: keywords of an object, else one value."""
        schema = self._resolved(self._root)
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict) or not all(_is_name(name) for name in properties):
            return f"input: {self.text}, /"
        required = _names(schema.get("required"))
        ordered = sorted(properties, key=lambda name: name not in required)
        shown = [self._parameter(name, properties[name], name in required) for name in ordered]
        return ", ".join(["*", *shown]) if shown else ""

    def _parameter(self, name: str, schema: Any, required: bool) -> str:
        text = f"{name}: {_short(self._type(schema, _DEPTH))}"
        if required:
            return text
        default = schema.get("default", ...) if isinstance(schema, dict) else ...
        return f"{text} = {'...' if default is ... else _short(repr(default))}"

    def _type(self, schema: Any, depth: int) -> str:
        schema = self._resolved(schema)
        if not isinstance(schema, dict) or depth == 0:
            return "Any"
        if "const" in schema:
            return _literal([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return _literal(schema["enum"])
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                return self._union(schema[key], depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union([{**schema, "type": one} for one in kind], depth)
        return self._of_kind(kind, schema, depth)

    def _of_kind(self, kind: Any, schema: dict[str, Any], depth: int) -> str:
        if kind == "array":
            items = schema.get("items")
            return f"list[{self._type(items, depth - 1)}]" if isinstance(items, dict) else "list"
        if kind == "object" or (kind is None and isinstance(schema.get("properties"), dict)):
            return self._object(schema, depth)
        return _NAMES.get(kind, "Any") if isinstance(kind, str) else "Any"

    def _object(self, schema: dict[str, Any], depth: int) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            values = schema.get("additionalProperties")
            return f"dict[str, {self._type(values, depth - 1)}]" if isinstance(values, dict) else "dict"
        required = _names(schema.get("required"))
        members = (
            f"{json.dumps(name)}{'' if name in required else '?'}: {self._type(member, depth - 1)}"
            for name, member in properties.items()
        )
        return "{" + ", ".join(members) + "}"

    def _union(self, members: list[Any], depth: int) -> str:
        texts = dict.fromkeys(self._type(member, depth) for member in members[:_LITERALS])
        return " | ".join(texts) or "Any"

    def _resolved(self, schema: Any) -> Any:
        """The schema that a reference into this one names; anything else as it is."""
        for _ in range(_DEPTH):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str):
                return schema
            schema = self._at(reference)
        return None

    def _at(self, reference: str) -> Any:
        found = self._root
        if not reference.startswith("#"):
            return None
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return found


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _names(value: Any) -> frozenset[str]:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else frozenset()


def _literal(values: list[Any]) -> str:
    shown = [_short(repr(value)) for value in values[:_LITERALS]]
    return f"Literal[{', '.join(shown + ['...'] * (len(values) > _LITERALS))}]"


def _short(text: str) -> str:
    return bounded(text, _TYPE_BYTES)
