"""How a copy gets a log's name: whole, on the disk, in a place where nothing of another log is left.

What SQLite finds beside a file of that name it takes for the file's own: it would read an old write-ahead log into
the copy, and undo what is in it by an old journal. So a place with either of them is not free.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from maka_trio.errors import StoreError
from maka_trio.log.lease import lock_path
from maka_trio.log.queries import Head
from maka_trio.log.schema import REMAINS, remains, sync_folder


def place_new(target: Path, draft: Path, acknowledged: int, make: Callable[[], Head]) -> Head:
    """Make a log under another name, see that it is on the disk, and give it its own, which must be free.

    Args:
        target: its own name, whose lease the caller holds.
        draft: the other name.
        acknowledged: up to where a log that was there had acknowledged events; 0 where there was none.
        make: fills the draft, which is there and empty.

    Raises:
        StoreError: the name is taken, or files of a log that was there are left, or its events were acknowledged and
            are not in the new one; or whatever `make` raises.
        OSError: the file system refused.
    """
    check_free(target)
    with _drafted(draft):
        made = make()
        _check_acknowledged(target, made.high_water, acknowledged)
        _sync(draft)
        check_free(target)
        try:
            os.link(draft, target)  # unlike a rename it fails where somebody was faster
        except FileExistsError:
            raise _taken(target) from None
    sync_folder(target.parent)
    return made


def check_free(target: Path) -> None:
    """Raise StoreError where there is a log, or what SQLite would take for a new one's own."""
    if target.exists():
        raise _taken(target)
    left = remains(target)
    if left is not None:
        raise StoreError(
            f"{str(left)!r} is left of a log that was at {str(target)!r}, and would be taken for the copy's own; "
            "put that log back if it is needed, or move the file away"
        )


def _check_acknowledged(target: Path, high_water: int, acknowledged: int) -> None:
    """Raise StoreError where the log that was there had acknowledged more than the new one holds."""
    if high_water < acknowledged:
        raise StoreError(
            f"the copy ends at event {high_water}, and events up to {acknowledged} were acknowledged at "
            f"{str(target)!r}; choose another name, or delete {str(lock_path(target))!r} to go on without them"
        )


def _taken(target: Path) -> StoreError:
    return StoreError(f"{str(target)!r} exists and is not overwritten")


@contextmanager
def _drafted(draft: Path) -> Generator[None, None, None]:
    """An empty file for the block, of which nothing stays. What a killed copy left is cleared away."""
    _clear(draft)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        yield
    finally:
        _clear(draft)


def _clear(draft: Path) -> None:
    for suffix in (*REMAINS, ""):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
