"""The command line as a whole: help, versions, statuses, one line for every error."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from maka_trio.cli import log
from maka_trio.cli.main import main
from tests.cli.cli_child import PATIENCE, Here, Outcome, environment, maka

COMMANDS = ("demo", "run", "log", "decode", "verify")


def test_help_names_every_command(here: Here) -> None:
    """And each command has help of its own."""
    shown = here("--help")
    assert shown.status == 0
    assert all(command in shown.out for command in COMMANDS)
    for command in COMMANDS:
        assert here(command, "--help").out.startswith(f"usage: maka-trio {command} ")


def test_the_version_is_the_packages(here: Here) -> None:
    """As installed."""
    assert here("--version") == Outcome(0, f"maka-trio {version('maka-trio')}\n", "")


@pytest.mark.parametrize("arguments", [(), ("dance",), ("demo", "--loud"), ("log",), ("log", "f", "--sess", "x")])
def test_wrong_usage_is_one_line_with_status_2(arguments: tuple[str, ...], here: Here) -> None:
    """Abbreviations included: what is accepted today must not become ambiguous tomorrow."""
    refused = here(*arguments)
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.count("\n") == 1
    assert refused.err.startswith("maka-trio")
    assert "--help" in refused.err


def test_an_argument_with_escapes_is_shown_not_obeyed(here: Here) -> None:
    """Also what the user typed, or pasted, may be foreign."""
    for arguments in (("log", "\x1b[31m\n.db"), ("\x1b[31m",)):
        refused = here(*arguments)
        assert "\x1b" not in refused.err
        assert refused.err.count("\n") == 1


def test_an_error_of_ours_that_nobody_expected_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bug must be reported as one: with its traceback."""

    def broken(path: Path) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(log, "LogFile", broken)
    with pytest.raises(AssertionError, match="a bug"):
        main(["log", str(tmp_path)])


@pytest.mark.parametrize(
    "failure", [KeyboardInterrupt(), BaseExceptionGroup("nursery", [KeyboardInterrupt(), KeyboardInterrupt()])]
)
def test_ctrl_c_wherever_it_strikes_is_status_130(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bare or out of a nursery; nothing is said."""

    def interrupted(path: Path) -> None:
        raise failure

    monkeypatch.setattr(log, "LogFile", interrupted)
    assert main(["log", "x"]) == 130
    assert capsys.readouterr() == ("", "")


def test_help_into_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    """`maka-trio --help | true`: the help is not what fails."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "maka_trio", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        timeout=PATIENCE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_without_rich_everything_works(tmp_path: Path) -> None:
    """The extra adds colours and nothing else: its absence is not even noticed on a pipe."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise ImportError('not installed')")
    result = maka("demo", home=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert (result.returncode, result.stderr) == (0, "")


def test_the_module_is_the_command(tmp_path: Path) -> None:
    """`python -m maka_trio` exits with the status of `main`."""
    assert maka("log", "nowhere", home=tmp_path).returncode == 1


def test_an_output_that_is_not_utf8_gets_what_it_can_show(tmp_path: Path) -> None:
    """An ASCII pipe is no reason to fail."""
    result = maka("demo", home=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.isascii()
    assert "+ the caller is free" in result.stdout
