"""An answer of a hundred megabytes: what it costs while nobody reads it, and while somebody does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from maka_trio import limits
from maka_trio.request import ProviderKind

CHILD = Path(__file__).with_name("response_memory_child.py")
ROOM = 20.0
"""Megabytes beyond those of the idle program."""

KINDS = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind is ProviderKind.ANTHROPIC else pytest.mark.slow, id=kind.value)
        for kind in ProviderKind
    ],
)
"""Each takes some seconds, so that only one is for every day."""


def report(kind: ProviderKind, what: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(CHILD), kind.value, what], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@KINDS
def test_a_sleeping_consumer_stops_the_socket(kind: ProviderKind) -> None:
    """What is not read stays with the server, and reading on costs no more than the event that is read.

    The answer is longer than any may be, so it ends at the limit of an answer.
    """
    said = report(kind, "answer")
    assert said["asleep"] < said["idle"] + ROOM
    assert said["reading"] < said["idle"] + ROOM
    assert said["sent"] < 25  # what the kernel's buffers of both sides take, and a few reads
    assert str(limits.RESPONSE_BYTES) in said["ended"]


@KINDS
def test_a_line_without_end_stops_at_the_limit(kind: ProviderKind) -> None:
    """And what it held until then is within the same room."""
    said = report(kind, "line")
    assert str(limits.WIRE_EVENT_BYTES) in said["ended"]
    assert max(said["asleep"], said["reading"]) < said["idle"] + ROOM + limits.WIRE_EVENT_BYTES / 1e6
