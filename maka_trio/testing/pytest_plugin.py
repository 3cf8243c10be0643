"""The explorer in pytest: a marker, a fixture and an option. A suite asks for it in its `conftest.py`.

pytest_plugins = ["maka_trio.testing.pytest_plugin"]

@pytest.mark.maka_explore(seeds=20)
async def test_put_survives_cancellation(maka_trial):
queue = Queue()
with maka_trial.cancellable():
await queue.put(1)
maka_trial.check(lambda: queue.is_consistent())
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from maka_trio.testing.exploration import Exploration
from maka_trio.testing.explorer import explore
from maka_trio.testing.faults import fault_everywhere
from maka_trio.testing.hash_seed import command_with
from maka_trio.testing.replaying import replay
from maka_trio.testing.trial import Trial

Scenario: TypeAlias = Callable[[Trial], Coroutine[Any, Any, None]]

MARKER = "maka_explore"
TRIAL = "maka_trial"

_SHARED = ("seeds", "points", "budget", "max_steps", "jobs")
"""Settings that both ways of exploring take."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    group = parser.getgroup("maka_trio", "exploration of trio programs")
    group.addoption(
        "--maka-replay", metavar="WORD", help="make one run of an explored test again, such as 3/cancel@17:scope"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(faults=False, without=(), **settings): explore this async test, which takes `{TRIAL}`: the settings "
        "are those of maka_trio.testing.explore; faults=True lets each socket and fault point fail as well",
    )


@pytest.hookimpl(tryfirst=True)  # before a trio plugin takes the test for one of its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called by pytest."""
    for item in items:
        marker = item.get_closest_marker(MARKER)
        if marker is not None and isinstance(item, pytest.Function):
            item.obj = _explored(item, item.obj, marker)


def _explored(item: pytest.Function, test: Callable[..., Any], marker: pytest.Mark) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        if marker.args or not inspect.iscoroutinefunction(test) or TRIAL not in arguments:
            raise pytest.UsageError(
                f"{item.nodeid}: an explored test is async and takes {TRIAL}; its marker takes names"
            )

        async def scenario(trial: Trial) -> None:
            await test(**{**arguments, TRIAL: trial})

        word = item.config.getoption("maka_replay")
        if word is not None:
            _replay(item, scenario, word)
        else:
            _explore(item, scenario, dict(marker.kwargs))

    return run


def _explore(item: pytest.Function, scenario: Scenario, settings: dict[str, Any]) -> None:
    faults, without = settings.pop("faults", False), settings.pop("without", ())
    _judge(explore(scenario, **settings), item.nodeid)
    if faults:
        shared = {name: settings[name] for name in _SHARED if name in settings}
        _judge(fault_everywhere(scenario, without=without, **shared), item.nodeid)


def _judge(exploration: Exploration, nodeid: str) -> None:
    smallest = exploration.smallest
    if smallest is not None:
        again = command_with(exploration.hash_seed, ["pytest", nodeid, "--maka-replay", smallest.token])
        pytest.fail(f"{exploration}\n  {again}", pytrace=False)


def _replay(item: pytest.Function, scenario: Scenario, word: str) -> None:
    again = replay(scenario, word)
    item.add_report_section("call", "steps", again.story)
    if again.violations:
        pytest.fail("\n".join(again.violations), pytrace=False)


@pytest.fixture
def maka_trial() -> None:
    """The trial of an explored test. The marker gives each run its own."""


@pytest.fixture
def maka_explore(request: pytest.FixtureRequest) -> Callable[..., Exploration]:
    """`maka_explore(scenario, ...)`: as `maka_trio.testing.explore`, and the test fails with the smallest violation."""

    def explored(scenario: Scenario, **settings: Any) -> Exploration:
        exploration = explore(scenario, **settings)
        if exploration.violations:
            pytest.fail(str(exploration), pytrace=False)
        return exploration

    return explored
