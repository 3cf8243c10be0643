"""Servers that the tests of this folder talk to. They are installed from the package registries at first use."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.servers.fixtures import FIXTURES
from tests.servers.processes import Server, installed_aimock, installed_llmock, running


@pytest.fixture(scope="session")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Chat, messages and responses by fixture, with faults that a request may ask for."""
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": FIXTURES}))
    options = ["-p", "{port}", "-f", str(folder / "fixtures.json"), "-c", "7", "--log-level", "warn"]
    with running([*installed_aimock(), *options], folder / "log", health="/__aimock/health") as server:
        yield server


@pytest.fixture(scope="session")
def llmock_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Chat, messages and responses that judge their client."""
    log = tmp_path_factory.mktemp("llmock") / "log"
    options = ["serve", "--host", "127.0.0.1", "--port", "{port}", "--context-window", "2000"]
    with running([*installed_llmock(), *options], log, health="/_llmock/scenario") as server:
        yield server


@pytest.fixture
def llmock(llmock_process: Server) -> Server:
    """The judging server, with nothing scripted and nothing remembered."""
    llmock_process.ask("/_llmock/reset", {})
    return llmock_process
