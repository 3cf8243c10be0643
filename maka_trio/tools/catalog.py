"""What tools a run offers: registrations, and the immutable catalog of them.

Everything that can be wrong with a tool is found here, when it is registered, and the error names the tool. Knows
what a tool is allowed beside (`ToolSemantics`), not how a call of it runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import attrs

from maka_trio import limits
from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.codec import canonical, digest, unstructure
from maka_trio.facts.json_value import JSON
from maka_trio.facts.opening import ToolDefinition
from maka_trio.records import frozen
from maka_trio.tools.handler import Handler, fault_of, may_wait
from maka_trio.tools.schema import Schema

RESERVED_NAMES: Final = frozenset({"exec", "wait", "code_cell", "invalid", "tool_search", "maka_tool_search"})
"""Names that the library keeps for tools of its own."""


class ToolSemantics(StrEnum):
    """What a call of the tool may stand beside in one step of the model."""

    PARALLEL = "parallel"
    EXCLUSIVE_STEP = "exclusive_step"
    FINISH_TURN = "finish_turn"


class ToolNesting(StrEnum):
    """Whether a program that the model writes may call the tool, or only the model itself."""

    NESTABLE = "nestable"
    DIRECT_ONLY = "direct_only"


def _own_definition(definition: ToolDefinition) -> ToolDefinition:
    """The definition with schemas that nobody else can change."""
    if not isinstance(definition, ToolDefinition):
        raise InvalidInput(f"definition must be ToolDefinition, not {type(definition).__name__}")
    bounds.check_identity(definition.name, "tool name", limits.TOOL_NAME_BYTES)
    return attrs.evolve(
        definition,
        input_schema=copy.deepcopy(definition.input_schema),
        output_schema=copy.deepcopy(definition.output_schema),
    )


@frozen(eq=False)
class ToolRegistration:
    """A tool: what the model is told of it, and what runs when it is called.

    `handler` is `async (input, call: ToolCall) -> result`, or an object with an async `prepare` (see
    `tools.handler`). A `FINISH_TURN` tool ends the turn when it succeeds; it is `DIRECT_ONLY`. `built_in` is for the
    library's own tools, whose names are reserved.

    Raises:
        InvalidInput: a bad name, a schema that does not compile, a handler that is not async. Names the tool.
    """

    definition: ToolDefinition = attrs.field(converter=_own_definition)
    handler: Handler = attrs.field(repr=False)
    nesting: ToolNesting = attrs.field(default=ToolNesting.NESTABLE, validator=bounds.instance(ToolNesting))
    semantics: ToolSemantics = attrs.field(default=ToolSemantics.PARALLEL, validator=bounds.instance(ToolSemantics))
    built_in: bool = attrs.field(default=False, kw_only=True, repr=False, validator=bounds.flag)
    schema: Schema = attrs.field(init=False, repr=False)
    waits: bool = attrs.field(init=False, repr=False)
    """Whether a call of the tool may wait for something, a person even, before its dispatch."""

    def __attrs_post_init__(self) -> None:
        if self.name in RESERVED_NAMES and not self.built_in:
            raise InvalidInput(f"tool name {self.name!r} is reserved")
        if fault := fault_of(self.handler):
            raise InvalidInput(f"tool {self.name!r} {fault}")
        if self.semantics is ToolSemantics.FINISH_TURN and self.nesting is not ToolNesting.DIRECT_ONLY:
            raise InvalidInput(f"tool {self.name!r} finishes the turn, so its nesting must be DIRECT_ONLY")
        object.__setattr__(self, "schema", self._compile())
        object.__setattr__(self, "waits", may_wait(self.handler))

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.definition.name

    def _compile(self) -> Schema:
        try:
            return Schema(self.definition.input_schema)
        except InvalidInput as error:
            raise InvalidInput(f"tool {self.name!r}: {error}") from None


def _sorted(registrations: Iterable[ToolRegistration]) -> tuple[ToolRegistration, ...]:
    if not isinstance(registrations, Iterable):
        raise InvalidInput(f"a catalog takes registrations, not {type(registrations).__name__}")
    tools = tuple(registrations)
    for registration in tools:
        if not isinstance(registration, ToolRegistration):
            raise InvalidInput(f"a catalog takes ToolRegistration, not {type(registration).__name__}")
    return tuple(sorted(tools, key=lambda registration: registration.name))


@frozen(eq=False)
class ToolCatalog:
    """The tools of a run, immutable and sorted by name. Filters make new catalogs.

    Raises:
        InvalidInput: more than `limits.TOOLS` tools, two of one name, or definitions of more than
            `limits.TOOL_DEFINITIONS_BYTES` together.
    """

    registrations: tuple[ToolRegistration, ...] = attrs.field(default=(), converter=_sorted)
    _by_name: dict[str, ToolRegistration] = attrs.field(init=False, repr=False)
    _definitions: tuple[ToolDefinition, ...] = attrs.field(init=False, repr=False)
    _surface: bytes = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if len(self.registrations) > limits.TOOLS:
            raise InvalidInput(f"{len(self.registrations)} tools; a catalog takes at most {limits.TOOLS}")
        for first, second in zip(self.registrations, self.registrations[1:], strict=False):
            if first.name == second.name:
                raise InvalidInput(f"two tools have the name {first.name!r}")
        object.__setattr__(self, "_by_name", {tool.name: tool for tool in self.registrations})
        object.__setattr__(self, "_definitions", tuple(tool.definition for tool in self.registrations))
        object.__setattr__(self, "_surface", _encode_definitions(self._definitions))

    def __iter__(self) -> Iterator[ToolRegistration]:
        return iter(self.registrations)

    def __len__(self) -> int:
        return len(self.registrations)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> ToolRegistration | None:
        """The tool of this name, or None."""
        return self._by_name.get(name)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """What a model is told, sorted by name; the same tuple each time, which is how it is known again."""
        return self._definitions

    def digest(self) -> str:
        """The identity of what a model is told: equal for equal definitions, in every process."""
        return digest(self._surface)

    def nested(self) -> ToolCatalog:
        """The tools that a program of the model may call."""
        return ToolCatalog(tool for tool in self if tool.nesting is ToolNesting.NESTABLE)

    def excluding(self, *names: str) -> ToolCatalog:
        """The catalog without these tools; names it does not hold are no error."""
        return ToolCatalog(tool for tool in self if tool.name not in names)


def _encode_definitions(definitions: tuple[ToolDefinition, ...]) -> bytes:
    value: JSON = [unstructure(definition, ToolDefinition) for definition in definitions]
    surface = canonical(value)
    if len(surface) > limits.TOOL_DEFINITIONS_BYTES:
        raise InvalidInput(
            f"the definitions of all tools have {len(surface)} bytes; the limit is {limits.TOOL_DEFINITIONS_BYTES}"
        )
    return surface
