"""JSON Schemas of tools: compiled once, checked offline, saying where and never what.

The draft is the schema's own `$schema` (2020-12 without one). A schema stands for itself: a reference to anything
outside it, by network or file, is an error when the schema is compiled. `format`, `contentEncoding` and
`contentMediaType` are notes to the model and are not asserted; defaults are not filled in; nothing is coerced.
Knows nothing of tools, calls or rejections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jsonschema_rs

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject

_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=limits.SCHEMA_BACKTRACKS, size_limit=limits.SCHEMA_PATTERN_BYTES
)


class _Annotation:
    """A keyword that admits everything, in place of one that some drafts let a validator assert."""

    def __init__(self, parent_schema: object, value: object, schema_path: object) -> None:
        pass

    def validate(self, instance: object) -> None:
        pass


_ANNOTATIONS: Final[dict[str, type[Any]]] = {"contentEncoding": _Annotation, "contentMediaType": _Annotation}


class Schema:
    """A compiled schema. Later changes to the value it was made from do not reach it.

    Raises:
        InvalidInput: the value is no schema of its draft, the draft is not known, a pattern does not compile or is
            too large, or a reference leads outside.
    """

    __slots__ = ("_validator",)

    def __init__(self, schema: JsonObject | bool) -> None:
        if not isinstance(schema, (dict, bool)):
            raise InvalidInput(f"a JSON Schema is an object or a bool, not {type(schema).__name__}")
        try:
            self._validator = jsonschema_rs.validator_for(
                schema,
                validate_formats=False,
                offline=True,
                pattern_options=_PATTERNS,
                keywords=_ANNOTATIONS,
            )
        except jsonschema_rs.ValidationError as error:
            raise InvalidInput(f"not a usable JSON Schema at {pointer(error.instance_path)}: {error.message}") from None
        except (jsonschema_rs.ReferencingError, ValueError) as error:
            raise InvalidInput(f"not a usable JSON Schema: {error}") from None

    def mismatch(self, value: JSON) -> str | None:
        """Where and by which keyword a JSON value fails first, or None for one that the schema admits.

        The text is bounded and escaped. It repeats nothing of the value but keys on the way to the fault.
        """
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            fault = error
        else:
            return None
        path = list(fault.instance_path)
        if isinstance(fault.kind, jsonschema_rs.ValidationErrorKind.Required):
            path.append(fault.kind.property)
        return f"at {pointer(path)} ({fault.kind.name})"


def pointer(path: Sequence[str | int]) -> str:
    """A JSON Pointer as an error shows it: quoted, escaped and short."""
    if not path:
        return "the top"
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return excerpt("".join(f"/{step}" for step in steps))
