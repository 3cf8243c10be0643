"""Fixtures for the model layer."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio.testing

from tests.models import raw_server


@pytest.fixture
async def server() -> AsyncGenerator[raw_server.RawServer, None]:
    """A listening server on loopback."""
    async with raw_server.listening() as server:
        yield server


@pytest.fixture
def skipping_clock() -> trio.testing.MockClock:
    """A clock that jumps when nothing has happened for a moment of real time.

    With no such moment it would jump over data that the kernel is still passing from one socket to the other. A test
    must name it as an argument to run on it.
    """
    return trio.testing.MockClock(autojump_threshold=0.02)
