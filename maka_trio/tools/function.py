"""`@tool`: a typed async function as a tool.

The signature becomes the input schema, the docstring the description of the tool and of its arguments. Arguments are
structured before the call is dispatched, so a value that only a class can refuse is a rejection and no failed effect.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, overload

from maka_trio.errors import InvalidInput, ToolFailed
from maka_trio.facts.json_value import JSON
from maka_trio.facts.opening import ToolDefinition
from maka_trio.facts.outcome import ToolRejection
from maka_trio.records import frozen
from maka_trio.tools.arguments import ArgumentConverter
from maka_trio.tools.call import ToolCall
from maka_trio.tools.catalog import ToolNesting, ToolRegistration, ToolSemantics
from maka_trio.tools.docstring import parse_docstring
from maka_trio.tools.failure import text_of
from maka_trio.tools.handler import ASYNC_HINT, PreparedEffect, named
from maka_trio.tools.output import RESULT_LOST_TEXT, ToolContent, ToolImage, ToolProjection, ToolText
from maka_trio.tools.signature import MISSING, Field, SchemaWriter, hints_of

ToolFunction: TypeAlias = Callable[..., Awaitable[object]]


@overload
def tool(function: ToolFunction, /) -> ToolRegistration: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    nesting: ToolNesting = ToolNesting.NESTABLE,
    semantics: ToolSemantics = ToolSemantics.PARALLEL,
) -> Callable[[ToolFunction], ToolRegistration]: ...


def tool(
    function: ToolFunction | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    nesting: ToolNesting = ToolNesting.NESTABLE,
    semantics: ToolSemantics = ToolSemantics.PARALLEL,
) -> ToolRegistration | Callable[[ToolFunction], ToolRegistration]:
    """Make a tool of a typed async function: `@tool`, or `@tool(name=..., ...)`.

    Each argument is annotated with str, int, float, bool, None, `Literal`, an enum, a list, tuple, set or dict of
    such, `Optional` or a union of such, an attrs class, a dataclass or a `TypedDict`; `Annotated[T, "text"]` describes
    it, as does a Google-style `Args:` section. Arguments with a default may be left out. An argument annotated
    `ToolCall` is given the call and is not shown to the model. The result may be JSON, made of those classes, or one
    of the forms of `tools.output`.

    Args:
        function: the function. It must be async: blocking work goes through `trio.to_thread.run_sync`.
        name: the tool's name; by default the function's.
        description: what the model is told; by default the docstring up to its first section.
        nesting: whether programs of the model may call it.
        semantics: what it may stand beside in one step.

    Raises:
        InvalidInput: the function is not async, or an argument has no annotation or one that JSON cannot carry.
    """

    def register(function: ToolFunction) -> ToolRegistration:
        scope = sys._getframe(1).f_locals
        return _register(function, name, description, nesting, semantics, scope)

    if function is None:
        return register
    return _register(function, name, description, nesting, semantics, sys._getframe(1).f_locals)


def _register(
    function: ToolFunction,
    name: str | None,
    description: str | None,
    nesting: ToolNesting,
    semantics: ToolSemantics,
    scope: Mapping[str, Any],
) -> ToolRegistration:
    name = name if name is not None else getattr(function, "__name__", None)
    if name is None:
        raise InvalidInput(f"tool needs a name=, since a {named(function)} has none")
    try:
        handler = FunctionHandler(function, scope)
    except InvalidInput as error:
        raise InvalidInput(f"tool {name!r}: {error}") from None
    if description is None:
        description = parse_docstring(_innermost(function).__doc__).description
    definition = ToolDefinition(name, description, handler.input_schema)
    return ToolRegistration(definition, handler, nesting, semantics)


class FunctionHandler:
    """The handler behind a typed function, which stays callable as `function`."""

    prepares_at_once: ClassVar[bool] = True
    """Nothing is waited for before the dispatch; see `handler.may_wait`."""

    def __init__(self, function: ToolFunction, scope: Mapping[str, Any]) -> None:
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(f"{named(function)} is not an async function; {ASYNC_HINT}")
        self.function = function
        signature = _read(function, scope)
        self._call_names = signature.call_names
        self._kinds = {field.name: field.kind for field in signature.fields}
        self.input_schema: dict[str, JSON] = SchemaWriter(scope).object_document(signature.fields)
        self._converter = ArgumentConverter()
        for kind in self._kinds.values():
            self._converter.prepare(kind)

    async def prepare(self, arguments: Any, call: ToolCall, /) -> PreparedEffect | ToolRejection:
        """Structure the arguments. Nothing is called yet but the constructors of their classes."""
        given: dict[str, object] = {}
        for name, value in arguments.items():
            try:
                given[name] = self._converter.structure(value, self._kinds[name])
            except Exception as error:  # what a class raises for a value it refuses is its own affair
                return ToolRejection.invalid_input(f"{name}: {text_of(error)}")
        given |= dict.fromkeys(self._call_names, call)

        async def run(_: object) -> object:
            return self._plain(await self.function(**given))

        return PreparedEffect(run)

    def _plain(self, result: object) -> object:
        if isinstance(result, (ToolText, ToolImage, ToolContent, ToolProjection)):
            return result
        try:
            return self._converter.unstructure(result)
        except Exception as error:  # the effect is done, so what its result cannot do is told as such
            raise ToolFailed(f"{RESULT_LOST_TEXT}: {text_of(error)}") from error


def _innermost(function: ToolFunction) -> ToolFunction:
    return _innermost(function.func) if isinstance(function, functools.partial) else function


def _bound(function: ToolFunction) -> frozenset[str]:
    """The names that a partial binds: they are its maker's to say, not the model's."""
    return frozenset(function.keywords) if isinstance(function, functools.partial) else frozenset()


@frozen
class _Signature:
    fields: Sequence[Field]
    call_names: Sequence[str]


def _read(function: ToolFunction, scope: Mapping[str, Any]) -> _Signature:
    hints = hints_of(_innermost(function), scope)
    described = parse_docstring(_innermost(function).__doc__).arguments
    fields, call_names = [], []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in _bound(function):
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidInput(f"the argument {parameter.name!r} cannot be given by its name")
        if parameter.name not in hints:
            raise InvalidInput(f"the argument {parameter.name!r} has no annotation")
        if hints[parameter.name] is ToolCall:
            call_names.append(parameter.name)
            continue
        required = parameter.default is parameter.empty
        default = MISSING if required else parameter.default
        description = described.get(parameter.name)
        fields.append(Field(parameter.name, hints[parameter.name], required, default, description))
    return _Signature(fields, call_names)
