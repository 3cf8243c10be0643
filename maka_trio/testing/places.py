"""Names for the places where tasks stand: file, line and function, in somebody's own code."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from types import FrameType

import trio

_HERE = f"{Path.cwd()}/"
_MACHINERY = (f"{Path(trio.__file__).parent}/", contextlib.__file__, f"{Path(__file__).parent}/")

_RUN_LOOP = "unrolled_run"
"""Whom every task is called by; beyond it is whoever started the run."""


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def name_of(task: trio.lowlevel.Task) -> str:
    """A task's name, the same in every run: trio names a callable object by its address."""
    return _ADDRESS.sub("", task.name)


def where_it_stands(task: trio.lowlevel.Task) -> str:
    """The innermost frame of a task that is not trio's and not the laboratory's own."""
    best: tuple[FrameType, int] | None = None
    # Older trios cannot list the frames of a task that has ended.
    for frame, line in task.iter_await_frames() if task.coro.cr_frame is not None else ():
        if best is None or not _is_machinery(frame):
            best = frame, line
    return f"the end of {name_of(task)}" if best is None else _name(*best)


def where_called_from() -> str:
    """The same of whoever is running now."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_machinery(frame):
        frame = None if frame.f_code.co_name == _RUN_LOOP else frame.f_back
    return "the laboratory" if frame is None else _name(frame, frame.f_lineno)


def _is_machinery(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_MACHINERY)


def _name(frame: FrameType, line: int) -> str:
    return f"{place_in(frame.f_code.co_filename)}:{line} in {frame.f_code.co_qualname}"


def place_in(file: str) -> str:
    """A file as it is shown: relative to here, or to where packages are installed."""
    return file.removeprefix(_HERE).rpartition("site-packages/")[2]
