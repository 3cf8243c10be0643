"""The log's file, written by one thread at a time. No thread of its own, no trio.

`write` takes tickets, each an append that stands or falls as a whole, plans them one after the other, and commits
all that passed in one transaction. A ticket that is refused is refused alone and leaves no trace. An append costs
the same in a log of any age.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

from maka_trio import limits
from maka_trio.errors import Busy, CommitRejected, CommitUnknown, InvalidInput, LogCorrupt, MakaError
from maka_trio.facts.bounds import excerpt
from maka_trio.log import deletion, schema, sealing
from maka_trio.log.commit import Commit, Position, Result, Ticket
from maka_trio.log.draft import Draft
from maka_trio.log.faults import error_name, is_corrupt, is_full, is_locked, os_error, store_error, translated
from maka_trio.log.lease import Lease
from maka_trio.log.losses import check_end, check_presence, named
from maka_trio.log.plan import Planner
from maka_trio.log.room import Room
from maka_trio.log.sessions import SessionState
from maka_trio.recovery import End, host_stopped
from maka_trio.transitions import InvocationState

T = TypeVar("T")

OnDurable: TypeAlias = Callable[[], object]


class _Lost(Exception):
    """A transaction failed while it was being committed, and nobody can say whether it is in the file."""


class Store:
    """One log file (or one in memory), open for writing.

    Args:
        connection: a read-write connection that nobody else writes with.
        lease: held until `close`; None for a log in memory.

    Attributes:
        connection: for reads in the thread that writes.
    """

    def __init__(self, connection: sqlite3.Connection, lease: Lease | None = None) -> None:
        self.connection = connection
        self._lease = lease
        self._room = None if lease is None else Room(lease.path)
        self._failure: str | None = None
        with translated("reading the end of the log"):
            self._planner = Planner(connection)

    @classmethod
    def open(cls, path: Path) -> Store:
        """Take the lease of a log and open it, creating it if it is not there.

        Raises:
            StoreError: see `Lease` and `schema.open_or_create`.
        """
        try:
            lease = Lease(path)
            try:
                return cls._open_leased(lease)
            except BaseException:
                lease.release()
                raise
        except OSError as error:
            raise os_error(error, f"cannot open {str(path)!r}") from error

    @classmethod
    def _open_leased(cls, lease: Lease) -> Store:
        check_presence(lease)
        try:
            connection = schema.open_or_create(lease.path, known=lease.renewed)
            try:
                store = cls(connection, lease)
                check_end(lease, store.root.high_water)
                store.go_on_with_deletions()
            except BaseException:
                connection.close()
                raise
        except LogCorrupt as error:
            raise named(error, lease.path) from error
        return store

    @classmethod
    def in_memory(cls) -> Store:
        """An empty log without a file."""
        return cls(schema.open_in_memory())

    @property
    def path(self) -> Path | None:
        """The real path of the file; None in memory."""
        return self._lease.path if self._lease else None

    @property
    def root(self) -> Position:
        """The end of the whole log."""
        return self._planner.root

    def close(self) -> None:
        """Close the file, leaving no write-ahead log if nobody else reads it, then give the lease back."""
        try:
            self.connection.close()
        finally:
            if self._room is not None:
                self._room.close()
            if self._lease is not None:
                self._lease.release()

    # --- appending ----------------------------------------------------------------------------------------

    def append(self, ticket: Ticket) -> list[int]:
        """Write one ticket and return its sequences.

        Raises:
            CommitError: it was refused, or its outcome is unknown.
            StoreError: the file is full or damaged.
            InvalidInput: its evidence is not what its facts say.
        """
        (result,) = self.write([ticket]).results
        if isinstance(result, MakaError):
            raise result
        return result

    def check(self, ticket: Ticket) -> None:
        """Raise what writing a ticket would raise, as far as the rules go, and write nothing."""
        draft = self._planner.draft()
        result = self._plan(draft, ticket, careful=True)
        draft.discard()
        if isinstance(result, MakaError):
            raise result

    def write(self, tickets: Sequence[Ticket], on_durable: OnDurable | None = None) -> Commit:
        """Write tickets in order, in as few transactions as possible.

        What goes wrong with a ticket is its result, never an exception.

        Args:
            tickets: the appends.
            on_durable: called when the disk has a transaction, before what follows from that is noted. Must not raise.
        """
        written: list[Draft] = []
        results = self._write(tickets, written, on_durable)
        return self._done(results, written)

    def _done(self, results: list[Result], written: Sequence[Draft]) -> Commit:
        """What was done with transactions that are durable."""
        added = [(draft.first, draft.writes) for draft in written if draft.writes]
        sessions = {
            name: Position(session.head, session.digest) for draft in written for name, session in draft.touched.items()
        }
        return Commit(results, added, self.root, sessions)

    def _write(
        self, tickets: Sequence[Ticket], written: list[Draft], on_durable: OnDurable | None = None
    ) -> list[Result]:
        """All together; if the file objects to an id, again with every id looked up; else each by itself."""
        for careful in (False, True):
            draft = self._planner.draft()
            results = [self._plan(draft, ticket, careful=careful) for ticket in tickets]
            error = self._commit(draft, written, on_durable)
            if error is None:
                return results
            if not isinstance(error, sqlite3.IntegrityError):
                break
        if len(tickets) > 1 and self._failure is None:
            return [result for ticket in tickets for result in self._write([ticket], written, on_durable)]
        return [self._unwritten(result, error) for result in results]

    def _plan(self, draft: Draft, ticket: Ticket, *, careful: bool) -> Result:
        if self._failure is not None:
            return CommitRejected(f"the log takes no more appends: {self._failure}", reason="log_failed")
        try:
            return self._planner.plan(draft, ticket, careful=careful)
        except MakaError as error:
            return error
        except sqlite3.IntegrityError as error:
            if not careful:
                return self._plan(draft, ticket, careful=True)
            return CommitRejected(f"an id of this append is used twice: {error}", reason="conflict")
        except sqlite3.Error as error:
            return store_error(error, "checking an append")

    def _commit(self, draft: Draft, written: list[Draft], on_durable: OnDurable | None) -> Exception | None:
        """Make a draft durable, or take all of it back and say why."""
        try:
            if draft.events:
                self._transact(draft.flush)
        except (sqlite3.Error, _Lost) as error:
            draft.discard()
            return error
        except BaseException:
            draft.discard()
            raise
        if on_durable is not None and draft.events:
            on_durable()
        self._planner.committed(draft)
        if self._lease is not None:
            self._lease.acknowledge(self._planner.root.high_water)
        written.append(draft)
        return None

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(self.connection)
        except BaseException:
            self._roll_back()
            raise
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            # A full disk stops the commit before its last frame is written, and a foreign lock before its first, so
            # it is known not to have happened. After a failed sync the next owner may find all frames whole.
            if not ((is_full(error) or is_locked(error)) and self._roll_back()):
                self._roll_back()
                self._failure = f"a commit failed and may have happened ({error_name(error)}); open the log again"
                raise _Lost(str(error)) from error
            raise
        return result

    def _roll_back(self) -> bool:
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._failure = f"a transaction could not be rolled back ({error_name(error)}); open the log again"
            return False
        return True

    def _unwritten(self, planned: Result, error: Exception | None) -> Result:
        """The result of a ticket whose transaction failed; what was refused in planning keeps its own."""
        if isinstance(planned, MakaError):
            return planned
        match error:
            case _Lost():
                return CommitUnknown(f"the commit failed and may have happened: {error}")
            case sqlite3.IntegrityError():
                return CommitRejected(f"an id of this append is used twice: {error}", reason="conflict")
            case sqlite3.Error() if is_full(error) or is_corrupt(error):
                return store_error(error, "writing to the log")
            case sqlite3.Error():
                reason = "locked" if is_locked(error) else "log_failed"
                return CommitRejected(f"writing to the log: {error} ({error_name(error)})", reason=reason)
            case _:
                return CommitRejected(f"writing to the log: {error}", reason="log_failed")

    def retire(self, session_id: str) -> None:
        """Let a session take no more openings.

        Raises:
            InvalidInput: the log has nothing of it.
            CommitRejected: the log takes no more writes.
            StoreError: the file cannot be written.
        """
        session = self._session(session_id)
        now = time.time_ns() // 1_000_000
        self._change(
            f"retiring session {excerpt(session_id)}",
            lambda connection: connection.execute(
                "UPDATE sessions SET retired = ? WHERE id = ? AND retired IS NULL", (now, session.row)
            ),
        )
        session.retired = True

    def _session(self, session_id: str) -> SessionState:
        with translated(f"reading session {excerpt(session_id)}"):
            session = self._planner.sessions.get(session_id)
        if session is None:
            raise InvalidInput(f"the log has nothing of session {excerpt(session_id)}")
        return session

    def _change(self, doing: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something that is no append, in a transaction of its own."""
        if self._failure is not None:
            raise CommitRejected(f"the log takes no more writes: {self._failure}", reason="log_failed")
        try:
            with translated(doing):
                return self._transact(work)
        except _Lost as error:
            raise CommitUnknown(f"{doing}: the commit failed and may have happened: {error}") from error

    def checkpoint(self) -> None:
        """Copy what the write-ahead log holds into the file, as far as readers allow. Waits for nobody.

        What fails here fails again, and is told, at the next append.
        """
        with contextlib.suppress(sqlite3.Error):
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def make_room(self) -> None:
        """Make room for the transactions to come, if the last one used it up. Waits for nobody; see `room`."""
        if self._room is not None:
            self._room.keep()

    def skip_to(self, sequence: int) -> None:
        """Let the next event have this sequence, which is higher than the last. For events that bring their own."""
        self._planner.skip_to(sequence)

    # --- deletion -----------------------------------------------------------------------------------------

    def begin_deletion(self, session_id: str) -> None:
        """Note that the bodies of a session are to go. From then on its readers are refused.

        Raises:
            InvalidInput: the log has nothing of it, or it still takes runs.
            Busy: a run of it has not ended.
            CommitError, StoreError: the file cannot be written.
        """
        session, name = self._session(session_id), excerpt(session_id)
        if not session.retired:
            raise InvalidInput(f"session {name} still takes runs; retire it before its bodies are deleted")
        if session.open is not None:
            run_id = session.open.state.invocation.run_id
            words = f"session {name} is held by run {excerpt(run_id)}, which has not ended"
            raise Busy(words, session_id=session_id, run_id=run_id)
        self._change(
            f"deleting session {name}", lambda connection: deletion.begin(connection, session.row, session.head)
        )

    def delete_some(self, session_id: str) -> int:
        """Delete the bodies of some more events of it, in one transaction; return of how many. 0 when none is left."""
        return self._delete_some(self._session(session_id).row)

    def finish_deletion(self, session_id: str) -> bool:
        """After the last of them, leave nothing of them in the file or beside it.

        Returns:
            False where that has to wait, because somebody reads an older state of the log.
        """
        return self._finish_deletion(self._session(session_id).row)

    def go_on_with_deletions(self) -> None:
        """Go on with what an earlier owner began, for a bounded number of steps.

        What is left then, or fails now, is left as it is and told to who asks again.
        """
        left = limits.DELETION_STEPS_AT_OPENING
        with translated("listing deletions"):
            unfinished = deletion.unfinished(self.connection)
        with contextlib.suppress(MakaError):
            for session in unfinished:
                while self._delete_some(session):
                    left -= 1
                    if not left:
                        return
                self._finish_deletion(session)

    def _delete_some(self, session: int) -> int:
        return self._change("deleting bodies", lambda connection: deletion.go_on(connection, session))

    def _finish_deletion(self, session: int) -> bool:
        if self.path is not None:
            try:
                with translated("clearing the file of deleted bodies"):
                    if not deletion.sweep(self.connection, self.path):
                        return False
            except OSError as error:
                raise os_error(error, f"cannot read {str(self.path)!r}") from error
        self._change("deleting bodies", lambda connection: deletion.finish(connection, session))
        return True

    # --- recovery -----------------------------------------------------------------------------------------

    def abandoned(self, up_to: int, after: str = "") -> list[str]:
        """Sessions with an open invocation whose opening is not after `up_to`, at most `RECOVERED_INVOCATIONS`.

        Args:
            up_to: a sequence.
            after: the last session of the list before this one.
        """
        with translated("listing open invocations"):
            rows = self.connection.execute(
                "SELECT sessions.session_id FROM invocations JOIN sessions ON sessions.id = invocations.session "
                "WHERE ended IS NULL AND opened <= ? "
                "AND invocations.session > coalesce((SELECT id FROM sessions WHERE session_id = ?), 0) "
                "ORDER BY invocations.session LIMIT ?",
                (up_to, after, limits.RECOVERED_INVOCATIONS),
            ).fetchall()
        return [session_id for (session_id,) in rows]

    def seal(self, session_ids: Sequence[str], end: End = host_stopped) -> Commit:
        """Seal the open invocations of these sessions; see `sealing.seal`.

        Raises:
            LogCorrupt: the facts of one cannot be read.
        """
        written: list[Draft] = []
        states = [state for session_id in session_ids if (state := self._open_state(session_id))]
        results = sealing.seal(lambda tickets: self._write(tickets, written), states, end)
        return self._done(results, written)

    def _open_state(self, session_id: str) -> InvocationState | None:
        with translated(f"reading session {excerpt(session_id)}"):
            session = self._planner.sessions.get(session_id)
        return None if session is None or session.open is None else session.open.state
