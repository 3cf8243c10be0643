"""The explorer in a user's own suite: a marker that makes a test a scenario, a fixture, and a replay."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest
import trio

async def lose_an_item(trial):
    items, got = [1], []
    with trial.cancellable():
        item = items.pop()
        await trio.lowlevel.checkpoint()
        got.append(item)
    trial.check(lambda: len(items) + len(got) == 1 or "the item is nowhere")

@pytest.mark.maka_explore(seeds=3)
async def test_holds(maka_trial, tmp_path):
    assert tmp_path.is_dir()
    with maka_trial.cancellable():
        await trio.sleep(3600)

@pytest.mark.maka_explore(seeds=3)
async def test_breaks(maka_trial):
    await lose_an_item(maka_trial)

@pytest.mark.maka_explore(faults=True)
async def test_fails(maka_trial):
    await trio.lowlevel.checkpoint()
    maka_trial.may_fail(OSError)

class TestClass:
    @pytest.mark.maka_explore
    async def test_method(self, maka_trial):
        await trio.lowlevel.checkpoint()

def test_fixture_holds(maka_explore):
    async def scenario(trial):
        with trial.cancellable():
            await trio.sleep(1)
    assert maka_explore(scenario, seeds=2).runs > 2

def test_fixture_breaks(maka_explore):
    maka_explore(lose_an_item)

@pytest.mark.maka_explore
def test_is_not_async(maka_trial):
    pass

async def test_of_another_plugin():
    await trio.lowlevel.checkpoint()
"""

OPTIONS = (
    "-p",
    "maka_trio.testing.pytest_plugin",
    "-p",
    "no:cacheprovider",
    "-o",
    "trio_mode=true",
    "--strict-markers",
)


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE)
    return pytester


@pytest.mark.slow
def test_processes_of_xdist_explore_as_one_does(suite: pytest.Pytester) -> None:
    """The same tests pass and fail, with the same smallest violation."""
    result = run(suite, "-n", "2")
    result.assert_outcomes(passed=4, failed=4)
    result.stdout.fnmatch_lines(
        ["*the item is nowhere*", "*pytest test_suite.py::test_breaks --maka-replay 0/cancel@0:scope"]
    )


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    return suite.runpytest_subprocess(*OPTIONS, *options)


def test_a_marked_test_is_explored(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes if it holds at every point, and fails with the smallest violation and the way to see it again."""
    monkeypatch.setenv("PYTHONHASHSEED", "7")  # which orders sets of text, so that another process has to have it too
    result = run(suite)
    result.assert_outcomes(passed=4, failed=4)
    result.stdout.fnmatch_lines(
        ["*the item is nowhere*", "*PYTHONHASHSEED=7 pytest test_suite.py::test_breaks --maka-replay 0/cancel@*"]
    )
    result.stdout.fnmatch_lines(["*explored test is async*"])


def test_a_marked_test_is_replayed(suite: pytest.Pytester) -> None:
    """One run, told step by step."""
    result = run(suite, "test_suite.py::test_breaks", "--maka-replay", "0/cancel@0:scope")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the item is nowhere*", "*cancel of 'scope'*"])
