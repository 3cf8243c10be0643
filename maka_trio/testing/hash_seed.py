"""The seed of Python's hashes, which orders sets of text: what it is here, and a process in which it is fixed.

It is the one thing of a run that no laboratory in the process can decide, since Python takes it before any code runs
and tells it to nobody.
"""

from __future__ import annotations

import os
import shlex
import sys

_VARIABLE = "PYTHONHASHSEED"


def fixed_hash_seed() -> int | None:
    """What this process was started with; None if Python drew it at random."""
    if not _is_random():
        return 0
    text = "" if sys.flags.ignore_environment else os.environ.get(_VARIABLE, "")
    return int(text) or None if text.isascii() and text.isdigit() else None


def _is_random() -> bool:
    """Hashes are salted, with a number that was drawn or chosen."""
    return bool(sys.flags.hash_randomization)


def in_words(seed: int | None) -> str:
    """What a report says of it."""
    if seed is not None:
        return f"{_VARIABLE}={seed}"
    return f"{_VARIABLE} was random: where a set of text decides, another process may run otherwise"


def command_with(seed: int | None, words: list[str]) -> str:
    """A command for a shell, in which the hash seed is the same."""
    return shlex.join(words) if seed is None else f"{_VARIABLE}={seed} {shlex.join(words)}"


def fix_hash_seed() -> None:
    """Start this program again with a hash seed of 0, unless one was chosen. Only for who owns the whole process."""
    chosen = os.environ.get(_VARIABLE, "")
    if _is_random() and chosen in ("", "random") and sys.executable and not sys.flags.ignore_environment:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, sys.orig_argv, {**os.environ, _VARIABLE: "0"})
