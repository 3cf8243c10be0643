"""What a program has written: kept whole, handed out piece by piece. Written in one thread, read in another."""

from __future__ import annotations

import threading


class Content:
    """Text of at most `limit` bytes of UTF-8."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._pieces: list[str] = []
        self._size = 0
        self._taken = 0

    def write(self, text: str) -> bool:
        """Add a text; false, with nothing added, where it is too much."""
        text = text.encode(errors="backslashreplace").decode()  # the log and the wire take whole characters only
        size = len(text.encode())
        with self._lock:
            if self._size + size > self.limit:
                return False
            self._size += size
            self._pieces.append(text)
        return True

    def take(self) -> str:
        """What has been written since the last time."""
        with self._lock:
            new, self._taken = self._pieces[self._taken :], len(self._pieces)
        return "".join(new)

    def whole(self) -> str:
        """All that has been written."""
        with self._lock:
            return "".join(self._pieces)
