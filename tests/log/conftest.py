"""Logs that many tests start from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio

from maka_trio.log.lease import lock_path
from tests.log.deletion_story import run_turns


@pytest.fixture(scope="session")
def two_sessions_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log that `two_sessions` copies."""
    folder = tmp_path_factory.mktemp("two_sessions")
    trio.run(run_turns, folder)
    return folder / "log.sqlite"


@pytest.fixture
def two_sessions(two_sessions_template: Path, tmp_path: Path) -> Path:
    """A lawful log as an engine writes it, of a session that is retired and one that is not, with its lock file."""
    path = tmp_path / "log.sqlite"
    shutil.copy(two_sessions_template, path)
    shutil.copy(lock_path(two_sessions_template), lock_path(path))
    return path
