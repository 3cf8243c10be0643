"""Logs that many tests start from."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.log.deletion_story import run_turns
from tests.log.log_story import copied


@pytest.fixture(scope="session")
def two_sessions_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log that `two_sessions` copies."""
    folder = tmp_path_factory.mktemp("two_sessions")
    trio.run(run_turns, folder)
    return folder / "log.sqlite"


@pytest.fixture
def two_sessions(two_sessions_template: Path, tmp_path: Path) -> Path:
    """A lawful log as an engine writes it, of a session that is retired and one that is not, with its lock file."""
    return copied(two_sessions_template, tmp_path / "log.sqlite")
