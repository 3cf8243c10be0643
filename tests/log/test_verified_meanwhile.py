"""What a verification says of a log whose owner goes on: nothing that is not so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from maka_trio import limits
from maka_trio.cli.log_file import LogFile
from maka_trio.facts import Invocation
from maka_trio.log.reader import Reader
from maka_trio.log.store import Store
from maka_trio.log.verification import Verification
from tests.log.deletion_story import GONE
from tests.log.log_story import CANCELLED, copied, opened, tell

T = TypeVar("T")


def delete(store: Store, steps: int | None) -> None:
    """Delete the session's bodies, or begin to and do some steps of it."""
    store.begin_deletion(GONE)
    if steps is None:
        while store.delete_some(GONE):
            pass
        assert store.finish_deletion(GONE)
    for _ in range(steps or 0):
        assert store.delete_some(GONE)


def verified(path: Path, meanwhile: Callable[[], object], at: int) -> tuple[list[str], int]:
    """What is wrong with a log to which something happens before question number `at`, and how many were asked."""
    log, questions = LogFile(path), 0

    def ask(question: Callable[[Reader], T]) -> T:
        nonlocal questions
        if questions == at:
            meanwhile()
        questions += 1
        return log.read(question)

    return [str(one) for one in Verification(ask, log.path).violations()], questions


def test_an_append_at_any_moment_of_it_is_no_damage(tmp_path: Path) -> None:
    """It asks many questions, each of one moment, and the log may grow before any of them."""
    path = tmp_path / "log.db"
    store = Store.open(path)

    def grow() -> None:
        tell(store, Invocation.new("session"), opened(), CANCELLED)

    grow()
    _, questions = verified(path, grow, -1)
    assert questions > 4
    for at in range(questions):
        assert verified(path, grow, at)[0] == []
    store.close()


@pytest.mark.parametrize("steps", [0, 1, None], ids=["begun", "under way", "done"])
def test_a_deletion_at_any_moment_of_it_is_no_damage(
    two_sessions: Path, tmp_path: Path, steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read a moment ago may have lost its body by now, with the results and pictures beside it."""
    monkeypatch.setattr(limits, "DELETION_EVENTS", 7)
    _, questions = verified(two_sessions, lambda: None, -1)
    for at in range(questions):
        path = copied(two_sessions, tmp_path / f"{at}.db")
        with closing(Store.open(path)) as store:
            assert verified(path, partial(delete, store, steps), at) == ([], questions)
