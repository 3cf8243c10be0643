"""Virtual environments of the peers, each made when it is first needed, in the folder that Git ignores."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.question import Contender
from benchmarks.sample import workplace

REQUIREMENTS: Final = MappingProxyType(
    {
        "openai": ("openai",),
        "anthropic": ("anthropic",),
        "pydantic-ai": ("pydantic-ai-slim[openai]",),
        "openai-agents": ("openai-agents",),
        "langgraph": ("langgraph", "langgraph-checkpoint-sqlite", "langchain", "langchain-openai"),
        "dbos": ("dbos", "openai", "pydantic-ai-slim[openai,dbos]"),
    }
)
"""What is installed for each peer."""


def interpreter_of(contender: Contender) -> Path | str:
    """The interpreter that runs a contender; its environment is made if it is not there."""
    if contender.peer is None:
        return sys.executable
    place = workplace() / "peers" / contender.peer
    if _installed(place) != REQUIREMENTS[contender.peer]:
        _install(contender.peer, place)
    return place / "bin" / "python"


def _installed(place: Path) -> tuple[str, ...] | None:
    """What an environment was made for; None if it is not whole."""
    try:
        return tuple((place / "complete").read_text().split())
    except FileNotFoundError:
        return None


def _install(peer: str, place: Path) -> None:
    venv.create(place, with_pip=True, clear=True)
    pip: list[str | Path] = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *REQUIREMENTS[peer]], check=True)
    (place / "complete").write_text("\n".join(REQUIREMENTS[peer]))
