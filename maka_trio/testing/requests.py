"""What a scripted provider keeps of each request. Shows no credentials in its repr."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio

from maka_trio.facts.json_value import JSON
from maka_trio.records import frozen

_SECRET = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})


class ReceivedHeaders(dict[str, str]):
    """Headers by lower-case name; those that come twice are joined with a comma. The repr masks credentials."""

    def __repr__(self) -> str:
        shown = {name: "***" if name in _SECRET else value for name, value in self.items()}
        return repr(shown)


@frozen(eq=False)
class RecordedRequest:
    """One request as it arrived.

    Attributes:
        number: its place among the provider's requests, from 1.
        method: `POST` for every request of this library.
        path: the target without its query.
        headers: by lower-case name, values as sent.
        raw: the body.
        body: the body as JSON, or None where it is none.
        answered: set when the whole answer has been handed to the kernel.
        disconnected: set when the connection is seen closed, by either side.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes = attrs.field(repr=lambda raw: f"<{len(raw)} bytes>")
    body: JSON = attrs.field(repr=False)
    answered: trio.Event = attrs.field(factory=trio.Event, repr=False)
    disconnected: trio.Event = attrs.field(factory=trio.Event, repr=False)
