"""Tests against the vendors' own packages, collected only where these are installed (extra `sdk`)."""

from __future__ import annotations

from importlib.util import find_spec

if any(find_spec(name) is None for name in ("openai", "anthropic")):
    collect_ignore_glob = ["test_*.py"]
