"""What a log stands on: SQLite, the file system, the disk, permissions. Findings in words, with what to do.

Looks and measures; writes nothing but a file of its own in the log's folder to measure the disk with, and removes it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Final

from maka_trio.errors import LogCorrupt, LogTooNew, LogUnsupported, StoreError
from maka_trio.facts.scope import Root
from maka_trio.limits import MIB
from maka_trio.log import deletion, queries, schema
from maka_trio.log.faults import translated
from maka_trio.log.lease import lock_path
from maka_trio.log.mark import read_mark
from maka_trio.log.reader import Reader
from maka_trio.log.unowned import is_unowned, open_copy
from maka_trio.records import frozen

_SYNCS: Final = 32
_SLOW_SYNC_SECONDS: Final = 0.02
_INSTANT_SYNC_SECONDS: Final = 20e-6
"""No disk is that fast: whoever answers has not written anything."""

_LITTLE_SPACE: Final = 256 * MIB
_LARGE_WAL: Final = 256 * MIB
_SHARED: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "ncpfs"}
)
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})


class Verdict(StrEnum):
    """How a finding is to be taken."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


@frozen
class Finding:
    """One thing that was looked at; `advice` says what to do where something is."""

    subject: str
    verdict: Verdict
    words: str
    advice: str | None = None


def examine(path: Path | None) -> Iterator[Finding]:
    """Look at what any log stands on, and at one log where a path is given."""
    yield sqlite_version(sqlite3.sqlite_version_info)
    yield Finding("python", Verdict.GOOD, f"Python {sys.version.split()[0]} on {sys.platform}")
    if path is None:
        return
    real = Path(os.path.realpath(path))
    folder = real.parent
    if not folder.is_dir():
        yield Finding("folder", Verdict.BAD, f"{str(folder)!r} is no folder", "create it")
        return
    yield file_system(file_system_type(folder))
    yield _space(folder)
    yield sync_cost(folder)
    yield from _permissions(real)
    yield from _log(real)


# --- what is below ------------------------------------------------------------------------------------------


def sqlite_version(version: tuple[int, ...]) -> Finding:
    """SQLite up to 3.51.2 can damage a file when two connections write or checkpoint at the same moment."""
    name = ".".join(map(str, version))
    if version >= (3, 51, 3):
        return Finding("sqlite", Verdict.GOOD, f"SQLite {name}")
    return Finding(
        "sqlite",
        Verdict.NOTE,
        f"SQLite {name} may have the WAL-reset fault: connections that write or checkpoint at once can damage the file",
        "a log has one writer and reads only beside it, so it is not exposed; let no other program open the file for "
        "writing, or use SQLite 3.51.3",
    )


def file_system(kind: str | None) -> Finding:
    """Whether locks and the shared memory of a write-ahead log work there, and whether anything lasts."""
    if kind is None:
        return Finding("file system", Verdict.NOTE, "the file system is not known", "see that it is a local one")
    if kind in _SHARED:
        return Finding(
            "file system",
            Verdict.BAD,
            f"the file system is {kind}, which other machines may share",
            "move the log to a local disk: a write-ahead log needs shared memory, and a lock that one kernel keeps",
        )
    if kind in _VOLATILE:
        return Finding(
            "file system", Verdict.BAD, f"the file system is {kind}, which is memory", "move the log to a disk"
        )
    return Finding("file system", Verdict.GOOD, f"the file system is {kind}")


def file_system_type(folder: Path) -> str | None:
    """The type of the mount that a folder is on, as the kernel names it."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
        device = folder.stat().st_dev
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in reversed(mounts):
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [wanted] and after:
            return after.split()[0]
    return None


def _space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    words = f"{free // MIB} MiB free"
    if free < _LITTLE_SPACE:
        return Finding("space", Verdict.BAD, words, "make space: appends that do not fit fail with LogFull")
    return Finding("space", Verdict.GOOD, words)


def sync_cost(folder: Path) -> Finding:
    """What it costs to make a page durable in a folder, measured."""
    try:
        seconds = _measure_sync(folder)
    except OSError as error:
        return Finding("fsync", Verdict.NOTE, f"not measured: {error.strerror}", "run it as the log's owner")
    words = f"fsync takes {seconds * 1000:.3g} ms (median of {_SYNCS})"
    if seconds > _SLOW_SYNC_SECONDS:
        return Finding("fsync", Verdict.NOTE, words, "each commit waits for one; a faster disk makes runs faster")
    if seconds < _INSTANT_SYNC_SECONDS:
        return Finding(
            "fsync", Verdict.NOTE, words, "that is no disk: see that a power cut cannot take what was acknowledged"
        )
    return Finding("fsync", Verdict.GOOD, words)


def _measure_sync(folder: Path) -> float:
    with tempfile.TemporaryFile(dir=folder) as file:
        costs = []
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            begin = time.perf_counter()
            os.fsync(file.fileno())
            costs.append(time.perf_counter() - begin)
    return statistics.median(costs)


# --- the log ------------------------------------------------------------------------------------------------


def _permissions(path: Path) -> Iterator[Finding]:
    if not os.access(path.parent, os.W_OK | os.X_OK):
        yield Finding(
            "folder",
            Verdict.BAD,
            f"{str(path.parent)!r} may not be written by this user",
            "a log keeps files beside it: its lock, and while it is open its write-ahead log",
        )
    for file in (path, lock_path(path)):
        if not file.exists():
            continue
        mode = stat.S_IMODE(file.stat().st_mode)
        if not os.access(file, os.R_OK | os.W_OK):
            yield Finding(
                "permissions", Verdict.BAD, f"{str(file)!r} may not be read and written by this user", "chown it"
            )
        elif mode & 0o077:
            yield Finding(
                "permissions",
                Verdict.NOTE,
                f"{str(file)!r} has mode {mode:o}: other users may open it",
                f"chmod 600 {str(file)!r}; a log holds whole conversations",
            )
        else:
            yield Finding("permissions", Verdict.GOOD, f"{str(file)!r} has mode {mode:o}")


def _log(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("log", Verdict.NOTE, f"{str(path)!r} is not there; opening it creates it")
        return
    if not path.is_file():
        yield Finding("log", Verdict.BAD, f"{str(path)!r} is not a regular file", "name another file")
        return
    acknowledged = read_mark(lock_path(path))
    owner = _owner(lock_path(path))
    yield Finding("owner", Verdict.GOOD, f"process {owner} has it open" if owner else "nobody has it open")
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        yield _wal(wal, owner)
    try:
        schema.recognise(path, known=lock_path(path).exists())
        version, end, unfinished = _look_into(path)
    except StoreError as error:
        yield Finding("log", Verdict.BAD, str(error), _advice(error))
        return
    words = f"format {version}, {path.stat().st_size // 1024} KiB, ends at event {end}"
    if end < acknowledged:
        yield Finding(
            "log",
            Verdict.BAD,
            f"{words}; events up to {acknowledged} were acknowledged",
            f"put back the write-ahead log or a newer copy; or delete {str(lock_path(path))!r} to go on without them",
        )
    elif version != schema.FORMAT:
        advice = f"opening it brings it forward to format {schema.FORMAT}, which older versions do not read"
        yield Finding("log", Verdict.NOTE, words, advice)
    else:
        yield Finding("log", Verdict.GOOD, words)
    if unfinished:
        words = f"the bodies of {unfinished} sessions are being deleted"
        yield Finding("deletion", Verdict.NOTE, words, "if nobody has the log open, open it: that finishes it")


def _advice(error: StoreError) -> str:
    match error:
        case LogCorrupt():
            return "restore a backup; maka-trio verify says what can still be read"
        case LogTooNew():
            return "use the version that wrote it, or a newer one"
        case LogUnsupported():
            return "name another file"
        case _:
            return (
                "see to what keeps it from being read, or copy it elsewhere with all its files; it need not be damaged"
            )


def _wal(wal: Path, owner: int | None) -> Finding:
    size = wal.stat().st_size
    words = f"the write-ahead log has {size // 1024} KiB"
    if owner is None:
        return Finding(
            "wal", Verdict.NOTE, f"{words} and no owner: the last one was killed", "leave it there; opening takes it in"
        )
    if size > _LARGE_WAL:
        return Finding("wal", Verdict.NOTE, words, "a reader with an old snapshot keeps it from being reset; end it")
    return Finding("wal", Verdict.GOOD, words)


def _look_into(path: Path) -> tuple[int, int, int]:
    """The format of a log, where it ends, and how many deletions are not finished."""
    if not path.with_name(path.name + "-wal").exists():
        connection = schema.open_immutable(path)
    elif is_unowned(path):
        connection, _ = open_copy(path)
    else:
        connection = schema.open_reader(path)
    with translated("reading the log"), closing(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        end = queries.head(Reader(connection), Root()).high_water
        return version, end, len(deletion.unfinished(connection))


def _owner(lock: Path) -> int | None:
    """The process that holds the lock, as the kernel lists it; asking by trying would be in an owner's way."""
    try:
        found = lock.stat()
        held = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in held:
        fields = line.split()
        if "FLOCK" in fields and place in fields:
            return int(fields[fields.index(place) - 1])
    return None
