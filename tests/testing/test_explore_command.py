"""`maka-trio explore`: from a name on the command line to a status, a table, reports and a replay."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from maka_trio.cli.main import main

MODULE = """
import trio
from maka_trio import facts
from maka_trio.facts import Invocation, RuntimeEvent

async def holds(trial):
    with trial.cancellable():
        await trio.sleep(1)

async def breaks(trial):
    items, got = [1], []
    with trial.cancellable("the getter"):
        item = items.pop()
        await trio.lowlevel.checkpoint()
        got.append(item)
    trial.check(lambda: len(items) + len(got) == 1 or "the item is nowhere")

async def fails(trial):
    await trio.lowlevel.checkpoint()
    trial.may_fail(OSError)

async def writes(trial, log):
    run = Invocation.new("session")
    opening = facts.InvocationOpened(facts.MessageOpening(facts.MessageInput("go")))
    with trio.CancelScope(shield=True):
        await log.commit(RuntimeEvent.new(run, opening))
        trial.world.opened = True
        await log.commit(RuntimeEvent.new(run, facts.InvocationEnded(facts.Completed())))

async def reports_and_writes(trial, log):
    trial.violation("seen before the kill")
    await writes(trial, log)

async def keeps_a_lambda(trial, log):
    trial.world.note = lambda: None
    await writes(trial, log)

async def looks(trial, log):
    head = await log.head()
    trial.check(lambda: head.high_water != 1 or "one event is left")

async def objects(trial, log):
    trial.violation("always found")

runs = []

async def forgetful(trial):
    runs.append(1)
    with trial.cancellable():
        for _ in range(5 if len(runs) == 1 else 1):
            await trio.lowlevel.checkpoint()

def plain(trial):
    pass
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "explored_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "explored_here", raising=False)


def explore(*words: str) -> int:
    return main(["explore", *words, "--jobs", "1"])


def test_what_holds_ends_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    """And a table that says how much was tried."""
    assert explore("explored_here:holds", "--seeds", "2") == 0
    out = capsys.readouterr().out
    assert "every check held in every run" in out
    assert out.split("\n")[1].split()[:2] == ["Cancels", "6"]


def test_what_breaks_ends_with_status_1_and_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    """The command that is printed shows the failure again."""
    assert explore("explored_here:breaks", "--deadlines") == 1
    out = capsys.readouterr().out
    assert "the item is nowhere" in out
    (again,) = [line.removeprefix("  again: ") for line in out.splitlines() if line.startswith("  again: ")]
    words = shlex.split(again)
    del words[: words.index("maka-trio") + 1]
    assert main(words) == 1
    told = capsys.readouterr().out
    assert "cancel of 'the getter'" in told
    assert "the item is nowhere" in told


def test_a_file_names_a_module_too(capsys: pytest.CaptureFixture[str]) -> None:
    """As people complete it in a shell."""
    assert explore("explored_here.py:holds") == 0


def test_faults_and_crashes_are_explored_where_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its row, and what comes after a crash may be named."""
    assert explore("explored_here:fails", "--faults") == 1
    assert "OSError" in capsys.readouterr().out
    assert explore("explored_here:fails", "--faults", "--without", "raise") == 0
    assert explore("explored_here:writes", "--crash") == 0
    capsys.readouterr()
    assert explore("explored_here:writes", "--crash", "--then", "looks") == 1
    out = capsys.readouterr().out
    assert "one event is left" in out
    (again,) = [line.removeprefix("  again: ") for line in out.splitlines() if line.startswith("  again: ")]
    words = shlex.split(again)
    assert main(words[words.index("maka-trio") + 1 :]) == 1


def test_real_kills_are_asked_for_in_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    """A child of its own for each; the scenario's module is found there as here."""
    assert explore("explored_here:writes", "--kill", "--points", "1") == 0
    assert "Kills" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("scenario", "words", "replayed"),
    [
        ("reports_and_writes", "seen before the kill", "0"),
        ("keeps_a_lambda", "trial.world.note does not pickle", "0/kill_before@1:commit"),
    ],
)
def test_what_a_killed_process_broke_is_told_as_everything_else(
    scenario: str, words: str, replayed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table, in every report, with a replay that shows it again."""
    files = ["--report", "r.html", "--json", "r.json", "--junit", "r.xml"]
    assert explore(f"explored_here:{scenario}", "--kill", "--points", "1", *files) == 1
    out = capsys.readouterr().out
    assert f"✗ Kills, the smallest failure: {words}" in out
    for report in ("r.html", "r.xml"):
        assert words in (tmp_path / report).read_text()
    found = json.loads((tmp_path / "r.json").read_text())["explorations"][-1]
    assert found["title"] == "Kills"
    killed = [violation for violation in found["violations"] if "kill_" in violation["replay"]]
    assert words in killed[0]["words"]
    assert killed[0]["places"] == ["invocation_opened"]
    assert f"--replay {replayed}\n" in out
    assert main(["explore", f"explored_here:{scenario}", "--replay", replayed]) == 1
    assert f"✗ {words}" in capsys.readouterr().out


def test_a_failure_that_does_not_come_again_is_told_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """A scenario that keeps state has no story to tell; what it broke is known without one."""
    assert explore("explored_here:forgetful") == 1
    out = capsys.readouterr().out
    assert "✗ Cancels, the smallest failure" in out
    assert "again: " in out


def test_the_replay_of_an_undisturbed_run_asks_the_next_process_too(capsys: pytest.CaptureFixture[str]) -> None:
    """What the follow-up finds without any crash is found again by the command that is printed."""
    assert explore("explored_here:writes", "--crash", "--then", "objects") == 1
    out = capsys.readouterr().out
    (again,) = [line for line in out.splitlines() if line.startswith("  again: ")]
    assert again.endswith("--replay 0")
    assert main(["explore", "explored_here:writes", "--then", "objects", "--replay", "0"]) == 1
    assert "✗ always found" in capsys.readouterr().out


def test_reports_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All three of one exploration."""
    files = ["--report", "r.html", "--json", "r.json", "--junit", "r.xml"]
    assert explore("explored_here:breaks", *files) == 1
    assert "the item is nowhere" in (tmp_path / "r.html").read_text()
    assert json.loads((tmp_path / "r.json").read_text())["scenario"] == "explored_here:breaks"
    assert ElementTree.parse(tmp_path / "r.xml").getroot().tag == "testsuites"


def test_a_budget_ends_it_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What was found so far is shown; that it is not everything, too."""
    assert explore("explored_here:holds", "--seeds", "1000000", "--budget", "0.2s", "--faults") == 0
    out = capsys.readouterr().out
    assert "stopped by its budget" in out
    assert "Faults: no time left" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["explored_here"], "no MODULE:FUNCTION"),
        (["explored_here:nothing"], "has none of that name"),
        (["explored_here:plain"], "has a function of that name"),
        (["no_such_module_here:x"], "there is no module"),
        (["no_such_file.py:x"], "is no file"),
        (["explored_here:holds", "--crash"], "takes no log"),
    ],
)
def test_what_cannot_be_explored_is_said_in_one_line(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and no traceback."""
    assert explore(*words) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("budget", ["0", "x", "-1s", "1h"])
def test_a_wrong_budget_is_refused(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what one looks like."""
    assert explore("explored_here:holds", f"--budget={budget}") == 2
    assert "duration such as 90s" in capsys.readouterr().err


def test_a_word_that_is_no_replay_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """As any value that is out of range."""
    assert explore("explored_here:holds", "--replay", "nonsense") == 1
    assert "is no replay" in capsys.readouterr().err
