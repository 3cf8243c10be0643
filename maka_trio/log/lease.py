"""One owner per log file: where the file really is, whether it may be owned, and the lock that owns it.

The lock is `flock` on a file beside the log. The kernel frees it when its holder dies, so no age or process id is
ever consulted. A lock on a file without a name protects nothing: the file stays, unless its holder made it and no log
was opened by it, and who has locked one looks whether it still has its name. A forked child gives it up. Knows nothing
of SQLite.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Final
from weakref import WeakSet

from maka_trio.errors import LogInUse, LogUnsupported
from maka_trio.log.mark import Mark

LOCK_SUFFIX = ".writer.lock"
"""The lock file is the log's own name with this added."""

COPYING, IMPORTING = ".copying", ".importing"
"""The log's own name with one of these added is what a copy is called until it is whole."""


def real_path(path: Path) -> Path:
    """Where the log is once every symbolic link is followed, so that all its names share one lease.

    Raises:
        LogUnsupported: a link leads nowhere, or the folder does not exist.
    """
    if path.is_symlink() and not path.exists():
        raise LogUnsupported(f"{str(path)!r} is a symbolic link that leads nowhere")
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise LogUnsupported(f"{str(real.parent)!r} is no folder; create it first")
    return real


def lock_path(path: Path) -> Path:
    """The lock file of the log at a real path."""
    return path.with_name(path.name + LOCK_SUFFIX)


def check_ownable(path: Path) -> None:
    """Refuse what cannot have one owner.

    Raises:
        LogUnsupported: no regular file, or one with several hard links, whose other names lead to other locks.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise LogUnsupported(f"{str(path)!r} is not a regular file")
    if found.st_nlink > 1 + len(_drafts(path)):
        raise LogUnsupported(f"{str(path)!r} has {found.st_nlink} hard links; a log has one name")


def _drafts(path: Path) -> list[Path]:
    """The names that a file still has from when it was made, because whoever made it died as it got its own."""
    return [draft for suffix in (COPYING, IMPORTING) if _same(draft := path.with_name(path.name + suffix), path)]


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except FileNotFoundError:
        return False


class Lease:
    """The right to write one log file, held from construction to `release`.

    Args:
        path: any name of the log.

    Raises:
        LogInUse: somebody else, or another log of this process, holds it.
        LogUnsupported: the file cannot be owned.
        OSError: the file system refused.

    Attributes:
        path: the real path of the log.
        renewed: the lock file was there before, so a log has been at this path before.
        acknowledged: the sequence up to which an earlier owner acknowledged events; 0 where none did.
    """

    def __init__(self, path: Path) -> None:
        self.path = real_path(path)
        check_ownable(self.path)
        self._descriptor, self.renewed = _lock(self.path)
        try:
            check_ownable(self.path)  # once more: what was checked before the lock may have changed
            for draft in _drafts(self.path):
                draft.unlink()
            self._mark = Mark(self._descriptor)
        except BaseException:
            os.close(self._descriptor)
            raise

        self.acknowledged = self._mark.read()
        _held.add(self)

    def acknowledge(self, sequence: int) -> None:
        """Note that events up to a sequence are durable, before anybody is told so."""
        self._mark.write(sequence)

    def release(self, *, keep: bool = True) -> None:
        """Give the lease back.

        Args:
            keep: leave the lock file, as where there is a log it has to be.
        """
        if self._descriptor >= 0:
            self._mark.close()
            try:
                if not keep:
                    lock_path(self.path).unlink(missing_ok=True)
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def leave_to_parent(self) -> None:
        """Let go of it in a child of the process that holds it, which is not to release it."""
        self._mark.close()  # has a descriptor of its own
        os.close(self._descriptor)
        self._descriptor = -1


_held: Final[WeakSet[Lease]] = WeakSet()


def _leave_all_to_parent() -> None:
    """A forked child shares its parent's locks, and one that outlives the parent would keep them."""
    for lease in [lease for lease in _held if lease._descriptor >= 0]:
        lease.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)


def _lock(path: Path) -> tuple[int, bool]:
    """The locked lock file of a log, and whether it was there before."""
    lock = lock_path(path)
    while True:
        descriptor, renewed = _open_lock(lock)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_name(descriptor, lock):
                return descriptor, renewed
        except BlockingIOError:
            os.close(descriptor)
            raise LogInUse(f"another owner holds {str(path)!r}") from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever held it has unlinked it meanwhile


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _open_lock(path: Path) -> tuple[int, bool]:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600), False
        except FileExistsError:
            try:
                return os.open(path, flags), True
            except FileNotFoundError:
                continue  # unlinked between the two
