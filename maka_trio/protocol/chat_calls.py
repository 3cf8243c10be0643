"""Tool calls put together from the pieces that chat servers send them in.

The vendor gives every piece the index of its call, and the first piece an id and a name. Others leave the index
out, use one index for every call, repeat id and name on each piece, or give no id at all. Arguments are collected
as text and parsed once, at the end; nothing is guessed from half a document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from maka_trio.errors import AdapterError
from maka_trio.facts.bounds import excerpt
from maka_trio.facts.json_value import JSON, JsonObject
from maka_trio.facts.model import ModelToolCall
from maka_trio.protocol.chat_chunk import CallDelta
from maka_trio.protocol.payload import check_depth, parse_arguments
from maka_trio.records import define


@define
class _Call:
    """One call so far. `index` is None where the server gave none."""

    index: int | None
    id: str = ""
    name: str = ""
    pieces: list[str] = attrs.field(factory=list)
    value: dict[str, Any] | None = None
    extra_content: dict[str, Any] | None = None

    def is_whole(self) -> bool:
        """Whether the arguments are a complete object already, so that nothing can follow them."""
        if self.value is not None:
            return True
        try:
            return isinstance(msgspec.json.decode("".join(self.pieces)), dict)
        except (msgspec.MsgspecError, RecursionError):
            return False

    def input(self) -> JSON:
        if self.value is None:
            return parse_arguments("".join(self.pieces), self.name)
        check_depth(self.value, msgspec.json.encode(self.value).decode(), f"the arguments of {excerpt(self.name)}")
        return self.value


class CallAssembler:
    """The calls of one answer.

    Args:
        generated_ids: calls without an id, or with the id of another call, are given one made from their position.
        key: under which key a call's extra content is kept in its provider options.
    """

    def __init__(self, *, generated_ids: bool, key: str) -> None:
        self._generated_ids = generated_ids
        self._key = key
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._index_reused = False

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, deltas: Sequence[CallDelta]) -> int:
        """Take the pieces of one chunk. Returns how many characters of arguments they hold.

        Raises:
            AdapterError: a piece that belongs to no call, or changes what a call is.
        """
        positions = range(len(deltas)) if len(deltas) > 1 else (None,)
        return sum(
            self._extend(self._target(delta, position), delta)
            for position, delta in zip(positions, deltas, strict=False)
        )

    def finish(self) -> list[ModelToolCall]:
        """The complete calls, in the order of their indices.

        Raises:
            AdapterError: a call without a name, without an id where ids are not generated, or whose arguments are
                not one JSON document.
        """
        in_order = self._index_reused or any(call.index is None for call in self._calls)
        calls = self._calls if in_order else sorted(self._calls, key=lambda call: call.index or 0)
        return [self._complete(call, call_id) for call, call_id in zip(calls, self._ids(calls), strict=True)]

    # --- which call a piece belongs to -------------------------------------------------------------------

    def _target(self, delta: CallDelta, position: int | None) -> _Call:
        """The call that a piece belongs to, begun if need be.

        Args:
            delta: the piece.
            position: where it stands in its chunk, if the chunk holds several.
        """
        index = position if delta.index is None else delta.index
        if delta.index is None and delta.id:
            known = next((call for call in reversed(self._calls) if call.id == delta.id), None)
        elif index is None:
            known = self._calls[-1] if self._calls else None
        else:
            known = self._by_index.get(index)
        if known is None or self._begins_another(known, delta, indexed=index is not None):
            return self._begin(delta, index)
        return known

    def _begins_another(self, known: _Call, delta: CallDelta, *, indexed: bool) -> bool:
        """Whether a piece that points at a known call is the front of the next one."""
        if delta.id and known.id:
            return delta.id != known.id
        if indexed and known.id:
            return False
        name = _name(delta)
        return bool(name and known.name) and (name != known.name or known.is_whole())

    def _begin(self, delta: CallDelta, index: int | None) -> _Call:
        if not delta.id and not _name(delta):
            raise AdapterError("a piece of a tool call belongs to no call")
        call = _Call(index)
        self._calls.append(call)
        if index is not None:
            self._index_reused |= index in self._by_index
            self._by_index[index] = call
        return call

    # --- what a piece adds -------------------------------------------------------------------------------

    def _extend(self, call: _Call, delta: CallDelta) -> int:
        if delta.type not in (None, "", "function"):
            raise AdapterError(f"the answer holds a tool call of type {excerpt(delta.type)}, which was not offered")
        if delta.id:
            call.id = delta.id
        if isinstance(delta.extra_content, dict):
            call.extra_content = {**(call.extra_content or {}), **delta.extra_content}
        if delta.function is None:
            return 0
        self._set_name(call, delta.function.name)
        return self._add_arguments(call, delta.function.arguments)

    def _set_name(self, call: _Call, name: str | None) -> None:
        if not name:
            return
        if call.name and call.name != name:
            raise AdapterError(f"call {excerpt(call.id)} of {excerpt(call.name)} turns into one of {excerpt(name)}")
        call.name = name

    def _add_arguments(self, call: _Call, arguments: object) -> int:
        if arguments is None or arguments == "":
            return 0
        if isinstance(arguments, dict) and not call.pieces and call.value is None:
            call.value = arguments
            return len(msgspec.json.encode(arguments))
        if isinstance(arguments, str) and call.value is None:
            call.pieces.append(arguments)
            return len(arguments)
        raise AdapterError(f"the arguments of {excerpt(call.name)} are neither a text nor one object")

    # --- at the end --------------------------------------------------------------------------------------

    def _ids(self, calls: Sequence[_Call]) -> list[str]:
        """The ids of all calls. A made one is the same each time for the same answer, so a replay repeats it."""
        if not self._generated_ids:
            return [call.id for call in calls]
        given = {call.id for call in calls}
        ids: list[str] = []
        for position, call in enumerate(calls):
            candidate = call.id
            if not candidate or candidate in ids:
                candidate = f"call_{position}"
                while candidate in given or candidate in ids:
                    candidate += "_"
            ids.append(candidate)
        return ids

    def _complete(self, call: _Call, call_id: str) -> ModelToolCall:
        if not call.name:
            raise AdapterError(f"the answer holds a tool call {excerpt(call_id)} without a name")
        if not call_id:
            raise AdapterError(f"the answer holds a call of {excerpt(call.name)} without an id")
        options: JsonObject | None = None
        if call.extra_content:
            options = {self._key: {"extra_content": call.extra_content}}
        return ModelToolCall(call_id, call.name, call.input(), options)


def _name(delta: CallDelta) -> str:
    return (delta.function.name or "") if delta.function is not None else ""
