"""How far the measuring is: a bar where `rich` is installed, a line for each sample where it is not.

Everything goes to standard error, so that the answers can be piped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[str], None]
"""Called before each sample with what is measured."""


@contextmanager
def progress(total: int) -> Iterator[Advance]:
    """Show the progress of `total` samples for a block."""
    try:
        import rich.progress
    except ImportError:
        yield _lines(total)
        return
    with _bar(rich.progress, total) as advance:
        yield advance


def _lines(total: int) -> Advance:
    count = 0

    def advance(text: str) -> None:
        nonlocal count
        count += 1
        print(f"[{count}/{total}] {text}", file=sys.stderr, flush=True)

    return advance


@contextmanager
def _bar(library, total: int) -> Iterator[Advance]:  # type: ignore[no-untyped-def]  # rich may be missing
    from rich.console import Console

    columns = (
        library.BarColumn(),
        library.MofNCompleteColumn(),
        library.TimeElapsedColumn(),
        library.TextColumn("{task.description}"),
    )
    with library.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        done = -1

        def advance(text: str) -> None:
            nonlocal done
            done += 1
            bar.update(task, completed=done, description=text)

        yield advance
