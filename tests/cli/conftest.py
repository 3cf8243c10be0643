"""Runs `maka-trio` in the test's own process, which is a hundred times cheaper than a child."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from maka_trio.cli.main import main
from tests.cli.cli_child import Here, Outcome, environment
from tests.log.conftest import two_sessions as two_sessions
from tests.log.conftest import two_sessions_template as two_sessions_template


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Here:
    """`here("log", path, env={...})`: run a command in a home of its own. Commands that use trio need a sync test."""

    def run(*arguments: object, env: Mapping[str, str] | None = None) -> Outcome:
        with monkeypatch.context() as patch:
            wanted = environment(tmp_path, env)
            for name in os.environ.keys() - wanted.keys():
                patch.delenv(name)
            for name, value in wanted.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            capfd.readouterr()
            status = main([str(argument) for argument in arguments])
        return Outcome(status, *capfd.readouterr())

    return run
