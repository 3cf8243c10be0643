"""`maka-trio retire` on real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maka_trio.cli.log_file import LogFile
from maka_trio.facts.identity import Invocation
from maka_trio.log.queries import SessionSummary, sessions
from maka_trio.log.store import Store
from tests.cli.cli_child import Here
from tests.log.deletion_story import GONE, SECRET, STAYS, TURN_EVENTS, traces, write_log
from tests.log.log_story import event, opened, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of two sessions, of which one is retired already."""
    path = tmp_path / "log.sqlite"
    write_log(path, 2)
    return path


def summary(path: Path, session: str) -> SessionSummary:
    return next(one for one in LogFile(path).read(sessions) if one.session_id == session)


def test_a_retired_session_keeps_its_bodies(path: Path, here: Here) -> None:
    """Nothing is deleted that nobody asked to delete."""
    done = here("retire", path, "--session", STAYS)
    assert (done.status, done.err) == (0, "")
    assert f'session "{STAYS}" takes no more runs' in done.out
    assert "deleted" not in done.out
    assert (summary(path, STAYS).retired, summary(path, STAYS).bodies) == (True, "kept")
    assert traces(path, "sparrow") > 0


def test_bodies_are_deleted_where_that_is_asked_for(path: Path, here: Here) -> None:
    """It says of how many events, and the log shows what is left."""
    done = here("retire", path, "--session", GONE, "--delete-bodies")
    assert done.status == 0
    assert f"the bodies of {2 * TURN_EVENTS} events were deleted" in done.out
    assert (summary(path, GONE).bodies, traces(path)) == ("deleted", 0)
    shown = here("log", path)
    assert shown.status == 0
    assert "deleted: tool_dispatched (put), " in shown.out
    assert "deleted: 5 of what was streamed" in shown.out
    assert SECRET not in shown.out
    lines = [json.loads(line) for line in here("log", path, "--json", "--session", GONE).out.splitlines()]
    assert [line["event"]["fact"]["kind"] for line in lines] == ["body_deleted"] * 2 * TURN_EVENTS


def test_the_check_counts_what_has_no_body(two_sessions: Path, here: Here) -> None:
    """For people and for machines."""
    assert here("retire", two_sessions, "--session", GONE, "--delete-bodies").status == 0
    checked = here("verify", two_sessions)
    deleted, kept = summary(two_sessions, GONE).events, summary(two_sessions, STAYS).events
    assert checked.status == 0
    assert f"over {deleted + kept} events, {deleted} of them without their bodies" in checked.out
    assert json.loads(here("verify", two_sessions, "--json").out)["deleted"] == deleted


@pytest.mark.parametrize("session", [GONE, None])
def test_a_deleted_session_is_not_exported(path: Path, here: Here, session: str | None) -> None:
    """One line that says why, and nothing on standard output."""
    here("retire", path, "--session", GONE, "--delete-bodies")
    refused = here("export", path, *(() if session is None else ("--session", session)))
    assert (refused.status, refused.out) == (1, "")
    assert f"session '{GONE}' were deleted" in refused.err
    assert here("export", path, "--session", STAYS).status == 0


def test_what_cannot_be_retired_is_one_line(path: Path, tmp_path: Path, here: Here) -> None:
    """An unknown session, a missing file, wrong usage; no file is made on the way."""
    for status, arguments in (
        (1, (path, "--session", "nobody")),
        (1, (tmp_path / "none", "--session", GONE)),
        (2, (path,)),
    ):
        refused = here("retire", *arguments)
        assert (refused.status, refused.out) == (status, "")
        assert refused.err.strip()
    assert not (tmp_path / "none").exists()


def test_an_open_run_and_an_owner_prevent_it(path: Path, here: Here) -> None:
    """The session is retired, and its bodies are there until the run is over; an owned log is left alone."""
    store = Store.open(path)
    put(store, event(Invocation.new(STAYS), opened()))
    assert here("retire", path, "--session", STAYS).status == 1
    store.close()
    assert not summary(path, STAYS).retired
    refused = here("retire", path, "--session", STAYS, "--delete-bodies")
    assert refused.status == 1
    assert "has not ended" in refused.err
    assert (summary(path, STAYS).retired, summary(path, STAYS).bodies) == (True, "kept")
