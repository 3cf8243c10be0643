"""The order of sets of text is fixed or told: what a process found, the command that is printed finds again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from maka_trio.cli.main import main
from maka_trio.testing import Trial, explore
from maka_trio.testing.hash_seed import command_with, fix_hash_seed, fixed_hash_seed, in_words

SCENARIO = """
import trio

async def scenario(trial):
    served = []

    async def serve(who):
        await trio.lowlevel.checkpoint()
        served.append(who)

    with trial.cancellable():
        async with trio.open_nursery() as nursery:
            for who in {"alice", "bob", "carol", "dave", "erin"}:
                nursery.start_soon(serve, who)
    trial.check(lambda: len(served) in (0, 5) and f"served {served}")
"""


def maka_trio(folder: Path, *words: str, hash_seed: str | None) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    if hash_seed is not None:
        environment["PYTHONHASHSEED"] = hash_seed
    return subprocess.run(
        [sys.executable, "-m", "maka_trio", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", [None, "5"])
def test_the_command_finds_the_same_in_every_process_and_so_does_its_replay(
    tmp_path: Path, hash_seed: str | None
) -> None:
    """Two explorations and two replays: one smallest failure, one story. A hash seed of one's own is kept and told."""
    (tmp_path / "hashes.py").write_text(SCENARIO)
    words = ("explore", "hashes:scenario", "--seeds", "3", "--jobs", "1")
    tables = [maka_trio(tmp_path, *words, hash_seed=hash_seed).stdout for _ in range(2)]
    first, second = ([line for line in table.splitlines() if "seconds" not in line][1:] for table in tables)
    assert first == second
    (again,) = re.findall(r"again: (.*)", tables[0])
    setting, *command = shlex.split(again)
    assert setting == f"PYTHONHASHSEED={hash_seed or 0}"
    chosen = setting.partition("=")[2]
    replays = [maka_trio(tmp_path, *command[1:], hash_seed=chosen) for _ in range(2)]
    assert {replay.returncode for replay in replays} == {1}
    assert replays[0].stdout == replays[1].stdout
    assert "✗ served" in replays[0].stdout


@pytest.mark.slow
def test_a_scenario_without_sets_of_text_makes_one_trace_whatever_the_hash_seed(tmp_path: Path) -> None:
    """Three processes, three hash seeds, one story."""
    (tmp_path / "hashes.py").write_text(SCENARIO.replace("{", "(").replace("}", ")"))
    words = ("explore", "hashes:scenario", "--replay", "2/cancel@3:scope")
    stories = {maka_trio(tmp_path, *words, hash_seed=seed).stdout for seed in ("1", "2", "3")}
    assert len(stories) == 1
    assert "cancel of 'scope'" in stories.pop()


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], dict[str, str]]]:
    """What `execve` was called with, in place of what it does."""
    calls: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: calls.append(arguments))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr("maka_trio.testing.hash_seed._is_random", lambda: True)
    return calls


def test_the_command_starts_itself_again_with_a_fixed_hash_seed(
    executed: list[tuple[str, list[str], dict[str, str]]],
) -> None:
    """The same program, the same words, one variable more."""
    fix_hash_seed()
    ((program, words, environment),) = executed
    assert (program, words) == (sys.executable, sys.orig_argv)
    assert environment == {**os.environ, "PYTHONHASHSEED": "0"}


@pytest.mark.parametrize("chosen", ["0", "5", "nonsense"])
def test_a_hash_seed_that_was_chosen_is_kept(
    chosen: str, executed: list[tuple[str, list[str], dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a process never starts itself twice."""
    monkeypatch.setenv("PYTHONHASHSEED", chosen)
    fix_hash_seed()
    assert executed == []


def test_who_calls_the_command_as_a_function_keeps_their_process(
    executed: list[tuple[str, list[str], dict[str, str]]],
) -> None:
    """Only the command line itself is started again."""
    assert main(["explore", "no_such_module:x"]) == 2
    assert executed == []


@pytest.mark.parametrize(("chosen", "known"), [("7", 7), ("random", None), ("", None), ("0", None)])
def test_the_hash_seed_of_a_process_is_known_where_it_was_chosen(
    chosen: str, known: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose hashes are random was not started with 0, whatever the variable says now."""
    monkeypatch.setattr("maka_trio.testing.hash_seed._is_random", lambda: True)
    monkeypatch.setenv("PYTHONHASHSEED", chosen)
    assert fixed_hash_seed() == known


def test_what_is_printed_for_a_shell_sets_it() -> None:
    """A random one cannot be set, and is told instead."""
    assert command_with(7, ["a", "b c"]) == "PYTHONHASHSEED=7 a 'b c'"
    assert command_with(None, ["a", "b c"]) == "a 'b c'"
    assert "was random" in in_words(None)


@pytest.mark.parametrize("chosen", ["7", "random"])
def test_an_exploration_says_with_which_hash_seed_it_found_something(
    chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For those who call `explore` themselves."""
    monkeypatch.setattr("maka_trio.testing.hash_seed._is_random", lambda: True)
    monkeypatch.setenv("PYTHONHASHSEED", chosen)

    async def scenario(trial: Trial) -> None:
        await trio.lowlevel.checkpoint()
        trial.violation("broken")

    found = explore(scenario)
    assert str(found).endswith("PYTHONHASHSEED=7" if chosen == "7" else in_words(None))
