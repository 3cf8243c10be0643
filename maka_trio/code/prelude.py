"""What stands in a cell before the program: its tools and helpers, as functions that the sandbox itself defines.

They turn arguments and results into JSON text inside the sandbox, where that costs the program's own time and memory
and where its size is checked, so that only bounded texts ever cross to us. All of them call one host function, the
gate, whose name the program cannot guess. It is a shield against accidents and wasted time, not the boundary: what
comes through the gate is checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

TOOL: Final = "tool"
HELPER: Final = "helper"

_BUILD: Final = """
import json as _json
def _build(gate, limit, dumps, loads, size, text):
    def encode(name, value):
        payload = dumps(value)
        if size(payload) > limit:
            raise ValueError(name + ": its arguments have more than " + text(limit) + " characters of JSON")
        return payload
    def tool(function, name):
        async def call(*args, **kwargs):
            if size(args) > 1 or (args and kwargs):
                raise TypeError(function + " takes keyword arguments, or its whole input as one value")
            return loads(await gate("tool", name, encode(function, args[0] if args else kwargs)))
        return call
    def helper(name):
        def call(*args, **kwargs):
            return loads(gate("helper", name, encode(name, [args, kwargs])))
        return call
    return tool, helper
"""


def prelude(gate: str, tools: Mapping[str, str], helpers: Iterable[str], *, limit: int) -> str:
    """The source of the functions.

    Args:
        gate: the name of the host function; an identifier.
        tools: the name of each function, an identifier, with the name of the tool it calls.
        helpers: names of functions that the program waits for; identifiers.
        limit: characters of JSON in the arguments of one call.
    """
    lines = [_BUILD, f"_tool, _helper = _build({gate}, {limit}, _json.dumps, _json.loads, len, str)"]
    lines += [f"{function} = _tool({function!r}, {name!r})" for function, name in tools.items()]
    lines += [f"{helper} = _helper({helper!r})" for helper in helpers]
    lines.append(f"{gate} = _build = _tool = _helper = _json = None\n")
    return "\n".join(lines)
