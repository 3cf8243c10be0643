"""SQLite's connection as the log uses it: all that is wrong with a file comes out of it as an error of SQLite's."""

from __future__ import annotations

import sqlite3
from typing import Any


class LogConnection(sqlite3.Connection):
    """A connection whose errors can be told apart.

    SQLite quotes what it found in a damaged schema, which need not be text; Python's module then fails over the
    message, with an error that says nothing of the file.
    """

    def execute(self, *args: Any) -> sqlite3.Cursor:
        """See `sqlite3.Connection.execute`."""
        try:
            return super().execute(*args)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError(f"the file holds something that is no text ({error})") from error

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        """See `sqlite3.Connection.executemany`."""
        try:
            return super().executemany(*args)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError(f"the file holds something that is no text ({error})") from error
