"""Room in the write-ahead log: commits overwrite instead of making the file longer, and nobody takes it for frames."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from maka_trio.log import schema
from maka_trio.log.room import Room
from maka_trio.log.store import Store
from tests.log.log_story import Invocation, observed, opened, requested, tell


@pytest.fixture
def wal(tmp_path: Path) -> Path:
    return tmp_path / "log.db-wal"


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path / "log.db")


def size_of(path: Path) -> int:
    return path.stat().st_size


def test_commits_after_the_first_do_not_make_the_file_longer(tmp_path: Path, wal: Path) -> None:
    """The first of a log makes room for those that follow."""
    store = Store.open(tmp_path / "log.db")
    invocation = Invocation.new("session")
    tell(store, invocation, opened(), requested())
    store.make_room()
    size = size_of(wal)
    for _ in range(20):
        tell(store, invocation, observed())
        store.make_room()
    assert size_of(wal) == size
    store.close()
    assert not wal.exists()


def test_room_is_no_part_of_what_is_written(tmp_path: Path, wal: Path) -> None:
    """What lies beside a log whose owner is gone is read up to the last commit, with the room behind it."""
    store = Store.open(tmp_path / "log.db")
    invocation = Invocation.new("session")
    tell(store, invocation, opened(), requested(), observed())
    store.make_room()
    assert wal.read_bytes().endswith(bytes(64 * 1024))
    left = tmp_path / "left.db"
    for suffix in ("", "-wal"):
        shutil.copyfile(tmp_path / f"log.db{suffix}", tmp_path / f"left.db{suffix}")
    end = store.root
    store.close()
    again = Store.open(left)
    assert again.root == end
    tell(again, invocation, observed())
    assert again.root.high_water == end.high_water + 1
    again.close()


def test_room_is_made_again_when_it_is_used_up(wal: Path, room: Room) -> None:
    """Whoever made the file longer used it up; nothing that was in it changes."""
    wal.write_bytes(b"frames")
    room.keep()
    size = size_of(wal)
    assert size > 64 * 1024
    room.keep()
    assert size_of(wal) == size
    with wal.open("ab") as file:
        file.write(b"more")
    room.keep()
    room.close()
    assert size_of(wal) == 2 * (size - len(b"frames")) + len(b"framesmore")
    assert wal.read_bytes().replace(b"\0", b"") == b"framesmore"


def test_room_is_made_anew_after_the_file_was_emptied(wal: Path, room: Room) -> None:
    """A checkpoint may cut the file down to nothing."""
    wal.write_bytes(bytes(100_000))
    room.keep()
    wal.write_bytes(b"")
    room.keep()
    assert size_of(wal) == 0
    wal.write_bytes(b"frames")
    room.keep()
    room.close()
    assert size_of(wal) > 64 * 1024


def test_file_that_a_checkpoint_begins_anew_gets_no_more_room(wal: Path, room: Room) -> None:
    """From that size on every commit overwrites something."""
    with wal.open("wb") as file:
        file.truncate(schema.CHECKPOINT_PAGES * 5000)
    size = size_of(wal)
    room.keep()
    room.close()
    assert size_of(wal) == size


def test_without_room_nothing_fails(wal: Path, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not there, and a disk that is full, are nobody's trouble."""
    room.keep()
    assert not wal.exists()
    wal.write_bytes(b"frames")
    with monkeypatch.context() as full:
        full.setattr(os, "write", raise_full)
        room.keep()
    assert wal.read_bytes() == b"frames"
    room.keep()
    room.close()
    assert size_of(wal) > 64 * 1024


def raise_full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
