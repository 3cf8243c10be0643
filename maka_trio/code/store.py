"""What programs keep from one cell to the next: JSON by name, for each session, in memory. No I/O.

It outlives runs and turns and not the process. It is a convenience, not evidence: nothing of it is in the log.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from maka_trio.errors import InvalidInput
from maka_trio.facts.codec import canonical, parse_json
from maka_trio.facts.json_value import JSON
from maka_trio.limits import MIB

SESSION_BYTES: Final = MIB
"""Names and values of one session, as JSON."""

TOTAL_BYTES: Final = 64 * MIB
"""All sessions together; beyond it, those that were left alone longest are forgotten."""


class SessionStore:
    """The values of every session.

    Args:
        session_bytes: what one session may keep.
        total_bytes: what is kept in all.
    """

    def __init__(self, *, session_bytes: int = SESSION_BYTES, total_bytes: int = TOTAL_BYTES) -> None:
        self._session_bytes = session_bytes
        self._total_bytes = total_bytes
        self._sessions: OrderedDict[str, dict[str, bytes]] = OrderedDict()
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def put(self, session_id: str, name: str, value: JSON) -> None:
        """Keep a value; None forgets the name.

        Raises:
            InvalidInput: the name is no text, or the session would keep too much. What it kept before stays.
        """
        if not isinstance(name, str):
            raise InvalidInput("store takes a name and a value; the name is a str")
        values = self._sessions.get(session_id, {})
        kept = {**values, name: canonical(value)}
        if value is None:
            del kept[name]
        size = sum(len(key.encode()) + len(data) for key, data in kept.items())
        if size > self._session_bytes:
            raise InvalidInput(f"store would keep {size} bytes; a session keeps at most {self._session_bytes}")
        self._sessions[session_id], self._sizes[session_id] = kept, size
        self._sessions.move_to_end(session_id)
        self._forget()

    def get(self, session_id: str, name: str, default: JSON = None) -> JSON:
        """The value of a name, or the default."""
        values = self._sessions.get(session_id, {})
        if session_id in self._sessions:
            self._sessions.move_to_end(session_id)
        data = values.get(name) if isinstance(name, str) else None
        return default if data is None else parse_json(data, what="a stored value")

    def _forget(self) -> None:
        while sum(self._sizes.values()) > self._total_bytes:
            session_id, _ = self._sessions.popitem(last=False)
            del self._sizes[session_id]
