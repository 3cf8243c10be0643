"""`EventLog`: the trio face of the log. What is written is decided in `plan`; what can be read is in `questions`."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from maka_trio import limits
from maka_trio.errors import InvalidInput, LogClosed, LogInUse, MakaError, StoreError
from maka_trio.facts.bounds import check_identity, excerpt
from maka_trio.facts.event import EventSink, EventWrite, RuntimeEvent, StoredEvent
from maka_trio.facts.identity import new_id
from maka_trio.facts.prefix import chain_text
from maka_trio.facts.scope import Lineage, Root, Scope, Session
from maka_trio.log import queries
from maka_trio.log.backup import backup
from maka_trio.log.commit import Commit, Position
from maka_trio.log.faults import os_error
from maka_trio.log.follow import Follower, Hub
from maka_trio.log.prepared import prepare, prepare_all
from maka_trio.log.queries import Head
from maka_trio.log.questions import Questions, checked_scope
from maka_trio.log.reader import Reader
from maka_trio.log.readers import InlineReaders, Readers, ReaderThreads
from maka_trio.log.store import Store
from maka_trio.log.writer import Committer, InlineCommitter, WriterThread
from maka_trio.recovery import End, host_stopped
from maka_trio.scopes import Home

T = TypeVar("T")

MEMORY: Final = ":memory:"
"""The path of a log without a file."""

_REMEMBERED_HEADS = 1024
_SEALED_AT_ONCE = 64


class EventLog(Questions, EventSink):
    """A durable, ordered log of events. Opened with `async with EventLog.open(path) as log`.

    An append that was submitted is never taken back by a cancel: a cancel that comes before it is submitted prevents
    it, one that comes later is delivered at the caller's next checkpoint. Reads may be cancelled at any time. After
    `aclose` every call raises LogClosed.

    Attributes:
        path: its file; None of a log in memory.
        name: one that no other log of the program has, and that the file has again when it is opened again.
    """

    def __init__(self, store: Store, *, inline: bool) -> None:
        """For `open` and `in_memory`."""
        self.path = store.path
        self.name = str(store.path) if store.path is not None else f"{MEMORY} {new_id()}"
        self._store = store
        self._home = Home("the log")
        self._hub = Hub()
        self._root = store.root
        self._heads: OrderedDict[str, Position] = OrderedDict()
        self._inline = inline
        self._claimed_at: int | None = None
        self._closing = False
        self._closed = trio.Event()
        self._committer: Committer
        self._readers: Readers
        if inline or store.path is None:
            self._committer, self._readers = InlineCommitter(store, self._publish), InlineReaders(store)
        else:
            self._committer, self._readers = WriterThread(store, self._publish), ReaderThreads(store.path)

    # --- opening and closing ------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, inline: bool = False) -> AbstractAsyncContextManager[EventLog]:
        """Open a log, creating it if it is not there, and close it at the end of the block.

        Args:
            path: the file. Its folder must exist. `:memory:` with `inline` is a log without a file.
            inline: call SQLite in the trio thread instead of a thread of its own. The rules are the same and every
                step is deterministic, which tests with a virtual clock need; the disk then holds up the program.

        Raises:
            LogInUse: another process, or another log of this one, has it open.
            LogCorrupt: it is damaged.
            LogTooNew: a newer version wrote it.
            LogUnsupported: the file is no log, or cannot have one owner.
            StoreError: the file system refused.
        """
        return _open(cls, path, inline=inline)

    @classmethod
    def in_memory(cls) -> AbstractAsyncContextManager[EventLog]:
        """A log without a file, inline."""
        return cls.open(MEMORY, inline=True)

    async def aclose(self) -> None:
        """Finish every accepted append, close the file, release the lease. Idempotent; not cancellable."""
        if self._closing:
            with trio.CancelScope(shield=True):  # somebody else is closing it, which ends by itself
                await self._closed.wait()
            return
        self._closing = True
        with trio.CancelScope(shield=True):  # local disk work, which ends by itself
            try:
                await self._committer.aclose()
                self._hub.close()
                await self._readers.aclose()
            finally:
                try:
                    await _run_sync(self._store.close, inline=self._inline)  # noqa: ASYNC102 - within the shield
                finally:
                    self._closed.set()

    @contextmanager
    def claim(self) -> Generator[None, None, None]:
        """Be the one engine of this log for a block.

        An engine builds a run's prompt from the session as it read it, so nobody else may run the session meanwhile.

        Raises:
            LogInUse: another engine has claimed it.
        """
        self._check_open()
        if self._claimed_at is not None:
            raise LogInUse("another engine uses this log; a log serves one engine at a time")
        self._claimed_at = self._root.high_water
        try:
            yield
        finally:
            self._claimed_at = None

    def _check_open(self) -> None:
        if self._closing:
            raise LogClosed("the log is closed")
        self._home.check()

    def _publish(self, commit: Commit) -> None:
        self._root = commit.root
        for session_id, position in commit.sessions.items():
            self._heads[session_id] = position
            self._heads.move_to_end(session_id)
        while len(self._heads) > _REMEMBERED_HEADS:
            self._heads.popitem(last=False)
        self._hub.publish(commit)

    # --- appending ----------------------------------------------------------------------------------------

    async def commit(self, event: RuntimeEvent | EventWrite) -> int:
        """Append one event durably and return its sequence.

        Committing the same event again returns the sequence it has and writes nothing.

        Raises:
            CommitRejected: a rule refuses it (`reason` says which); it is not in the log.
            CommitUnknown: it may or may not be in the log.
            InvalidInput: it cannot be written.
            LogFull: there is no space; nothing was written.
            LogClosed: the log was closed before it was submitted.
        """
        self._check_open()
        write = prepare(event)
        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled here: nothing was submitted
        (sequence,) = await self._committer.append([write])
        return sequence

    async def commit_batch(self, events: Sequence[RuntimeEvent | EventWrite]) -> list[int]:
        """Append events in order, all or nothing, and return their sequences. Raises as `commit` does.

        Each is checked against the log plus the ones before it. An effect never lies between two events of a batch.
        """
        self._check_open()
        writes = prepare_all(events)
        await trio.lowlevel.checkpoint_if_cancelled()  # cancelled here: nothing was submitted
        return await self._committer.append(writes)

    async def check(self, event: RuntimeEvent | EventWrite) -> None:
        """Raise what committing an event now would raise, as far as the rules go. Nothing is written.

        Raises:
            CommitRejected, SessionRetired, InvalidInput, LogCorrupt: as `commit` would.
        """
        ticket = [prepare(event)]
        await self._call(lambda store: store.check(ticket))

    async def recover(self) -> int:
        """Seal the invocations that were left open, and return how many there were.

        For the only user of the log, before any work: an open invocation is taken for one whose process is gone. While
        an engine has claimed the log, only what was open when it did is sealed. Calls no model and no tool, and
        invents no settlement: an effect whose outcome is unknown stays so. Running it again returns 0.

        Raises:
            StoreError: the log cannot be read or written.
        """
        sealed = 0
        self._check_open()
        up_to = self._root.high_water if self._claimed_at is None else self._claimed_at
        page = await self._call(lambda store: store.abandoned(up_to))
        while page:
            for start in range(0, len(page), _SEALED_AT_ONCE):
                some = page[start : start + _SEALED_AT_ONCE]
                sealed += _sealed(await self._call(partial(Store.seal, session_ids=some)))
            page = await self._call(partial(Store.abandoned, up_to=up_to, after=page[-1]))
        return sealed

    async def seal(self, session_id: str, end: End = host_stopped) -> bool:
        """Seal the invocation of a session whose task is gone without having written its end, as `recover` does.

        For who owned that task, and so knows that nobody else writes for the invocation.

        Args:
            session_id: the session.
            end: makes the outcome, of whether something of it is unsettled. Called in whichever thread.

        Returns:
            Whether there was one.

        Raises:
            CommitError, StoreError: the log cannot be read or written.
        """
        check_identity(session_id, "session_id")
        return bool(_sealed(await self._call(lambda store: store.seal([session_id], end))))

    async def retire(self, session_id: str) -> None:
        """Let a session take no more runs. One that is open may still end. Retiring it again changes nothing.

        Raises:
            InvalidInput: the log has nothing of this session.
            CommitError, StoreError: the log cannot be written.
        """
        check_identity(session_id, "session_id")
        await self._call(lambda store: store.retire(session_id))

    async def delete_bodies(self, session_id: str) -> int:
        """Delete what was said and done in a retired session, and leave of each event what it was and what it cost.

        Messages, answers, tool inputs, results and media are gone from the file when this returns. Sequences, kinds,
        ids, times, sizes and digests stay, and of steps, tools and runs the model, the usage, the name and how they
        ended (`facts.BodyDeleted`). Ids stay taken, and other sessions go on meanwhile. Cancelled, or killed, it has
        begun: the session's `bodies` say `deleting`, and reading them is refused. Opening the log goes on with it for
        `limits.DELETION_STEPS_AT_OPENING`, calling this again to the end. Deleting them again changes nothing.

        Returns:
            How many events lost their bodies now.

        Raises:
            InvalidInput: the log has nothing of this session, or it is not retired.
            Busy: a run of it has not ended.
            LogFull: there is no space to write what is left.
            LogCorrupt: the session's events cannot be found.
            StoreError: somebody reads an older state of the log, which keeps what was deleted; call it again.
            CommitError: the log cannot be written.
        """
        check_identity(session_id, "session_id")
        deleted = 0
        await self._call(lambda store: store.begin_deletion(session_id))
        while some := await self._call(lambda store: store.delete_some(session_id)):
            deleted += some
        await self._finish_deletion(session_id)
        return deleted

    async def _finish_deletion(self, session_id: str) -> None:
        with trio.move_on_after(limits.BUSY_SECONDS):
            while not await self._call(lambda store: store.finish_deletion(session_id)):  # noqa: ASYNC110
                await trio.sleep(limits.DELETION_PAUSE_SECONDS)  # a reader of another process wakes nobody
            return
        raise StoreError("somebody reads an older state of the log, which keeps what was deleted; try again later")

    async def _call(self, work: Callable[[Store], T]) -> T:
        self._check_open()
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self._committer.call(work)

    # --- reading ------------------------------------------------------------------------------------------

    async def _ask(self, question: Callable[[Reader], T]) -> T:
        self._check_open()
        return await self._readers.ask(question)

    async def head(self, scope: Scope | None = None) -> Head:
        """Where a scope ends, from memory or with one look-up."""
        asked = checked_scope(scope)
        self._check_open()
        known = self._known_head(asked)
        if known is None:
            return await self._ask(lambda reader: queries.head(reader, asked))
        await trio.lowlevel.checkpoint()
        return Head(asked, known.high_water, chain_text(known.digest))

    def _known_head(self, scope: Scope) -> Position | None:
        match scope:
            case Root():
                return self._root
            case Session(id=session_id):
                return self._heads.get(session_id)
            case Lineage():
                return None

    # --- copying ------------------------------------------------------------------------------------------

    async def backup(self, path: str | os.PathLike[str]) -> Head:
        """Copy the log as it is now into a new file, beside running appends; return where the copy ends.

        The copy is a log of its own. It has its name when it is whole and durable; cancelled or failed, it is gone.

        Raises:
            StoreError: the file exists, or cannot be written (LogFull: there is no space).
            LogCorrupt: the log cannot be read.
        """
        target = _file_path(path)
        return await self._ask(lambda reader: backup(reader, target))

    # --- following ----------------------------------------------------------------------------------------

    def follow(self, after: int = 0, session_id: str | None = None) -> Follower:
        """Durable events as they come, of the whole log or one session, from after a sequence on.

        Ends when the log closes. A slow follower holds up nobody and holds a bounded amount of memory.
        """
        self._check_open()
        if type(after) is not int or not 0 <= after < 1 << 63:
            raise InvalidInput(f"after={excerpt(after)} is not a sequence")
        if session_id is not None:
            check_identity(session_id, "session_id")
        return Follower(self._hub, self._read_after, after, session_id)

    def is_followed(self, session_id: str) -> bool:
        """Whether somebody follows a session, or the whole log, through this object."""
        return self._hub.has_follower(session_id)

    async def _read_after(self, session_id: str | None, after: int) -> tuple[list[StoredEvent], bool]:
        return await self._ask(
            lambda reader: queries.events_after(reader, session_id, after, limits.FOLLOW_EVENTS, limits.FOLLOW_BYTES)
        )


@asynccontextmanager
async def _open(cls: type[EventLog], path: str | os.PathLike[str], *, inline: bool) -> AsyncGenerator[EventLog, None]:
    file = _file_path(path)
    if str(file) == MEMORY:
        if not inline:
            raise InvalidInput("a log in memory is opened with inline=True")
        log = cls(Store.in_memory(), inline=True)
    else:
        log = _on(await _run_sync(lambda: Store.open(file), inline=inline), cls, inline=inline)
    try:
        yield log
    finally:
        await log.aclose()


def _on(store: Store, cls: type[EventLog], *, inline: bool) -> EventLog:
    """A log on an open file, which is closed again if there are no descriptors or threads left for the log."""
    with ExitStack() as undo:
        undo.callback(store.close)
        try:
            log = cls(store, inline=inline)
        except OSError as error:
            raise os_error(error, f"cannot open {str(store.path)!r}") from error
        undo.pop_all()
    return log


def _sealed(commit: Commit) -> int:
    """How many invocations a commit sealed; raises what kept one from being sealed."""
    for result in commit.results:
        if isinstance(result, MakaError):
            raise result
    return len(commit.results)


async def _run_sync(work: Callable[[], T], *, inline: bool) -> T:
    """Opening and closing touch the disk, so they leave the trio thread unless everything is to stay in it."""
    if inline:
        await trio.lowlevel.checkpoint()
        return work()
    return await trio.to_thread.run_sync(work, limiter=trio.CapacityLimiter(1))


def _encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _file_path(path: str | os.PathLike[str]) -> Path:
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name or "\0" in name or not _encodable(name):
        raise InvalidInput(f"path={excerpt(path)} is not the path of a file")
    return Path(name)
