"""A part of a log's sessions, for a process that looks at that part while others look at the rest."""

from __future__ import annotations

from typing import Final

from maka_trio.records import frozen


@frozen
class Share:
    """One of `of` shares, from 0 on.

    Whatever is held against a session's facts needs that session's only, but for what `Verification` looks out for.
    The links of the log's chain are each held against the digest that the event before states: that covers all of
    it, since each event is in one share.
    """

    number: int = 0
    of: int = 1

    def has(self, session: object) -> bool:
        """Whether a session is in it, by its row. What is no row is in the first."""
        return (session % self.of if isinstance(session, int) else 0) == self.number


WHOLE: Final = Share()
"""All sessions."""
