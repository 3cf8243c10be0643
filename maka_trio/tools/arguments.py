"""JSON arguments as the typed values of a function, and its result as JSON again: `tools.signature` backwards.

The arguments have passed their schema. What can still fail is what a schema cannot say: a class refuses a value.
The converter is this floor's own; nothing here touches the one that facts are read with.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, get_args

import cattrs

from maka_trio.tools.schema import Schema
from maka_trio.tools.signature import SchemaWriter, hints_of, is_union, unwrapped


class ArgumentConverter:
    """Structures the arguments of a function and unstructures its results.

    The types must have been through a `SchemaWriter`, which resolves the annotations of their classes.
    """

    def __init__(self) -> None:
        self._converter = cattrs.Converter(forbid_extra_keys=True, unstruct_collection_overrides={AbstractSet: list})
        self._converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
        self._converter.register_structure_hook_factory(is_union, self._union)
        self._converter.register_structure_hook_factory(typing.is_typeddict, self._typed_dict)

    def structure(self, value: Any, kind: Any) -> Any:
        """A JSON value as a value of the type. Raises whatever the type's own classes raise."""
        return self._converter.structure(value, kind)

    def unstructure(self, value: object) -> Any:
        """A value as JSON, as far as it is made of JSON and of classes with fields."""
        return self._converter.unstructure(value)

    def prepare(self, kind: Any) -> None:
        """Make the hook of a type now, so that a type that cannot be structured is found before the first call."""
        self._converter.get_structure_hook(kind)

    def _typed_dict(self, kind: Any) -> Callable[[Any, Any], Any]:
        """The keys that are there; the schema saw to those that must be. cattrs misses qualifiers in text form."""
        kinds = {key: unwrapped(hint)[0] for key, hint in hints_of(kind).items()}
        return lambda value, _: {key: self._converter.structure(item, kinds[key]) for key, item in value.items()}

    def _union(self, kind: Any) -> Callable[[Any, Any], Any]:
        """The first member whose schema admits the value; a member that is exactly the value's type goes before."""
        members = get_args(kind)
        schemas = [Schema(SchemaWriter().document(member)) for member in members]

        def structure(value: Any, _: Any) -> Any:
            if type(value) in members:
                return value
            for member, schema in zip(members, schemas, strict=True):
                if schema.mismatch(value) is None:
                    return self._converter.structure(value, member)
            raise ValueError(f"the value is none of {kind}")

        return structure
